//! Explains why an allow rule that nearly matches a command does not cover it: names the word that
//! differs.

use crate::{
    matching::{Certainty, begins_with, has_flag},
    reading::{Invocation, Redirect},
    rule::{Decision, Rule, Target, is_ordinary, is_same_program},
    unwrap::basename,
    verdict::Subject,
};

/// What keeps the nearest of some rules from covering a run, if any of them allows its program.
pub(crate) fn nearest_miss(
    rules: &[Rule],
    run: &Invocation,
    redirects: &[&Redirect],
    subject: &dyn Subject,
) -> Option<String> {
    let allows = rules.iter().filter(|rule| rule.decision == Decision::Allow);
    let misses = allows.filter_map(|rule| {
        let (distance, why) = miss(rule, run, redirects, subject)?;
        Some((distance, format!("the rule `{}` {why}", rule.id)))
    });
    misses.min_by_key(|(distance, _)| *distance).map(|(_, why)| why)
}

/// How far a rule is from covering a run, and why it does not; none if it is about another program.
fn miss(
    rule: &Rule,
    run: &Invocation,
    redirects: &[&Redirect],
    subject: &dyn Subject,
) -> Option<(u8, String)> {
    let Target::Program { name, args } = &rule.target else { return None };
    let word = run.words.first()?.literal()?;
    if !is_same_program(word, name) {
        return None;
    }
    let rest = run.words.get(1..).unwrap_or_default();
    if !begins_with(rest, args) {
        if rule.exact {
            return None; // It is about one other command.
        }
        return Some((5, format!("covers other arguments: {}", shown(name, args))));
    }
    if rule.exact && rest.len() != args.len() {
        let only = shown(name, args);
        return Some((4, format!("allows exactly {only} and no further arguments")));
    }
    if rule.exact && !run.assignments.is_empty() {
        return Some((4, "allows it without variables set for it".to_owned()));
    }
    let is_there = |flag: &&String| has_flag(rest, flag, false) > Certainty::No;
    if let Some(flag) = rule.deny_flags.iter().find(is_there) {
        return Some((3, format!("does not allow it with `{flag}`")));
    }
    if rule.short && !is_ordinary(basename(name), rest) {
        let why = "does not cover these options, which may run or write something";
        return Some((3, why.to_owned()));
    }
    if let Some(redirect) = redirects.iter().find(|redirect| !rule.redirect.covers(redirect)) {
        let target = redirect.target.text.chars().take(60).collect::<String>();
        return Some((2, format!("does not cover the redirect to or from `{target}`")));
    }
    if rule.counts_for(subject) {
        return None;
    }
    let tool = rule.tool.as_deref().filter(|tool| *tool != subject.tool());
    let why = match (tool, &rule.workspace, rule.trust) {
        (Some(tool), ..) => format!("allows it for {tool} only"),
        (None, Some(folder), _) if Some(folder.as_str()) != subject.workspace() => {
            format!("allows it in {folder} only")
        }
        (None, _, Some(trust)) => format!("allows it from `{}` on", trust.as_str()),
        _ => return None,
    };
    Some((1, why))
}

fn shown(name: &str, args: &[Vec<String>]) -> String {
    let words: Vec<String> = args.iter().map(|alternatives| alternatives.join("|")).collect();
    format!("`{}`", [&[name.to_owned()][..], &words].concat().join(" "))
}
