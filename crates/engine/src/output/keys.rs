//! Named keys as the bytes that a terminal sends for them (the encodings of xterm).

/// Keys whose bytes are always the same.
const PLAIN: [(&str, &[u8]); 13] = [
    ("enter", b"\r"),
    ("tab", b"\t"),
    ("shift-tab", b"\x1b[Z"),
    ("escape", b"\x1b"),
    ("esc", b"\x1b"),
    ("space", b" "),
    ("backspace", b"\x7f"),
    ("delete", b"\x1b[3~"),
    ("insert", b"\x1b[2~"),
    ("page-up", b"\x1b[5~"),
    ("pageup", b"\x1b[5~"),
    ("page-down", b"\x1b[6~"),
    ("pagedown", b"\x1b[6~"),
];

/// Keys that move the cursor, with the last byte of their sequence.
const MOVES: [(&str, u8); 6] =
    [("up", b'A'), ("down", b'B'), ("right", b'C'), ("left", b'D'), ("home", b'H'), ("end", b'F')];

/// The function keys, from F1 on.
const FUNCTIONS: [&[u8]; 12] = [
    b"\x1bOP",
    b"\x1bOQ",
    b"\x1bOR",
    b"\x1bOS",
    b"\x1b[15~",
    b"\x1b[17~",
    b"\x1b[18~",
    b"\x1b[19~",
    b"\x1b[20~",
    b"\x1b[21~",
    b"\x1b[23~",
    b"\x1b[24~",
];

/// The bytes of a named key; the moving ones differ while a program has asked for application mode.
pub fn bytes_of(name: &str, application_cursor: bool) -> Option<Vec<u8>> {
    // As others write them: Ctrl+C, ^C.
    let name = &match name.strip_prefix('^').filter(|key| key.chars().count() == 1) {
        Some(key) => format!("ctrl-{key}"),
        None if name.len() > 1 => name.replacen('+', "-", 1),
        None => name.to_owned(),
    };
    let lower = name.to_ascii_lowercase();
    if name.chars().count() == 1 && !name.contains(char::is_control) {
        return Some(name.clone().into_bytes());
    }
    if let Some((_, bytes)) = PLAIN.iter().find(|(plain, _)| *plain == lower) {
        return Some(bytes.to_vec());
    }
    if let Some((_, last)) = MOVES.iter().find(|(moving, _)| *moving == lower) {
        return Some(vec![0x1b, if application_cursor { b'O' } else { b'[' }, *last]);
    }
    if let Some(key) = lower.strip_prefix("ctrl-") {
        return control(key).map(|byte| vec![byte]);
    }
    if lower.starts_with("alt-") {
        // From the name as it was given: alt-a and alt-A are two keys.
        return alternate(name.get("alt-".len()..)?);
    }
    (1..).zip(FUNCTIONS).find(|(number, _)| lower == format!("f{number}")).map(|(_, b)| b.to_vec())
}

fn control(key: &str) -> Option<u8> {
    match key.as_bytes() {
        b"space" => Some(0),
        [key @ (b'a'..=b'z' | b'\\' | b']' | b'^' | b'_')] => Some(key & 0x1f),
        _ => None,
    }
}

fn alternate(key: &str) -> Option<Vec<u8>> {
    let mut characters = key.chars();
    let character = characters.next().filter(|character| !character.is_control())?;
    characters.next().is_none().then(|| format!("\x1b{character}").into_bytes())
}

/// The names of all keys, as the hint of an error.
pub fn known() -> String {
    let plain = PLAIN.iter().map(|(name, _)| *name);
    let names: Vec<&str> = plain.chain(MOVES.iter().map(|(name, _)| *name)).collect();
    let rest = "f1 to f12, ctrl-a to ctrl-z, ctrl-space, ctrl-\\, ctrl-], ctrl-^, ctrl-_, \
                alt- and one character, any one character";
    format!("{}, {rest}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_xterm_sends() {
        for (name, expected) in [
            ("enter", Some(&b"\r"[..])),
            ("Enter", Some(b"\r")),
            ("TAB", Some(b"\t")),
            ("shift-tab", Some(b"\x1b[Z")),
            ("esc", Some(b"\x1b")),
            ("escape", Some(b"\x1b")),
            ("space", Some(b" ")),
            ("backspace", Some(b"\x7f")),
            ("delete", Some(b"\x1b[3~")),
            ("insert", Some(b"\x1b[2~")),
            ("pageup", Some(b"\x1b[5~")),
            ("Page-Down", Some(b"\x1b[6~")),
            ("f1", Some(b"\x1bOP")),
            ("F5", Some(b"\x1b[15~")),
            ("f12", Some(b"\x1b[24~")),
            ("ctrl-a", Some(b"\x01")),
            ("Ctrl-C", Some(b"\x03")),
            ("ctrl-z", Some(b"\x1a")),
            ("ctrl-space", Some(b"\0")),
            ("ctrl-\\", Some(b"\x1c")),
            ("ctrl-]", Some(b"\x1d")),
            ("ctrl-^", Some(b"\x1e")),
            ("ctrl-_", Some(b"\x1f")),
            ("alt-x", Some(b"\x1bx")),
            ("Alt-X", Some(b"\x1bX")),
            ("alt-ä", Some("\x1bä".as_bytes())),
            ("alt-", None),
            ("alt-ab", None),
            ("alt-\x1b", None),
            ("ctrl-", None),
            ("ctrl-1", None),
            ("ctrl-ab", None),
            ("f0", None),
            ("f13", None),
            ("f01", None),
            ("", None),
            ("hyper", None),
        ] {
            assert_eq!(bytes_of(name, false).as_deref(), expected, "{name:?}");
        }
    }

    #[test]
    fn moving_keys_know_the_application_mode() {
        let keys = [("up", "A"), ("down", "B"), ("right", "C"), ("left", "D")];
        for (name, last) in keys.into_iter().chain([("home", "H"), ("end", "F")]) {
            assert_eq!(bytes_of(name, false), Some(format!("\x1b[{last}").into_bytes()));
            assert_eq!(bytes_of(name, true), Some(format!("\x1bO{last}").into_bytes()));
        }
    }

    #[test]
    fn every_name_in_the_hint_is_a_key() {
        let hint = known();
        let names = hint.split(", ").filter(|name| !name.contains(' '));
        assert!(names.clone().count() > 20);
        for name in names {
            assert!(bytes_of(name, false).is_some(), "{name}");
        }
    }
}
