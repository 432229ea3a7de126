//! The ledger as a whole, and what every statement costs with a long history.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rusqlite::{
    Connection,
    trace::{TraceEvent, TraceEventCodes},
};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::{
    clock::now_ms,
    model::question::{Answered, Approval, Reply},
    state::Repair,
};

/// What was asked of SQLite since somebody listens.
static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(super) fn state() -> (TempDir, Arc<StateFolder>) {
    let folder = TempDir::new().unwrap();
    let state = Arc::new(StateFolder::open_telling(folder.path(), no_repair).unwrap());
    (folder, state)
}

impl Ledger {
    pub(super) async fn register_noted(
        &self,
        task: Arc<Task>,
        unless_equal: bool,
        tasks_max: u64,
    ) -> Result<Registered, LedgerError> {
        let note = write_note(&task).into();
        self.register(task, note, unless_equal.then(Vec::new), tasks_max).await
    }
}

pub(super) fn no_repair(repair: &Repair) {
    panic!("{}", repair.message());
}

pub(super) fn task(number: u8, workspace: &str) -> Arc<Task> {
    Arc::new(Task {
        task_id: TaskId::random().unwrap(),
        tool: "ExecCommand".into(),
        status: Status::Running,
        reason: None,
        command: format!("echo {number}"),
        description: None,
        workdir: workspace.into(),
        shell: None,
        login: false,
        tty: false,
        workspace: workspace.into(),
        asked_by: "a test".into(),
        trust: "trusted_operator".into(),
        created_at_ms: now_ms(),
        updated_at_ms: now_ms(),
        outcome: None,
        sandbox: Arc::default(),
        warden: "warden".into(),
        boot_id: "boot".into(),
        fingerprint: [number; 32],
    })
}

#[tokio::test]
async fn a_start_waits_for_the_daybook_and_not_for_the_ledger() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state).unwrap();
    // Somebody waits with the ledger for another process, and somebody writes to the daybook.
    let writer = ledger.writer.clone();
    let (holds, held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        writer.with_opened(|_| {
            holds.send(()).unwrap();
            let _ = released.recv();
        });
    });
    held.recv().unwrap();
    let daybook = ledger.writer.clone();
    let mut daybook = Some(daybook.daybook());
    let mut start = Box::pin(ledger.register_noted(task(1, "/w"), true, 10));
    let registered = std::future::poll_fn(|context| {
        let polled = start.as_mut().poll(context);
        // It has come to wait.
        daybook.take();
        polled
    })
    .await;
    assert!(matches!(registered.unwrap(), Registered::New));
    release.send(()).unwrap();
    holder.join().unwrap();
}

#[tokio::test]
async fn a_ledger_of_a_newer_schema_is_refused_and_not_touched() {
    let (_folder, state) = state();
    drop(Ledger::open(state.clone()).unwrap());
    let newer = Connection::open(state.ledger()).unwrap();
    newer.pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    drop(newer);
    let before = std::fs::read(state.ledger()).unwrap();
    let refused = Ledger::open(state.clone());
    assert!(matches!(refused, Err(LedgerError::TooNew(_))), "{refused:?}");
    assert_eq!(std::fs::read(state.ledger()).unwrap(), before);
}

#[tokio::test]
async fn totals_are_right_whatever_is_added_and_removed() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    for number in 0..20 {
        let workspace = if number % 4 == 0 { "/a" } else { "/b" };
        ledger.register_noted(task(number, workspace), false, 100).await.unwrap();
    }
    let open = ledger.list(None, false, 100).await.unwrap();
    for task in &open[..6] {
        ledger.finish(&task.task_id, &Outcome::default(), None).await.unwrap();
    }
    ledger.forget(&open[10].task_id).await.unwrap();
    let history = History::open(state).unwrap();
    let oldest: Vec<OldTask> =
        history.oldest(0, 100).unwrap().into_iter().filter(|task| task.is_over).take(3).collect();
    history.remove(&oldest).unwrap();
    for workspace in [None, Some("/a"), Some("/b"), Some("/c")] {
        for finished_too in [true, false] {
            let listed = ledger.list(workspace, finished_too, 100).await.unwrap().len() as u64;
            assert_eq!(ledger.count(workspace, finished_too).await.unwrap(), listed);
        }
    }
    assert_eq!(ledger.count(None, true).await.unwrap(), 16);
}

#[tokio::test]
async fn a_start_beyond_the_limit_is_not_registered() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state).unwrap();
    for number in 0..2 {
        let registered = ledger.register_noted(task(number, "/w"), true, 2).await.unwrap();
        assert!(matches!(registered, Registered::New));
    }
    let refused = ledger.register_noted(task(9, "/w"), true, 2).await.unwrap();
    assert!(matches!(refused, Registered::Full(2)), "{refused:?}");
    let joined = ledger.register_noted(task(1, "/w"), true, 2).await.unwrap();
    assert!(matches!(joined, Registered::Equal(_)), "{joined:?}");
}

#[tokio::test]
async fn two_processes_know_of_each_others_tasks_at_once_and_join_them() {
    let (_folder, state) = state();
    let one = Ledger::open(state.clone()).unwrap();
    let two = Ledger::open(state).unwrap();
    let new = task(1, "/w");
    assert!(matches!(one.register_noted(new.clone(), true, 2).await.unwrap(), Registered::New));
    let joined = two.register_noted(task(1, "/w"), true, 2).await.unwrap();
    assert!(matches!(joined, Registered::Equal(found) if *found == *new));
    two.register_noted(task(2, "/w"), true, 2).await.unwrap();
    assert!(matches!(
        one.register_noted(task(3, "/w"), true, 2).await.unwrap(),
        Registered::Full(2)
    ));
    // Each of them may be the one to hear of the end, and only one is the first.
    let ended = Outcome { exit_status: Some(3), ..Outcome::default() };
    let trust = two.finish(&new.task_id, &ended, None).await.unwrap();
    assert_eq!(trust.as_deref(), Some("trusted_operator"));
    assert_eq!(one.finish(&new.task_id, &Outcome::lost("x"), None).await.unwrap(), None);
    let found = one.find(new.task_id.as_str()).await.unwrap();
    assert_eq!(found[0].outcome.as_ref().unwrap().exit_status, Some(3));
    assert!(matches!(one.register_noted(task(1, "/w"), true, 2).await.unwrap(), Registered::New));
}

#[tokio::test]
async fn a_daybook_begun_anew_keeps_what_is_open_and_everybody_goes_on_in_it() {
    let (_folder, state) = state();
    let one = Ledger::open(state.clone()).unwrap();
    let two = Ledger::open(state.clone()).unwrap();
    let (running, stopping, over) = (task(1, "/w"), task(2, "/w"), task(3, "/w"));
    for task in [&running, &stopping, &over] {
        one.register_noted((*task).clone(), true, 10).await.unwrap();
    }
    one.cancelling(&stopping.task_id).await.unwrap();
    let output = SmallOutput { stdout: b"out".into(), ..SmallOutput::default() };
    one.finish(&over.task_id, &Outcome::default(), Some(Arc::new(output))).await.unwrap();
    let size = || std::fs::metadata(state.beside_ledger("-daybook")).unwrap().len();
    let before = size();
    let mut history = History::open(state.clone()).unwrap();
    history.renew().unwrap();
    assert!(size() < before);
    for ledger in [&one, &two] {
        let joined = ledger.register_noted(task(1, "/w"), true, 10).await.unwrap();
        assert!(matches!(joined, Registered::Equal(_)), "{joined:?}");
        // One that is being stopped is not joined.
        assert_eq!(ledger.equal(&[2; 32], &[]).await.unwrap(), None);
        assert_eq!(ledger.count(None, true).await.unwrap(), 3);
        assert_eq!(ledger.count(None, false).await.unwrap(), 2);
        let kept = ledger.small_output(&over.task_id).await.unwrap().unwrap();
        assert_eq!(kept.stdout, b"out");
    }
    assert!(two.finish(&running.task_id, &Outcome::default(), None).await.unwrap().is_some());
    assert_eq!(one.count(None, false).await.unwrap(), 1);
}

#[tokio::test]
async fn what_was_posted_before_is_not_posted_again_and_what_was_removed_stays_so() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    let (old, new) = (task(1, "/w"), task(2, "/w"));
    ledger.register_noted(old.clone(), true, 10).await.unwrap();
    ledger.finish(&old.task_id, &Outcome::default(), None).await.unwrap();
    let history = History::open(state.clone()).unwrap();
    history.remove(&history.oldest(0, 10).unwrap()).unwrap();
    drop(ledger);
    let ledger = Ledger::open(state).unwrap();
    ledger.register_noted(new.clone(), true, 10).await.unwrap();
    let listed = ledger.list(None, true, 10).await.unwrap();
    assert_eq!(listed.iter().map(|task| &task.task_id).collect::<Vec<_>>(), [&new.task_id]);
}

/// Removes everything that is over, as a clean-up does.
fn collect_all(state: &Arc<StateFolder>) {
    let mut history = History::open(state.clone()).unwrap();
    history.remove(&history.oldest(0, 100).unwrap()).unwrap();
    history.renew().unwrap();
}

#[tokio::test]
async fn what_a_clean_up_removes_does_not_come_back_with_anybodys_daybook() {
    let (_folder, state) = state();
    let writes = Ledger::open(state.clone()).unwrap();
    let idle = Ledger::open(state.clone()).unwrap();
    let old = task(1, "/w");
    writes.register_noted(old.clone(), true, 10).await.unwrap();
    writes.finish(&old.task_id, &Outcome::default(), None).await.unwrap();
    idle.open_ids().await.unwrap();
    collect_all(&state);
    for ledger in [&idle, &writes] {
        ledger.register_noted(task(2, "/w"), false, 10).await.unwrap();
        assert_eq!(ledger.find(old.task_id.as_str()).await.unwrap(), []);
    }
}

#[tokio::test]
async fn only_tasks_that_left_processes_are_found_as_such() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state).unwrap();
    let (left, clean, running) = (task(1, "/w"), task(2, "/w"), task(3, "/w"));
    for task in [&left, &clean, &running] {
        ledger.register_noted((*task).clone(), true, 10).await.unwrap();
    }
    let behind = Outcome { background_pids: vec![7], ..Outcome::default() };
    ledger.finish(&left.task_id, &behind, None).await.unwrap();
    ledger.finish(&clean.task_id, &Outcome::default(), None).await.unwrap();
    for workspace in [None, Some("/w")] {
        let found = ledger.left_behind(workspace, 10).await.unwrap();
        assert_eq!(found.iter().map(|task| &task.task_id).collect::<Vec<_>>(), [&left.task_id]);
    }
    assert_eq!(ledger.left_behind(Some("/other"), 10).await.unwrap(), []);
    // Of a row that does not read back the others do not suffer.
    ledger.writer.with_connection(|connection| {
        let damage = "UPDATE task SET outcome = '{' WHERE id = ?";
        connection.execute(damage, [clean.task_id.as_str()]).unwrap();
    });
    assert_eq!(ledger.left_behind(None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_posting_that_comes_too_late_posts_nothing() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    let new = task(1, "/w");
    ledger.register_noted(new.clone(), true, 10).await.unwrap();
    let late = ledger.writer.batch();
    ledger.forget(&new.task_id).await.unwrap();
    collect_all(&state);
    ledger.writer.with_opened(|opened| {
        assert!(matches!(post::post(opened, &late), Err(LedgerError::Replaced)));
    });
    assert_eq!(ledger.find(new.task_id.as_str()).await.unwrap(), []);
}

#[tokio::test]
async fn a_clean_up_goes_on_while_the_daybook_is_begun_anew() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    ledger.register_noted(task(1, "/w"), true, 10).await.unwrap();
    let mut slow = History::open(state.clone()).unwrap();
    collect_all(&state);
    assert_eq!(slow.restore().unwrap(), 0);
    collect_all(&state);
    slow.renew().unwrap();
    assert_eq!(ledger.open_ids().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_ledger_older_than_its_daybook_is_told_of_the_tasks_that_were_carried_over() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    ledger.post().await.unwrap();
    drop(ledger);
    // As it was before anything happened.
    let before = std::fs::read(state.ledger()).unwrap();
    let ledger = Ledger::open(state.clone()).unwrap();
    let carried = task(1, "/w");
    ledger.register_noted(carried.clone(), true, 10).await.unwrap();
    collect_all(&state);
    drop(ledger);
    // As after a power cut: the newest commits are gone, and their log with them.
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(state.beside_ledger(suffix));
    }
    std::fs::write(state.ledger(), before).unwrap();
    let ledger = Ledger::open(state.clone()).unwrap();
    assert_eq!(ledger.open_ids().await.unwrap(), std::slice::from_ref(&carried.task_id));
    assert_eq!(ledger.find(carried.task_id.as_str()).await.unwrap().len(), 1);
    assert!(ledger.finish(&carried.task_id, &Outcome::default(), None).await.unwrap().is_some());
    assert!(ledger.find(carried.task_id.as_str()).await.unwrap()[0].outcome.is_some());
}

#[tokio::test]
async fn short_lived_processes_do_not_let_the_daybook_grow_for_ever() {
    let (_folder, state) = state();
    let output = Arc::new(SmallOutput { stdout: vec![b'x'; 60_000], ..SmallOutput::default() });
    for number in 0..60 {
        let ledger = Ledger::open(state.clone()).unwrap();
        let new = task(number, "/w");
        ledger.register_noted(new.clone(), false, 100).await.unwrap();
        ledger.finish(&new.task_id, &Outcome::default(), Some(output.clone())).await.unwrap();
        ledger.list(None, true, 1).await.unwrap();
    }
    let size = std::fs::metadata(state.beside_ledger("-daybook")).unwrap().len();
    assert!(size < 1_500_000, "{size}");
}

#[tokio::test]
async fn a_daybook_that_is_held_makes_all_wait_once_and_nobody_else() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    let holder = std::fs::File::open(state.beside_ledger("-daybook")).unwrap();
    holder.lock().unwrap();
    let begin = std::time::Instant::now();
    let starts: Vec<_> = (0..4)
        .map(|number| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.register_noted(task(number, "/w"), false, 10).await })
        })
        .collect();
    // The loop goes on all the while.
    let mut longest = std::time::Duration::ZERO;
    while starts.iter().any(|start| !start.is_finished()) {
        let turn = std::time::Instant::now();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        longest = longest.max(turn.elapsed());
    }
    for start in starts {
        assert!(matches!(start.await.unwrap(), Err(LedgerError::Busy)));
    }
    assert!(longest < std::time::Duration::from_secs(2), "{longest:?}");
    assert!(
        begin.elapsed() < std::time::Duration::from_millis(2 * BUSY_MS),
        "{:?}",
        begin.elapsed()
    );
}

pub(super) fn approval() -> Approval {
    Approval {
        approval_id: "a_1".into(),
        key: "key".into(),
        session: "s_1".into(),
        tool: "ExecCommand".into(),
        command: "rm -rf x".into(),
        description: None,
        interpreter: None,
        workdir: "/w".into(),
        workspace: "/w".into(),
        asked_by: "a test".into(),
        trust: "trusted_operator".into(),
        reason: "dangerous".into(),
        rule: "rm".into(),
        cause: None,
        sandbox: "none".into(),
        refused: Vec::new(),
        may_leave_sandbox: false,
        may_try: false,
        tried: None,
        may_repeat: true,
        task_id: None,
        lineage: Vec::new(),
        parts: Vec::new(),
        proposed_rule: None,
        created_at_ms: now_ms(),
        expires_at_ms: now_ms() + 100_000,
        decision: None,
        note: None,
        answered_by: None,
    }
}

#[tokio::test]
async fn what_happens_is_noted_while_others_of_this_process_wait_for_a_held_ledger() {
    let (_folder, state) = state();
    let ledger = Arc::new(Ledger::open(state.clone()).unwrap());
    let mut history = History::open(state.clone()).unwrap();
    let holder = Connection::open(state.ledger()).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let restoring = {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.restore(&TaskId::random().unwrap()).await })
    };
    let cleaning = std::thread::spawn(move || history.restore().and_then(|_| history.renew()));
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let began = Instant::now();
        assert!(ledger.equal(&[1; 32], &[]).await.unwrap().is_none());
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    holder.execute_batch("ROLLBACK").unwrap();
    assert!(!restoring.await.unwrap().unwrap());
    cleaning.join().unwrap().unwrap();
}

/// Does everything that the ledger is ever asked for.
async fn exercise(ledger: &Ledger, history: &History) {
    let new = task(1, "/w");
    let id = new.task_id.clone();
    ledger.register_noted(new.clone(), true, 10).await.unwrap();
    ledger.register_noted(new, true, 10).await.unwrap();
    ledger.equal(&[1; 32], &[]).await.unwrap();
    for workspace in [None, Some("/w")] {
        for finished_too in [true, false] {
            ledger.list(workspace, finished_too, 20).await.unwrap();
            ledger.count(workspace, finished_too).await.unwrap();
        }
        ledger.left_behind(workspace, 20).await.unwrap();
    }
    ledger.find("t_a").await.unwrap();
    ledger.restore(&TaskId::random().unwrap()).await.unwrap();
    ledger.cancelling(&id).await.unwrap();
    ledger.finish(&id, &Outcome::default(), None).await.unwrap();
    ledger.small_output(&id).await.unwrap();
    ledger.never_started(&id, "spawn_failed").await.unwrap();
    ledger.forget(&id).await.unwrap();
    ledger.open_approval(approval()).await.unwrap();
    ledger.approval("a_1").await.unwrap();
    ledger.open_approvals().await.unwrap();
    let answered = Answered { decision: Reply::AllowOnce, note: None, by: "a test".into() };
    ledger.answer_approval("a_1", &answered).await.unwrap();
    ledger.take_approval("key", "s_1", false).await.unwrap();
    ledger.take_approval("key", "s_1", false).await.unwrap();
    drop(ledger.note_watcher(None).unwrap());
    ledger.has_watcher("/w");
    let oldest = history.oldest(0, 10).unwrap();
    history.remove(&oldest).unwrap();
    history.remove_approvals(now_ms()).unwrap();
    history.extent().unwrap();
}

#[tokio::test]
async fn the_last_watcher_of_a_workspace_is_missed_when_it_leaves() {
    let (_scratch, state) = state();
    let ledger = Ledger::open(state).unwrap();
    let [first, last] = ["/w", "/w"].map(|it| ledger.note_watcher(Some(it)).unwrap());
    let _elsewhere = ledger.note_watcher(Some("/other")).unwrap();
    let mut left = std::pin::pin!(ledger.no_watcher("/w"));
    // Longer than it looks by itself.
    let long = Duration::from_secs(1);
    assert!(timeout(long, &mut left).await.is_err());
    drop(first);
    assert!(timeout(long, &mut left).await.is_err(), "there is another one");
    drop(last);
    timeout(Duration::from_secs(60), left).await.unwrap();
}

/// Steps of a plan that read a whole table of tasks or questions.
fn scans(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap().map(Result::unwrap);
    let is_scan = |step: &String| {
        let all = ["SCAN task", "SCAN approval"].iter().any(|scan| step.starts_with(scan));
        // These indexes hold only what is open, which is little.
        let only_open = ["task_open", "approval_open"].iter().any(|index| step.contains(index));
        // In the order of their places, for as many as are wanted, and whichever they are.
        let any = !sql.contains("WHERE") || sql.contains("WHERE NULL IS NULL");
        let from_an_end = any && sql.contains("ORDER BY sequence") && sql.contains("LIMIT");
        (all && !only_open && !from_an_end)
            || (step.contains("TEMP B-TREE") && !sql.contains("task_open"))
    };
    steps.filter(is_scan).collect()
}

#[tokio::test]
async fn no_statement_reads_a_history_from_end_to_end() {
    let (_folder, state) = state();
    let ledger = Ledger::open(state.clone()).unwrap();
    let history = History::open(state.clone()).unwrap();
    let listen = |connection: &mut Connection| {
        let hear = |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(statement, _) = event {
                HEARD.lock().unwrap().extend(statement.expanded_sql());
            }
        };
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(hear)).unwrap();
    };
    ledger.writer.with_connection(listen);
    let mut history = history;
    history.with_connection(listen);
    exercise(&ledger, &history).await;
    let heard = std::mem::take(&mut *HEARD.lock().unwrap());
    let about_rows = |sql: &&String| {
        ["SELECT", "UPDATE", "DELETE", "INSERT"].iter().any(|verb| sql.starts_with(verb))
    };
    let statements: Vec<&String> = heard.iter().filter(about_rows).collect();
    assert!(statements.len() > 30, "{statements:#?}");
    let plain = Connection::open(state.ledger()).unwrap();
    for sql in statements {
        assert_eq!(scans(&plain, sql), [""; 0], "{sql}");
    }
    // And the check itself finds one.
    assert_eq!(scans(&plain, "SELECT count(*) FROM task WHERE command = 'x'").len(), 1);
}
