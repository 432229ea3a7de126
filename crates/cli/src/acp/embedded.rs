//! Terminals that an agent shows in the editor: their output as text, since the editor does not
//! know them.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};

use super::terminal::AgentTerminal;

/// Most characters of output that are shown.
const SHOWN_CHARS: usize = 8_000;

/// Tool calls that show a terminal, by session and id, with their content as the agent gave it.
#[derive(Default)]
pub(super) struct Embedded(HashMap<(String, String), Vec<Value>>);

impl Embedded {
    /// Changes an update of a session if it shows a terminal of ours; whether it did.
    pub(super) fn pass(
        &mut self,
        message: &mut Value,
        terminals: &HashMap<String, Arc<AgentTerminal>>,
    ) -> bool {
        let text = |path: &str| message.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let session = text("/params/sessionId");
        let call = text("/params/update/toolCallId");
        let content = message.pointer_mut("/params/update/content");
        let (Some(session), Some(call), Some(Value::Array(content))) = (session, call, content)
        else {
            return false;
        };
        if !content.iter().any(|part| terminal_of(part, terminals).is_some()) {
            // Whatever it showed before is replaced.
            self.0.remove(&(session, call));
            return false;
        }
        self.0.insert((session, call), content.clone());
        *content = content.iter().map(|part| shown(part, terminals)).collect();
        true
    }

    /// A terminal is shown as it was shown last.
    pub(super) fn forget(&mut self, terminal: &str) {
        self.0.retain(|_, content| !content.iter().any(|part| id_of(part) == Some(terminal)));
    }

    /// The updates that show all of a terminal, where it is shown.
    pub(super) fn updates(
        &self,
        terminal: &str,
        terminals: &HashMap<String, Arc<AgentTerminal>>,
    ) -> Vec<Value> {
        let shows = |part: &Value| id_of(part) == Some(terminal);
        let showing = self.0.iter().filter(|(_, content)| content.iter().any(shows));
        showing
            .map(|((session, call), content)| {
                let content: Vec<Value> =
                    content.iter().map(|part| shown(part, terminals)).collect();
                let update = json!({
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": call,
                    "content": content,
                });
                let params = json!({ "sessionId": session, "update": update });
                json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
            })
            .collect()
    }
}

fn id_of(part: &Value) -> Option<&str> {
    let kind = part.get("type").and_then(Value::as_str);
    part.get("terminalId").and_then(Value::as_str).filter(|_| kind == Some("terminal"))
}

fn terminal_of<'a>(
    part: &Value,
    terminals: &'a HashMap<String, Arc<AgentTerminal>>,
) -> Option<&'a Arc<AgentTerminal>> {
    terminals.get(id_of(part)?)
}

/// A part of a tool call's content, with text in the place of a terminal.
fn shown(part: &Value, terminals: &HashMap<String, Arc<AgentTerminal>>) -> Value {
    let Some(terminal) = terminal_of(part, terminals) else { return part.clone() };
    let (output, _) = terminal.text();
    let left_out = output.chars().count().saturating_sub(SHOWN_CHARS);
    let tail: String = output.chars().skip(left_out).collect();
    let mark = if left_out > 0 { "…\n" } else { "" };
    let end = terminal.ended().map(|end| match (end.get("exitCode"), end.get("signal")) {
        (_, Some(Value::String(signal))) => format!("\nended by {signal}"),
        (Some(Value::Number(code)), _) => format!("\nexit code {code}"),
        _ => "\nended".into(),
    });
    // A fence that the output cannot close.
    let fence = "`".repeat(longest_run(&tail, '`').max(2) + 1);
    let text = format!(
        "{fence}\n{mark}{}\n{fence}{}",
        tail.trim_end_matches('\n'),
        end.unwrap_or_default()
    );
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|character| character != wanted).map(|run| run.chars().count()).max().unwrap_or(0)
}
