//! Explanations of verdicts, for a program and for a person.

use serde::Serialize;

use crate::{names::NetworkMode, reading::Span, rule::Level};

/// Why a verdict is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Explanation {
    /// The rule that decided.
    pub rule: String,
    /// The reason, as a sentence for a person or a model.
    pub reason: String,
    /// The simple command that decided, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Where in the text that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// How far a rule wants it to be confined, where one says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Level>,
    /// The network that a rule gives it at most, where one says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    /// What to change in the command or the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether a rule wants it to be tried on a copy before anybody is asked.
    #[serde(skip_serializing_if = "is_false")]
    pub tries: bool,
    /// The rule that asked, of what a person has approved.
    #[serde(skip)]
    pub asked_by: Option<String>,
    /// Whether the tool is denied with all its commands.
    #[serde(skip)]
    pub denies_tool: bool,
    /// What the person who approved it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Explanation {
    /// Shows the explanation to a person: the line, the span underlined, the reason, the remedy.
    pub fn render(&self, text: &str) -> String {
        let mut lines = Vec::new();
        if let Some(span) = self.span {
            lines.extend(underlined(text, span));
        }
        lines.push(format!("reason: {}", self.reason));
        lines.push(format!("rule:   {}", self.rule));
        if let Some(remedy) = &self.remedy {
            lines.push(format!("to change it: {remedy}"));
        }
        lines.join("\n")
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The line where a span begins, and marks under it; what does not print is shown escaped.
fn underlined(text: &str, span: Span) -> [String; 2] {
    let before = text.get(..span.start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let rest = text.get(line_start..).unwrap_or_default();
    let line = rest.split('\n').next().unwrap_or_default();
    let end = span.end.min(line_start + line.len());
    let lead = visible(text.get(line_start..span.start).unwrap_or_default());
    let marked = visible(text.get(span.start..end).unwrap_or_default());
    let tail = visible(text.get(end..line_start + line.len()).unwrap_or_default());
    let width = marked.chars().count().max(1);
    let marks = format!("  {}{}", " ".repeat(lead.chars().count()), "^".repeat(width));
    [format!("  {lead}{marked}{tail}"), marks]
}

/// A text with every character escaped that does not print, or that changes how others do.
pub fn visible(text: &str) -> String {
    let hidden = |character: char| {
        character.is_control()
            || matches!(
                character,
                '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            )
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(character, '\u{e0000}'..='\u{e0fff}' | '\u{fe00}'..='\u{fe0f}')
    };
    let mut out = String::new();
    for character in text.chars() {
        if hidden(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_is_underlined_in_its_line() {
        let explanation = Explanation {
            rule: "run_shell_command(rm)".into(),
            reason: "`rm` is denied".into(),
            span: Some(Span { start: 8, end: 11 }),
            remedy: Some("leave it out".into()),
            ..Explanation::default()
        };
        let shown = explanation.render("echo a\nrm x\u{202e}; ls");
        let expected = "  rm x\\u{202e}; ls\n   ^^^\nreason: `rm` is denied\n\
            rule:   run_shell_command(rm)\nto change it: leave it out";
        assert_eq!(shown, expected);
    }
}
