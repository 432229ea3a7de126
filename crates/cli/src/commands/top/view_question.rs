//! The rows of a question: the command and what it is about where room is short, or all of it.

use legwork::{TriedCommand, gate::visible};

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
    for (tone, line) in approval.tried.iter().flat_map(|tried| tried_lines(tried)) {
        add(tone, &line, 0);
    }
    let folder = visible(&from_home(&approval.workdir));
    let sandbox = visible(&approval.confinement());
    let is_outside = sandbox.contains("OUTSIDE");
    let tone = if is_outside { Tone::Bad } else { Tone::Faint };
    add(tone, &format!("in {folder}, sandbox: {sandbox}"), 0);
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

/// What a command did that was tried: its end, the files, the difference, its output.
fn tried_lines(tried: &TriedCommand) -> Vec<(Tone, String)> {
    let summary = format!("Tried on a copy: {}; {}.", tried.ended, tried.summary);
    let mut lines = vec![(Tone::Notable, visible(&summary))];
    let shown = |line: &str| line.split('\t').map(visible).collect::<Vec<_>>().join("    ");
    for part in [&tried.list, &tried.diff] {
        for line in part.lines() {
            let tone = match line.trim_start().chars().next() {
                Some('+') => Tone::Good,
                Some('-') => Tone::Bad,
                _ => Tone::Plain,
            };
            lines.push((tone, shown(line)));
        }
    }
    lines.extend(tried.output.lines().map(|line| (Tone::Faint, shown(line))));
    lines
}

/// All of a question.
pub(super) fn whole(question: &OpenedQuestion, width: usize) -> Vec<String> {
    let text = question.approval.question();
    text.lines().flat_map(|line| wrapped(&visible(line), width.max(1))).collect()
}
