//! A secret as programs spell it when they print it for somebody to read back: shells with their
//! quotes, languages with their escapes.
//!
//! Only what stands inside the quotes is made: that is what is searched for. A token of letters,
//! digits and a few signs has one spelling everywhere.

use std::fmt::Write as _;

/// All spellings of a value that differ from it.
pub(super) fn all(value: &str) -> Vec<String> {
    let spelled = [
        backslashed(value),
        value.replace('\'', r"'\''"),
        dash_quoted(value),
        double_quoted(value),
        ansi_c(value, false),
        ansi_c(value, true),
        python(value, '\'', false),
        python(value, '"', false),
        python(value, '\'', true),
        python(value, '"', true),
        json_ascii(value),
        json_ascii(value).replace('/', r"\/"),
    ];
    spelled.into_iter().filter(|text| text != value).collect()
}

/// As `printf %q` of bash does, where nothing has to be spelled by its number.
fn backslashed(value: &str) -> String {
    let mut text = String::new();
    for (place, character) in value.char_indices() {
        let before = value.get(..place).and_then(|before| before.chars().next_back());
        let special = match character {
            '#' => before.is_none(),
            '~' => matches!(before, None | Some(':' | '=')),
            other => " \t\n'\"\\|&;()<>!{}*[]?^$`,".contains(other),
        };
        if special {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// As `set -x` and `export -p` of dash do: apostrophes stand between double quotes, together. What
/// would be an empty pair of quotes at either end is left out.
fn dash_quoted(value: &str) -> String {
    let mut text = String::new();
    let mut is_outside = false;
    for character in value.chars() {
        if (character == '\'') != is_outside {
            text.push_str(if is_outside { "\"'" } else { "'\"" });
            is_outside = !is_outside;
        }
        text.push(character);
    }
    let text = if is_outside { text + "\"" } else { text };
    let begun = if value.starts_with('\'') { text.strip_prefix('\'') } else { None };
    begun.map(str::to_owned).unwrap_or(text)
}

/// As `declare -p` does.
fn double_quoted(value: &str) -> String {
    let mut text = String::new();
    for character in value.chars() {
        if "\"\\$`".contains(character) {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// As a shell writes what has control characters in it, between `$'` and `'`; where the locale
/// knows no other letters, those too are spelled by the numbers of their bytes.
fn ansi_c(value: &str, is_ascii: bool) -> String {
    let mut text = String::new();
    for character in value.chars() {
        let letter = match character {
            '\\' | '\'' => character,
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\u{1b}' => 'E',
            _ => {
                let by_number = character.is_control() || is_ascii && !character.is_ascii();
                if by_number {
                    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                        // Writing to a string cannot fail.
                        let _ = write!(text, "\\{byte:03o}");
                    }
                } else {
                    text.push(character);
                }
                continue;
            }
        };
        text.extend(['\\', letter]);
    }
    text
}

/// As `repr` and `ascii` of Python do, between these quotes; others do much the same.
fn python(value: &str, quote: char, is_ascii: bool) -> String {
    let mut text = String::new();
    for character in value.chars() {
        let number = u32::from(character);
        // Writing to a string cannot fail.
        let _ = match character {
            '\n' => write!(text, r"\n"),
            '\r' => write!(text, r"\r"),
            '\t' => write!(text, r"\t"),
            '\\' => write!(text, r"\\"),
            _ if character == quote => write!(text, "\\{character}"),
            _ if character.is_control() || is_ascii && !character.is_ascii() => match number {
                0..=0xff => write!(text, r"\x{number:02x}"),
                0x100..=0xffff => write!(text, r"\u{number:04x}"),
                _ => write!(text, r"\U{number:08x}"),
            },
            _ => write!(text, "{character}"),
        };
    }
    text
}

/// As JSON writers do that keep to ASCII.
fn json_ascii(value: &str) -> String {
    let quoted = serde_json::to_string(value).unwrap_or_default();
    let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let mut text = String::new();
    for character in inner.unwrap_or_default().chars() {
        if character.is_ascii() {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(text, r"\u{unit:04x}");
        }
    }
    text
}
