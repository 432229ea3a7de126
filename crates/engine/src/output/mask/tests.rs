//! What is masked, and that nothing of it shows, however the output is cut.

use std::sync::{Arc, LazyLock};

use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::{patterns::filled, *};
use crate::output::{
    Artifact, Cursor, Screen, Selection, SmallOutput, TaskOutput, clean::TextEnd, previews,
};

/// Two secrets of which one is the beginning of the other, one of several lines, one that repeats
/// itself.
const SECRETS: [(&str, &str); 4] = [
    ("SHORT_TOKEN", "s3cr3t-Wert"),
    ("LONG_TOKEN", "s3cr3t-Wert/0123456789"),
    ("LINES_SECRET", "first line of it, long\nsecond\nthird line of it, long"),
    ("AGAIN_PASSWORD", "ababababab#ababababab"),
];

fn mask() -> Arc<Mask> {
    static MASK: LazyLock<Arc<Mask>> = LazyLock::new(|| {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Arc::new(Mask::new(&SECRETS.map(owned)))
    });
    MASK.clone()
}

fn output(stdout: &[u8], stderr: &[u8]) -> TaskOutput {
    let (stdout, stderr) = (stdout.to_vec(), stderr.to_vec());
    TaskOutput::from(&SmallOutput { stdout, stderr, timeline: Vec::new() })
}

/// Whether a text shows a secret, or half of one or more from its beginning or its end.
fn shows(text: &str) -> Option<&'static str> {
    let shown = |secret: &&str| {
        let half = secret.len().div_ceil(2);
        text.contains(&secret[..half]) || text.contains(&secret[secret.len() - half..])
    };
    SECRETS.iter().map(|(_, secret)| *secret).find(shown)
}

fn preview(raw: &[u8], budget: u64) -> String {
    let (shown, _) = previews(&mask(), &Artifact::of(raw), &Artifact::of(b""), budget).unwrap();
    shown.text.unwrap_or_default()
}

#[test]
fn values_become_markers_with_their_names() {
    let [(_, short), (_, long), (_, lines), (_, again)] = SECRETS;
    for (text, shown) in [
        ("nothing".to_owned(), "nothing".to_owned()),
        (short.into(), "[masked:SHORT_TOKEN]".into()),
        (format!("a{short}b{short}"), "a[masked:SHORT_TOKEN]b[masked:SHORT_TOKEN]".into()),
        (format!("x{long}"), "x[masked:SHORT_TOKEN]".into()),
        (format!("k:\n{lines}\n"), "k:\n[masked:LINES_SECRET]\n".into()),
        ("> third line of it, long".into(), "> [masked:LINES_SECRET]".into()),
        ("second".into(), "second".into()),
        (format!("abab{again}"), "abab[masked:AGAIN_PASSWORD]".into()),
        (
            "{\"k\":\"first line of it, long\\nsecond\"}".into(),
            "{\"k\":\"[masked:LINES_SECRET]\\nsecond\"}".into(),
        ),
        (filled("x ghp_<36> y"), "x [masked:github_token] y".into()),
        (
            filled("git clone https://me:<12>@example.org/x"),
            "git clone https://me:[masked:url_password]@example.org/x".into(),
        ),
        (
            format!("Authorization: Bearer {short}"),
            "Authorization: Bearer [masked:SHORT_TOKEN]".into(),
        ),
    ] {
        assert_eq!(mask().text(&text), shown);
        assert_eq!(mask().text(&shown), shown, "a marker stays what it is");
        assert_eq!(preview(text.as_bytes(), 1000), shown.trim());
    }
}

#[test]
fn no_sequence_and_no_overwriting_hides_a_secret() {
    let secret = "s3cr3t-Wert";
    let (a, b) = secret.split_at(5);
    for raw in [
        format!("{a}\x1b[31m{b}"),
        format!("\x1b[1m{a}\x1b]0;title\x07\x1b[0m{b}\x1b[0m"),
        format!("{a}\r{b}"),
        format!("{a}\x08{b}"),
        format!("{a}\u{200b}{b}"),
        format!("{a}\u{202e}{b}"),
        format!("{a}\x1b[1C{b}"),
        format!("xxxx\r{secret}"),
        format!("xxxxx{b}\r{a}"),
        format!("{a}zzz\x1b[3D\x1b[K{b}"),
        secret.chars().map(|c| format!("\x1b[38;5;1m{c}")).collect(),
    ] {
        let shown = preview(raw.as_bytes(), 1000);
        assert!(shows(&shown).is_none() && !shown.contains(b), "{raw:?}: {shown}");
        assert!(shown.contains("[masked:SHORT_TOKEN]"), "{raw:?}: {shown}");
    }
    // A tool that shows everything as it is leaves the sequences, too.
    let raw = format!("\x1b[1m{a}\x1b[31m{b}\x1b[0m\n");
    let complete = Artifact::of(raw.as_bytes()).complete(&mask(), 1000).unwrap();
    assert_eq!(complete.text, "\x1b[1m[masked:SHORT_TOKEN]\x1b[0m\n");
}

#[test]
fn everything_that_is_text_in_json_is_masked() {
    let secret = "s3cr3t-Wert";
    let mut value = json!({ "a": [secret, 1, null], secret: { "b": format!("<{secret}>") } });
    assert!(mask().json(&mut value));
    let marker = "[masked:SHORT_TOKEN]";
    assert_eq!(value, json!({ "a": [marker, 1, null], marker: { "b": format!("<{marker}>") } }));
    assert!(!mask().json(&mut json!({ "a": "b" })));
}

#[test]
fn a_command_can_bring_secrets_of_its_own() {
    let mask = Mask::default();
    assert!(mask.with(&variables(&[("ASIMI_CLI", "1"), ("PLAIN", "long enough")])).is_none());
    let more = mask.with(&variables(&[("A_TOKEN", "long enough")])).unwrap();
    assert_eq!(more.text("it is long enough"), "it is [masked:A_TOKEN]");
    assert!(more.with(&variables(&[("A_TOKEN", "long enough")])).is_none());
    assert_eq!(format!("{more:?}"), "[\"A_TOKEN\"]", "no value in a log of ours");
}

#[test]
fn the_beginning_of_a_secret_waits_for_what_follows() {
    let mask = mask();
    let token = filled("ghp_<36>");
    for (written, held) in [
        ("plain", 0),
        ("s3c", 0),
        ("x s3cr", 4),
        ("x s3cr3t-Wert", 11),
        ("x s3cr3t-Wert!", 0),
        ("x s3cr3t-Wert/0123", 16),
        ("x s3cr3t-Wert/0123456789", 0),
        ("x \x1b[1ms3c\x1b[0mr3t", 10),
        ("x \x1b[1m", 0),
        ("x \x1b[", 2),
        ("first line of it, long\nsec", 26),
        (token.as_str(), 40),
        (&token[..20], 20),
        (&format!("{token} "), 0),
    ] {
        let scan = Scan::of(&mask, written.as_bytes(), 0, TextEnd::Open);
        assert_eq!(written.len() - scan.held, held, "{written:?}");
        let all = Scan::of(&mask, written.as_bytes(), 0, TextEnd::Final);
        assert_eq!(all.held, written.len());
    }
    // What cannot be waited for is masked at once.
    let flood = format!("s3cr{}", "\x1b[0m".repeat(mask.reach()));
    let Scan { secrets, held } = Scan::of(&mask, flood.as_bytes(), 0, TextEnd::Open);
    assert_eq!((secrets.len(), held), (1, flood.len()));
}

#[test]
fn a_cursor_inside_a_secret_shows_the_marker() {
    let raw = b"before s3cr3t-Wert after";
    for stdout in 8..18 {
        let cursor = Cursor { stdout, stderr: 0 };
        let fresh = output(raw, b"").since(&mask(), cursor, Selection::Both, 99, true).unwrap();
        assert_eq!((fresh.text.as_str(), fresh.masked), ("[masked:SHORT_TOKEN] after", true));
    }
}

#[test]
fn a_secret_in_the_gap_of_a_preview_shows_on_neither_side() {
    let filler = "word ".repeat(4000);
    for shift in 0..60 {
        let raws = [(&filler[shift..], filler.as_str()), (&filler, &filler[shift..])]
            .map(|(before, behind)| format!("{before}s3cr3t-Wert/0123456789{behind}"));
        for raw in raws {
            for budget in [40, 60, 100, 1000] {
                let shown = preview(raw.as_bytes(), budget);
                assert!(shows(&shown).is_none(), "{shown}");
            }
            let artifact = Artifact::of(raw.as_bytes());
            let complete = artifact.complete(&mask(), raw.len() as u64 - 1).unwrap();
            assert!(complete.truncated && shows(&complete.text).is_none(), "{}", complete.text);
        }
    }
}

#[test]
fn a_marker_is_not_cut_in_two() {
    let raw = "s3cr3t-Wert".repeat(3000);
    for budget in 40..80 {
        let shown = preview(raw.as_bytes(), budget);
        for line in shown.lines().filter(|line| !line.starts_with("[... ")) {
            assert_eq!(line.replace("[masked:SHORT_TOKEN]", ""), "", "{line}");
        }
    }
}

#[test]
fn a_screen_shows_no_secret_over_its_edge_nor_half_of_one_at_a_lines_end() {
    let (secret, pad) = ("s3cr3t-Wert/0123456789", " ".repeat(70));
    for (bytes, shown) in [
        (format!("x {secret} y"), "x [masked:SHORT_TOKEN] y".to_owned()),
        (format!("{pad}{secret} y\r\nnext"), format!("{pad}[masked:SHORT_TOKEN]\n y\nnext")),
        ("a s3cr3t-Wert/01\r\nb".to_owned(), "a [masked:SHORT_TOKEN]\nb".to_owned()),
        ("a s3cr3t\r\nb".to_owned(), "a [masked:SHORT_TOKEN]\nb".to_owned()),
        ("a s3cr\r\nb".to_owned(), "a s3cr\nb".to_owned()),
    ] {
        let screen = Screen::of(&output(bytes.as_bytes(), b"")).unwrap();
        let text = screen.text(&mask());
        assert!(shows(&text).is_none(), "{text}");
        assert_eq!(text.replace("[masked:LONG_TOKEN]", "[masked:SHORT_TOKEN]"), shown);
    }
}

/// Output with secrets in it, coloured, overwritten, half, and next to each other.
fn raw() -> impl Strategy<Value = String> {
    let secret =
        prop_oneof![Just(SECRETS[0].1), Just(SECRETS[1].1), Just(SECRETS[2].1), Just(SECRETS[3].1)];
    let coloured = (secret.clone(), 0usize..40).prop_map(|(secret, place)| {
        let (before, behind) = secret.split_at(place.min(secret.len()));
        format!("{before}\x1b[3{}m{behind}", place % 8)
    });
    let part = prop_oneof![
        3 => "[a-z ä\\n]{0,12}",
        3 => secret.prop_map(str::to_owned),
        1 => coloured,
        1 => Just("\r".to_owned()),
        1 => Just("ab".to_owned()),
    ];
    vec(part, 0..12).prop_map(|parts| parts.concat())
}

/// What a text has of the raw output besides markers.
fn without_markers(text: &str) -> String {
    SECRETS
        .iter()
        .fold(text.to_owned(), |text, (name, _)| text.replace(&format!("[masked:{name}]"), ""))
}

proptest! {
    #[test]
    fn words_searched_for_one_by_one_are_those_that_the_automaton_finds(raw in raw()) {
        let mask = mask();
        let built = mask.built();
        built.short_texts.store(SHORT_TEXTS_MAX, Ordering::Relaxed);
        prop_assert_eq!(Some(built.hits_one_by_one(&raw)), built.hits(&raw));
    }

    #[test]
    fn pages_of_an_output_that_grows_never_show_a_secret(
        stdout in raw(),
        stderr in raw(),
        steps in vec((0usize..30, 0usize..30, 1u64..12), 1..60),
        selection in prop_oneof![Just(Selection::Stdout), Just(Selection::Stderr)],
    ) {
        let mask = mask();
        let (mut pages, mut both) = (String::new(), Cursor::default());
        let (mut cursor, mut more) = (Cursor::default(), true);
        let (mut out, mut err) = (0_usize, 0_usize);
        let mut steps = steps.into_iter();
        while more {
            let step = steps.next();
            let (out_bytes, err_bytes, budget) = step.unwrap_or((usize::MAX, usize::MAX, 5));
            out = stdout.len().min(out.saturating_add(out_bytes));
            err = stderr.len().min(err.saturating_add(err_bytes));
            let now = output(&stdout.as_bytes()[..out], &stderr.as_bytes()[..err]);
            let page = now.since(&mask, cursor, selection, budget, step.is_none()).unwrap();
            pages.push_str(&page.text);
            (cursor, more) = (page.next, page.more || step.is_some());
            // Neither does what is beside them.
            let page = now.since(&mask, both, Selection::Both, budget, step.is_none()).unwrap();
            both = page.next;
            prop_assert!(shows(&page.text).is_none(), "{}", page.text);
            let (overview, _) = now.overview(&mask, Selection::Both, budget, step.is_none()).unwrap();
            prop_assert!(shows(&overview.text.unwrap_or_default()).is_none());
        }
        prop_assert!(shows(&pages).is_none(), "{}", pages);
    }

    #[test]
    fn a_stream_in_any_pieces_shows_no_secret_and_loses_nothing_else(
        raw in raw(),
        cuts in vec(1usize..20, 1..200),
    ) {
        let mut stream = MaskedStream::new(mask());
        let (mut shown, mut rest) = (Vec::new(), raw.as_bytes());
        for cut in cuts.iter().cycle() {
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            shown.extend(stream.feed(piece));
            rest = left;
            if rest.is_empty() {
                break;
            }
        }
        shown.extend(stream.finish());
        let shown = String::from_utf8(shown).unwrap();
        prop_assert!(shows(&shown).is_none(), "{}", shown);
        let whole = without_markers(&mask().text(&raw));
        let rest = without_markers(&shown);
        // In pieces, up to three characters may come before a marker that was not expected then.
        prop_assert!(rest.len() >= whole.len() && rest.len() <= whole.len() + 3 * 24, "{rest:?} {whole:?}");
    }

    #[test]
    fn any_bytes_can_be_searched(raw in vec(any::<u8>(), 0..300), lead in 0usize..300) {
        for end in [TextEnd::Open, TextEnd::Final] {
            let lead = lead.min(raw.len());
            let mask = mask();
            let Scan { secrets, held } = Scan::of(&mask, &raw, lead, end);
            prop_assert!(held <= raw.len() - lead);
            prop_assert!(secrets.iter().all(|secret| secret.start < secret.end));
        }
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
