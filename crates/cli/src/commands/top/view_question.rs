//! The rows of a question: the command and what it is about where room is short, or all of it.

use legwork::gate::visible;

use super::{lines::wrapped, questions::OpenedQuestion};
use crate::style::{Tone, from_home};

/// A question in as few rows as tell what is asked.
pub(super) struct Compact {
    pub rows: Vec<(Tone, String)>,
    /// How many rows there are up to the end of the command.
    pub command_ends: usize,
}

/// The command, why it is asked about, and where it would run.
pub(super) fn compact(question: &OpenedQuestion, width: usize) -> Compact {
    let approval = &question.approval;
    let mut rows = Vec::new();
    let mut add = |tone, text: &str, indent: usize| {
        for row in wrapped(text, width.saturating_sub(indent).max(1)) {
            rows.push((tone, format!("{:indent$}{row}", "")));
        }
        rows.len()
    };
    add(Tone::Plain, &visible(&approval.reason), 0);
    if !approval.lineage.is_empty() {
        let program = approval.cause.as_deref().unwrap_or_default();
        add(Tone::Strong, &format!("program: {}", visible(program)), 2);
    }
    let mut command_ends = 0;
    for line in approval.command.lines() {
        command_ends = add(Tone::Strong, &visible(line), 2);
    }
    let folder = visible(&from_home(&approval.workdir));
    let sandbox = visible(&approval.sandbox);
    add(Tone::Faint, &format!("in {folder}, sandbox: {sandbox}"), 0);
    for path in &approval.refused {
        add(Tone::Notable, &format!("{} is not writable there", visible(path)), 0);
    }
    let (name, trust) = (visible(&approval.asked_by), visible(&approval.trust));
    add(Tone::Faint, &format!("asked by {name} ({trust})"), 0);
    if let Some(words) = &approval.description {
        add(Tone::Faint, &format!("the caller's own words: {}", visible(words)), 0);
    }
    for line in approval.proposed_rule.iter().flat_map(|rule| rule.lines()) {
        add(Tone::Faint, &visible(line), 2);
    }
    Compact { rows, command_ends }
}

/// All of a question.
pub(super) fn whole(question: &OpenedQuestion, width: usize) -> Vec<String> {
    let text = question.approval.question();
    text.lines().flat_map(|line| wrapped(&visible(line), width.max(1))).collect()
}
