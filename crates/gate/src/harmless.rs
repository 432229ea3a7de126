//! Recognises commands that only read, by the options and arguments that are known to be harmless.
//! Everything else is not harmless.

use crate::{
    content::only_prints,
    data::{self, Text, TextList},
    reading::{Form, Word},
};

/// One way to call some programs.
pub(crate) struct Harmless {
    pub subcommands: TextList,
    /// The word after the subcommand.
    pub second: TextList,
    pub before: TextList,
    pub before_values: TextList,
    pub flags: TextList,
    pub values: TextList,
    pub any: bool,
    pub words: bool,
    pub numeric: bool,
    pub needs_option: bool,
    pub script: bool,
    pub operands_max: Option<usize>,
    pub content: Text,
    pub reads: Option<Text>,
    pub contained: bool,
}

/// Whether anything is known of a program.
pub(crate) fn is_known(name: &str) -> bool {
    data::harmless(name).next().is_some()
}

/// Whether a program's words are known to be harmless.
pub(crate) fn is_harmless(name: &str, rest: &[Word]) -> bool {
    data::harmless(name).any(|entry| entry.covers(rest))
}

/// Why a command only reads, if it surely does; `contained` says that a sandbox is around it.
pub(crate) fn reads_only(name: &str, rest: &[Word], contained: bool) -> Option<&'static str> {
    let reads = |entry: &&Harmless| {
        entry.reads.is_some() && (contained || !entry.contained) && entry.covers(rest)
    };
    data::harmless(name).find(reads)?.reads
}

/// What an option does with the words after it.
enum OptionKind {
    Alone,
    TakesNext,
    Unknown,
}

impl Harmless {
    fn covers(&self, rest: &[Word]) -> bool {
        if self.any {
            return true;
        }
        let Some(rest) = self.after_subcommand(rest) else { return false };
        self.takes(rest) && only_prints(self.content, rest)
    }

    /// The words after the subcommand; none if it is another one.
    fn after_subcommand<'w>(&self, rest: &'w [Word]) -> Option<&'w [Word]> {
        if self.subcommands.is_empty() {
            return Some(rest);
        }
        let mut at = 0;
        loop {
            let word = rest.get(at)?.literal()?;
            if has(self.before, word) {
                at += 1;
            } else if has(self.before_values, word) {
                rest.get(at + 1).filter(|value| value.form != Form::Fields)?;
                at += 2;
            } else if has(self.subcommands, word) {
                break;
            } else {
                return None;
            }
        }
        if !self.second.is_empty() {
            let second = rest.get(at + 1)?.literal()?;
            return has(self.second, second).then(|| rest.get(at + 2..).unwrap_or_default());
        }
        rest.get(at + 1..)
    }

    /// Whether all words are known: options of the table, and operands.
    fn takes(&self, rest: &[Word]) -> bool {
        let (mut operands, mut options, mut at, mut ended) = (0, 0, 0, false);
        while let Some(word) = rest.get(at) {
            at += 1;
            let text = word.text.as_str();
            let is_option = text.len() > 1 && text.starts_with('-') && !ended;
            if is_option && word.literal() == Some("--") && !self.words {
                ended = true;
            } else if is_option {
                options += 1;
                match self.option(word) {
                    OptionKind::Alone => {}
                    // What comes is a value, whatever it is, as long as it is one word.
                    OptionKind::TakesNext => match rest.get(at) {
                        Some(value) if matches!(value.form, Form::Literal | Form::Dynamic) => {
                            at += 1;
                        }
                        _ => return false,
                    },
                    OptionKind::Unknown => return false,
                }
            } else if !ended && could_be_option(word) {
                return false;
            } else if self.script && word.form == Form::Literal {
                return true;
            } else {
                operands += if word.form == Form::Literal { 1 } else { 2 };
            }
        }
        self.operands_max.is_none_or(|max| operands <= max)
            && (options > 0 || !self.needs_option)
            && !self.script
    }

    fn option(&self, word: &Word) -> OptionKind {
        let text = word.text.as_str();
        let literal = word.form == Form::Literal;
        if literal && has(self.flags, text) {
            return OptionKind::Alone;
        }
        if literal && has(self.values, text) {
            return OptionKind::TakesNext;
        }
        if self.words {
            return OptionKind::Unknown;
        }
        let digits = text.get(1..).unwrap_or_default();
        if literal && self.numeric && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return OptionKind::Alone;
        }
        if text.starts_with("--") {
            // A value that is attached may be known only after expansion: it stays a value.
            let named = text.split_once('=').is_some_and(|(name, _)| has(self.values, name));
            let one_word = matches!(word.form, Form::Literal | Form::Dynamic);
            return if named && one_word { OptionKind::Alone } else { OptionKind::Unknown };
        }
        self.cluster(text, literal)
    }

    /// `-abc`: flags, and at the end perhaps an option with its value.
    fn cluster(&self, text: &str, literal: bool) -> OptionKind {
        let mut letters = text.chars().skip(1).peekable();
        while let Some(letter) = letters.next() {
            let option = format!("-{letter}");
            if has(self.values, &option) {
                let attached = letters.peek().is_some() || !literal;
                return if attached { OptionKind::Alone } else { OptionKind::TakesNext };
            }
            if !has(self.flags, &option) {
                return OptionKind::Unknown;
            }
        }
        if literal { OptionKind::Alone } else { OptionKind::Unknown }
    }
}

/// Whether a word that does not look like an option can become one.
fn could_be_option(word: &Word) -> bool {
    match word.form {
        Form::Literal => false,
        Form::Glob => word.text.starts_with(['*', '?', '[']),
        Form::Dynamic => word.text.is_empty(),
        Form::Fields => true,
    }
}

fn has(list: &[&str], text: &str) -> bool {
    list.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    fn harmless(text: &str) -> bool {
        let reading = read(text);
        let words = &reading.commands[0].words;
        is_harmless(&words[0].text, &words[1..])
    }

    #[test]
    fn what_is_known_is_harmless() {
        for text in [
            "git status -sb",
            "git --no-pager log --oneline -5 --format=%h",
            "git -C dir diff --stat HEAD~1",
            "git log -n 3 -- *.rs",
            "git commit -am 'x'",
            "sort -k2,2 -t, -rn f",
            "sort -rnk2 f",
            "find . -name '*.rs' -type f -not -path './x/*'",
            "rg -n --glob '*.rs' x",
            "cargo test --workspace -p x --locked",
            "sed -n 1,5p f",
            "awk -F: '{print $1}' f",
            "date +%s",
            "python3 -u x.py -c y",
            "git show \"HEAD~$x\"",
        ] {
            assert!(harmless(text), "{text}");
        }
    }

    #[test]
    fn only_what_is_known_is_harmless() {
        for text in [
            "git -c core.pager=x log",
            "git log --output=f",
            "git log --outp=f",
            "git diff --ext-diff",
            "git grep -O x",
            "git log $x",
            "git log \"$x\"",
            "git log *",
            "git frobnicate",
            "git bisect run x",
            "git push --receive-pack=x",
            "git fetch --upload-pack x",
            "git rebase --exec x",
            "git clone --template=x y",
            "git clone -ux y",
            "sort -o f f",
            "sort -uo f",
            "sort --compress-prog=x",
            "sort --comp x",
            "sort -T x",
            "find . -delete",
            "find . -exec rm {} +",
            "find . -fprintf f x",
            "find $x",
            "rg --pre x y",
            "rg --search-zip x",
            "cargo test --config x",
            "cargo install x",
            "cargo run",
            "sed -i s/a/b/ f",
            "sed 's/a/b/w f' x",
            "sed -ne 'w f' x",
            "awk 'BEGIN{system(\"id\")}'",
            "date -s x",
            "uniq a b",
            "nm --plugin x y",
            "make -f x",
            "tar -xf x",
            "python3",
            "python3 -c x",
            "python3 -m x",
            "python3 -u -c x",
            "bash",
            "npm exec x",
            "curl -o f x",
            "curl -so f x",
        ] {
            assert!(!harmless(text), "{text}");
        }
    }
}
