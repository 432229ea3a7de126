//! Looks into the shells of Windows: the text after `/c` or `-Command`.

use super::{Unwrapper, covering};
use crate::reading::{Invocation, Word};

/// Parameters of PowerShell without a value, in full: each can be cut short.
const FLAGS: [&str; 7] = ["noexit", "nologo", "noninteractive", "noprofile", "sta", "mta", "login"];

/// Those with one.
const VALUES: [&str; 11] = [
    "configurationname",
    "custompipename",
    "executionpolicy",
    "ep",
    "inputformat",
    "outputformat",
    "psconsolefile",
    "settingsfile",
    "version",
    "windowstyle",
    "workingdirectory",
];

/// What such a shell is told to run.
enum Told<'w> {
    /// The text of these words, behind what stands before the first of them in its own.
    Text(&'w str, &'w [Word]),
    /// A file.
    Script,
    /// What comes in.
    Input,
    /// It cannot be known.
    Unknown,
}

impl Unwrapper<'_> {
    /// Looks into a shell of Windows; says whether what it runs is known.
    pub(super) fn look_into_windows_shell(&mut self, run: &Invocation, name: &str) -> bool {
        let words = run.words.get(1..).unwrap_or_default();
        let told = if name == "cmd" { told_cmd(words) } else { told_powershell(words, name) };
        match told {
            Told::Text(first, rest) => {
                let Some(rest) = rest.iter().map(Word::literal).collect::<Option<Vec<_>>>() else {
                    return false;
                };
                let text: Vec<&str> = [first].into_iter().chain(rest).collect();
                self.read_shell(run, text.join(" ").trim(), covering(words))
            }
            Told::Script => true,
            Told::Input => {
                self.note(&run.words, "input");
                false
            }
            Told::Unknown => false,
        }
    }
}

/// What `cmd` is told: its options can stand in one word, and its text right behind the last.
fn told_cmd(words: &[Word]) -> Told<'_> {
    for (place, word) in words.iter().enumerate() {
        let Some(text) = word.literal() else { return Told::Unknown };
        if !text.starts_with('/') {
            break;
        }
        let mut rest = text;
        while let Some(option) = rest.strip_prefix('/') {
            let Some(letter) = option.chars().next() else { return Told::Unknown };
            if matches!(letter.to_ascii_lowercase(), 'c' | 'k' | 'r') {
                let first = option.get(letter.len_utf8()..).unwrap_or_default();
                return Told::Text(first, words.get(place + 1..).unwrap_or_default());
            }
            rest = option.find('/').and_then(|next| option.get(next..)).unwrap_or_default();
        }
    }
    Told::Input
}

/// What PowerShell is told.
fn told_powershell<'w>(words: &'w [Word], name: &str) -> Told<'w> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let Some(text) = word.literal() else { return Told::Unknown };
        let rest = words.get(at + 1..).unwrap_or_default();
        let Some(parameter) = text.strip_prefix(['-', '/', '\u{2013}', '\u{2014}']) else {
            // The newer one takes a file here.
            let is_text = name == "powershell";
            return if is_text { Told::Text(text, rest) } else { Told::Script };
        };
        let parameter = parameter.trim_start_matches('-').to_lowercase();
        let is = |full: &&str| full.starts_with(&parameter);
        at += match parameter.as_str() {
            "" => return Told::Input,
            "command" | "comman" | "comma" | "comm" | "com" | "co" | "c" | "commandwithargs" => {
                return Told::Text("", rest);
            }
            _ if is(&"file") => return Told::Script,
            _ if is(&"encodedcommand") || parameter == "ec" => return Told::Unknown,
            _ if FLAGS.iter().any(is) => 1,
            _ if VALUES.iter().any(is) || parameter == "ex" => 2,
            _ => return Told::Unknown,
        };
    }
    Told::Input
}
