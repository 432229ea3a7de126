//! Text for the shells of Windows: a small list of what is plain, and everything else is not
//! understood.
//!
//! `cmd.exe` and PowerShell take a text apart in ways that no second reader could follow for long.
//! So only one program with arguments that no shell reads as anything else is understood. What can
//! be seen of the programs in other texts is still compared with the rules that deny them.

use crate::{
    plain::NotPlain,
    reading::{Form, Reading, Refusal, SimpleCommand, Span, Substitution, Word},
    unwrap::unwrap_words,
};

/// A shell of Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowsShell {
    /// `cmd.exe`.
    Cmd,
    /// Windows PowerShell, or the newer one.
    PowerShell,
}

/// Words of `cmd.exe` that make another text, or another program, run than the one that is named.
const CMD_WORDS: [&str; 20] = [
    "assoc", "call", "else", "endlocal", "exit", "for", "ftype", "goto", "if", "mklink", "not",
    "path", "popd", "prompt", "pushd", "rem", "set", "setlocal", "shift", "start",
];

/// Words of PowerShell of that kind.
const POWERSHELL_WORDS: [&str; 20] = [
    "begin",
    "class",
    "do",
    "else",
    "exit",
    "filter",
    "for",
    "foreach",
    "function",
    "if",
    "iex",
    "invoke-command",
    "invoke-expression",
    "param",
    "return",
    "start-process",
    "switch",
    "throw",
    "try",
    "while",
];

/// Ends of the names of program files.
const PROGRAM_ENDS: [&str; 4] = [".exe", ".cmd", ".bat", ".com"];

/// The shell of Windows that a name or a path means.
pub(crate) fn windows_shell(shell: &str) -> Option<WindowsShell> {
    match program_name(shell).rsplit('/').next()? {
        "cmd" => Some(WindowsShell::Cmd),
        "powershell" | "pwsh" => Some(WindowsShell::PowerShell),
        _ => None,
    }
}

/// A program's name or path as it is compared with rules: Windows does not tell capitals from small
/// letters, nor one separator from the other, and finds a file by its name without its end.
pub fn program_name(text: &str) -> String {
    let name = text.replace('\\', "/").to_lowercase();
    let end = PROGRAM_ENDS.iter().find(|end| name.ends_with(**end) && name.len() > end.len());
    end.and_then(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
}

/// Reads a text for such a shell.
pub(crate) fn read(text: &str, shell: WindowsShell) -> Reading {
    let mut reading = match words(text, shell) {
        Ok(words) => unwrap_words(words),
        Err(NotPlain { what, offset }) => {
            let mut reading = visible(text);
            reading.understood = false;
            let reason = "text for a shell of Windows is only understood if it is one program \
                          with plain arguments";
            reading.refusal = Some(Refusal { construct: what, offset, reason });
            reading
        }
    };
    reading.substitution = substitution(text).or(reading.substitution);
    reading
}

/// Why no allow can cover a text for such a shell, if none can.
pub(crate) fn plainness(text: &str, shell: WindowsShell) -> Result<(), NotPlain> {
    words(text, shell).map(drop)
}

/// The words of a text that is one program with its arguments.
fn words(text: &str, shell: WindowsShell) -> Result<Vec<Word>, NotPlain> {
    let mut words = Vec::new();
    let mut rest = Cursor { text, at: 0 };
    loop {
        rest.skip_spaces();
        if rest.at == text.len() {
            break;
        }
        let word = if rest.peek() == Some('"') { rest.quoted(shell) } else { rest.bare(shell) };
        words.push(word?);
    }
    let Some(first) = words.first_mut() else {
        return Err(NotPlain { what: "no program", offset: 0 });
    };
    first.text = program_name(&first.text);
    let known = match shell {
        WindowsShell::Cmd => CMD_WORDS,
        WindowsShell::PowerShell => POWERSHELL_WORDS,
    };
    if known.contains(&first.text.as_str()) {
        return Err(NotPlain { what: "a word of the shell itself", offset: first.span.start });
    }
    // Quotes around a program, and names that begin like an option or a label, are read in several
    // ways.
    if first.text.starts_with(['"', ':', '-', '.']) || text.starts_with('"') {
        return Err(NotPlain { what: "a program that is not named plainly", offset: 0 });
    }
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

    /// A word without quotes.
    fn bare(&mut self, shell: WindowsShell) -> Result<Word, NotPlain> {
        let start = self.at;
        while let Some(character) = self.peek().filter(|it| *it != ' ') {
            if !is_bare(character, shell) {
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
        Ok(word)
    }

    fn word(&self, start: usize, from: usize, to: usize) -> Word {
        let text = self.text.get(from..to).unwrap_or_default().to_owned();
        Word { text, form: Form::Literal, span: Span { start, end: self.at } }
    }
}

/// Characters that no shell reads as anything but themselves.
fn is_bare(character: char, shell: WindowsShell) -> bool {
    let everywhere = matches!(character, '_' | '-' | '.' | '/' | '\\' | ':');
    let in_cmd = shell == WindowsShell::Cmd && matches!(character, '+' | '=');
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
        ';' => ";",
        '\'' => "a single quote",
        '\n' | '\r' => "several lines",
        '*' | '?' => "a pattern",
        _ => "a character that is not plain",
    }
}

/// The programs that can be seen in a text that is not understood, so that what denies one of them
/// still does.
fn visible(text: &str) -> Reading {
    let mut reading = Reading::default();
    let ends = |it: char| matches!(it, '&' | '|' | ';' | '(' | ')' | '{' | '}' | '\n' | '\r' | '`');
    let mut at = 0;
    for part in text.split_inclusive(ends) {
        let span = Span { start: at, end: at + part.len() };
        at = span.end;
        let part = part.trim_end_matches(ends).trim_matches([' ', '\t', '@']);
        let words = part.split_whitespace().map(|word| word.replace(['"', '\'', '^'], ""));
        let mut words: Vec<Word> =
            words.map(|text| Word { text, form: Form::Literal, span }).collect();
        let Some(first) = words.first_mut() else { continue };
        first.text = program_name(&first.text);
        let seen = unwrap_words(words.clone());
        let command = reading.commands.len();
        reading.commands.push(SimpleCommand { words, span, ..SimpleCommand::default() });
        reading.runs.extend(seen.runs.into_iter().map(|mut run| {
            (run.command, run.span) = (command, span);
            run
        }));
    }
    reading
}

/// The first place where one of the shells would put the output of a command into the text.
fn substitution(text: &str) -> Option<Substitution> {
    let in_powershell = text.find("$(").map(|offset| Substitution { construct: "$(", offset });
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split_whitespace().peekable();
    let mut in_cmd = None;
    while let Some(word) = words.next() {
        let is_for = word.trim_start_matches(['@', '(', '&', '|']) == "for";
        if is_for && words.peek().is_some_and(|next| next.starts_with("/f")) {
            let offset = lower.find("for").unwrap_or(0);
            in_cmd = Some(Substitution { construct: "for /f", offset });
            break;
        }
    }
    in_powershell.or(in_cmd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_with_plain_arguments_is_understood() {
        for text in [
            "git status",
            "Git.EXE  log -n 3",
            r"dir C:\Users\me",
            r#"python build.py --name "two words" --set x=1"#,
            r#"findstr "a & b | c" file.txt"#,
            r"tools\build.cmd release",
        ] {
            assert_eq!(plainness(text, WindowsShell::Cmd), Ok(()), "{text}");
            assert!(read(text, WindowsShell::Cmd).understood, "{text}");
        }
        for text in ["Get-ChildItem -Recurse", r#"git commit -m "a message""#] {
            assert_eq!(plainness(text, WindowsShell::PowerShell), Ok(()), "{text}");
        }
        let reading = read(r"C:\Git\GIT.exe push", WindowsShell::Cmd);
        assert_eq!(reading.runs.first().and_then(|run| run.name()), Some("c:/git/git"));
    }

    #[test]
    fn everything_else_is_not() {
        for text in [
            "",
            "echo %PATH%",
            "echo a & del b",
            "dir | more",
            "echo a > b",
            "for %i in (1 2) do echo %i",
            "call x.cmd",
            "START calc",
            "echo ^& x",
            "if exist x echo y",
            "(echo a)",
            "echo a\necho b",
            "echo a\tb",
            "\"C:\\x y\\z.exe\" a",
            "echo \"a\\\" b",
            "echo \"open",
            "echo 'a b'",
            "echo \"100%\"",
            "del *.txt",
            "cmd^.exe",
            "echo é",
        ] {
            assert!(plainness(text, WindowsShell::Cmd).is_err(), "{text}");
            assert!(!read(text, WindowsShell::Cmd).understood, "{text}");
        }
        for text in [
            "iex x",
            "& git status",
            "git $args",
            "git `x",
            "$(x)",
            "gci | rm",
            "{ x }",
            "git @args",
            "git a,b",
            "x = 1",
            "git \"$x\"",
            "rm x; ls",
            "Invoke-Expression x",
        ] {
            assert!(plainness(text, WindowsShell::PowerShell).is_err(), "{text}");
        }
    }

    #[test]
    fn what_can_be_seen_is_still_compared_with_rules() {
        let reading = read("cd x && GIT push & echo %A%", WindowsShell::Cmd);
        let names: Vec<_> = reading.runs.iter().filter_map(|run| run.name()).collect();
        assert_eq!(names, ["cd", "git", "echo"]);
    }

    #[test]
    fn substitutions_are_found() {
        let found = |text| read(text, WindowsShell::Cmd).substitution.map(|it| it.construct);
        assert_eq!(found("for /f %i in ('dir') do echo %i"), Some("for /f"));
        assert_eq!(found("@FOR /F \"tokens=*\" %i in ('dir') do echo %i"), Some("for /f"));
        assert_eq!(found("echo $(whoami)"), Some("$("));
        assert_eq!(found("for %i in (1 2) do echo %i"), None);
        assert_eq!(found("echo hi & exit 3"), None);
    }

    #[test]
    fn shells_are_known_by_name_and_path() {
        assert_eq!(windows_shell(r"C:\WINDOWS\system32\CMD.EXE"), Some(WindowsShell::Cmd));
        assert_eq!(windows_shell("cmd"), Some(WindowsShell::Cmd));
        assert_eq!(windows_shell("pwsh"), Some(WindowsShell::PowerShell));
        assert_eq!(windows_shell("powershell.exe"), Some(WindowsShell::PowerShell));
        assert_eq!(windows_shell("/bin/bash"), None);
    }
}
