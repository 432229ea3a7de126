//! Properties of the preview: bounded, whole characters, and nothing unaccounted for.

use proptest::prelude::*;

use super::*;

fn both(stdout: &[u8], stderr: &[u8], budget: u64) -> (Preview, Preview) {
    previews(&Mask::default(), &Artifact::of(stdout), &Artifact::of(stderr), budget).unwrap()
}

fn one(content: &[u8], budget: u64) -> Preview {
    both(content, b"", budget).0
}

/// The numbers in a marker line, and the text before and behind it.
fn parts(text: &str) -> (String, u64, u64, String) {
    let (head, rest) = text.split_once("[... ").unwrap();
    let (numbers, tail) = rest.split_once("; the whole stream is in /artifact ...]").unwrap();
    let (bytes, lines) = numbers.split_once(" bytes, ").unwrap();
    let lines = lines.strip_suffix(" lines left out").unwrap();
    (head.into(), bytes.parse().unwrap(), lines.parse().unwrap(), tail.into())
}

#[test]
fn a_short_stream_is_shown_whole_without_blank_edges_and_with_its_indentation() {
    let preview = one(b"\n  hi\n\n", 100);
    assert_eq!(
        preview,
        Preview { text: Some("  hi".into()), truncated: false, replaced: false, masked: false }
    );
}

#[test]
fn no_more_lines_are_shown_than_every_client_keeps() {
    let lines = |count: usize| "x\n".repeat(count);
    let shown = |text: &str| text.lines().count();
    assert!(!one(lines(1_500).as_bytes(), 64_000).truncated);
    let long = one(lines(40_000).as_bytes(), 64_000);
    let text = long.text.unwrap();
    assert!(long.truncated && (1_400..=1_500).contains(&shown(&text)), "{}", shown(&text));
    // Both streams share them.
    let artifact = || Artifact::of(lines(9_000).as_bytes());
    let (out, err) = previews(&Mask::default(), &artifact(), &artifact(), 64_000).unwrap();
    let all = shown(&out.text.unwrap()) + shown(&err.text.unwrap());
    assert!((1_400..=1_500).contains(&all), "{all}");
}

#[test]
fn what_is_shorter_than_its_marker_is_shown() {
    let text = "twenty-one characters";
    for budget in [0, 1, 5] {
        let preview = one(text.as_bytes(), budget);
        assert_eq!((preview.text.as_deref(), preview.truncated), (Some(text), false));
    }
    assert!(one(text.repeat(20).as_bytes(), 1).truncated);
}

#[test]
fn a_blank_stream_has_no_text() {
    assert_eq!(one(b" \n\t\n", 100).text, None);
    assert_eq!(one(b"", 100).text, None);
}

#[test]
fn a_long_stream_keeps_head_and_tail_and_names_the_rest() {
    let content: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let text = one(content.as_bytes(), 400).text.unwrap();
    let (head, bytes, lines, tail) = parts(&text);
    assert!(head.starts_with("line 0\nline 1\n"), "{head}");
    assert!(tail.ends_with("line 19998\nline 19999"), "{tail}");
    // Whole lines on both sides, so that every line is either shown or counted.
    let shown = head.trim().lines().count() + tail.trim().lines().count();
    assert_eq!(shown as u64 + lines, 20_000);
    let shown_bytes = head.trim().len() + 1 + tail.trim().len() + 1;
    assert_eq!(shown_bytes as u64 + bytes, content.len() as u64);
}

#[test]
fn a_short_stream_leaves_its_rest_to_the_other() {
    let long = "word ".repeat(10_000);
    let alone = one(long.as_bytes(), 1000).text.unwrap();
    let (beside, short) = both(long.as_bytes(), b"tiny", 1000);
    assert_eq!(short.text.as_deref(), Some("tiny"));
    assert!(beside.text.unwrap().len() > alone.len() * 9 / 10);
    let (first, second) = both(long.as_bytes(), long.as_bytes(), 1000);
    assert!(first.truncated && second.truncated);
    let total = [first, second].map(|p| tokens::estimate(&p.text.unwrap())).iter().sum::<u64>();
    assert!((800..=1000).contains(&total), "{total}");
}

#[test]
fn one_endless_line_is_cut_inside() {
    let content = "x".repeat(5_000_000);
    let (head, bytes, lines, tail) = parts(&one(content.as_bytes(), 1000).text.unwrap());
    assert_eq!(head.trim().len() as u64 + bytes + tail.trim().len() as u64, 5_000_000);
    assert_eq!(lines, 0);
}

#[test]
fn a_progress_bar_ends_whole() {
    let mut content = String::new();
    for step in 0..20_000 {
        content.push_str(&format!("\rDownloading {step} of 20000"));
    }
    let text = one(format!("{content}\n").as_bytes(), 8000).text.unwrap();
    assert!(text.ends_with("\nDownloading 19999 of 20000"), "{text}");
    let text = one(format!("{}x\n", "\r".repeat(100_000)).as_bytes(), 100).text.unwrap();
    assert!(text.ends_with("\nx"), "{text}");
}

#[test]
fn characters_are_never_split_at_any_cut() {
    for (shift, pattern) in (0..4).flat_map(|shift| ["äß漢🦀", "漢"].map(|p| (shift, p))) {
        let content = format!("{}{}", "a".repeat(shift), pattern.repeat(100_000));
        let preview = one(content.as_bytes(), 200);
        assert!(!preview.replaced, "shift {shift}");
        assert!(!preview.text.unwrap().contains('\u{fffd}'));
    }
}

proptest! {
    #[test]
    fn never_over_budget(
        stdout in proptest::collection::vec(any::<u8>(), 0..6000),
        stderr in "[a-z0-9 \\n]{0,3000}",
        budget in 60u64..600,
    ) {
        let (first, second) = both(&stdout, stderr.as_bytes(), budget);
        let used: u64 = [&first, &second]
            .into_iter()
            .filter_map(|preview| preview.text.as_deref())
            .map(tokens::estimate)
            .sum();
        // Two markers cost more than the smallest budgets: those may go over by them alone.
        let markers = 2 * 24;
        prop_assert!(used <= budget.max(markers * 2), "{} of {}", used, budget);
    }

    #[test]
    fn output_of_no_more_bytes_than_the_budget_has_tokens_is_never_cut(
        stdout in proptest::collection::vec(any::<u8>(), 0..300),
        stderr in "[ -~\\n\\x1b\\r]{0,300}",
    ) {
        let budget = (stdout.len() + stderr.len()) as u64;
        let (first, second) = both(&stdout, stderr.as_bytes(), budget);
        prop_assert!(!first.truncated && !second.truncated);
    }

    #[test]
    fn nothing_is_unaccounted_for(lines in proptest::collection::vec("[a-z]{0,40}", 1..400), budget in 60u64..300) {
        let content = lines.iter().map(|line| format!("x{line}\n")).collect::<String>();
        let preview = one(content.as_bytes(), budget);
        if preview.truncated {
            let (head, bytes, left_out, tail) = parts(preview.text.as_deref().unwrap());
            let (head, tail) = (head.trim(), tail.trim());
            prop_assert!(content.starts_with(head) && content.trim_end().ends_with(tail));
            // Of the newlines around the marker, those at whole lines are shown by the line breaks.
            let newlines = |text: &str| text.matches('\n').count() as u64;
            let shown = (head.len() + tail.len()) as u64;
            prop_assert!((0..=2).contains(&(content.len() as u64 - shown - bytes)));
            let lines = lines.len() as u64 - newlines(head) - newlines(tail) - left_out;
            prop_assert!((0..=2).contains(&lines));
        } else {
            prop_assert_eq!(preview.text.unwrap_or_default(), content.trim());
        }
    }
}

#[test]
fn of_what_is_left_out_the_dropped_part_is_named() {
    let content: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let artifact = || Artifact::of(content.as_bytes()).with_gap(50_000, 120_000);
    let mask = Mask::default();
    let (cut, _) = previews(&mask, &artifact(), &Artifact::default(), 400).unwrap();
    let text = cut.text.unwrap();
    let (head, rest) = text.split_once("[... ").unwrap();
    let (numbers, rest) =
        rest.split_once("; 70000 of them were dropped and are not stored").unwrap();
    let (_, tail) = rest.split_once(", the rest is in /artifact ...]\n").unwrap();
    let left_out: usize = numbers.split_once(" bytes, ").unwrap().0.parse().unwrap();
    assert_eq!(head.len() + left_out + tail.len() + 1, content.len());
    assert!(tokens::estimate(&text) <= 400);
    // Where there is room for everything that is kept, the place itself says it.
    let content: String = (0..1_200).map(|n| format!("line {n:0>150}\n")).collect();
    let artifact = || Artifact::of(content.as_bytes()).with_gap(50_000, 120_000);
    let (whole, _) = previews(&mask, &artifact(), &Artifact::default(), 1_000_000).unwrap();
    let head = content[..50_000].rfind('\n').unwrap() + 1;
    let tail = 120_001 + content[120_000..].find('\n').unwrap();
    let hidden = tail - head - 70_000;
    let said = format!(
        "\n[... 70000 bytes were dropped and are not stored, {hidden} beside them are not shown ...]\n"
    );
    assert_eq!(
        whole.text.unwrap(),
        format!("{}{said}{}", &content[..head], content[tail..].trim_end())
    );
}
