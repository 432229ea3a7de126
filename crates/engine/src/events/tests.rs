//! The stream by itself: seeded schedules of writers and readers of every pace.

use std::{
    collections::HashMap,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{
    Event, EventCursor, EventKind, Events, Hub, Interest, Lagged, Lasting, QuestionMark,
    ring::{NextEvent, Ring},
};
use crate::{id::TaskId, model::status::Status};

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

fn id(number: u64) -> TaskId {
    format!("t_{number}").into()
}

fn started(number: u64) -> EventKind {
    EventKind::TaskStarted { task_id: id(number), tty: false }
}

fn ended(number: u64) -> EventKind {
    EventKind::TaskEnded {
        task_id: id(number),
        status: Status::Completed,
        reason: None,
        stdout_bytes: 0,
        stderr_bytes: 0,
    }
}

fn grew(number: u64, stdout_bytes: u64) -> EventKind {
    EventKind::OutputGrew { task_id: id(number), stdout_bytes, stderr_bytes: 0 }
}

/// What a reader of a ring knows, and what it must come to.
#[derive(Default)]
struct Reader {
    seen: u64,
    /// What it got since it looked anew.
    got: Vec<EventKind>,
    /// How many had been pushed when it looked anew.
    since: usize,
}

impl Reader {
    /// Reads one; an error means that it looks anew now.
    fn read(&mut self, ring: &Ring, pushed: &[EventKind]) -> bool {
        match ring.after(self.seen) {
            NextEvent::Next(event) => {
                assert!(event.cursor.sequence > self.seen, "forward only");
                self.seen = event.cursor.sequence;
                self.got.push(event.what.clone());
                true
            }
            NextEvent::Nothing => false,
            NextEvent::Lost => {
                *self = Self { seen: ring.newest(), got: Vec::new(), since: pushed.len() };
                true
            }
        }
    }

    /// Everything that was pushed came, in order, but for words about output that a newer one has
    /// replaced.
    fn check(&self, pushed: &[EventKind]) {
        let pushed = &pushed[self.since..];
        let plain = |events: &[EventKind]| -> Vec<EventKind> {
            events.iter().filter(|what| !what.is_live()).cloned().collect()
        };
        assert_eq!(plain(&self.got), plain(pushed));
        let newest = |events: &[EventKind]| -> HashMap<TaskId, u64> {
            let grown = events.iter().filter_map(|what| match what {
                EventKind::OutputGrew { task_id, stdout_bytes, .. } => {
                    Some((task_id.clone(), *stdout_bytes))
                }
                _ => None,
            });
            grown.collect()
        };
        assert_eq!(newest(&self.got), newest(pushed), "the latest totals");
        // Each of them at its place: no growth after the end of its task.
        let mut rest = pushed.iter();
        for what in &self.got {
            assert!(rest.any(|pushed| pushed == what), "{what:?} is out of order");
        }
    }
}

#[test]
fn readers_of_every_pace_get_everything_in_order_or_are_told() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let events_max = 4 + usize::try_from(dice.roll(40)).unwrap();
        let mut ring = Ring::new(1, events_max);
        let mut readers: Vec<Reader> = (0..5).map(|_| Reader::default()).collect();
        let mut pushed = Vec::new();
        let mut bytes = 0;
        for _ in 0..600 {
            match dice.roll(12) {
                0..5 => {
                    bytes += 1;
                    let task = dice.roll(4);
                    let what = match dice.roll(4) {
                        0 => started(task),
                        1 => ended(task),
                        _ => grew(task, bytes),
                    };
                    ring.push(0, None, what.clone());
                    pushed.push(what);
                }
                5 if dice.roll(20) == 0 => {
                    ring.lose();
                    // Nobody who has not looked since may think that it knows all.
                    assert!(
                        readers.iter().all(|reader| ring.after(reader.seen) == NextEvent::Lost)
                    );
                }
                turn => {
                    // The later ones hardly ever read.
                    let reader = usize::try_from(turn % 5).unwrap();
                    let often = if dice.roll(1 + 3 * reader as u64) == 0 { 20 } else { 0 };
                    for _ in 0..often {
                        readers[reader].read(&ring, &pushed);
                    }
                }
            }
            assert!(ring.len() <= events_max, "bounded");
        }
        for reader in &mut readers {
            while reader.read(&ring, &pushed) {}
            reader.check(&pushed);
        }
    }
}

#[test]
fn a_printer_alone_drives_nothing_else_out() {
    let mut ring = Ring::new(1, 8);
    ring.push(0, None, started(1));
    for bytes in 0..100_000 {
        ring.push(0, None, grew(1, bytes));
    }
    let mut reader = Reader::default();
    while reader.read(&ring, &[]) {}
    assert_eq!(reader.got, [started(1), grew(1, 99_999)]);
}

#[test]
fn a_place_is_known_again_only_if_all_that_follows_can_be_told() {
    let mut ring = Ring::new(7, 4);
    let at = |stream, sequence| EventCursor { stream, sequence, lasting: None };
    for number in 1..=6 {
        ring.push(0, None, started(number));
    }
    // The first two are gone: whoever has seen them can go on.
    let known: Vec<_> = (0..9).map(|number| ring.place(at(7, number), false)).collect();
    assert_eq!(known, [None, None, Some(2), Some(3), Some(4), Some(5), Some(6), None, None]);
    assert_eq!(ring.place(at(8, 4), false), None, "of another process");
    ring.begin_live();
    assert_eq!((ring.place(at(7, 5), false), ring.place(at(7, 5), true)), (Some(5), None));
    assert_eq!(ring.place(at(7, 6), true), Some(6));
}

#[test]
fn a_cursor_is_the_same_after_a_journey_as_text() {
    let cursor = EventCursor { stream: 0xab, sequence: 12, lasting: None };
    assert_eq!(cursor.to_string(), "00000000000000ab-12");
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    let questions = QuestionMark { newest: 3, over: 4 };
    let lasting = Some(Lasting { book: 0xcd, offset: 99, questions });
    let cursor = EventCursor { lasting, ..cursor };
    assert_eq!(cursor.to_string(), "00000000000000ab-12-00000000000000cd-99-3-4");
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    for other in ["", "-", "12", "ab-12", "00000000000000AB-12", "00000000000000ab-012", "x-1"] {
        assert!(other.parse::<EventCursor>().is_err(), "{other}");
    }
}

#[test]
fn an_event_is_flat_json() {
    let cursor = EventCursor { stream: 1, sequence: 2, lasting: None };
    let event = Event { cursor, at_ms: 3, workspace: Some("/w".into()), what: ended(4) };
    let json = serde_json::to_value(&event).unwrap();
    let expected = serde_json::json!({
        "cursor": "0000000000000001-2", "at_ms": 3, "workspace": "/w", "event": "task_ended",
        "task_id": "t_4", "status": "completed", "stdout_bytes": 0, "stderr_bytes": 0,
    });
    assert_eq!(json, expected);
}

fn hub() -> Arc<Hub> {
    let hub = Arc::new(Hub::default());
    hub.begin(1, Lasting::default());
    hub
}

fn join(hub: &Arc<Hub>, live: bool) -> Events {
    hub.join(if live { Interest::Live } else { Interest::Changes }, Arc::new(())).begin(None)
}

/// What a reader gets without waiting.
fn now(events: &mut Events) -> Option<Result<EventKind, Lagged>> {
    let next = std::pin::pin!(events.next());
    match next.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(got) => Some(got.map(|event| event.what.clone())),
        Poll::Pending => None,
    }
}

#[test]
fn an_event_costs_nothing_while_nobody_wants_it() {
    let hub = Hub::default();
    hub.tell(0, None, started(1));
    let mut seen = 0;
    assert_eq!(hub.since(&mut seen), Some(Vec::new()));
    assert_eq!(seen, 0, "it has not even a number");
}

#[tokio::test]
async fn two_hundred_readers_get_every_event_and_wait_without_a_lock() {
    let hub = hub();
    let readers: Vec<_> = (0..200)
        .map(|_| {
            let mut events = join(&hub, false);
            tokio::spawn(async move {
                let mut got = Vec::new();
                while got.len() < 100 {
                    got.push(events.next().await.unwrap().what.clone());
                }
                got
            })
        })
        .collect();
    for number in 0..100 {
        hub.tell(0, None, started(number));
        if number % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let expected: Vec<EventKind> = (0..100).map(started).collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), expected);
    }
    assert!(!hub.is_read());
}

#[test]
fn a_reader_who_is_too_slow_is_told_once_and_goes_on_from_here() {
    let hub = hub();
    let (mut slow, mut quick) = (join(&hub, false), join(&hub, false));
    for number in 0..5000 {
        hub.tell(0, None, started(number));
        assert_eq!(now(&mut quick), Some(Ok(started(number))));
    }
    let Some(Err(lagged)) = now(&mut slow) else { panic!("nobody told it") };
    assert_eq!((lagged.cursor, now(&mut slow)), (quick.cursor(), None));
    hub.tell(0, None, ended(1));
    for events in [&mut slow, &mut quick] {
        assert_eq!(now(events), Some(Ok(ended(1))));
        assert_eq!(now(events), None);
    }
}

#[test]
fn a_reader_who_comes_back_misses_nothing() {
    let hub = hub();
    let mut all = join(&hub, false);
    let mut cursor = all.cursor();
    let mut dice = Dice(5);
    for number in 0..200 {
        hub.tell(0, None, started(number));
        if dice.roll(5) > 0 {
            continue;
        }
        let mut back = hub.join(Interest::Changes, Arc::new(())).begin(Some(cursor));
        while let Some(got) = now(&mut back) {
            assert_eq!(Some(got), now(&mut all));
        }
        assert_eq!(now(&mut all), None);
        cursor = back.cursor();
    }
}

#[test]
fn what_is_not_known_any_more_is_not_passed_over_in_silence() {
    let hub = hub();
    let cursor = join(&hub, false).cursor();
    assert!(hub.end_if_unread());
    // Nobody is told of this.
    hub.tell(0, None, started(1));
    hub.begin(2, Lasting::default());
    hub.tell(0, None, started(2));
    let mut back = hub.join(Interest::Changes, Arc::new(())).begin(Some(cursor));
    assert!(matches!(now(&mut back), Some(Err(_))));
    assert_eq!(now(&mut back), None);
    let mut of_another =
        hub.join(Interest::Changes, Arc::new(())).begin("0000000000000009-1".parse().ok());
    assert!(matches!(now(&mut of_another), Some(Err(_))));
}

#[test]
fn only_those_who_look_live_hear_of_output() {
    let hub = hub();
    let (mut plain, mut live) = (join(&hub, false), join(&hub, true));
    assert!(hub.is_read_live());
    hub.set_live(true);
    for bytes in 0..10 {
        hub.tell(0, None, grew(1, bytes));
    }
    hub.tell(0, None, ended(1));
    assert_eq!(now(&mut live), Some(Ok(grew(1, 9))), "the latest");
    assert_eq!(now(&mut live), Some(Ok(ended(1))));
    assert_eq!(now(&mut plain), Some(Ok(ended(1))));
    // Whoever did not look live cannot go on as if it had.
    let cursor = plain.cursor();
    drop(live);
    hub.set_live(false);
    hub.set_live(true);
    hub.tell(0, None, started(2));
    hub.set_live(false);
    let mut back = hub.join(Interest::Live, Arc::new(())).begin(Some(cursor));
    assert!(matches!(now(&mut back), Some(Err(_))));
    let mut back = hub.join(Interest::Changes, Arc::new(())).begin(Some(cursor));
    assert_eq!(now(&mut back), Some(Ok(started(2))));
}
