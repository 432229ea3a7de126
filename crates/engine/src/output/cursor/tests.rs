//! Properties of reading a log that grows: no byte twice, none left out, nothing half.

use legwork_warden::folder::TimelineRow;
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::output::{SmallOutput, clean::clean};

/// A log as the warden writes it.
#[derive(Debug, Default, Clone)]
struct Log {
    small: SmallOutput,
    last_row: Option<(Stream, u64)>,
    /// Whether the timeline is full: a row only once a second, whatever the stream.
    full: bool,
}

impl Log {
    fn append(&mut self, stream: Stream, bytes: &[u8], time_us: u64) {
        let every = if self.full { 1_000_000 } else { 10_000 };
        let known = self.last_row.is_some_and(|(last, last_us)| {
            (last == stream || self.full) && time_us - last_us < every
        });
        let artifact = match stream {
            Stream::Stdout => &mut self.small.stdout,
            Stream::Stderr => &mut self.small.stderr,
        };
        if !known {
            self.last_row = Some((stream, time_us));
            let row = TimelineRow::Grew { stream, offset: artifact.len() as u64, time_us };
            self.small.timeline.extend(row.to_bytes());
        }
        artifact.extend(bytes);
    }

    fn output(&self) -> TaskOutput {
        TaskOutput::from(&self.small)
    }
}

/// One step of a log that grows and is read.
#[derive(Debug, Clone)]
enum Step {
    Grow { stream: Stream, bytes: usize, after_us: u64 },
    Read { selection: Selection, budget: u64, window: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let selection =
        prop_oneof![Just(Selection::Both), Just(Selection::Stdout), Just(Selection::Stderr)];
    let grow = (stream, 0usize..60, prop_oneof![0u64..20_000, 0u64..2_000_000])
        .prop_map(|(stream, bytes, after_us)| Step::Grow { stream, bytes, after_us });
    // Windows with just enough room for the longest sequence of these tests, in either stream.
    let read = (selection, prop_oneof![1u64..8, 1u64..200], 2 * SEQUENCE..4 * SEQUENCE)
        .prop_map(|(selection, budget, window)| Step::Read { selection, budget, window });
    vec(prop_oneof![3 => grow, 2 => read], 1..60)
}

/// More bytes than the longest sequence of these tests has.
const SEQUENCE: u64 = 50;

/// Lets a log of the two texts grow and reads it, to its end; gives all that was read, in order.
fn played(stdout: &[u8], stderr: &[u8], full: bool, steps: &[Step]) -> Vec<Fresh> {
    played_masked(&mask(), (stdout, stderr), full, steps)
}

/// The same without the secrets.
fn played_masked(
    mask: &Mask,
    (stdout, stderr): (&[u8], &[u8]),
    full: bool,
    steps: &[Step],
) -> Vec<Fresh> {
    let mut log = Log { full, ..Log::default() };
    let mut rest = (stdout, stderr);
    let (mut cursor, mut time_us, mut reads) = (Cursor::default(), 0, Vec::new());
    for step in steps {
        match step {
            Step::Grow { stream, bytes, after_us } => {
                time_us += after_us;
                let rest = if *stream == Stream::Stdout { &mut rest.0 } else { &mut rest.1 };
                let (piece, left) = rest.split_at((*bytes).min(rest.len()));
                log.append(*stream, piece, time_us);
                *rest = left;
            }
            Step::Read { selection, budget, window } => {
                let output = log.output();
                let view = output.view(mask, *selection, cursor).unwrap();
                let fresh = super::fresh(&view, *window, *budget, false).unwrap();
                check(&fresh, cursor, *selection);
                assert!(fresh.next != cursor || view.bytes() < *window, "there is always progress");
                cursor = fresh.next;
                reads.push(fresh);
            }
        }
    }
    log.append(Stream::Stdout, rest.0, time_us);
    log.append(Stream::Stderr, rest.1, time_us);
    loop {
        let fresh = log.output().since(mask, cursor, Selection::Both, 7, true).unwrap();
        check(&fresh, cursor, Selection::Both);
        cursor = fresh.next;
        let more = fresh.more;
        reads.push(fresh);
        if !more {
            assert_eq!((cursor.stdout, cursor.stderr), (stdout.len() as u64, stderr.len() as u64));
            return reads;
        }
    }
}

fn check(fresh: &Fresh, cursor: Cursor, selection: Selection) {
    let next = fresh.next;
    assert!(next.stdout >= cursor.stdout && next.stderr >= cursor.stderr);
    assert_eq!(selection.moved(cursor, next), next, "only the selected streams move");
    assert!(fresh.text.is_empty() || next != cursor);
}

/// Knows no variable.
fn mask() -> Mask {
    Mask::default()
}

fn joined(reads: &[Fresh]) -> String {
    reads.iter().map(|fresh| fresh.text.as_str()).collect()
}

/// The letters of one stream: stdout has small ones and stderr capitals, so that they can be told
/// apart.
fn only(text: &str, stream: Stream) -> String {
    let own = |character: &char| match stream {
        Stream::Stdout => !"QRSÄ字\t".contains(*character),
        Stream::Stderr => "QRSÄ字\t".contains(*character),
    };
    text.chars().filter(own).collect()
}

fn cleaned(raw: &str) -> String {
    clean(raw.as_bytes(), TextEnd::Final, &[]).cells.iter().map(|cell| cell.character).collect()
}

#[test]
fn a_cursor_is_good_for_its_task_only() {
    let (task, other) = (TaskId::from("t_one".to_owned()), TaskId::from("t_two".to_owned()));
    for cursor in [Cursor::default(), Cursor { stdout: u64::MAX, stderr: 0xabc }] {
        let text = cursor.to_text(&task);
        assert!(
            text.starts_with('c') && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
        );
        assert_eq!(Cursor::parse(&text, &task), Some(cursor));
        assert_eq!(Cursor::parse(&text, &other), None);
        for wrong in [
            text.to_uppercase(),
            format!("{text} "),
            format!("{text}.0"),
            text.replacen('c', "c0", 1),
            text.replacen('c', "c+", 1),
            text.replacen('.', "", 1),
            text.replacen('.', "1.", 1),
            text.chars().skip(1).collect(),
            text.chars().take(text.len() - 1).collect(),
        ] {
            assert_eq!(Cursor::parse(&wrong, &task), None, "{wrong}");
        }
    }
    for wrong in ["", "c", "c..", "0", "c0.0", "cé.0.12345678", "c1ffffffffffffffff.0.00000000"] {
        assert_eq!(Cursor::parse(wrong, &task), None, "{wrong}");
    }
}

#[test]
fn a_cut_is_at_a_lines_end_where_there_is_one() {
    let mut log = Log::default();
    log.append(Stream::Stdout, b"one two\nthree four five six seven\n", 0);
    for (budget, text, more) in [
        (1, "one ", true),
        (3, "one two\n", true),
        (5, "one two\n", true),
        (50, "one two\nthree four five six seven\n", false),
    ] {
        let fresh =
            log.output().since(&mask(), Cursor::default(), Selection::Both, budget, false).unwrap();
        assert_eq!((fresh.text.as_str(), fresh.more), (text, more), "budget {budget}");
        assert_eq!(fresh.next.stdout, text.len() as u64);
    }
}

#[test]
fn what_is_half_waits_until_it_is_whole() {
    for (written, shown, rest, shown_then) in [
        (&b"a\xc3"[..], "a", &b"\xa4b"[..], "\u{e4}b"),
        (b"a\x1b[3", "a", b"1mb", "b"),
        (b"a\x1b]0;ti", "a", b"tle\x07b", "b"),
        (b"a\x1b", "a", b"[0mb", "b"),
    ] {
        let mut log = Log::default();
        log.append(Stream::Stderr, written, 0);
        let first =
            log.output().since(&mask(), Cursor::default(), Selection::Both, 99, false).unwrap();
        assert_eq!((first.text.as_str(), first.next.stderr, first.more), (shown, 1, false));
        let (preview, next) = log.output().overview(&mask(), Selection::Both, 99, false).unwrap();
        assert_eq!((preview.text.as_deref(), next), (Some(shown), first.next));
        log.append(Stream::Stdout, b"-", 1);
        log.append(Stream::Stderr, rest, 2);
        let then = log.output().since(&mask(), first.next, Selection::Both, 99, false).unwrap();
        assert_eq!(then.text, format!("-{shown_then}"));
    }
    let mut log = Log::default();
    log.append(Stream::Stdout, b"a\xc3", 0);
    let last = log.output().since(&mask(), Cursor::default(), Selection::Both, 99, true).unwrap();
    assert_eq!((last.text.as_str(), last.next.stdout, last.replaced), ("a\u{fffd}", 2, true));
}

#[test]
fn halves_belong_together_whatever_came_between() {
    let mut log = Log::default();
    log.append(Stream::Stdout, b"a\xc3", 0);
    log.append(Stream::Stderr, b"Q\x1b[3", 1);
    log.append(Stream::Stdout, b"\xa4b", 2);
    log.append(Stream::Stderr, b"1mR", 3);
    for complete in [false, true] {
        let (shown, _) = log.output().overview(&mask(), Selection::Both, 99, complete).unwrap();
        assert_eq!((shown.text.as_deref(), shown.replaced), (Some("aQ\u{e4}bR"), false));
    }
    // A cut between the halves leaves the whole character to the next read.
    let output = log.output();
    let first =
        fresh(&output.view(&mask(), Selection::Both, Cursor::default()).unwrap(), 3, 99, false);
    assert_eq!(first.unwrap().next, Cursor { stdout: 1, stderr: 1 });
}

#[test]
fn a_cursor_beyond_the_end_stays() {
    let mut log = Log::default();
    log.append(Stream::Stdout, b"text", 0);
    for stdout in [4, 5, u64::MAX] {
        let cursor = Cursor { stdout, stderr: u64::MAX };
        let fresh = log.output().since(&mask(), cursor, Selection::Both, 99, true).unwrap();
        assert_eq!(fresh, Fresh { next: cursor, ..Fresh::default() });
    }
}

#[test]
fn an_overwritten_line_is_never_cut_where_a_character_would_be_lost() {
    let mut log = Log::default();
    log.append(Stream::Stdout, b"hello wide world\rHELLO\nnext\n", 0);
    let fresh = log.output().since(&mask(), Cursor::default(), Selection::Both, 1, false).unwrap();
    assert_eq!(fresh.text, "HELLO wide world");
    let fresh = log.output().since(&mask(), fresh.next, Selection::Both, 9, false).unwrap();
    assert_eq!(fresh.text, "\nnext\n");
}

#[test]
fn floods_of_what_is_not_shown_are_passed() {
    let mut log = Log::default();
    log.append(Stream::Stdout, "\x1b[0m".repeat(50_000).as_bytes(), 0);
    log.append(Stream::Stderr, format!("\x1b]{}", "é".repeat(5000)).as_bytes(), 20_000);
    log.append(Stream::Stdout, b"end", 40_000);
    let (mut cursor, mut reads, mut text) = (Cursor::default(), 0, String::new());
    loop {
        let fresh = log.output().since(&mask(), cursor, Selection::Both, 1, false).unwrap();
        text.push_str(&fresh.text);
        (cursor, reads) = (fresh.next, reads + 1);
        if !fresh.more {
            break;
        }
        assert!(reads < 2000);
    }
    assert!(text.ends_with("end") && text.trim_end_matches("end").chars().all(|c| c == 'é'));
}

#[test]
fn a_long_log_is_read_from_where_the_rows_matter() {
    let mut log = Log::default();
    for place in 0..30_000u64 {
        log.append(Stream::Stdout, b"q\n", place * 20_000);
        log.append(Stream::Stderr, b"Q\n", place * 20_000 + 1);
    }
    for seen in [0, 2, 1000, 59_000, 59_998, 60_000] {
        let cursor = Cursor { stdout: seen, stderr: seen };
        let fresh = log.output().since(&mask(), cursor, Selection::Both, 20, false).unwrap();
        let left = usize::try_from(60_000 - seen).unwrap();
        let expected = "q\nQ\n".repeat(left / 2);
        assert!(expected.starts_with(&fresh.text), "{seen}: {}", fresh.text);
        assert_eq!(fresh.text.is_empty(), left == 0);
    }
}

#[test]
fn an_overview_names_both_files_and_what_was_left_out() {
    let lines = |name: &str| (0..4000).map(|n| format!("{name} {n}\n")).collect::<String>();
    let (stdout, stderr) = (lines("out"), lines("err"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stdout"), &stdout).unwrap();
    std::fs::write(folder.path().join("stderr"), &stderr).unwrap();
    let task = crate::output::TaskFolder::new(folder.path().to_owned());
    let (preview, next) =
        task.open().unwrap().overview(&mask(), Selection::Both, 400, false).unwrap();
    let text = preview.text.unwrap();
    assert!(
        preview.truncated && text.starts_with("out 0\n") && text.ends_with("err 3999"),
        "{text}"
    );
    let place = |name: &str| folder.path().join(name).display().to_string();
    for name in ["stdout", "stderr"] {
        let place = format!(" bytes left out; the whole stream is in {} ...]", place(name));
        assert!(text.contains(&place), "{text}");
    }
    assert!(text.contains("out 3999\n\nstderr:\nerr 0\n"), "{text}");
    assert_eq!((next.stdout, next.stderr), (stdout.len() as u64, stderr.len() as u64));
    let (preview, next) =
        task.open().unwrap().overview(&mask(), Selection::Stderr, 400, true).unwrap();
    assert!(preview.text.unwrap().contains("left out; the whole stream is in "));
    assert_eq!((next.stdout, next.stderr), (0, stderr.len() as u64));
}

proptest! {
    #[test]
    fn plain_text_is_read_once_and_whole(
        stdout in "[a-z .\\n]{0,600}",
        stderr in "[QRS]{0,600}",
        full in any::<bool>(),
        steps in steps(),
    ) {
        let reads = played(stdout.as_bytes(), stderr.as_bytes(), full, &steps);
        let text = joined(&reads);
        prop_assert_eq!(only(&text, Stream::Stdout), stdout);
        prop_assert_eq!(only(&text, Stream::Stderr), stderr);
    }

    #[test]
    fn characters_and_sequences_are_never_split(
        stdout in "(\\x1b\\[[0-9;]{0,4}m|\\x1b\\]0;[a-zäQ]{0,20}(\\x07|\\x1b\\\\)|\\x1b\\(B|[a-z]|ä|漢|🦀|\\n){0,120}",
        stderr in "(\\x1b\\[[0-9;]{0,4}m|\\x1b\\]0;[a-zäQ]{0,20}\\x07|[QRS]|Ä|字|\\t){0,120}",
        full in any::<bool>(),
        steps in steps(),
    ) {
        let reads = played(stdout.as_bytes(), stderr.as_bytes(), full, &steps);
        let text = joined(&reads);
        prop_assert!(!text.contains([char::REPLACEMENT_CHARACTER, '\x1b']));
        prop_assert!(reads.iter().all(|fresh| !fresh.replaced));
        prop_assert_eq!(only(&text, Stream::Stdout), cleaned(&stdout));
        prop_assert_eq!(only(&text, Stream::Stderr), cleaned(&stderr));
    }

    #[test]
    fn any_bytes_are_read_to_their_end(
        stdout in vec(any::<u8>(), 0..300),
        stderr in "[ -~\\n\\x1b\\r\\x08]{0,40}",
        steps in steps(),
    ) {
        played(&stdout, stderr.as_bytes(), false, &steps);
    }

    #[test]
    fn plain_text_is_never_over_budget(stdout in "[a-z0-9 .\\n]{0,3000}", budget in 3u64..100) {
        let mut log = Log::default();
        log.append(Stream::Stdout, stdout.as_bytes(), 0);
        let fresh = log.output().since(&mask(), Cursor::default(), Selection::Both, budget, false).unwrap();
        prop_assert!(tokens::estimate(&fresh.text) <= budget);
    }

    #[test]
    fn after_an_overview_comes_only_what_is_new(
        before in "(\\x1b\\[[0-9;]{0,4}m|[a-z]|ä|漢){0,80}",
        after in "(\\x1b\\[[0-9;]{0,4}m|[a-z]|ä|漢){0,80}",
        cut in 0usize..400,
    ) {
        let whole = format!("{before}{after}");
        let (first, rest) = whole.as_bytes().split_at(cut.min(whole.len()));
        let mut log = Log::default();
        log.append(Stream::Stdout, first, 0);
        log.append(Stream::Stderr, b"Q", 1);
        let (shown, next) = log.output().overview(&mask(), Selection::Both, 1000, false).unwrap();
        log.append(Stream::Stdout, rest, 2);
        let fresh = log.output().since(&mask(), next, Selection::Both, 1000, true).unwrap();
        prop_assert!(!shown.replaced && !fresh.replaced);
        let text = shown.text.unwrap_or_default() + &fresh.text;
        prop_assert_eq!(only(&text, Stream::Stdout), cleaned(&whole));
        prop_assert_eq!(only(&text, Stream::Stderr), "Q");
    }
}

/// Reads all of an output, a little at a time.
fn read_to_end(output: &TaskOutput, mut cursor: Cursor, budget: u64) -> (String, Cursor) {
    let mut all = String::new();
    for _ in 0..10_000 {
        let mask = Mask::default();
        let fresh = output.since(&mask, cursor, Selection::Both, budget, true).unwrap();
        check(&fresh, cursor, Selection::Both);
        cursor = fresh.next;
        all.push_str(&fresh.text);
        if !fresh.more {
            return (all, cursor);
        }
    }
    panic!("it goes round in circles: {cursor:?}");
}

proptest! {
    #[test]
    fn what_was_dropped_is_said_once_and_at_its_place(
        head in "[a-z\n]{0,80}",
        dropped in 1usize..300,
        tail in "[a-z\n]{0,80}",
        stderr in "[A-Z\n]{0,60}",
        budget in 1u64..40,
        seen in 0u64..400,
    ) {
        let stdout = [head.as_bytes(), &vec![0; dropped], tail.as_bytes()].concat();
        let (from, to) = (head.len() as u64, (head.len() + dropped) as u64);
        let small = SmallOutput { stdout, stderr: stderr.clone().into(), timeline: Vec::new() };
        let mut output = TaskOutput::from(&small);
        output.stdout = output.stdout.with_gap(from, to);
        let (all, cursor) = read_to_end(&output, Cursor::default(), budget);
        // Lines that were cut are not shown.
        let whole = head.rfind('\n').map_or(0, |place| place + 1);
        let rest = tail.find('\n').map_or(tail.len(), |place| place + 1);
        let beside = match head.len() - whole + rest {
            0 => String::new(),
            hidden => format!(", {hidden} beside them are not shown"),
        };
        let said = format!("[... {dropped} bytes were dropped and are not stored{beside} ...]");
        let letters = |text: &str| text.replace(char::is_uppercase, "").replace('\n', "");
        prop_assert_eq!(letters(&all), letters(&format!("{}{said}{}", &head[..whole], &tail[rest..])));
        let ends = (output.stdout.bytes(), stderr.len() as u64);
        prop_assert_eq!((cursor.stdout, cursor.stderr), ends);
        // Whoever had read into it before it was dropped is told of the rest only.
        let seen = seen.min(output.stdout.bytes());
        let (rest, _) = read_to_end(&output, Cursor { stdout: seen, stderr: 0 }, budget);
        let unseen = to.saturating_sub(seen.max(from));
        let is_said = rest.contains(&format!("[... {unseen} bytes were dropped"));
        prop_assert_eq!(is_said, unseen > 0);
    }
}
