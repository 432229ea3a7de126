//! Looks into shells: the text after `-c`, a script, or whatever comes in.

use super::Unwrapper;
use crate::reading::{Form, Invocation, Word};

/// Options of shells that take the next word.
const VALUES: [&str; 6] = ["-o", "+o", "-O", "+O", "--rcfile", "--init-file"];

/// Long options of shells that change nothing of what is run.
const LONG: [&str; 9] = [
    "--login",
    "--norc",
    "--noprofile",
    "--posix",
    "--noediting",
    "--restricted",
    "--verbose",
    "--help",
    "--version",
];

/// What a shell is told to run.
enum Told<'w> {
    /// This text.
    Text(&'w Word),
    /// A file.
    Script,
    /// What comes in.
    Input,
    /// It cannot be known.
    Unknown,
}

impl Unwrapper<'_> {
    /// Looks into a shell; says whether what it runs is known.
    pub(super) fn look_into_shell(&mut self, run: &Invocation) -> bool {
        match told(&run.words) {
            Told::Text(word) if word.form == Form::Literal => {
                // `find` and `xargs` put what they found in the place of the braces: data becomes
                // code.
                if run.depth > 0 && word.text.contains("{}") {
                    self.note(&run.words, "{}");
                }
                self.read_word(run, word)
            }
            Told::Text(_) | Told::Input => {
                self.note(&run.words, "input");
                false
            }
            Told::Script => true,
            Told::Unknown => false,
        }
    }

    /// Looks into `trap`: its first operand is shell text.
    pub(super) fn look_into_trap(&mut self, run: &Invocation) -> bool {
        let mut operands = run.words.iter().skip(1).skip_while(|word| word.literal() == Some("--"));
        match operands.next().map(Word::literal) {
            Some(Some("-" | "" | "-l" | "-p")) | None => true,
            Some(Some(_)) => {
                let text = run.words.iter().skip(1).find(|word| word.literal() != Some("--"));
                text.is_some_and(|word| self.read_word(run, word))
            }
            Some(None) => false,
        }
    }
}

/// Finds out what a shell is told to run.
fn told(words: &[Word]) -> Told<'_> {
    let (mut at, mut text_follows, mut input) = (1, false, false);
    while let Some(word) = words.get(at) {
        let Some(text) = word.literal() else {
            return operand(word, text_follows, input);
        };
        at += 1;
        if text == "--" || text == "-" {
            break;
        }
        if VALUES.contains(&text) {
            at += 1;
            continue;
        }
        if text.starts_with("--") {
            if !LONG.contains(&text) {
                return Told::Unknown;
            }
            continue;
        }
        if !(text.starts_with('-') || text.starts_with('+')) || text.len() < 2 {
            return operand(word, text_follows, input);
        }
        for letter in text.chars().skip(1) {
            match letter {
                'c' => text_follows = true,
                's' => input = true,
                'i' | 'o' | 'O' => return Told::Unknown,
                'a'..='z' | 'B' | 'C' | 'D' | 'E' | 'H' | 'P' | 'T' => {}
                _ => return Told::Unknown,
            }
        }
    }
    match words.get(at) {
        Some(word) => operand(word, text_follows, input),
        None if text_follows => Told::Unknown,
        None => Told::Input,
    }
}

/// What the first word that is no option means.
fn operand(word: &Word, text_follows: bool, input: bool) -> Told<'_> {
    match (text_follows, input) {
        (true, _) => Told::Text(word),
        (false, true) => Told::Input,
        (false, false) if word.form == Form::Literal || word.form == Form::Glob => Told::Script,
        (false, false) => Told::Unknown,
    }
}
