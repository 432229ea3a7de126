//! What a rebuild keeps, what it loses, and what it reports.

use std::{cell::RefCell, collections::HashSet, fs};

use tempfile::TempDir;

use super::{tests::task, *};
use crate::state::{Rebuilt, Repair};

thread_local! {
    static REPORTS: RefCell<Vec<Rebuilt>> = const { RefCell::new(Vec::new()) };
}

fn tell(repair: &Repair) {
    let Repair::Rebuilt(rebuilt) = repair else { panic!("{repair:?}") };
    REPORTS.with_borrow_mut(|reports| reports.push(rebuilt.clone()));
}

/// The one report since this was last asked.
fn report() -> Rebuilt {
    let mut reports = REPORTS.take();
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.pop().unwrap()
}

fn state() -> (TempDir, Arc<StateFolder>) {
    let folder = TempDir::new().unwrap();
    let state = Arc::new(StateFolder::open_telling(folder.path(), tell).unwrap());
    (folder, state)
}

/// A task that runs.
async fn begin_task(ledger: &Ledger, number: u8) -> TaskId {
    let new = task(number, "/w");
    ledger.register_noted(new.clone(), false, 100).await.unwrap();
    new.task_id.clone()
}

/// A task that is over and has no folder.
async fn finished(ledger: &Ledger, number: u8) -> TaskId {
    let id = begin_task(ledger, number).await;
    let output = SmallOutput { stdout: b"said".into(), ..SmallOutput::default() };
    ledger.finish(&id, &Outcome::default(), Some(Arc::new(output))).await.unwrap();
    id
}

/// Makes a folder for a task, as a warden does.
fn put_into_folder(state: &StateFolder, task: &Task) {
    let folder = state.path().join("tasks").join(task.task_id.as_str());
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("spec"), write_note(task)).unwrap();
}

async fn ids(ledger: &Ledger) -> Vec<TaskId> {
    let tasks = ledger.list(None, true, 100).await.unwrap();
    tasks.into_iter().map(|task| task.task_id).collect()
}

/// A ledger of tasks: one that is in it alone, one that is in the daybook, one that runs, and one
/// that is in a folder alone, oldest first.
async fn used(state: &Arc<StateFolder>) -> [TaskId; 4] {
    let ledger = Ledger::open(state.clone()).unwrap();
    let old = finished(&ledger, 1).await;
    ledger.post().await.unwrap();
    History::open(state.clone()).unwrap().renew().unwrap();
    let (new, running) = (finished(&ledger, 2).await, begin_task(&ledger, 3).await);
    ledger.post().await.unwrap();
    let spilled = task(4, "/w");
    put_into_folder(state, &spilled);
    [old, new, running, spilled.task_id.clone()]
}

#[tokio::test]
async fn a_damaged_ledger_loses_what_was_in_it_alone_and_the_report_says_so() {
    let (_folder, state) = state();
    let [_old, new, running, spilled] = used(&state).await;
    let noise = vec![7; 5000];
    fs::write(state.ledger(), &noise).unwrap();
    let ledger = Ledger::open(state.clone()).unwrap();
    let report = report();
    assert_eq!((report.from_daybook, report.from_folders), (2, 1), "{report:?}");
    let kept = report.set_aside.as_ref().unwrap();
    assert_eq!(fs::read(state.path().join(kept)).unwrap(), noise);
    let told = report.message();
    for part in ["is damaged", "only the old one had are lost", "audit log", kept.as_str()] {
        assert!(told.contains(part) && !told.contains('\n'), "{told}");
    }
    assert_eq!(ids(&ledger).await, [spilled, running.clone(), new.clone()]);
    let output = ledger.small_output(&new).await.unwrap().unwrap();
    assert_eq!(output.stdout, b"said");
    assert!(ledger.finish(&running, &Outcome::default(), None).await.unwrap().is_some());
    let noted = fs::read_to_string(state.audit()).unwrap();
    assert!(noted.contains("\"event\":\"rebuilt\"") && noted.contains(kept), "{noted}");
    // The daybook went on: nothing is lost of it if the ledger is damaged once more.
    drop(ledger);
    fs::write(state.ledger(), noise).unwrap();
    let ledger = Ledger::open(state).unwrap();
    assert_eq!(self::report().from_daybook, 2);
    assert_eq!(ids(&ledger).await.len(), 3);
}

#[tokio::test]
async fn a_damaged_daybook_is_set_aside_and_the_ledger_stays() {
    let (_folder, state) = state();
    let [old, new, running, spilled] = used(&state).await;
    let path = state.beside_ledger("-daybook");
    let mut bytes = fs::read(&path).unwrap();
    bytes[60] ^= 0x10;
    fs::write(&path, &bytes).unwrap();
    let ledger = Ledger::open(state.clone()).unwrap();
    let report = report();
    assert!(report.why.contains("its daybook cannot be read"), "{report:?}");
    assert_eq!((report.from_daybook, report.from_folders), (0, 1), "{report:?}");
    assert_eq!(fs::read(state.path().join(report.set_aside.unwrap())).unwrap(), bytes);
    let all = HashSet::from([old, new, running.clone(), spilled.clone()]);
    assert_eq!(HashSet::from_iter(ids(&ledger).await), all);
    let open = ledger.open_ids().await.unwrap();
    assert_eq!(HashSet::from_iter(open), HashSet::from([running, spilled]));
}

#[tokio::test]
async fn a_ledger_of_an_older_build_is_set_aside_and_a_new_one_begins() {
    for version in [1, 11] {
        let (_folder, state) = state();
        let older = Connection::open(state.ledger()).unwrap();
        let sql = format!("CREATE TABLE task (id TEXT); PRAGMA user_version = {version}");
        older.execute_batch(&sql).unwrap();
        drop(older);
        let daybook = state.beside_ledger("-daybook");
        fs::write(&daybook, "LWDAYBK1 and more that is not understood any longer").unwrap();
        let files = [fs::read(state.ledger()).unwrap(), fs::read(&daybook).unwrap()];
        let spilled = task(1, "/w");
        put_into_folder(&state, &spilled);
        let ledger = Ledger::open(state.clone()).unwrap();
        let report = report();
        assert_eq!(report.why, "is of an older version of Legwork");
        let kept = state.path().join(report.set_aside.unwrap());
        let both = [kept.clone(), format!("{}-daybook", kept.display()).into()];
        assert_eq!(both.map(|path| fs::read(path).unwrap()), files, "nothing of it is changed");
        assert_eq!(ids(&ledger).await, std::slice::from_ref(&spilled.task_id));
        let new = begin_task(&ledger, 2).await;
        assert_eq!(ids(&ledger).await, [new, spilled.task_id.clone()]);
    }
}
