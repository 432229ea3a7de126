//! Searches the text of a profile for what its shell's state cannot show: functions of dash, and
//! effects outside the shell.
//!
//! The text is what the shell shows that it reads (`-v`), whatever file it is in. The tests err on
//! the side of doubt.

use super::key::Shell;

/// Programs that are there to change files, or that go on in the background.
const CHANGERS: [&str; 14] = [
    "touch", "mkdir", "rmdir", "mktemp", "tee", "ln", "rm", "mv", "cp", "chmod", "install",
    "logger", "nohup", "setsid",
];

/// Where output may go without changing anything.
const HARMLESS: [&str; 3] = ["/dev/null", "&1", "&2"];

/// Whether a profile of this text may do more than is seen of its shell.
pub(super) fn may_do_more(shell: Shell, text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let is_code = |line: &&str| !line.trim_start().starts_with('#');
    let code: String = text.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect();
    may_write(&code) || (shell == Shell::Dash && may_define_functions(&code))
}

fn may_write(code: &str) -> bool {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let changes = code.split(|letter| !is_name(letter)).any(|word| CHANGERS.contains(&word));
    changes || code.match_indices('>').any(|(at, _)| !is_harmless(code.get(at + 1..)))
}

/// Whether a redirect to what follows changes nothing.
fn is_harmless(rest: Option<&str>) -> bool {
    let rest = rest.unwrap_or_default().trim_start_matches([' ', '\t']);
    let is_over = |letter: char| letter.is_ascii_whitespace() || ";&|)}`\"'".contains(letter);
    let ends_well = |rest: &str| rest.is_empty() || rest.starts_with(is_over);
    // The second of two is looked at by itself.
    rest.starts_with('>')
        || HARMLESS.iter().any(|place| rest.strip_prefix(place).is_some_and(ends_well))
}

/// Text that is made only while it runs, and text that turns off the showing of texts, could hide
/// one.
fn may_define_functions(code: &str) -> bool {
    let squeezed: String =
        code.chars().filter(|letter| !letter.is_ascii_whitespace() && *letter != '\\').collect();
    ["()", "eval", "set+", "set-"].iter().any(|hint| squeezed.contains(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_may_do_more_than_is_seen_is_found() {
        let plain = "PATH=/x:$PATH\nexport PATH # (sh)\nif [ \"$(id -u)\" -eq 0 ]; then :; fi\n\
            # f() { touch > x; }\nmesg n 2> /dev/null || true\nif which x >/dev/null 2>&1; then :; fi";
        for (shell, text, may) in [
            (Shell::Bash, plain, false),
            (Shell::Dash, plain, false),
            (Shell::Bash, "date >> ~/.logins", true),
            (Shell::Bash, "date >/dev/nullx; x > /dev/null/../y", true),
            (Shell::Dash, "[ -d ~/x ] || mkdir ~/x", true),
            (Shell::Bash, "export rm_me=1", false),
            (Shell::Dash, "f() { :; }", true),
            (Shell::Dash, "f ( )\n{ :; }", true),
            (Shell::Dash, "f (\\\n) { :; }", true),
            (Shell::Dash, "eval \"$(tool init)\"", true),
            (Shell::Dash, "set +v", true),
            // It lists its functions itself.
            (Shell::Bash, "f() { :; }; unset -f f; eval \"$(tool init)\"", false),
        ] {
            assert_eq!(may_do_more(shell, text.as_bytes()), may, "{text:?}");
        }
    }
}
