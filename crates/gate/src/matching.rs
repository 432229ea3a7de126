//! Compares words with rules: exactly for an allow, leniently for a deny, and never by substring.

use crate::reading::{Form, Word};

/// How sure it is that something matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// It does not.
    No,
    /// It depends on an expansion.
    Maybe,
    /// It does.
    Yes,
}

impl From<bool> for Certainty {
    fn from(matches: bool) -> Self {
        if matches { Self::Yes } else { Self::No }
    }
}

/// Whether the words begin with one of each of the alternatives.
pub(crate) fn begins_with(words: &[Word], args: &[Vec<String>]) -> bool {
    args.iter().enumerate().all(|(index, alternatives)| {
        let word = words.get(index).and_then(Word::literal);
        word.is_some_and(|word| alternatives.iter().any(|alternative| alternative == word))
    })
}

/// Whether the alternatives follow each other in the words when options are passed over.
///
/// An alternative that is itself an option may be anywhere, in any spelling.
pub(crate) fn follows<T: AsRef<str>>(words: &[Word], args: &[impl AsRef<[T]>]) -> Certainty {
    let mut certainty = Certainty::Yes;
    let mut at = 0;
    for alternatives in args.iter().map(AsRef::as_ref) {
        let is_option = alternatives.iter().any(|it| it.as_ref().starts_with('-'));
        let found = if is_option {
            any_option(words, alternatives)
        } else {
            next_operand(words, alternatives, &mut at)
        };
        certainty = certainty.min(found);
        if certainty == Certainty::No {
            return certainty;
        }
    }
    certainty
}

/// Whether one of several options is there; `-rf` means both letters.
fn any_option(words: &[Word], alternatives: &[impl AsRef<str>]) -> Certainty {
    let of = |alternative: &str| {
        if alternative.starts_with("--") || alternative.len() < 3 {
            return has_flag(words, alternative, false);
        }
        let letters = alternative.chars().skip(1).map(|letter| format!("-{letter}"));
        letters.map(|flag| has_flag(words, &flag, false)).min().unwrap_or(Certainty::No)
    };
    alternatives.iter().map(AsRef::as_ref).map(of).max().unwrap_or(Certainty::No)
}

/// Looks for the next word that is one of the alternatives, past options and their values.
fn next_operand(words: &[Word], alternatives: &[impl AsRef<str>], at: &mut usize) -> Certainty {
    let mut value_possible = false;
    while let Some(word) = words.get(*at) {
        *at += 1;
        let Some(text) = word.literal() else { return Certainty::Maybe };
        if alternatives.iter().any(|alternative| alternative.as_ref() == text) {
            return Certainty::Yes;
        }
        let option = text.starts_with('-') && text.len() > 1;
        if !option && !value_possible {
            return Certainty::No;
        }
        value_possible = option && !text.contains('=');
    }
    Certainty::No
}

/// Whether an option is among the words: in a cluster, abbreviated, or with a value attached.
///
/// With `whole`, options are whole words, as those of `find` are.
pub(crate) fn has_flag(words: &[Word], flag: &str, whole: bool) -> Certainty {
    let mut certainty = Certainty::No;
    let mut after_option = false;
    for word in words {
        // After an option, `--` may be its value and end nothing.
        if word.literal() == Some("--") && !after_option && !whole {
            break;
        }
        certainty = certainty.max(is_flag(word, flag, whole));
        after_option = word.text.starts_with('-');
    }
    certainty
}

/// Whether a word is an option, or could become it.
fn is_flag(word: &Word, flag: &str, whole: bool) -> Certainty {
    let text = word.text.as_str();
    let matches = spells(text, flag, whole);
    if matches || word.form == Form::Literal {
        return matches.into();
    }
    let decided = text.starts_with("--") && text.contains('=');
    let operand = !text.is_empty() && !text.starts_with(['-', '*', '?', '[']);
    let stays = word.form != Form::Fields;
    if stays && (decided || operand) { Certainty::No } else { Certainty::Maybe }
}

/// Whether a word spells an option.
fn spells(text: &str, flag: &str, whole: bool) -> bool {
    let name = text.split('=').next().unwrap_or(text);
    if let Some(letters) = flag.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
        let is_long = letters.chars().count() > 1;
        if whole || is_long {
            return name == flag;
        }
        let cluster = text.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        return cluster.is_some_and(|cluster| cluster.contains(letters));
    }
    if whole {
        return name == flag;
    }
    // Any unambiguous beginning will do for the program, so any beginning does here.
    name.len() > 2 && name.starts_with("--") && flag.starts_with(name)
}
