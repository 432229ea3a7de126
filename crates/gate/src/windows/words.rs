//! The positive list: one program with arguments that the shell reads as nothing but themselves.

use super::{WindowsShell, is_internal, program_name};
use crate::{
    plain::NotPlain,
    reading::{Form, Span, Word},
};

/// Words of `cmd.exe` that make another text, or another program, run than the one that is named.
const CMD_WORDS: [&str; 20] = [
    "assoc", "call", "else", "endlocal", "exit", "for", "ftype", "goto", "if", "mklink", "not",
    "path", "popd", "prompt", "pushd", "rem", "set", "setlocal", "shift", "start",
];

/// Words of PowerShell of that kind.
const POWERSHELL_WORDS: [&str; 37] = [
    "begin",
    "class",
    "do",
    "else",
    "exit",
    "filter",
    "for",
    "foreach",
    "foreach-object",
    "function",
    "icm",
    "if",
    "iex",
    "import-module",
    "invoke-command",
    "invoke-expression",
    "invoke-item",
    "ii",
    "ipmo",
    "new-alias",
    "nal",
    "param",
    "return",
    "sajb",
    "sal",
    "saps",
    "set-alias",
    "set-item",
    "si",
    "start",
    "start-job",
    "start-process",
    "switch",
    "throw",
    "trap",
    "try",
    "while",
];

/// The words of a text that is one program with its arguments.
pub(super) fn words(text: &str, shell: WindowsShell) -> Result<Vec<Word>, NotPlain> {
    let mut words = Vec::new();
    let mut rest = Cursor { text, at: 0 };
    loop {
        rest.skip_spaces();
        if rest.at == text.len() {
            break;
        }
        let word = match rest.peek() {
            Some('"') => rest.quoted(shell),
            _ if words.is_empty() => rest.program(shell),
            _ => rest.bare(shell),
        };
        words.push(word?);
    }
    let Some(first) = words.first_mut() else {
        return Err(NotPlain { what: "no program", offset: 0 });
    };
    let not = |what| Err(NotPlain { what, offset: first.span.start });
    // Quotes around a program, and names that begin like an option or a label, are read in several
    // ways.
    if text.trim_start_matches(' ').starts_with('"') || first.text.starts_with([':', '-', '.']) {
        return not("a program that is not named plainly");
    }
    // Such names are cut off somewhere before a file is looked for.
    let in_file = first.text.get(2..).unwrap_or_default();
    if first.text.ends_with('.') || in_file.contains(':') {
        return not("a program that is not named plainly");
    }
    if shell == WindowsShell::PowerShell && first.text.starts_with(|it: char| it.is_ascii_digit()) {
        return not("a number, which is an expression");
    }
    // `cd..` and `del\x` are `cd` and `del` with an argument.
    let head = first.text.split(['.', '\\', ':']).next().unwrap_or_default();
    if shell == WindowsShell::Cmd && head != first.text && is_internal(head) {
        return not("an argument right behind a word of the shell itself");
    }
    let name = program_name(&first.text);
    let known = match shell {
        WindowsShell::Cmd => CMD_WORDS.as_slice(),
        WindowsShell::PowerShell => POWERSHELL_WORDS.as_slice(),
    };
    if known.contains(&name.as_str()) {
        return not("a word of the shell itself");
    }
    first.text = name;
    Ok(words)
}

/// A place in a text.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn skip_spaces(&mut self) {
        while self.peek() == Some(' ') {
            self.at += 1;
        }
    }

    /// The word that names the program.
    fn program(&mut self, shell: WindowsShell) -> Result<Word, NotPlain> {
        self.unquoted(|it| is_of_name(it, shell))
    }

    /// A word without quotes.
    fn bare(&mut self, shell: WindowsShell) -> Result<Word, NotPlain> {
        self.unquoted(|it| is_bare(it, shell))
    }

    fn unquoted(&mut self, is_plain: impl Fn(char) -> bool) -> Result<Word, NotPlain> {
        let start = self.at;
        while let Some(character) = self.peek().filter(|it| *it != ' ') {
            if !is_plain(character) {
                return Err(NotPlain { what: named(character), offset: self.at });
            }
            self.at += character.len_utf8();
        }
        Ok(self.word(start, start, self.at))
    }

    /// A word in double quotes, and nothing beside them.
    fn quoted(&mut self, shell: WindowsShell) -> Result<Word, NotPlain> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(NotPlain { what: "a quote that is not closed", offset: start }),
                Some('"') => break,
                Some(character) if is_quoted(character, shell) => {
                    self.at += character.len_utf8();
                }
                Some(character) => {
                    return Err(NotPlain { what: named(character), offset: self.at });
                }
            }
        }
        let word = self.word(start, start + 1, self.at);
        self.at += 1;
        // A backslash before the quote is read in several ways.
        if word.text.ends_with('\\') || self.peek().is_some_and(|next| next != ' ') {
            return Err(NotPlain { what: "a quote inside a word", offset: self.at - 1 });
        }
        Ok(Word { span: Span { start, end: self.at }, ..word })
    }

    fn word(&self, start: usize, from: usize, to: usize) -> Word {
        let text = self.text.get(from..to).unwrap_or_default().to_owned();
        Word { text, form: Form::Literal, span: Span { start, end: self.at } }
    }
}

/// Characters of a program's name. `cmd.exe` ends that before a slash, and before `=`.
fn is_of_name(character: char, shell: WindowsShell) -> bool {
    let slash = shell == WindowsShell::PowerShell && character == '/';
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.' | '\\' | ':') || slash
}

/// Characters that no shell reads as anything but themselves.
fn is_bare(character: char, shell: WindowsShell) -> bool {
    let everywhere = matches!(character, '_' | '-' | '.' | '/' | '\\' | ':');
    let in_cmd = shell == WindowsShell::Cmd && matches!(character, '+' | '=' | '~');
    character.is_ascii_alphanumeric() || everywhere || in_cmd
}

/// The same inside double quotes: not what stands for a variable, an escape or the end of a line.
fn is_quoted(character: char, shell: WindowsShell) -> bool {
    let expands = match shell {
        WindowsShell::Cmd => matches!(character, '%' | '!' | '^' | '"'),
        WindowsShell::PowerShell => matches!(character, '$' | '`' | '"' | '\u{201c}'..='\u{201f}'),
    };
    !expands && !character.is_control()
}

/// The name of a character that is not plain.
fn named(character: char) -> &'static str {
    match character {
        '%' => "%",
        '!' => "!",
        '^' => "^",
        '&' => "&",
        '|' => "|",
        '<' | '>' => "a redirect",
        '(' | ')' => "parentheses",
        '{' | '}' => "a script block",
        '`' => "a backtick",
        '$' => "$",
        '@' => "@",
        ';' => ";",
        ',' => ",",
        '=' => "=",
        '/' => "a slash in the name of a program",
        '\'' => "a single quote",
        '"' => "a quote inside a word",
        '\n' | '\r' => "several lines",
        '*' | '?' => "a pattern",
        _ => "a character that is not plain",
    }
}
