//! Command lines: Windows gives a program one text, and each program takes it apart by itself.
//!
//! Most do so by the rules of the C library. `cmd.exe` has rules of its own, both for what follows
//! its `/c` and for the arguments of a batch file, which it runs.

use std::{ffi::OsStr, path::Path};

/// What in an argument makes quotes necessary for a program: what ends a word, and what some
/// programs take for a pattern, a quote or the name of a list where it stands without quotes.
const BREAKS: &[char] =
    &[' ', '\t', '\n', '\r', '\u{b}', '"', '\'', '*', '?', '[', ']', '{', '}', '~', '@'];

/// What those programs bring along that take a line apart by the rules of Cygwin.
const CYGWIN: [&str; 2] = ["msys-2.0.dll", "cygwin1.dll"];

/// Characters of an argument that can never reach a batch file as they are.
const NEVER: &[char] = &['\0', '\r', '\n'];

/// The command line for a program and its arguments, its own name first; none if they cannot be
/// passed to it.
pub(super) fn command_line(program: &Path, argv: &[String]) -> Option<String> {
    let (name, arguments) = argv.split_first()?;
    if argv.iter().any(|argument| argument.contains('\0')) {
        return None;
    }
    if is_batch(program) {
        return batch_line(program, arguments);
    }
    if is_command_processor(program)
        && let [options @ .., run, script] = arguments
        && run.eq_ignore_ascii_case("/c")
    {
        // With `/s` it takes off the first and the last quote, and nothing else.
        return Some(format!("{name} {} /c \"{script}\"", options.join(" ")));
    }
    let quote = if is_of_cygwin(program) { quoted_for_cygwin } else { quoted };
    let words: Vec<String> = argv.iter().map(|argument| quote(argument)).collect();
    Some(words.join(" "))
}

/// Whether a program takes its line apart by the rules of Cygwin, as the shells of Git do: of those
/// a small program stands in another folder than they.
fn is_of_cygwin(program: &Path) -> bool {
    let Some(folder) = program.parent() else { return false };
    let has = |folder: &Path| CYGWIN.iter().any(|name| folder.join(name).is_file());
    let name = program.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let is_shell = ["bash", "sh"].iter().any(|shell| name.eq_ignore_ascii_case(shell));
    has(folder) || is_shell && folder.parent().is_some_and(|git| has(&git.join(r"usr\bin")))
}

/// An argument as Cygwin takes it apart: in quotes each backslash before a backslash or a quote
/// stands for nothing else.
fn quoted_for_cygwin(argument: &str) -> String {
    format!("\"{}\"", argument.replace('\\', r"\\").replace('"', "\\\""))
}

/// Whether `cmd.exe` runs this file.
pub(super) fn is_batch(program: &Path) -> bool {
    let extension = program.extension().and_then(OsStr::to_str).unwrap_or_default();
    extension.eq_ignore_ascii_case("bat") || extension.eq_ignore_ascii_case("cmd")
}

fn is_command_processor(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.eq_ignore_ascii_case("cmd.exe") || name.eq_ignore_ascii_case("cmd")
}

/// An argument as the C library takes it apart again: backslashes are doubled before a quote only.
fn quoted(argument: &str) -> String {
    if !argument.is_empty() && !argument.contains(BREAKS) {
        return argument.to_owned();
    }
    let mut line = String::from("\"");
    let mut backslashes = 0;
    for character in argument.chars() {
        match character {
            '\\' => backslashes += 1,
            '"' => {
                line.push_str(&"\\".repeat(backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(character);
    }
    line.push_str(&"\\".repeat(backslashes));
    line.push('"');
    line
}

/// The line by which `cmd.exe` runs a batch file. Every argument is in quotes; `%` would be taken
/// for a variable even there, so an empty piece of the current folder's name stands behind it.
fn batch_line(program: &Path, arguments: &[String]) -> Option<String> {
    let path = program.to_str().filter(|path| !path.contains('"'))?;
    let mut line = format!("cmd.exe /e:ON /v:OFF /d /c \"\"{path}\"");
    for argument in arguments {
        if argument.contains(NEVER) {
            return None;
        }
        line.push_str(" \"");
        line.push_str(&argument.replace('"', "\"\"").replace('%', "%%cd:~,%"));
        let backslashes = argument.chars().rev().take_while(|it| *it == '\\').count();
        line.push_str(&"\\".repeat(backslashes));
        line.push('"');
    }
    line.push('"');
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, arguments: &[&str]) -> Option<String> {
        let name = program.rsplit('\\').next().unwrap_or_default().to_owned();
        let argv: Vec<String> =
            [name].into_iter().chain(arguments.iter().map(|it| (*it).to_owned())).collect();
        command_line(Path::new(program), &argv)
    }

    #[test]
    fn arguments_are_quoted_where_they_must_be() {
        let cases: [(&str, &str); 10] = [
            ("plain", "plain"),
            ("", "\"\""),
            ("two words", "\"two words\""),
            (r#"a"b"#, r#""a\"b""#),
            (r"c:\dir\", r"c:\dir\"),
            (r"c:\my dir\", r#""c:\my dir\\""#),
            (r#"x\"y"#, r#""x\\\"y""#),
            ("%PATH%", "%PATH%"),
            ("日本 ü", "\"日本 ü\""),
            ("*.txt", "\"*.txt\""),
        ];
        for (argument, wanted) in cases {
            let found = line(r"C:\x\tool.exe", &[argument]);
            assert_eq!(found.as_deref(), Some(&*format!("tool.exe {wanted}")));
        }
        assert_eq!(line(r"C:\x\tool.exe", &["a\0b"]), None);
    }

    #[test]
    fn the_shells_of_git_get_what_they_take_apart_in_their_own_way() {
        assert_eq!(quoted_for_cygwin("ls *.txt"), r#""ls *.txt""#);
        assert_eq!(quoted_for_cygwin(r#"printf 'a\\b' "x""#), r#""printf 'a\\\\b' \"x\"""#);
    }

    #[test]
    fn a_script_reaches_the_command_processor_as_it_is() {
        let found = line(r"C:\windows\system32\cmd.exe", &["/d", "/s", "/c", "echo \"a b\" & x"]);
        assert_eq!(found.as_deref(), Some("cmd.exe /d /s /c \"echo \"a b\" & x\""));
    }

    #[test]
    fn nothing_of_an_argument_of_a_batch_file_is_run() {
        let found = line(r"C:\x\tool.CMD", &["a&calc", "%PATH%", "q\"r", "end\\"]);
        let wanted = r#"cmd.exe /e:ON /v:OFF /d /c ""C:\x\tool.CMD" "a&calc" "#.to_owned()
            + r#""%%cd:~,%PATH%%cd:~,%" "q""r" "end\\"""#;
        assert_eq!(found, Some(wanted));
        assert_eq!(line(r"C:\x\tool.bat", &["two\nlines"]), None);
    }
}
