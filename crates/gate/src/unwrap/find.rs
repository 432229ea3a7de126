//! Looks into `find`, which runs programs in the middle of its arguments.

use super::{Unwrapper, covering};
use crate::reading::{Form, Run, Word};

impl Unwrapper<'_> {
    /// Looks for `-exec` and its like; says whether all that they run is known.
    pub(super) fn look_into_find(&mut self, run: &Run) -> bool {
        let mut known = true;
        let mut rest = run.words.get(1..).unwrap_or_default();
        while let Some(at) = rest.iter().position(is_exec) {
            let after = rest.get(at + 1..).unwrap_or_default();
            let end = after.iter().position(is_end).unwrap_or(after.len());
            let words = after.get(..end).unwrap_or_default().to_vec();
            let span = covering(&words);
            if !words.is_empty() {
                known &= self.push(run, words, Vec::new(), span);
            }
            rest = after.get(end..).unwrap_or_default();
        }
        // An unquoted expansion could hold an `-exec` of its own.
        known && run.words.iter().skip(1).all(|word| word.form != Form::Fields)
    }
}

fn is_exec(word: &Word) -> bool {
    matches!(word.literal(), Some("-exec" | "-execdir" | "-ok" | "-okdir"))
}

fn is_end(word: &Word) -> bool {
    matches!(word.literal(), Some(";" | "+"))
}
