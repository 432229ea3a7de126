//! The programs that can be seen in a text that is not understood, so that what denies one of them
//! still does. Nothing is allowed because of it: where more runs than is seen, that is asked about.

use super::{is_internal, program_name};
use crate::reading::{Form, Reading, SimpleCommand, Span, Word};

/// What ends one command and begins another.
fn ends(character: char) -> bool {
    matches!(character, '&' | '|' | ';' | '(' | ')' | '{' | '}' | '\n' | '\r' | '`')
}

/// Words before a program that are none.
const BEFORE: [&str; 10] =
    ["do", "else", "call", "not", "try", "finally", "begin", "process", "end", "return"];

/// Programs and words that run the program which follows their options.
const RUNNERS: [&str; 11] = [
    "start",
    "start-process",
    "saps",
    "iex",
    "invoke-expression",
    "invoke-command",
    "icm",
    "start-job",
    "sajb",
    "forfiles",
    "runas",
];

/// Conditions of `if` that have one word behind them.
const CONDITIONS: [&str; 4] = ["exist", "defined", "errorlevel", "cmdextversion"];

/// Comparisons of `if` that stand between two words.
const COMPARISONS: [&str; 7] = ["==", "equ", "neq", "lss", "leq", "gtr", "geq"];

/// Most programs that are seen to run each other.
const NESTED_MAX: usize = 8;

/// Reads what can be seen.
pub(super) fn visible(text: &str) -> Reading {
    let mut reading = Reading::default();
    let mut at = 0;
    for part in text.split_inclusive(ends) {
        let span = Span { start: at, end: at + part.len() };
        at = span.end;
        for words in commands(part.trim_end_matches(ends)) {
            let word = |text| Word { text, form: Form::Literal, span };
            let words = words.into_iter().map(word).collect();
            reading.commands.push(SimpleCommand { words, span, ..SimpleCommand::default() });
        }
    }
    reading
}

/// The commands of a part without separators: the one that is named, and what it runs in turn.
fn commands(part: &str) -> Vec<Vec<String>> {
    let bare = |word: &str| word.replace(['"', '\'', '^'], "");
    let mut words: Vec<String> = without_title(part).split_whitespace().map(bare).collect();
    let mut found = Vec::new();
    while !words.is_empty() && found.len() < NESTED_MAX {
        words = without_head(&words);
        let Some(first) = words.first_mut() else { break };
        *first = program_name(first);
        found.push(words.clone());
        if !words.first().is_some_and(|first| RUNNERS.contains(&first.as_str())) {
            break;
        }
        let is_option = |word: &String| word.is_empty() || word.starts_with(['/', '-']);
        words = words.into_iter().skip(1).skip_while(is_option).collect();
    }
    found
}

/// A part without the title of a `start` in it: that stands in quotes before the program.
fn without_title(part: &str) -> String {
    let titled = part.to_ascii_lowercase().match_indices("start").find_map(|(place, word)| {
        let (before, rest) = part.split_at_checked(place + word.len())?;
        let (_, rest) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        Some(format!("{before} {rest}"))
    });
    titled.unwrap_or_else(|| part.to_owned())
}

/// The words from the program on: without what a shell reads before it.
fn without_head(words: &[String]) -> Vec<String> {
    let mut rest = words;
    let mut first = "";
    while let Some((word, others)) = rest.split_first() {
        first = word.trim_start_matches(['@', ',', ';', '=', '.']);
        let lower = first.to_lowercase();
        rest = match others.first().map(String::as_str) {
            _ if first.is_empty() || BEFORE.contains(&lower.as_str()) => others,
            _ if lower == "if" => condition(others),
            // A variable of PowerShell that is set to what a program prints.
            Some("=") if first.starts_with('$') => others.get(1..).unwrap_or_default(),
            // A redirect, with its target in the same word or in the next.
            _ if first
                .trim_start_matches(|it: char| it.is_ascii_digit())
                .starts_with(['<', '>']) =>
            {
                let alone = first.ends_with(['<', '>']);
                others.get(usize::from(alone)..).unwrap_or_default()
            }
            _ => break,
        };
        first = "";
    }
    let others = rest.get(1..).unwrap_or_default();
    let named = [first].into_iter().filter(|it| !it.is_empty()).flat_map(parted);
    named.chain(others.iter().cloned()).collect()
}

/// What follows the condition of an `if`.
fn condition(words: &[String]) -> &[String] {
    let is = |at: usize, known: &[&str]| {
        words.get(at).is_some_and(|word| known.contains(&word.to_lowercase().as_str()))
    };
    let mut at = 0;
    while is(at, &["/i", "not"]) {
        at += 1;
    }
    let length = match () {
        () if is(at, &CONDITIONS) => 2,
        () if is(at + 1, &COMPARISONS) => 3,
        () => 1,
    };
    words.get(at + length..).unwrap_or_default()
}

/// A word of the shell itself and the argument that stands right behind it, as two.
fn parted(word: &str) -> Vec<String> {
    let place = word.find(['/', '.', '\\', ':', '=', ',', ';', '+', '[', ']']);
    let Some((head, rest)) = place.and_then(|place| word.split_at_checked(place)) else {
        return vec![word.to_owned()];
    };
    // A path begins with a letter that no word of the shell is.
    if is_internal(&head.to_lowercase()) || rest.starts_with(['/', '=', ',', ';']) {
        return vec![head.to_owned(), rest.to_owned()];
    }
    vec![word.to_owned()]
}
