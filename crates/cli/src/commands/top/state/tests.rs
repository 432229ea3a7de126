use super::*;
use crate::{
    answering::HINT,
    commands::top::{
        list::tests::row,
        output::tests::printed,
        questions::tests::question,
        trials::{TrialWanted, tests::trial},
    },
};

/// A state with tasks, which was drawn with these zones.
fn state(rows: &[TaskRow]) -> State {
    let mut state = State::default();
    state.take(Message::Tasks(rows.to_vec(), rows.len() as u64));
    state
}

/// The same with a question that was on the screen long enough.
fn asked() -> State {
    let mut state = state(&[row(1, "one", true)]);
    state.take(Message::Questions(vec![question("one", 1)]));
    state.question_shows = QuestionShows { command: true, all: true };
    state.drawn(0);
    state
}

/// When whatever is on the screen was read.
const READ_MS: u64 = 60_000;

fn keys(state: &mut State, text: &str) -> Option<Effect> {
    text.chars().filter_map(|key| state.press(Gesture::Char(key), READ_MS)).last()
}

/// A letter by itself, then Enter.
fn confirmed(state: &mut State, letter: char) -> Option<Effect> {
    confirmed_at(state, letter, READ_MS)
}

fn confirmed_at(state: &mut State, letter: char, now_ms: u64) -> Option<Effect> {
    assert_eq!(state.press(Gesture::Char(letter), now_ms), None);
    state.press(Gesture::Enter, now_ms + 500)
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what a key gives")]
fn answered(reply: Reply, note: Option<&str>) -> Option<Effect> {
    let told = question("one", 1).consequence(reply);
    let note = note.map(str::to_owned);
    Some(Effect::Answer { approval_id: "one".into(), reply, note, told })
}

#[test]
fn a_deny_takes_one_key_and_all_else_enter_behind_it() {
    for (key, reply) in
        [('y', Reply::AllowOnce), ('s', Reply::AllowSession), ('r', Reply::AllowRule)]
    {
        assert_eq!(confirmed(&mut asked(), key), answered(reply, None), "{key}");
        let mut late = asked();
        late.press(Gesture::Char(key), READ_MS);
        assert_eq!(late.press(Gesture::Enter, READ_MS + 60_000), None, "{key}");
    }
    assert_eq!(asked().press(Gesture::Char('n'), 1), answered(Reply::Deny, None));
    assert_eq!(confirmed(&mut asked(), 'o'), None, "it is not offered");
    let mut pasted = asked();
    assert_eq!(pasted.press(Gesture::Pasted("y".into()), READ_MS), None);
    assert_eq!(pasted.press(Gesture::Enter, READ_MS + 500), None, "a paste is no key");
    assert_eq!(pasted.told.as_deref(), Some(HINT));
}

#[test]
fn a_letter_is_confirmed_for_the_question_on_the_screen_and_no_other() {
    let mut state = asked();
    state.press(Gesture::Char('y'), READ_MS);
    state.take(Message::Questions(vec![question("two", 2)]));
    state.drawn(READ_MS + 400);
    assert_eq!(state.press(Gesture::Enter, READ_MS + 500), None);
    assert_eq!(state.told.as_deref(), Some(HINT));
    assert_eq!(state.mode, TopMode::Browse, "it does not attach, either");
}

#[test]
fn a_note_that_is_typed_without_its_field_allows_nothing() {
    for typed in ["notes", "use yarn", "deny, it is a test so stay", "no way, sorry"] {
        let mut state = asked();
        let mut all = vec![question("one", 1), question("two", 2), question("three", 3)];
        state.take(Message::Questions(all.clone()));
        for (at_ms, key) in (0..).step_by(110).zip(typed.chars().chain(['\r'])) {
            let input = if key == '\r' { Gesture::Enter } else { Gesture::Char(key) };
            let effect = state.press(input, READ_MS + at_ms);
            if let Some(Effect::Answer { approval_id, reply, .. }) = effect {
                assert_eq!(reply, Reply::Deny, "{typed}: {key}");
                all.retain(|one| one.approval.approval_id != approval_id);
            }
            state.drawn(READ_MS + at_ms);
        }
        assert!(all.len() >= 2, "{typed}: a word denies what it was typed at, and nothing else");
        assert!(state.told.as_deref().is_some_and(|told| told.ends_with(HINT)), "{typed}");
    }
}

#[test]
fn a_deny_that_is_held_denies_one_question() {
    let mut state = asked();
    let all = vec![question("one", 1), question("two", 2), question("three", 3)];
    state.take(Message::Questions(all));
    let held = [0].into_iter().chain((0..40).map(|number| 660 + 30 * number));
    for at_ms in held {
        state.press(Gesture::Char('n'), READ_MS + at_ms);
        state.drawn(READ_MS + at_ms);
    }
    assert_eq!(state.questions.count(), 2);
    assert_eq!(state.told.as_deref(), Some(HINT));
    // One that is pressed again and again is meant.
    for at_ms in [0, 700] {
        state.press(Gesture::Char('n'), 2 * READ_MS + at_ms);
        state.drawn(2 * READ_MS + at_ms);
    }
    assert_eq!(state.questions.count(), 1);
    state.press(Gesture::Char('n'), 2 * READ_MS + 1400);
    assert_eq!(state.questions.count(), 0);
}

#[test]
fn a_no_can_have_a_note() {
    let mut state = asked();
    assert_eq!(keys(&mut state, "Nuse maek"), None);
    state.press(Gesture::Backspace, READ_MS);
    state.press(Gesture::Backspace, READ_MS);
    state.press(Gesture::Pasted("ke y".into()), READ_MS);
    assert_eq!(state.press(Gesture::Enter, READ_MS), answered(Reply::Deny, Some("use make y")));
    let mut state = asked();
    keys(&mut state, "Nno");
    assert_eq!(state.press(Gesture::Escape, READ_MS), None);
    assert_eq!(state.mode, TopMode::Browse);
    // Somebody else answers while the note is typed.
    state.press(Gesture::Char('N'), 2 * READ_MS);
    state.take(Message::Questions(Vec::new()));
    assert_eq!(state.mode, TopMode::Browse);
}

#[test]
fn what_is_allowed_is_what_was_read() {
    let mut state = asked();
    state.question_shows = QuestionShows { command: true, all: false };
    assert_eq!(keys(&mut state, "r"), None, "the rule is not on the screen");
    assert_eq!(state.mode, TopMode::WholeQuestion(0));
    let mut state = asked();
    assert_eq!(confirmed(&mut state, 'r'), answered(Reply::AllowRule, None));
    let mut state = asked();
    state.question_shows = QuestionShows::default();
    assert_eq!(keys(&mut state, "y"), None, "the command is not on the screen");
    assert_eq!(state.mode, TopMode::WholeQuestion(0));
    let mut state = asked();
    state.question_shows = QuestionShows::default();
    assert_eq!(keys(&mut state, "n"), answered(Reply::Deny, None));
}

#[test]
fn a_stop_is_asked_for() {
    let mut state = state(&[row(1, "one", true)]);
    assert_eq!(keys(&mut state, "xn"), None);
    assert_eq!(state.mode, TopMode::Browse);
    assert_eq!(keys(&mut state, "xy"), Some(Effect::Stop(row(1, "", true).id)));
    assert_eq!(state.mode, TopMode::Browse);
    assert_eq!(keys(&mut State::default(), "xy"), None);
}

#[test]
fn a_filter_is_typed_and_taken_back() {
    let mut state = state(&[row(1, "cargo test", true), row(2, "npm run dev", true)]);
    keys(&mut state, "/carq");
    assert_eq!(state.tasks.shown_count(), 0);
    state.press(Gesture::Backspace, 0);
    assert_eq!(state.tasks.selected().unwrap().command, "cargo test");
    state.press(Gesture::Enter, 0);
    assert_eq!((&state.mode, state.tasks.filter.as_str()), (&TopMode::Browse, "car"));
    keys(&mut state, "/go");
    state.press(Gesture::Escape, 0);
    assert_eq!(state.tasks.filter, "car");
    state.press(Gesture::Escape, 0);
    assert_eq!((state.tasks.filter.as_str(), state.tasks.shown_count()), ("", 2));
    assert_eq!(keys(&mut state, "/q"), None, "a letter of a filter is no order");
}

#[test]
fn enter_attaches_to_a_terminal_and_shows_the_rest_in_full() {
    let mut terminal = row(1, "vim", true);
    terminal.tty = true;
    let mut attaching = state(&[terminal.clone()]);
    assert_eq!(attaching.press(Gesture::Enter, 0), Some(Effect::Attach(terminal.id.clone())));
    // One that has ended has no terminal any more.
    terminal.is_open = false;
    let mut state = state(&[terminal.clone(), row(2, "cat", true)]);
    assert_eq!(state.press(Gesture::Enter, 0), None);
    assert_eq!(keys(&mut state, "qx y"), None, "what is typed is for the task");
    let sent = state.press(Gesture::Enter, 0);
    assert_eq!(sent, Some(Effect::Send(row(2, "", true).id, "qx y".into())));
    assert_eq!(state.mode, TopMode::Attached(String::new()));
    state.press(Gesture::Ctrl(']'), 0);
    assert_eq!(state.mode, TopMode::Browse);
}

#[test]
fn the_mouse_selects_scrolls_and_answers() {
    let mut state = asked();
    state.take(Message::Tasks(vec![row(1, "one", true), row(2, "two", true)], 2));
    let place = |x, y, width, height| Rect { x, y, width, height };
    state.zones = vec![
        (place(0, 0, 10, 10), Zone::List),
        (place(0, 0, 10, 1), Zone::Task(0)),
        (place(0, 1, 10, 1), Zone::Task(1)),
        (place(10, 0, 10, 10), Zone::Output),
        (place(0, 10, 20, 2), Zone::Question),
        (place(0, 11, 5, 1), Zone::Key('y')),
    ];
    assert_eq!(state.tasks.place(), Some(1));
    state.press(Gesture::Click(3, 0), READ_MS);
    assert_eq!(state.tasks.place(), Some(0));
    state.press(Gesture::Wheel(3, 5, false), READ_MS);
    assert_eq!(state.tasks.place(), Some(1));
    let lines: Vec<&str> = std::iter::repeat_n("line", 100).collect();
    state.take(Message::PaneText(row(1, "", true).id, printed(&lines)));
    state.output.rows(10, 10);
    state.press(Gesture::Wheel(12, 5, true), READ_MS);
    assert!(state.output.is_scrolled());
    state.press(Gesture::Click(50, 50), READ_MS);
    let zones = state.zones.clone();
    // A click arms as a letter does; a second one confirms nothing.
    state.press(Gesture::Click(2, 11), 2 * READ_MS);
    assert_eq!(state.press(Gesture::Click(2, 11), 2 * READ_MS + 200), None);
    state.press(Gesture::Click(2, 11), 3 * READ_MS);
    let effect = state.press(Gesture::Enter, 3 * READ_MS + 500);
    assert_eq!(effect, answered(Reply::AllowOnce, None));
    assert_eq!(state.questions.count(), 0, "no second key answers it");
    state.take(Message::Questions(vec![question("two", 2)]));
    state.zones = zones;
    state.press(Gesture::Click(12, 11), READ_MS);
    assert_eq!(state.mode, TopMode::WholeQuestion(0));
}

#[test]
fn the_other_view_begins_at_its_end() {
    let mut state = state(&[row(1, "one", true)]);
    let lines: Vec<&str> = std::iter::repeat_n("line", 100).collect();
    state.take(Message::PaneText(row(1, "", true).id, printed(&lines)));
    state.output.rows(10, 10);
    state.press(Gesture::PageUp, 0);
    assert!(state.output.is_scrolled());
    keys(&mut state, "v");
    assert!(!state.output.is_scrolled());
    // Also when somebody scrolls before it has come.
    state.press(Gesture::PageUp, 0);
    let screen = PaneText { is_screen: true, ..printed(&["screen"]) };
    state.take(Message::PaneText(row(1, "", true).id, screen));
    assert_eq!(state.output.rows(10, 10), ["screen"]);
}

#[test]
fn a_field_does_not_grow_for_ever() {
    let mut state = state(&[row(1, "one", true)]);
    keys(&mut state, "/");
    for _ in 0..10 {
        state.press(Gesture::Pasted("é".repeat(400)), 0);
    }
    assert_eq!(state.tasks.filter.chars().count(), FIELD_CHARS_MAX);
}

#[test]
fn held_tasks_are_bounded_and_those_that_run_stay() {
    let mut state = state(&[]);
    let many = (0..3 * TASKS_MAX as usize).map(|number| row(number, "x", number < 5));
    state.take(Message::Changed(many.collect(), Vec::new()));
    assert_eq!(state.tasks.shown_count(), TASKS_MAX as usize);
    assert_eq!(state.tasks.running(), 5);
}

#[test]
fn trials_are_left_alone_until_somebody_is_sure() {
    let mut state = state(&[row(1, "one", true)]);
    keys(&mut state, "T");
    assert_eq!(state.trials.wanted(), [TrialWanted::List]);
    state.take(Message::Trials(vec![trial(1, false), trial(2, false)]));
    let id = |number| trial(number, false).id;
    assert_eq!(state.trials.wanted(), [TrialWanted::Changes(id(1))]);
    assert_eq!(confirmed(&mut state, 'a'), None, "nothing was shown yet");
    state.take(Message::TrialText(id(1), TrialText::of("1 made", "  + a\n", "", true)));
    state.drawn(0);
    let applied = confirmed_at(&mut state, 'a', 2 * READ_MS);
    assert_eq!(applied, Some(Effect::Settle(id(1), TrialVerb::Apply)));
    assert_eq!(keys(&mut state, "away"), None, "a word applies nothing");
    // The list moves between the letter and Enter.
    state.press(Gesture::Char('d'), 3 * READ_MS);
    state.take(Message::Trials(vec![trial(3, false)]));
    assert_eq!(state.press(Gesture::Enter, 3 * READ_MS + 500), None);
    // What happens to tasks may happen to trials.
    state.trials.wanted();
    state.take(Message::Changed(vec![row(5, "five", true)], Vec::new()));
    assert!(state.trials.wanted().contains(&TrialWanted::List));
    assert_eq!(state.press(Gesture::Char('q'), 4 * READ_MS), None);
    assert_eq!(state.mode, TopMode::Browse);
}
