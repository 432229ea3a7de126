use std::time::Instant;

use legwork::output::{Mask, SmallOutput, TaskOutput};
use ratatui_core::{backend::TestBackend, terminal::Terminal};

use super::*;
use crate::{
    commands::top::{
        lines::{TextRow, safe},
        list::{TaskRow, tests::row},
        output::{PaneText, tests::printed},
        questions::tests::question,
        state::Message,
        trials::tests::trial,
    },
    keys::Gesture,
};

/// When a question has been on the screen long enough to be allowed.
const READ_MS: u64 = 1000;

const PLAIN: Theme = Theme { colours: false };

/// A frame of this size, row by row.
fn drawn(state: &mut State, size: (u16, u16), now_ms: u64) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| view(frame, state, PLAIN, now_ms)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(size.0.into());
    rows.map(|row| row.iter().map(ratatui_core::buffer::Cell::symbol).collect::<String>()).collect()
}

fn state(rows: Vec<TaskRow>) -> State {
    let mut state = State::default();
    let total = rows.len() as u64;
    state.take(Message::Tasks(rows, total));
    state
}

fn has(rows: &[String], text: &str) -> bool {
    rows.iter().any(|row| row.contains(text))
}

#[test]
fn sixty_columns_show_tasks_output_and_question() {
    let mut state = state(vec![row(1, "cargo test", true), row(2, "npm run dev", true)]);
    state.take(Message::PaneText(row(2, "", true).id, printed(&["ready", "on port 3000"])));
    state.take(Message::Questions(vec![question("build", 1)]));
    drawn(&mut state, (60, 20), 0);
    let rows = drawn(&mut state, (60, 20), READ_MS);
    for text in [
        "legwork top  2 running, 2 tasks  1 question",
        "running   cargo test",
        "│ on port 3000",
        "Question, until",
        "  rm -rf build",
        "[y] allow once",
        "[N] deny, with a note",
        "/ filter  Enter attach  x stop  T trials  ? keys  q quit",
    ] {
        assert!(has(&rows, text), "{text} is missing:\n{}", rows.join("\n"));
    }
}

#[test]
fn answers_are_offered_when_keys_count() {
    let mut state = state(Vec::new());
    state.take(Message::Questions(vec![question("build", 1)]));
    let rows = drawn(&mut state, (60, 20), 0);
    assert!(has(&rows, "[n] deny") && !has(&rows, "[y]"), "{}", rows.join("\n"));
    assert!(has(&drawn(&mut state, (60, 20), READ_MS), "[y]"));
    assert_eq!(state.press(Gesture::Char('y'), READ_MS), None);
    let rows = drawn(&mut state, (60, 20), READ_MS + 100);
    assert!(has(&rows, "allow once? Enter confirms"), "{}", rows.join("\n"));
    let rows = drawn(&mut state, (60, 20), READ_MS + 5000);
    assert!(!has(&rows, "Enter confirms"), "{}", rows.join("\n"));
    state.press(Gesture::Char('y'), READ_MS + 6000);
    assert!(state.press(Gesture::Enter, READ_MS + 6500).is_some());
}

#[test]
fn a_command_that_does_not_fit_has_to_be_opened_before_it_is_allowed() {
    let mut state = state(Vec::new());
    let mut long = question("build", 1);
    long.approval.command = "echo a line\n".repeat(40);
    state.take(Message::Questions(vec![long]));
    let rows = drawn(&mut state, (60, 20), 0);
    assert!(has(&rows, "more rows: e shows all"), "{}", rows.join("\n"));
    assert_eq!(state.press(Gesture::Char('y'), READ_MS), None);
    let rows = drawn(&mut state, (60, 20), READ_MS);
    assert!(has(&rows, "more rows: Down"), "{}", rows.join("\n"));
    assert_eq!(state.press(Gesture::Char('y'), 3 * READ_MS), None);
    assert!(state.press(Gesture::Enter, 3 * READ_MS + 500).is_some());
}

#[test]
fn every_size_can_be_drawn_and_a_small_one_says_so() {
    for mode in [
        TopMode::Browse,
        TopMode::Help,
        TopMode::WholeQuestion(3),
        TopMode::Attached("typed".into()),
        TopMode::Trials,
    ] {
        for (columns, lines) in [(1, 1), (5, 3), (39, 30), (40, 12), (60, 20), (300, 100), (200, 5)]
        {
            let mut state = state((0..50).map(|at| row(at, "cargo test", at % 2 == 0)).collect());
            state.take(Message::Questions(vec![question("build", 1)]));
            state.take(Message::Trials((0..50).map(|at| trial(at, at % 2 == 0)).collect()));
            state.mode = mode.clone();
            let rows = drawn(&mut state, (columns, lines), 0);
            let is_small = columns < COLUMNS_MIN || lines < ROWS_MIN;
            if columns >= 20 {
                assert_eq!(has(&rows, "Terminal too small"), is_small, "{columns}x{lines}");
            }
        }
    }
}

#[test]
fn hostile_output_stays_in_its_place() {
    let hostile = [
        "\u{1b}[2J\u{1b}[H\u{1b}]0;title\u{7}",
        "right\u{202e}left \u{200b}zero",
        "<script>alert(1)</script>",
        "\u{e0041}\u{fe0f}",
        &format!("pile{}", "\u{301}".repeat(5000)),
        &"漢".repeat(500),
        &"x".repeat(1_000_000),
    ];
    let mut state = state(vec![row(1, "cargo test", true)]);
    let lines = hostile.iter().map(|line| safe(line, &[])).collect();
    state.take(Message::PaneText(row(1, "", true).id, PaneText { lines, ..PaneText::default() }));
    for at in 0..60 {
        state.output.page(true);
        let rows = drawn(&mut state, (60, 20), at);
        assert!(has(&rows, "running   cargo test"));
        for row in rows.iter().skip(1).take(18) {
            assert!(row.contains('│'), "{row}");
            assert!(!row.chars().any(char::is_control), "{row:?}");
        }
    }
}

#[test]
fn the_colours_of_a_program_stay_in_its_place_and_hide_nothing() {
    let mut state = state(vec![row(1, "cargo test", true)]);
    let printed = b"\x1b[31;41mhidden?\x1b[0;32;44m green \x1b[7mturned\n";
    let output = SmallOutput { stdout: printed.to_vec(), ..SmallOutput::default() };
    let tail = TaskOutput::from(&output).tail(&Mask::default(), 1000, true).unwrap();
    let lines = vec![safe(tail.text.trim_end(), &tail.looks)];
    state.take(Message::PaneText(row(1, "", true).id, PaneText { lines, ..PaneText::default() }));
    for colours in [true, false] {
        let mut terminal = Terminal::new(TestBackend::new(60, 20)).unwrap();
        let theme = Theme { colours };
        terminal.draw(|frame| view(frame, &mut state, theme, 0)).unwrap();
        let buffer = terminal.backend().buffer();
        let (mut red, mut turned) = (0, 0);
        for (place, cell) in buffer.content.iter().enumerate() {
            let (column, line) = (place % 60, place / 60);
            let is_inside = column >= 26 && line == 4;
            assert!(is_inside || !matches!(cell.bg, Color::Indexed(_)), "{column} {line}");
            assert!(is_inside || !matches!(cell.fg, Color::Indexed(_)), "{column} {line}");
            assert!(cell.fg == Color::Reset || cell.fg != cell.bg, "{column} {line} is hidden");
            red += usize::from(cell.fg == Color::Indexed(1));
            turned += usize::from(is_inside && cell.modifier.contains(Modifier::REVERSED));
        }
        assert_eq!((red, turned), (if colours { 7 } else { 0 }, 6));
    }
}

/// How long frames take, with a thousand tasks and a full tail of output. Printed, not asserted.
#[test]
fn frames_of_a_thousand_tasks_are_measured() {
    let many = (0..1000).map(|at| row(at, &format!("cargo test --package {at}"), at < 500));
    let mut state = state(many.collect());
    let mut took = Vec::new();
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    for frame in 0..100 {
        let line = format!("line {frame} {}", "x".repeat(60));
        let lines = vec![TextRow::from(line.as_str()); 2000];
        let id = state.tasks.selected().unwrap().id.clone();
        state.take(Message::PaneText(id, PaneText { lines, ..PaneText::default() }));
        state.take(Message::Changed(vec![row(frame, "changed", false)], Vec::new()));
        state.press(Gesture::Down, 0);
        let began = Instant::now();
        terminal.draw(|frame| view(frame, &mut state, PLAIN, 0)).unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    println!("frame: median {:?}, longest {:?}", took[50], took[99]);
}
