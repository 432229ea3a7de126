//! Parses options by a program's own table: clusters, abbreviations, values, and where the rest
//! begins.

use crate::{
    data::Wrapper,
    reading::{Form, Word},
};

/// What was found before the rest of a wrapper's words.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// The index of the first word of the rest.
    pub rest: usize,
    /// Values that are shell text.
    pub shells: Vec<Word>,
    /// A value that is split into words before the rest.
    pub split: Option<Word>,
    /// Words that set variables.
    pub assignments: Vec<Word>,
    /// Whether an option says that nothing is run.
    pub stops: bool,
}

/// What an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Value,
    Stop,
    Shell,
    Split,
}

/// Parses the options after the name; nothing when one of them is not known.
pub(super) fn parse(words: &[Word], from: usize, wrapper: &Wrapper) -> Option<Parsed> {
    let mut parsed = Parsed::default();
    let mut at = from;
    let mut operands = wrapper.operands;
    while let Some(word) = words.get(at) {
        let text = visible(word)?;
        if word.form == Form::Literal && text == "--" {
            at += 1;
            break;
        }
        if is_option(text, wrapper) {
            at = take_option(words, at, wrapper, &mut parsed)?;
        } else if wrapper.assignments && text.contains('=') {
            parsed.assignments.push(word.clone());
            at += 1;
        } else if wrapper.permute {
            at += 1;
        } else {
            break;
        }
        if parsed.stops {
            return Some(parsed);
        }
    }
    while operands > 0 && at < words.len() {
        visible(words.get(at)?)?;
        operands -= 1;
        at += 1;
    }
    at = after_operands(words, at, wrapper, &mut parsed)?;
    parsed.rest = at;
    Some(parsed)
}

/// Takes what may stand between the operands and the program.
fn after_operands(
    words: &[Word],
    mut at: usize,
    wrapper: &Wrapper,
    parsed: &mut Parsed,
) -> Option<usize> {
    if wrapper.dashes {
        let dashes = words.iter().skip(at).position(|word| word.literal() == Some("--"));
        return dashes.map(|offset| at + offset + 1);
    }
    let is_shell = |word: &Word| word.literal().is_some_and(|text| has(wrapper.shell, text));
    if wrapper.operands > 0 && words.get(at).is_some_and(is_shell) {
        parsed.shells.push(words.get(at + 1)?.clone());
        return Some(words.len());
    }
    if wrapper.operands > 0 && words.get(at).and_then(Word::literal) == Some("--") {
        at += 1;
    }
    let program = words.get(at).map(|word| word.text.as_str());
    let is_odd = program.is_some_and(|text| text.starts_with('-') && text.len() > 1);
    (!is_odd).then_some(at)
}

/// What is known of a word where an option may stand; nothing when it could be anything.
fn visible(word: &Word) -> Option<&str> {
    let known = match word.form {
        Form::Literal => true,
        Form::Dynamic => !word.text.is_empty(),
        Form::Glob => !word.text.starts_with(['*', '?', '[']),
        Form::Fields => false,
    };
    known.then_some(word.text.as_str())
}

/// Whether a word is an option.
fn is_option(text: &str, wrapper: &Wrapper) -> bool {
    text.len() > 1 && text.starts_with('-') || text == "-" && has(wrapper.flags, "-")
}

/// Whether an option is in a list.
fn has(options: &[&str], text: &str) -> bool {
    options.contains(&text)
}

/// Takes one option word and its value; gives the index after it.
fn take_option(words: &[Word], at: usize, wrapper: &Wrapper, parsed: &mut Parsed) -> Option<usize> {
    let word = words.get(at)?;
    let text = word.text.as_str();
    // What is expanded may be a value, another option, or nothing: only where a value has begun
    // is it known that the next word is none.
    let literal = word.form == Form::Literal;
    if word.form == Form::Glob {
        return None;
    }
    let numeric = wrapper.numeric && text.bytes().skip(1).all(|byte| byte.is_ascii_digit());
    if numeric || text == "-" {
        return literal.then_some(at + 1);
    }
    if text.starts_with("--") {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        (literal || value.is_some()).then_some(())?;
        let kind = long(name, wrapper)?;
        return take_value(words, at, kind, value, parsed);
    }
    // The whole word first: some programs spell long options with one dash.
    if let Some(kind) = exact(text, wrapper).filter(|_| literal) {
        return take_value(words, at, kind, None, parsed);
    }
    let mut kind = Kind::Flag;
    for (offset, letter) in text.char_indices().skip(1) {
        kind = exact(&format!("-{letter}"), wrapper)?;
        let after = text.get(offset + letter.len_utf8()..).unwrap_or_default();
        if kind == Kind::Stop {
            break;
        }
        if kind != Kind::Flag {
            let attached = (!after.is_empty()).then_some(after);
            (literal || attached.is_some()).then_some(())?;
            return take_value(words, at, kind, attached, parsed);
        }
    }
    literal.then_some(())?;
    take_value(words, at, kind, None, parsed)
}

/// Takes the value of an option, attached to it or in the next word.
fn take_value(
    words: &[Word],
    at: usize,
    kind: Kind,
    attached: Option<&str>,
    parsed: &mut Parsed,
) -> Option<usize> {
    match kind {
        Kind::Flag => return Some(at + 1),
        Kind::Stop => {
            parsed.stops = true;
            return Some(at + 1);
        }
        Kind::Value | Kind::Shell | Kind::Split => {}
    }
    let (value, next) = match attached {
        Some(text) => (Word { text: text.to_owned(), ..words.get(at)?.clone() }, at + 1),
        None => (words.get(at + 1)?.clone(), at + 2),
    };
    (value.form != Form::Fields).then_some(())?;
    match kind {
        Kind::Shell => parsed.shells.push(value),
        Kind::Split => parsed.split = Some(value),
        _ => {}
    }
    Some(next)
}

/// What an option is, spelled exactly.
fn exact(text: &str, wrapper: &Wrapper) -> Option<Kind> {
    let lists = [
        (wrapper.flags, Kind::Flag),
        (wrapper.values, Kind::Value),
        (wrapper.stops, Kind::Stop),
        (wrapper.shell, Kind::Shell),
        (wrapper.split, Kind::Split),
    ];
    lists.iter().find(|(options, _)| has(options, text)).map(|(_, kind)| *kind)
}

/// What a long option is, spelled exactly or abbreviated without doubt.
fn long(name: &str, wrapper: &Wrapper) -> Option<Kind> {
    if let Some(kind) = exact(name, wrapper) {
        return Some(kind);
    }
    let all = [wrapper.flags, wrapper.values, wrapper.stops, wrapper.shell, wrapper.split];
    let mut found = all.iter().flat_map(|options| options.iter()).filter(|o| o.starts_with(name));
    let first = found.next()?;
    found.next().is_none().then_some(())?;
    exact(first, wrapper)
}
