//! The stream of a state folder with two ledgers open on it, as two processes have them.

use std::{
    fs::{self, File},
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::time::timeout;

use super::{super::tests::*, *};
use crate::{
    events::{Event, EventCursor, EventKind, Lagged, Lasting},
    id::TaskId,
    model::{
        Outcome, Total,
        question::{Answered, Approval, Reply},
        status::Status,
    },
    state::StateFolder,
    store::ledger::{History, Task},
};

/// Far more than anything takes that happens by itself.
const PATIENCE: Duration = Duration::from_secs(20);

async fn patiently<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("nobody told of it")
}

async fn next(events: &mut Events) -> EventKind {
    patiently(events.next()).await.expect("nothing was missed").what.clone()
}

fn started(task: &Task) -> EventKind {
    EventKind::TaskStarted { task_id: task.task_id.clone(), tty: false }
}

fn id_of(what: &EventKind) -> String {
    format!("{what:?}")
}

fn renew(state: &Arc<StateFolder>) {
    History::open(state.clone()).unwrap().renew().unwrap();
}

async fn begin(ledger: &Ledger, number: u8) -> Arc<Task> {
    let new = task(number, "/w");
    ledger.register_noted(new.clone(), false, 1000).await.unwrap();
    new
}

#[tokio::test]
async fn nobody_is_told_and_nothing_watched_before_somebody_reads() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state).unwrap();
    begin(&ledger, 1).await;
    assert!(!ledger.writer.hub.is_fed() && !ledger.writer.daybook().is_telling());
    let mut events = ledger.events(None, Interest::Changes).await.unwrap();
    // What was before is no news.
    let new = begin(&ledger, 2).await;
    assert_eq!(next(&mut events).await, started(&new));
}

/// What one of two processes does.
async fn act(dice: &mut u64, ledger: &Ledger, open: &mut Vec<Arc<Task>>) -> EventKind {
    let roll = |dice: &mut u64, sides: u64| {
        *dice =
            dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*dice >> 33) % sides
    };
    if open.is_empty() || roll(dice, 3) == 0 {
        let new = begin(ledger, u8::try_from(roll(dice, 200)).unwrap()).await;
        open.push(new.clone());
        return started(&new);
    }
    let place = usize::try_from(roll(dice, open.len() as u64)).unwrap();
    let task_id = open[place].task_id.clone();
    match roll(dice, 3) {
        0 => {
            open.remove(place);
            ledger.forget(&task_id).await.unwrap();
            EventKind::TaskRemoved { task_id }
        }
        1 => {
            open.remove(place);
            let printed = |bytes| Total { bytes, ..Total::default() };
            let failed = Outcome {
                exit_status: Some(1),
                stdout: printed(7),
                stderr: printed(3),
                ..Outcome::default()
            };
            ledger.finish(&task_id, &failed, None).await.unwrap();
            let (status, reason) = Status::of(&failed);
            EventKind::TaskEnded {
                task_id,
                status,
                reason: reason.map(str::to_owned),
                stdout_bytes: 7,
                stderr_bytes: 3,
            }
        }
        _ => {
            // A second time it changes nothing, and is no news.
            let new = begin(ledger, 7).await;
            ledger.cancelling(&new.task_id).await.unwrap();
            ledger.cancelling(&new.task_id).await.unwrap();
            EventKind::TaskCancelling { task_id: new.task_id.clone() }
        }
    }
}

#[tokio::test]
async fn two_processes_hear_the_same_once_and_in_order_also_while_the_daybook_is_begun_anew() {
    for seed in 0..6 {
        let (_folder, state) = state();
        let both = [(); 2].map(|()| Ledger::open(state.clone()).unwrap());
        let mut streams = Vec::new();
        for ledger in &both {
            streams.push(ledger.events(None, Interest::Changes).await.unwrap());
        }
        let (mut dice, mut open, mut expected) = (seed, Vec::new(), Vec::new());
        for turn in 0..60_u64 {
            let ledger = &both[usize::from((dice >> 40) % 2 == 0)];
            expected.push(act(&mut dice, ledger, &mut open).await);
            if turn % 13 == 5 {
                renew(&state);
            }
            // Now and then they keep up; in between they are one daybook behind at most.
            if turn % 13 == 12 {
                for events in &mut streams {
                    hear(events, &expected).await;
                }
                expected.clear();
            }
        }
        for events in &mut streams {
            hear(events, &expected).await;
            let silence = timeout(Duration::from_millis(50), events.next()).await;
            assert!(silence.is_err(), "twice: {silence:?}");
        }
    }
}

/// Hears these, and the starts of the tasks that were only begun to be stopped.
async fn hear(events: &mut Events, expected: &[EventKind]) {
    for what in expected {
        loop {
            let event = patiently(events.next()).await.unwrap();
            assert_eq!(event.workspace.as_deref(), Some("/w"));
            if event.what == *what {
                break;
            }
            let begun = matches!(what, EventKind::TaskCancelling { task_id }
                if event.what == EventKind::TaskStarted { task_id: task_id.clone(), tty: false });
            assert!(begun, "{} instead of {}", id_of(&event.what), id_of(what));
        }
    }
}

/// What is told from a place on, until this task has started.
async fn heard_after(events: &mut Events, last: &Task) -> Vec<EventKind> {
    let mut heard = Vec::new();
    while heard.last() != Some(&started(last)) {
        heard.push(next(events).await);
    }
    heard
}

#[tokio::test]
async fn another_process_goes_on_at_every_place_of_one_that_was_killed() {
    for seed in 0..4 {
        let (_folder, state) = state();
        let killed = Ledger::open(state.clone()).unwrap();
        let (mut dice, mut open) = (seed, Vec::new());
        // Before anybody listened, and carried over from an older daybook.
        act(&mut dice, &killed, &mut open).await;
        renew(&state);
        let mut events = killed.events(None, Interest::Changes).await.unwrap();
        let mut places = vec![events.cursor()];
        for _ in 0..20 {
            act(&mut dice, &killed, &mut open).await;
        }
        let end = begin(&killed, 200).await;
        let mut told = Vec::new();
        while told.last() != Some(&started(&end)) {
            told.push(next(&mut events).await);
            places.push(events.cursor());
        }
        drop((events, killed));
        let other = Ledger::open(state.clone()).unwrap();
        let mut brisk = other.events(None, Interest::Changes).await.unwrap();
        let last = begin(&other, 201).await;
        told.push(started(&last));
        next(&mut brisk).await;
        for (number, place) in places.iter().enumerate() {
            // As text, and once more from where it has come to by then.
            let place = place.to_string().parse().ok();
            let mut events = other.events(place, Interest::Changes).await.unwrap();
            assert_eq!(events.cursor(), place.unwrap(), "it has got nothing yet");
            let first = next(&mut events).await;
            assert_eq!(first, told[number]);
            let mut events = other.events(Some(events.cursor()), Interest::Changes).await.unwrap();
            let rest = if first == started(&last) {
                Vec::new()
            } else {
                heard_after(&mut events, &last).await
            };
            assert_eq!(rest, told[number + 1..]);
            let silence = timeout(Duration::from_millis(5), events.next()).await;
            assert!(silence.is_err(), "twice: {silence:?}");
        }
    }
}

#[tokio::test]
async fn a_place_of_another_process_is_lost_with_its_daybook_and_beside_missed_questions() {
    let (_folder, state) = state();
    let one = Ledger::open(state.clone()).unwrap();
    one.open_approval(question(1, 60_000)).await.unwrap();
    let mut events = one.events(None, Interest::Changes).await.unwrap();
    let first = begin(&one, 1).await;
    next(&mut events).await;
    let place = events.cursor();
    let two = Ledger::open(state.clone()).unwrap();
    let mut same = two.events(Some(place), Interest::Changes).await.unwrap();
    let second = begin(&two, 2).await;
    assert_eq!(next(&mut same).await, started(&second));
    // A place that is no end of an entry, or beyond the last one.
    for offset in [place.lasting().unwrap().offset - 1, 1 << 40] {
        let wrong = EventCursor::again(Lasting { offset, ..place.lasting().unwrap() });
        is_lagged(&mut two.events(Some(wrong), Interest::Changes).await.unwrap()).await;
    }
    one.open_approval(question(2, 60_000)).await.unwrap();
    let three = Ledger::open(state.clone()).unwrap();
    let mut missed = three.events(Some(place), Interest::Changes).await.unwrap();
    assert_eq!(next(&mut missed).await, started(&second), "what can be told is told");
    assert!(patiently(missed.next()).await.is_err());
    renew(&state);
    let four = Ledger::open(state.clone()).unwrap();
    let mut lost = four.events(Some(place), Interest::Changes).await.unwrap();
    assert!(patiently(lost.next()).await.is_err());
    four.cancelling(&first.task_id).await.unwrap();
    let task_id = first.task_id.clone();
    assert_eq!(next(&mut lost).await, EventKind::TaskCancelling { task_id });
}

async fn is_lagged(events: &mut Events) -> Lagged {
    loop {
        match patiently(events.next()).await {
            Err(lagged) => return lagged,
            Ok(event) => drop::<Arc<Event>>(event),
        }
    }
}

#[tokio::test]
async fn whoever_misses_a_whole_daybook_is_told_so() {
    let (_folder, state) = state();
    let [one, two] = [(); 2].map(|()| Ledger::open(state.clone()).unwrap());
    let mut events = one.events(None, Interest::Changes).await.unwrap();
    // All of it before the first one gets to look.
    let other = state.clone();
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            renew(&other);
            begin(&two, 1).await;
            renew(&other);
            begin(&two, 2).await
        })
    });
    let last = elsewhere.join().unwrap();
    is_lagged(&mut events).await;
    assert_eq!(one.open_ids().await.unwrap().len(), 2, "it looks anew");
    one.cancelling(&last.task_id).await.unwrap();
    let task_id = last.task_id.clone();
    assert_eq!(next(&mut events).await, EventKind::TaskCancelling { task_id });
}

#[tokio::test]
async fn a_ledger_that_is_rebuilt_is_looked_at_anew_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let state = Arc::new(StateFolder::open_telling(folder.path(), |_| ()).unwrap());
    let [one, two] = [(); 2].map(|()| Ledger::open(state.clone()).unwrap());
    let mut events = one.events(None, Interest::Changes).await.unwrap();
    let mut same = two.events(None, Interest::Changes).await.unwrap();
    begin(&one, 1).await;
    fs::remove_file(state.ledger()).unwrap();
    fs::remove_file(state.beside_ledger("-daybook")).unwrap();
    begin(&two, 2).await;
    is_lagged(&mut same).await;
    is_lagged(&mut events).await;
    let new = begin(&one, 3).await;
    for events in [&mut events, &mut same] {
        while next(events).await != started(&new) {}
    }
}

#[tokio::test]
async fn an_entry_that_is_being_written_is_told_when_it_is_whole_and_a_torn_one_never() {
    let (_folder, state) = state();
    let [one, two] = [(); 2].map(|()| Ledger::open(state.clone()).unwrap());
    let mut events = one.events(None, Interest::Changes).await.unwrap();
    let daybook = state.beside_ledger("-daybook");
    let before = fs::read(&daybook).unwrap();
    let new = begin(&two, 1).await;
    assert_eq!(next(&mut events).await, started(&new));
    // The same again, byte by byte, as if its writer took its time and then died.
    let whole = fs::read(&daybook).unwrap();
    let entry = &whole[before.len()..];
    for end in [1, 5, entry.len() / 2, entry.len() - 1] {
        fs::write(&daybook, [&whole, &entry[..end]].concat()).unwrap();
        assert!(timeout(Duration::from_millis(30), events.next()).await.is_err(), "{end}");
    }
    // The next writer cuts it off.
    let next_one = begin(&two, 2).await;
    assert_eq!(next(&mut events).await, started(&next_one));
    assert_eq!(one.open_ids().await.unwrap().len(), 2);
}

/// When the questions were opened.
const OPENED_AT_MS: i64 = 1_700_000_000_000;

fn question(number: u32, expires_in_ms: i64) -> Approval {
    Approval {
        created_at_ms: OPENED_AT_MS,
        approval_id: format!("a_{number}"),
        key: format!("key {number}"),
        expires_at_ms: now_ms() + expires_in_ms,
        ..approval()
    }
}

fn opened(number: u32) -> EventKind {
    EventKind::QuestionOpened { approval_id: format!("a_{number}") }
}

fn answered(number: u32, decision: Reply) -> EventKind {
    let opened_at_ms = OPENED_AT_MS;
    EventKind::QuestionAnswered { approval_id: format!("a_{number}"), decision, opened_at_ms }
}

async fn answer(ledger: &Ledger, number: u32, decision: Reply) {
    let answered = Answered { decision, note: None, by: "a test".into() };
    let id = format!("a_{number}");
    assert!(ledger.answer_approval(&id, &answered).await.unwrap().is_some());
}

#[tokio::test]
async fn questions_and_answers_of_each_process_reach_the_other_once() {
    let (_folder, state) = state();
    let [one, two] = [(); 2].map(|()| Ledger::open(state.clone()).unwrap());
    one.open_approval(question(1, 60_000)).await.unwrap();
    let mut here = one.events(None, Interest::Changes).await.unwrap();
    let mut there = two.events(None, Interest::Changes).await.unwrap();
    // Open before anybody read: its answer is news, its opening is not.
    answer(&two, 1, Reply::Deny).await;
    one.open_approval(question(2, 60_000)).await.unwrap();
    for events in [&mut here, &mut there] {
        assert_eq!(next(events).await, answered(1, Reply::Deny));
        assert_eq!(next(events).await, opened(2));
    }
    // Joined, not opened again.
    two.open_approval(question(2, 60_000)).await.unwrap();
    answer(&one, 2, Reply::AllowOnce).await;
    one.take_approval("key 2", "s_1", false).await.unwrap();
    two.open_approval(question(3, 300)).await.unwrap();
    let opened_at_ms = OPENED_AT_MS;
    let expired = EventKind::QuestionExpired { approval_id: "a_3".into(), opened_at_ms };
    for events in [&mut here, &mut there] {
        assert_eq!(next(events).await, answered(2, Reply::AllowOnce));
        assert_eq!(next(events).await, opened(3));
        assert_eq!(next(events).await, expired);
        let silence = timeout(Duration::from_millis(300), events.next()).await;
        assert!(silence.is_err(), "twice: {silence:?}");
    }
}

#[tokio::test]
async fn an_answer_by_a_program_that_is_killed_before_it_could_tell_is_heard_of() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    let mut events = ledger.events(None, Interest::Changes).await.unwrap();
    ledger.open_approval(question(1, 60_000)).await.unwrap();
    assert_eq!(next(&mut events).await, opened(1));
    let silence = timeout(Duration::from_millis(300), events.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    let daybook = File::options().write(true).open(state.beside_ledger(DAYBOOK)).unwrap();
    let killed = rusqlite::Connection::open(state.ledger()).unwrap();
    killed.execute("UPDATE approval SET decision = 'deny' WHERE id = 'a_1'", []).unwrap();
    // The kernel closes its files.
    drop((killed, daybook));
    assert_eq!(next(&mut events).await, answered(1, Reply::Deny));
}

#[tokio::test]
async fn whatever_a_clean_up_removes_is_told_and_stays_removed() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    let mut events = ledger.events(None, Interest::Changes).await.unwrap();
    let old = begin(&ledger, 1).await;
    ledger.finish(&old.task_id, &Outcome::default(), None).await.unwrap();
    let mut history = History::open(state).unwrap();
    let removed = history.oldest(0, 10).unwrap();
    history.remove(&removed).unwrap();
    history.tell_removed(&removed);
    history.renew().unwrap();
    let task_id = old.task_id.clone();
    while next(&mut events).await != (EventKind::TaskRemoved { task_id: task_id.clone() }) {}
    assert_eq!(ledger.find(task_id.as_str()).await.unwrap(), []);
    assert_eq!(ledger.count(None, true).await.unwrap(), 0);
}

#[tokio::test]
async fn a_full_house_is_told() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state).unwrap();
    let mut events = ledger.events(None, Interest::Changes).await.unwrap();
    ledger.register_noted(task(1, "/w"), false, 0).await.unwrap();
    assert_eq!(next(&mut events).await, EventKind::LimitReached { limit: "tasks_max" });
}

/// The file that a task prints to.
fn output_of(state: &StateFolder, task: &Task) -> PathBuf {
    let folder = state.path().join("tasks").join(task.task_id.as_str());
    fs::create_dir(&folder).unwrap();
    folder.join("stdout")
}

fn grown(event: Result<Arc<Event>, Lagged>) -> (TaskId, u64, u64) {
    let event = event.unwrap();
    assert_eq!(event.workspace.as_deref(), Some("/w"));
    match &event.what {
        EventKind::OutputGrew { task_id, stdout_bytes, stderr_bytes } => {
            (task_id.clone(), *stdout_bytes, *stderr_bytes)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn growing_output_is_told_at_once_then_a_few_times_a_second_and_at_last_in_full() {
    let (_folder, state) = state();
    let [one, two] = [(); 2].map(|()| Ledger::open(state.clone()).unwrap());
    let early = begin(&two, 1).await;
    let before = output_of(&state, &early);
    fs::write(&before, "12345").unwrap();
    let mut events = one.events(None, Interest::Live).await.unwrap();
    let mut dull = one.events(None, Interest::Changes).await.unwrap();
    let id = early.task_id.clone();
    assert_eq!(grown(patiently(events.next()).await), (id, 5, 0), "what is there already");
    let late = begin(&two, 2).await;
    let id = late.task_id.clone();
    assert_eq!(next(&mut events).await, started(&late));
    let output = output_of(&state, &late);
    let path = output.clone();
    let printer = std::thread::spawn(move || {
        let mut file = fs::File::create(output).unwrap();
        let began = std::time::Instant::now();
        let mut writes = 0;
        while began.elapsed() < Duration::from_secs(2) {
            std::io::Write::write_all(&mut file, b"x").unwrap();
            writes += 1;
        }
        writes
    });
    let (mut told, mut last) = (0, 0);
    while !printer.is_finished() || fs::metadata(&path).unwrap().len() > last {
        // Its last word may come just before it is known to have finished.
        let Ok(event) = timeout(Duration::from_secs(1), events.next()).await else { continue };
        let (of, total, _) = grown(event);
        assert!(of == id && total > last, "{total} after {last}");
        (told, last) = (told + 1, total);
    }
    assert_eq!(printer.join().unwrap(), last);
    assert!((2..=10).contains(&told), "{told} words about {last} writes in 2 s");
    two.finish(&id, &Outcome::default(), None).await.unwrap();
    assert!(
        matches!(next(&mut events).await, EventKind::TaskEnded { task_id, .. } if task_id == id)
    );
    assert_eq!(next(&mut dull).await, started(&late));
    assert!(matches!(next(&mut dull).await, EventKind::TaskEnded { .. }), "no output");
}

#[tokio::test(start_paused = true)]
async fn a_stream_outlives_its_readers_by_a_moment_and_ends_then() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state).unwrap();
    let mut events = ledger.events(None, Interest::Live).await.unwrap();
    begin(&ledger, 1).await;
    next(&mut events).await;
    let cursor = events.cursor();
    drop(events);
    tokio::time::sleep(LINGER / 2).await;
    let missed = begin(&ledger, 2).await;
    let mut back = ledger.events(Some(cursor), Interest::Live).await.unwrap();
    assert_eq!(next(&mut back).await, started(&missed));
    let cursor = back.cursor();
    drop(back);
    tokio::time::sleep(LINGER * 2).await;
    assert!(!ledger.writer.hub.is_fed());
    // Who only waits for something takes its leave and is gone.
    drop(ledger.events(None, Interest::Changes).await.unwrap());
    tokio::time::sleep(PACE * 4).await;
    assert!(!ledger.writer.hub.is_fed());
    let missed = begin(&ledger, 3).await;
    assert!(!ledger.writer.daybook().is_telling());
    // What was not told is in the daybook.
    let mut back = ledger.events(Some(cursor), Interest::Live).await.unwrap();
    assert_eq!(next(&mut back).await, started(&missed));
    let new = begin(&ledger, 4).await;
    assert_eq!(next(&mut back).await, started(&new));
}

#[tokio::test]
async fn a_reader_that_is_dropped_while_it_begins_leaves_a_stream_that_works() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state).unwrap();
    for _ in 0..20 {
        let cut_off = timeout(Duration::ZERO, ledger.events(None, Interest::Changes)).await;
        drop(cut_off);
        tokio::task::yield_now().await;
    }
    let mut events = ledger.events(None, Interest::Changes).await.unwrap();
    let new = begin(&ledger, 1).await;
    assert_eq!(next(&mut events).await, started(&new));
}
