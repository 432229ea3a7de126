//! The ledger of a process that runs one command: the daybook alone, for as long as that is enough.

use super::{
    tests::{state, task},
    *,
};

fn briefly(state: &Arc<StateFolder>) -> Ledger {
    Ledger::open_briefly(state.clone(), Arc::default()).unwrap()
}

/// A state folder with a ledger that nobody has open.
fn used() -> (tempfile::TempDir, Arc<StateFolder>) {
    let (folder, state) = state();
    drop(Ledger::open(state.clone()).unwrap());
    (folder, state)
}

async fn run(ledger: &Ledger, number: u8) -> TaskId {
    let new = task(number, "/w");
    ledger.register_noted(new.clone(), false, 1_000).await.unwrap();
    ledger.finish(&new.task_id, &Outcome::default(), None).await.unwrap();
    new.task_id.clone()
}

#[tokio::test]
async fn a_command_needs_the_daybook_alone_and_who_reads_finds_it() {
    let (_folder, state) = used();
    let ledger = briefly(&state);
    let first = run(&ledger, 1).await;
    assert!(!ledger.writer.is_open(), "opened for a short command");
    assert_eq!(ledger.open_ids().await.unwrap(), []);
    assert!(!ledger.writer.is_open());
    assert_eq!(ledger.find(first.as_str()).await.unwrap().len(), 1);
    assert!(ledger.writer.is_open());
    let second = run(&ledger, 2).await;
    drop(ledger);
    let ledger = Ledger::open(state).unwrap();
    let listed = ledger.list(None, true, 10).await.unwrap();
    assert_eq!(listed.iter().map(|task| &task.task_id).collect::<Vec<_>>(), [&second, &first]);
}

#[tokio::test]
async fn many_short_processes_are_posted_in_time() {
    let (_folder, state) = used();
    for number in 0..200 {
        run(&briefly(&state), number).await;
    }
    let size = std::fs::metadata(state.beside_ledger("-daybook")).unwrap().len();
    assert!(size < 100_000, "{size}");
    assert_eq!(Ledger::open(state).unwrap().count(None, true).await.unwrap(), 200);
}

#[tokio::test]
async fn a_daybook_that_is_begun_anew_meanwhile_is_gone_on_in() {
    let (_folder, state) = used();
    let ledger = briefly(&state);
    let new = task(1, "/w");
    ledger.register_noted(new.clone(), false, 10).await.unwrap();
    History::open(state.clone()).unwrap().renew().unwrap();
    assert!(ledger.finish(&new.task_id, &Outcome::default(), None).await.unwrap().is_some());
    let whole = Ledger::open(state).unwrap();
    let found = whole.find(new.task_id.as_str()).await.unwrap();
    assert!(found[0].outcome.is_some());
    assert_eq!(whole.open_ids().await.unwrap(), []);
}

#[tokio::test]
async fn a_ledger_that_is_lost_meanwhile_loses_no_task() {
    let folder = tempfile::TempDir::new().unwrap();
    let state = Arc::new(StateFolder::open_telling(folder.path(), |_| {}).unwrap());
    drop(Ledger::open(state.clone()).unwrap());
    let ledger = briefly(&state);
    let before = run(&ledger, 1).await;
    let new = task(2, "/w");
    ledger.register_noted(new.clone(), false, 10).await.unwrap();
    for suffix in ["", "-wal", "-shm", "-daybook"] {
        let _ = std::fs::remove_file(state.beside_ledger(suffix));
    }
    // Another process makes a new one, and knows nothing of the daybook that is gone.
    drop(Ledger::open(state.clone()).unwrap());
    assert!(ledger.finish(&new.task_id, &Outcome::default(), None).await.unwrap().is_some());
    drop(ledger);
    let whole = Ledger::open(state).unwrap();
    for id in [&before, &new.task_id] {
        let found = whole.find(id.as_str()).await.unwrap();
        assert!(found.first().is_some_and(|task| task.outcome.is_some()), "{id}: {found:?}");
    }
}

#[tokio::test]
async fn whatever_wants_to_be_looked_into_is_opened_whole() {
    let (_folder, state) = state();
    // Nothing is there yet.
    let first = briefly(&state);
    assert!(first.writer.is_open());
    drop(first);
    assert!(!briefly(&state).writer.is_open());
    // A newer program has been here.
    let connection = Connection::open(state.ledger()).unwrap();
    connection.pragma_update(None, "journal_mode", "DELETE").unwrap();
    connection.pragma_update(None, "user_version", 1_000).unwrap();
    drop(connection);
    let refused = Ledger::open_briefly(state.clone(), Arc::default());
    assert!(matches!(refused, Err(LedgerError::TooNew(1_000))), "{refused:?}");
}
