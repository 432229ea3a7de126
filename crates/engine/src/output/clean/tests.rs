//! What is left of raw bytes, and where it was in them.

use proptest::prelude::*;

use super::*;

fn text(raw: &[u8]) -> String {
    clean(raw, TextEnd::Final, &[]).cells.iter().map(|cell| cell.character).collect()
}

#[test]
fn sequences_are_stripped_and_lines_folded() {
    for (raw, expected) in [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;aGk=\x1b\\after", "after"),
        ("\x1b]never ends\nnext line", "\nnext line"),
        ("\x1b(Bx\x1b=y", "xy"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("hello world\rHELLO\n", "HELLO world\n"),
        ("long line\r\x1b[Kshort\n", "short\n"),
        ("abc\x1b[2K\x1b[1Gxy\n", "xy\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("ab\x08c", "ac"),
        ("a\x00b", "a\u{fffd}b"),
        ("ring\x07", "ring"),
        ("\x1b[31\x1b[0mx", "x"),
        ("tag\u{e0041}\u{202e}ged", "tagged"),
        ("\x1b[999999999999999999999Cx", &format!("{}x", " ".repeat(COLUMN_MAX))),
    ] {
        assert_eq!(text(raw.as_bytes()), expected, "{raw:?}");
    }
}

#[test]
fn invalid_bytes_are_marked() {
    let cleaned = clean(b"a\xffb\xc3", TextEnd::Final, &[]);
    assert!(cleaned.replaced);
    assert_eq!(text(b"a\xffb\xc3"), "a\u{fffd}b\u{fffd}");
    assert!(!clean("ä".as_bytes(), TextEnd::Final, &[]).replaced);
}

#[test]
fn what_is_unfinished_is_told() {
    let endless = format!("x\x1b]{}", "é".repeat(SEQUENCE_CHARS_MAX));
    for (raw, reached) in [
        (&b"plain"[..], 5),
        ("aä".as_bytes(), 3),
        (b"a\xc3", 1),
        (b"a\xe2\x82", 1),
        (b"a\xff", 2),
        (b"a\x1b", 1),
        (b"a\x1b[31", 1),
        (b"a\x1b[31m", 6),
        (b"a\x1b[31\x1b", 5),
        (b"a\x1b\x1b", 2),
        (b"a\x1b(", 1),
        (b"a\x1b]0;title", 1),
        (b"a\x1b]0;t\x1b", 1),
        (b"a\x1b]0;t\xc3", 1),
        (b"a\x1b]0;title\n", 11),
        (b"a\xc2\x9b3", 1),
        (endless.as_bytes(), endless.len()),
    ] {
        assert_eq!(clean(raw, TextEnd::Open, &[]).reached, reached, "{raw:?}");
        assert_eq!(clean(raw, TextEnd::Final, &[]).reached, raw.len());
    }
    assert!(!clean(b"a\xc3", TextEnd::Open, &[]).replaced);
    let digits = format!("\x1b[{}", "1".repeat(2 * SEQUENCE_CHARS_MAX));
    assert!(clean(digits.as_bytes(), TextEnd::Open, &[]).reached > SEQUENCE_CHARS_MAX);
}

#[test]
fn ends_grow_only_where_the_bytes_can_be_cut() {
    for (raw, ends) in [
        ("abc", &[1, 2, 3][..]),
        ("abc\rXY", &[6, 6, 6]),
        ("abc\rXYZ", &[5, 6, 7]),
        ("abc\x08\x08X\n", &[1, 6, 6, 7]),
        ("a\x1b[3Cb", &[1, 6, 6, 6, 6]),
    ] {
        let cleaned = clean(raw.as_bytes(), TextEnd::Final, &[]);
        assert_eq!(cleaned.cells.iter().map(|cell| cell.end).collect::<Vec<_>>(), ends, "{raw:?}");
    }
}

#[test]
fn sequences_that_erase_a_long_line_again_and_again_take_linear_time() {
    // Quadratic work on this would take minutes, not milliseconds.
    for erase in ["\x1b[2K", "\x1b[1K"] {
        let raw = format!("{}{}", "x".repeat(400_000), format!("{erase}y").repeat(200_000));
        assert!(!clean(raw.as_bytes(), TextEnd::Final, &[]).cells.is_empty());
    }
}

proptest! {
    #[test]
    fn offsets_never_fall_and_stay_inside(raw in proptest::collection::vec(any::<u8>(), 0..400)) {
        let cleaned = clean(&raw, TextEnd::Final, &[]);
        let mut last = 0;
        for cell in &cleaned.cells {
            prop_assert!(cell.end >= last && cell.end <= raw.len());
            prop_assert!(!cell.character.is_control() || matches!(cell.character, '\n' | '\t'));
            last = cell.end;
        }
    }

    #[test]
    fn escape_floods_never_reach_the_text(raw in "[\\x1b\\[\\]P0-9;mKGx\\x07\\r\\n ]{0,300}") {
        prop_assert!(!text(raw.as_bytes()).contains('\x1b'));
    }
}
