//! Recognises `sed` and `awk` programs that only print; any other one counts as unknown.

use crate::reading::Word;

/// Whether the script of a program, named by its check, does nothing but print.
pub(crate) fn only_prints(check: &str, words: &[Word]) -> bool {
    match check {
        "sed" => sed(words),
        "awk" => awk(words),
        _ => true,
    }
}

/// Whether every word that could be a script of `sed` is a harmless one.
fn sed(words: &[Word]) -> bool {
    let mut scripts = Vec::new();
    let mut operand_seen = false;
    let mut expects = false;
    for word in words {
        let Some(text) = word.literal() else {
            // A file may be dynamic once the script is known.
            if operand_seen && !expects && !word.text.starts_with('-') {
                continue;
            }
            return false;
        };
        if expects {
            scripts.push(text);
            expects = false;
        } else if text == "-e" || text == "-ne" || text == "-Ee" || text == "--expression" {
            (expects, operand_seen) = (true, true);
        } else if let Some(script) = text.strip_prefix("--expression=") {
            operand_seen = true;
            scripts.push(script);
        } else if text.starts_with('-') {
            if !matches!(text, "-n" | "-E" | "-r" | "-z" | "-u" | "-nE" | "-nr" | "-En" | "--quiet")
            {
                return false;
            }
        } else if !operand_seen {
            operand_seen = true;
            scripts.push(text);
        }
    }
    !scripts.is_empty() && scripts.iter().all(|script| sed_script(script))
}

/// Whether a script holds only substitutions, printing, deleting and quitting.
fn sed_script(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', ';', '\n', '\t']);
        if rest.is_empty() {
            return true;
        }
        let Some(after) = sed_address(rest).and_then(sed_command) else { return false };
        rest = after;
    }
}

/// What follows an address.
fn sed_address(script: &str) -> Option<&str> {
    let mut rest = script;
    for _ in 0..2 {
        rest = match rest.chars().next()? {
            '0'..='9' => rest.trim_start_matches(|letter: char| letter.is_ascii_digit()),
            '$' => rest.get(1..)?,
            '/' => until(rest.get(1..)?, '/')?,
            _ => break,
        };
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => break,
        }
    }
    Some(rest.trim_start_matches([' ', '!']))
}

/// What follows a harmless command.
fn sed_command(script: &str) -> Option<&str> {
    let letter = script.chars().next()?;
    let rest = script.get(letter.len_utf8()..)?;
    match letter {
        'p' | 'd' | 'q' | '=' | 'n' | 'N' | 'P' | 'D' | 'G' | 'g' | 'h' | 'H' | 'x' | 'l' => {
            Some(rest)
        }
        's' | 'y' => {
            let delimiter = rest.chars().next().filter(char::is_ascii_punctuation)?;
            let flags = until(until(rest.get(1..)?, delimiter)?, delimiter)?;
            let after =
                flags.trim_start_matches(['g', 'p', 'i', 'I', 'm', '0', '1', '2', '3', '4', '5']);
            matches!(after.chars().next(), None | Some(';' | ' ' | '\n')).then_some(after)
        }
        _ => None,
    }
}

/// What follows the next unescaped delimiter.
fn until(text: &str, delimiter: char) -> Option<&str> {
    let mut escaped = false;
    for (offset, character) in text.char_indices() {
        if character == delimiter && !escaped {
            return text.get(offset + character.len_utf8()..);
        }
        escaped = character == '\\' && !escaped;
    }
    None
}

/// Whether the program of `awk` has nothing in it that runs or writes.
fn awk(words: &[Word]) -> bool {
    let mut program = None;
    let mut value = false;
    for word in words {
        let Some(text) = word.literal() else {
            if value || program.is_some() && !word.text.starts_with('-') {
                value = false;
                continue;
            }
            return false;
        };
        if value {
            value = false;
        } else if text == "-F" || text == "-v" {
            value = true;
        } else if program.is_none() && !text.starts_with('-') {
            program = Some(text);
        }
    }
    program.is_some_and(|program| {
        let words =
            ["system", "getline", "printf >", "close", "@load", "@include", "ENVIRON", "fflush"];
        !program.contains(['|', '>', '`', '@']) && !words.iter().any(|word| program.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_sed_that_write_or_run_are_told_apart() {
        for safe in
            ["s/a/b/", "s|a|b|g", "1,5p", "$d", "/x/p", "/a/,/b/p", "s/a/b/;s/c/d/gI", "10q"]
        {
            assert!(sed_script(safe), "{safe}");
        }
        for other in
            ["s/a/b/e", "s/a/b/w f", "w f", "1e", "e rm x", "r f", "s/a/b", "/x/w f", "p;e id"]
        {
            assert!(!sed_script(other), "{other}");
        }
    }
}
