//! Text for the shells of Windows: a small list of what is plain, and everything else is not
//! understood.
//!
//! `cmd.exe` and PowerShell take a text apart in ways that no second reader could follow for long.
//! So only one program with arguments that no shell reads as anything else is understood. What can
//! be seen of the programs in other texts is still compared with the rules that deny them.

mod paths;
mod visible;
mod words;

pub(crate) use self::paths::{folded, is_absolute, is_same_path, long_names};
use crate::{
    plain::NotPlain,
    reading::{Reading, Refusal, SimpleCommand, Span, Substitution},
    unwrap::unwrap,
};

/// A shell of Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowsShell {
    /// `cmd.exe`.
    Cmd,
    /// Windows PowerShell, or the newer one.
    PowerShell,
}

/// The words that `cmd.exe` does not look for as files.
const INTERNAL: [&str; 46] = [
    "assoc", "break", "call", "cd", "chdir", "cls", "color", "copy", "date", "del", "dir", "echo",
    "else", "endlocal", "erase", "exit", "for", "ftype", "goto", "if", "keys", "md", "mkdir",
    "mklink", "move", "not", "path", "pause", "popd", "prompt", "pushd", "rd", "rem", "ren",
    "rename", "rmdir", "set", "setlocal", "shift", "start", "time", "title", "type", "ver",
    "verify", "vol",
];

/// Whether a name in small letters is one of them.
fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

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
    // Windows takes these away from the end of a name before it looks for the file.
    let name = name.trim_end_matches(['.', ' ']);
    if name.is_empty() {
        return text.to_owned();
    }
    let end = PROGRAM_ENDS.iter().find(|end| name.ends_with(**end) && name.len() > end.len());
    end.and_then(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
}

/// Reads a text for such a shell.
pub(crate) fn read(text: &str, shell: WindowsShell) -> Reading {
    let mut reading = read_text(text, shell);
    unwrap(&mut reading);
    reading
}

/// The same, without a look at what the commands run in turn.
pub(crate) fn read_text(text: &str, shell: WindowsShell) -> Reading {
    let mut reading = match words::words(text, shell) {
        Ok(words) => {
            let span = Span { start: 0, end: text.len() };
            let command = SimpleCommand { words, span, ..SimpleCommand::default() };
            Reading { understood: true, commands: vec![command], ..Reading::default() }
        }
        Err(NotPlain { what, offset }) => {
            let reason = "text for a shell of Windows is only understood if it is one program \
                          with plain arguments";
            let refusal = Some(Refusal { construct: what, offset, reason });
            Reading { refusal, ..visible::visible(text) }
        }
    };
    reading.substitution = substitution(text);
    reading
}

/// Why no allow can cover a text for such a shell, if none can.
pub(crate) fn plainness(text: &str, shell: WindowsShell) -> Result<(), NotPlain> {
    words::words(text, shell).map(drop)
}

/// The first place where one of the shells would put the output of a command into the text.
fn substitution(text: &str) -> Option<Substitution> {
    let in_powershell = text.find("$(").map(|offset| Substitution { construct: "$(", offset });
    in_powershell.into_iter().chain(for_f(text)).min_by_key(|found| found.offset)
}

/// Where `for /f` stands, which reads what a command prints. A caret before a letter is nothing.
fn for_f(text: &str) -> Option<Substitution> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.' | '\\');
    let lower = text.to_ascii_lowercase();
    let begins = lower.match_indices('f').map(|(place, _)| place);
    let mut begins = begins.filter(|place| {
        let before = lower.get(..*place).and_then(|it| it.chars().rev().find(|it| *it != '^'));
        !before.is_some_and(is_part)
    });
    let offset = begins.find(|place| {
        let rest = lower.get(*place..).unwrap_or_default();
        let mut rest = rest.chars().filter(|it| *it != '^');
        let is_for = "for".chars().all(|letter| rest.next() == Some(letter));
        let mut rest = rest.skip_while(|it| matches!(it, ' ' | '\t' | ',' | ';' | '='));
        is_for && rest.next() == Some('/') && rest.next() == Some('f')
    })?;
    Some(Substitution { construct: "for /f", offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_are_known_by_name_and_path() {
        assert_eq!(windows_shell(r"C:\WINDOWS\system32\CMD.EXE"), Some(WindowsShell::Cmd));
        assert_eq!(windows_shell("cmd"), Some(WindowsShell::Cmd));
        assert_eq!(windows_shell("pwsh"), Some(WindowsShell::PowerShell));
        assert_eq!(windows_shell("powershell.exe"), Some(WindowsShell::PowerShell));
        assert_eq!(windows_shell("/bin/bash"), None);
    }

    #[test]
    fn programs_are_compared_without_capitals_and_ends() {
        let reading = read(r"C:\Git\GIT.exe push", WindowsShell::Cmd);
        assert_eq!(reading.runs.first().and_then(|run| run.name()), Some("c:/git/git"));
        assert_eq!(program_name(".exe"), ".exe");
        assert_eq!(program_name("Git.exe. ."), "git");
        assert_eq!(program_name(".."), "..");
    }

    #[test]
    fn no_nesting_takes_long() {
        let text = "cmd /c ".repeat(9000) + "git push";
        assert!(!read(&text, WindowsShell::Cmd).understood);
        let text = "if not exist x call start ".repeat(4000);
        assert!(!read(&text, WindowsShell::Cmd).understood);
    }
}
