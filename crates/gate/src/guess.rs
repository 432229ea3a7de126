//! Finds a danger in text that could not be read: whatever the quotes mean there, each word may
//! name a program, and the words behind it its arguments.

use crate::{
    data,
    reading::{Form, Invocation, Span, Word},
    unwrap::basename,
};

/// Most words that count as the arguments of one program.
const ARGUMENTS_MAX: usize = 32;

/// The first dangerous command that may be in a part of a text.
pub(crate) fn danger(text: &str, span: Span, on_windows: bool) -> Option<Invocation> {
    let plain = text.replace("\\\n", "").replace(['\'', '"', '\\'], "");
    let between = |it: char| ";&|<>(){}`$\n".contains(it);
    plain.split(between).find_map(|command| {
        let word = |text: &str| Word { text: text.to_owned(), form: Form::Literal, span };
        let words: Vec<Word> = command.split_ascii_whitespace().map(word).collect();
        let run = |at: usize| {
            let end = words.len().min(at + 1 + ARGUMENTS_MAX);
            let words = words.get(at..end)?;
            let (name, arguments) = words.split_first()?;
            data::danger(basename(&name.text), arguments, on_windows)?;
            Some(Invocation { words: words.to_vec(), span, ..Invocation::default() })
        };
        (0..words.len()).find_map(run)
    })
}
