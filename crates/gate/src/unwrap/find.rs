//! Looks into `find`, which runs programs in the middle of its arguments.

use super::{Unwrapper, covering};
use crate::reading::{Form, Invocation, Word};

impl Unwrapper<'_> {
    /// Looks for `-exec` and its like; says whether all that they run is known.
    pub(super) fn look_into_find(&mut self, run: &Invocation) -> bool {
        let mut found = Vec::new();
        let mut rest = run.words.get(1..).unwrap_or_default();
        while let Some(at) = rest.iter().position(is_exec) {
            let after = rest.get(at + 1..).unwrap_or_default();
            let end = after.iter().position(is_end).unwrap_or(after.len());
            found.push(after.get(..end).unwrap_or_default().to_vec());
            rest = after.get(end..).unwrap_or_default();
        }
        // The last one is pushed first, because the first one is to be looked at first.
        let mut known = true;
        for words in found.into_iter().rev().filter(|words| !words.is_empty()) {
            let span = covering(&words);
            known &= self.push(run, words, Vec::new(), span);
        }
        // An unquoted expansion could hold an `-exec` of its own.
        known && run.words.iter().skip(1).all(|word| word.form != Form::Fields)
    }
}

/// Whether a program follows.
fn is_exec(word: &Word) -> bool {
    matches!(word.literal(), Some("-exec" | "-execdir" | "-ok" | "-okdir"))
}

/// Whether the program has ended.
fn is_end(word: &Word) -> bool {
    matches!(word.literal(), Some(";" | "+"))
}
