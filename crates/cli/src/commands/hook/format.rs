//! The formats of the agents' hooks, as data: where a call has its command, and how an answer
//! looks.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

/// The formats.
const HOOKS: &str = include_str!("../../../data/hooks.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hooks {
    hook: Vec<HookFormat>,
}

/// How the hook of an agent is called, and answers; the file says what each field is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HookFormat {
    pub client: String,
    tool: Option<String>,
    #[serde(default)]
    tools: Vec<String>,
    command: String,
    folder: Vec<String>,
    pub project: Option<String>,
    pub asks: bool,
    input: Option<String>,
    allow: String,
    pass: Option<String>,
    ask: Option<String>,
    deny: String,
    rewrite: Option<String>,
    rewrite_ask: Option<String>,
}

/// What is answered.
#[derive(Debug)]
pub(super) enum HookAnswer {
    Allow(String),
    /// No opinion.
    Pass,
    Ask(String),
    Deny(String),
    /// It may run, perhaps after a person was asked, with this input of the tool.
    Rewrite {
        asks: bool,
        reason: String,
        input: Value,
    },
}

/// What an agent wants to know.
#[derive(Debug)]
pub(super) enum HookCall {
    /// Whether this command may run in this folder.
    Command { text: String, folder: PathBuf },
    /// Something about another tool.
    OtherTool,
}

/// Why a call of a hook cannot be understood.
#[derive(Debug)]
pub(super) struct NotUnderstood(pub String);

impl HookFormat {
    /// The format of an agent; none if that has no hook, or the file is broken.
    pub(super) fn of(client: &str) -> Option<Self> {
        let hooks: Hooks = toml::from_str(HOOKS).ok()?;
        hooks.hook.into_iter().find(|hook| hook.client == client)
    }

    /// Whether a command can be rewritten.
    pub(super) fn rewrites(&self) -> bool {
        self.input.is_some() && self.rewrite.is_some()
    }

    /// Reads what an agent has sent.
    pub(super) fn read(&self, sent: &Value) -> Result<HookCall, NotUnderstood> {
        let text = |pointer: &str| sent.pointer(pointer).and_then(Value::as_str);
        let missing = |pointer: &str| {
            let name = pointer.trim_start_matches('/').replace('/', ".");
            NotUnderstood(format!("{} sent no text `{name}`", self.client))
        };
        if let Some(pointer) = &self.tool {
            let tool = text(pointer).ok_or_else(|| missing(pointer))?;
            if !self.tools.iter().any(|known| known == tool) {
                return Ok(HookCall::OtherTool);
            }
        }
        let command = text(&self.command).ok_or_else(|| missing(&self.command))?;
        let folder = self.folder.iter().find_map(|it| text(it).filter(|path| !path.is_empty()));
        let folder = folder.ok_or_else(|| missing(self.folder.first().map_or("", |it| it)))?;
        Ok(HookCall::Command { text: command.to_owned(), folder: PathBuf::from(folder) })
    }

    /// The input of the tool with another command in it.
    pub(super) fn rewritten(&self, mut sent: Value, command: String) -> Option<Value> {
        *sent.pointer_mut(&self.command)? = Value::String(command);
        sent.pointer(self.input.as_ref()?).cloned()
    }

    /// An answer as the agent reads it; empty where nothing is to be printed.
    pub(super) fn written(&self, reply: HookAnswer) -> String {
        let filled = |template: &str, reason: &str| filled(template, reason, &Value::Null);
        match reply {
            HookAnswer::Allow(reason) => filled(&self.allow, &reason),
            HookAnswer::Pass => self.pass.clone().unwrap_or_default(),
            // An agent that cannot ask would run it.
            HookAnswer::Ask(reason) => filled(self.ask.as_ref().unwrap_or(&self.deny), &reason),
            HookAnswer::Deny(reason) => filled(&self.deny, &reason),
            HookAnswer::Rewrite { asks, reason, input } => {
                let template = if asks { &self.rewrite_ask } else { &self.rewrite };
                let template = template.as_ref().unwrap_or(&self.deny);
                self::filled(template, &reason, &input)
            }
        }
    }
}

/// A template with its places filled.
fn filled(template: &str, reason: &str, input: &Value) -> String {
    let mut answer: Value = serde_json::from_str(template).unwrap_or_default();
    fill(&mut answer, reason, input);
    answer.to_string()
}

fn fill(value: &mut Value, reason: &str, input: &Value) {
    match value {
        Value::String(text) if text == "$REASON" => reason.clone_into(text),
        Value::String(text) if text == "$INPUT" => *value = input.clone(),
        Value::Object(fields) => fields.values_mut().for_each(|it| fill(it, reason, input)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::HOOK_CLIENTS;

    #[test]
    fn every_format_is_whole_and_every_answer_is_json() {
        let hooks: Hooks = toml::from_str(HOOKS).unwrap();
        let names: Vec<&str> = hooks.hook.iter().map(|hook| hook.client.as_str()).collect();
        assert_eq!(names, HOOK_CLIENTS);
        for hook in hooks.hook {
            let templates = [Some(&hook.allow), hook.pass.as_ref(), hook.ask.as_ref()];
            let more = [Some(&hook.deny), hook.rewrite.as_ref(), hook.rewrite_ask.as_ref()];
            for template in templates.into_iter().chain(more).flatten() {
                let answer: Value = serde_json::from_str(template).unwrap();
                assert!(answer.is_object(), "{template}");
            }
            assert!(hook.deny.contains("$REASON"), "{}", hook.client);
            assert_eq!(hook.asks, hook.ask.is_some(), "{}", hook.client);
            assert_eq!(hook.rewrite.is_some(), hook.input.is_some(), "{}", hook.client);
        }
    }
}
