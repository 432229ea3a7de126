//! Measures a command's text for the model: length, estimated tokens, here-documents and inline
//! scripts.

use serde::{Deserialize, Serialize};

use crate::output::{Mask, estimate};

/// Most characters of a command in its preview.
const PREVIEW_CHARS: usize = 240;

/// A command with more characters than this should rather be a file.
const SOFT_THRESHOLD_CHARS: usize = 4000;

/// Characters that a token is taken for where a budget is told in characters.
const CHARS_PER_TOKEN: u64 = 4;

/// Programs that take a script as an argument, and the option that it follows.
const INLINE_SCRIPTS: [(&str, &str); 9] = [
    ("python", "-c"),
    ("python3", "-c"),
    ("node", "-e"),
    ("perl", "-e"),
    ("ruby", "-e"),
    ("php", "-r"),
    ("bash", "-c"),
    ("sh", "-c"),
    ("zsh", "-c"),
];

/// What a model can learn about its own command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CommandDiagnostics {
    pub cmd_preview: String,
    pub cmd_char_count: usize,
    pub cmd_estimated_tokens: u64,
    pub contains_heredoc: bool,
    pub contains_inline_script: bool,
    pub exceeds_soft_threshold: bool,
    pub effective_max_output_tokens: u64,
    pub output_char_budget: u64,
}

impl CommandDiagnostics {
    pub(super) fn of(mask: &Mask, text: &str, max_output_tokens: u64) -> Self {
        let characters = text.chars().count();
        Self {
            cmd_preview: preview(&mask.text(text)),
            cmd_char_count: characters,
            cmd_estimated_tokens: estimate(text),
            contains_heredoc: contains_heredoc(text),
            contains_inline_script: contains_inline_script(text),
            exceeds_soft_threshold: characters > SOFT_THRESHOLD_CHARS,
            effective_max_output_tokens: max_output_tokens,
            output_char_budget: max_output_tokens * CHARS_PER_TOKEN,
        }
    }
}

fn preview(text: &str) -> String {
    match text.char_indices().nth(PREVIEW_CHARS) {
        None => text.to_owned(),
        Some(_) => text.chars().take(PREVIEW_CHARS - 1).chain(['…']).collect(),
    }
}

/// `<<` followed by a word, but not `<<<`.
fn contains_heredoc(text: &str) -> bool {
    text.match_indices("<<").any(|(place, _)| {
        let before = text.get(..place).is_some_and(|before| before.ends_with('<'));
        let behind = text.get(place + 2..).unwrap_or_default();
        let word = behind.trim_start_matches('-').trim_start_matches([' ', '\t']);
        !before && word.starts_with(|c: char| c.is_alphanumeric() || "_'\"\\".contains(c))
    })
}

fn contains_inline_script(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).any(|pair| {
        let [program, option] = pair else {
            return false;
        };
        let program = program.rsplit('/').next().unwrap_or(program);
        INLINE_SCRIPTS.contains(&(program, option))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heredocs_and_inline_scripts_are_seen() {
        for (text, heredoc, inline) in [
            ("cat <<EOF\nx\nEOF", true, false),
            ("cat <<-'END'\nx\nEND", true, false),
            ("cat <<< hi", false, false),
            ("echo $((1<<2))", true, false),
            ("/usr/bin/python3 -c 'print(1)'", false, true),
            ("echo python", false, false),
        ] {
            let found = CommandDiagnostics::of(&Mask::default(), text, 1);
            assert_eq!(
                (found.contains_heredoc, found.contains_inline_script),
                (heredoc, inline),
                "{text}"
            );
        }
    }

    #[test]
    fn a_long_command_is_cut_at_240_characters() {
        let found = CommandDiagnostics::of(&Mask::default(), &"ä".repeat(5000), 10);
        assert_eq!(found.cmd_preview.chars().count(), 240);
        assert!(found.exceeds_soft_threshold);
        assert_eq!(found.output_char_budget, 40);
    }
}
