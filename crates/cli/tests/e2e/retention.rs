//! What is past its time is removed, oldest first; what runs never; and a clean-up may be killed at
//! any moment.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, SystemTime},
};

use rusqlite::Connection;
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, is_alive, parts, signal},
    mcp::Wire,
};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Makes a task older than it is.
fn age(scratch: &Scratch, task: &str, days: i64) {
    // Whoever reads the ledger makes sure that everything is in it.
    scratch.tasks();
    let ledger = Connection::open(scratch.state.path().join("ledger.db")).unwrap();
    let sql =
        "UPDATE task SET created_at_ms = created_at_ms - ?1, updated_at_ms = updated_at_ms - ?1
                WHERE id = ?2";
    assert_eq!(ledger.execute(sql, (days * DAY_MS, task)).unwrap(), 1);
}

fn age_file(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    File::open(path).unwrap().set_modified(then).unwrap();
}

fn gc(scratch: &Scratch, more: &[&str]) -> Value {
    let output = scratch.legwork("gc").arg("--json").args(more).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn ids(scratch: &Scratch) -> Vec<String> {
    let tasks = scratch.tasks();
    tasks.iter().map(|task| task["task_id"].as_str().unwrap().to_owned()).collect()
}

fn id(result: &Value) -> String {
    result["task_id"].as_str().unwrap().to_owned()
}

/// The entries of the audit log about removals.
fn removals(scratch: &Scratch) -> Vec<Value> {
    let noted = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    let entries = noted.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["event"] == "cleaned_up").collect()
}

/// What clean-ups have seen of the clocks, once one has.
fn evidence(scratch: &Scratch) -> Value {
    let path = scratch.state.path().join("retention.json");
    let record: Value = eventually("it is cleaned up", || {
        serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()
    });
    record["evidence"].clone()
}

/// Changes that.
fn tamper(scratch: &Scratch, change: impl FnOnce(&mut Value)) {
    let path = scratch.state.path().join("retention.json");
    let mut record = json!({ "evidence": evidence(scratch) });
    change(&mut record["evidence"]);
    fs::write(path, record.to_string()).unwrap();
}

/// Makes the machine have run for some hours since the clean-up that is waited for.
fn run_for_hours(scratch: &Scratch, hours: u64) {
    tamper(scratch, |evidence| {
        let ran_ms = evidence["first"]["ran_ms"].as_u64().unwrap();
        evidence["first"]["ran_ms"] = json!(ran_ms + hours * 3600 * 1000);
    });
}

/// A server that comes, cleans up, and goes.
fn serve(scratch: &Scratch) {
    let before = fs::read(scratch.state.path().join("retention.json")).unwrap_or_default();
    let mut wire = Wire::initialized(scratch);
    wire.assert_lives();
    let lock = scratch.state.path().join("gc.lock");
    eventually("it has cleaned up", || {
        let after = fs::read(scratch.state.path().join("retention.json")).ok()?;
        let is_through = || {
            let lock = File::open(&lock).unwrap();
            flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        (after != before && is_through()).then_some(())
    });
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
}

/// A task with a folder.
fn spilled(scratch: &Scratch) -> String {
    id(&scratch.result("echo spilled; sleep 0.3"))
}

#[test]
fn old_tasks_go_with_their_folders_and_young_and_running_ones_stay() {
    let scratch = Scratch::new();
    let (old, old_short) = (spilled(&scratch), id(&scratch.result("echo short")));
    let young = spilled(&scratch);
    let running = scratch.promote("exec sleep 1000", &json!({}));
    for task in [&old, &old_short, &running] {
        age(&scratch, task, 8);
    }
    age(&scratch, &young, 6);
    let audit = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    let would = gc(&scratch, &["--dry-run"]);
    assert_eq!(
        (&would["tasks"], &would["folders"], &would["dry_run"]),
        (&json!(2), &json!(1), &json!(true))
    );
    assert_eq!(ids(&scratch).len(), 4);
    let done = gc(&scratch, &[]);
    assert_eq!((&done["tasks"], &done["folders"]), (&json!(2), &json!(1)), "{done:#}");
    assert_eq!(done["bytes"], would["bytes"]);
    assert_eq!(ids(&scratch), [running.clone(), young.clone()]);
    let mut folders = scratch.folders();
    folders.sort();
    let mut expected = [running.clone(), young.clone()];
    expected.sort();
    assert_eq!(folders, expected);
    // The audit log is kept as it was, and says what was removed and why.
    let noted = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    let added: Vec<&str> = noted.strip_prefix(&audit).unwrap().lines().collect();
    assert_eq!(added.len(), 1, "{added:?}");
    let entry: Value = serde_json::from_str(added[0]).unwrap();
    assert_eq!((&entry["event"], &entry["asked"]), (&json!("cleaned_up"), &json!(true)));
    assert_eq!((&entry["by_age"], &entry["by_size"]), (&json!(2), &json!(0)), "{entry:#}");
    assert_eq!(entry["task_ids"], json!([old, old_short]));
    assert_eq!(gc(&scratch, &["--days", "0"])["tasks"], 1);
    assert_eq!(ids(&scratch), [running]);
}

#[test]
fn the_configuration_says_for_how_long() {
    let scratch = Scratch::new();
    let task = id(&scratch.result("true"));
    age(&scratch, &task, 3);
    let config = scratch.file("config.toml");
    fs::write(&config, "[retention]\ndays = 4\n").unwrap();
    assert_eq!(gc(&scratch, &["--config", &config])["tasks"], 0);
    fs::write(&config, "[retention]\ndays = 2\n").unwrap();
    assert_eq!(gc(&scratch, &["--config", &config])["tasks"], 1);
}

#[test]
fn over_the_size_the_oldest_go_first() {
    let scratch = Scratch::new();
    let flood = |number: u32| {
        id(&scratch
            .result(&format!("head -c 1000000 /dev/zero | tr '\\0' x; sleep 0.3; true {number}")))
    };
    let tasks: Vec<String> = (0..4).map(flood).collect();
    let before = gc(&scratch, &["--dry-run"])["kept_bytes"].as_u64().unwrap();
    assert!(before > 4_000_000);
    let limit = (before - 1_500_000).to_string();
    let done = gc(&scratch, &["--bytes-max", &limit]);
    assert_eq!(done["tasks"], 2, "{done:#}");
    assert!(done["kept_bytes"].as_u64().unwrap() <= limit.parse().unwrap());
    assert_eq!(ids(&scratch), [tasks[3].clone(), tasks[2].clone()]);
    let entry = removals(&scratch).pop().unwrap();
    assert_eq!((&entry["by_age"], &entry["by_size"]), (&json!(0), &json!(2)), "{entry:#}");
    assert_eq!(entry["task_ids"], json!(tasks[..2]));
}

#[test]
fn a_task_with_processes_left_behind_stays_until_they_are_gone() {
    let scratch = Scratch::new();
    let result = scratch.result("sleep 1000 & echo left");
    let task = id(&result);
    let pid = u32::try_from(result["background_pids"][0].as_u64().unwrap()).unwrap();
    age(&scratch, &task, 100);
    assert_eq!(gc(&scratch, &["--days", "0", "--bytes-max", "0"])["tasks"], 0);
    assert!(is_alive(pid));
    scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 1000 }));
    eventually("its warden is gone", || {
        (gc(&scratch, &["--days", "0"])["tasks"] == 1).then_some(())
    });
}

#[test]
fn what_was_left_lying_about_is_removed() {
    let scratch = Scratch::new();
    let state = scratch.state.path();
    let orphan = spilled(&scratch);
    // Whoever reads the ledger makes sure that everything is in it.
    scratch.tasks();
    let ledger = Connection::open(state.join("ledger.db")).unwrap();
    ledger.execute("DELETE FROM task", []).unwrap();
    drop(ledger);
    let socket = state.join("wardens/gone.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    fs::create_dir_all(state.join("tasks/.removed-t_x")).unwrap();
    fs::write(state.join("tasks/.removed-t_x/stdout"), "half").unwrap();
    for name in ["tmp/old", "tmp/used"] {
        fs::create_dir_all(state.join(name)).unwrap();
    }
    age_file(&state.join("tmp/old"), 9);
    fs::write(state.join("ledger.db.aside-1000"), "").unwrap();
    fs::write(state.join("ledger.db.aside-1000-wal"), "").unwrap();
    // A folder without a row is a task that was lost, and is looked at as one.
    let done = gc(&scratch, &[]);
    assert_eq!(done["restored"], 1, "{done:#}");
    assert_eq!(ids(&scratch), [orphan]);
    assert_eq!(
        (&done["temporary_folders"], &done["set_aside"]),
        (&json!(1), &json!(2)),
        "{done:#}"
    );
    assert!(state.join("tmp/used").exists() && !state.join("tmp/old").exists());
    assert!(!state.join("tasks/.removed-t_x").exists());
    // A socket that is young may be one that is just being made.
    assert_eq!(done["sockets"], 0);
    let then = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: then, last_modification: then };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, &socket, &times, flags).unwrap();
    assert_eq!(gc(&scratch, &[])["sockets"], 1);
    assert!(!socket.exists());
}

#[test]
fn a_clean_up_killed_anywhere_leaves_tasks_whole_or_gone() {
    const TASKS: usize = 400;
    let scratch = Scratch::new();
    let template = spilled(&scratch);
    scratch.tasks();
    let state = scratch.state.path();
    let files: Vec<(String, Vec<u8>)> = fs::read_dir(state.join("tasks").join(&template))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())
        })
        .collect();
    let ledger = Connection::open(state.join("ledger.db")).unwrap();
    let columns = "tool, workspace, asked_by, trust, command, workdir, shell, login, tty, fingerprint, \
        boot_id, warden, status, created_at_ms, updated_at_ms, outcome";
    for number in 0..TASKS {
        let name = format!("t_{:a>26}", radix(number));
        let sql = format!(
            "INSERT INTO task (id, {columns}) SELECT ?1, {columns} FROM task WHERE id = ?2"
        );
        ledger.execute(&sql, (&name, &template)).unwrap();
        let folder = state.join("tasks").join(&name);
        fs::create_dir(&folder).unwrap();
        for (file, bytes) in &files {
            fs::write(folder.join(file), bytes).unwrap();
        }
    }
    drop(ledger);
    for round in 0..6 {
        let mut command = scratch.legwork("gc");
        let mut child = command.args(["--days", "0"]).stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(8 + 7 * round));
        signal(child.id(), Signal::KILL);
        child.wait().unwrap();
        let ledger = Connection::open(state.join("ledger.db")).unwrap();
        for folder in scratch.folders().iter().filter(|name| name.starts_with("t_")) {
            // Whatever has its own name is whole, and has a row.
            for (file, bytes) in &files {
                let found = fs::metadata(state.join("tasks").join(folder).join(file)).unwrap();
                assert_eq!(found.len(), bytes.len() as u64, "{folder}/{file}");
            }
            let row = ledger.query_row("SELECT 1 FROM task WHERE id = ?", [folder], |_| Ok(()));
            assert!(row.is_ok(), "{folder} has no row");
        }
        assert_eq!(parts(&scratch.legwork("ps").output().unwrap()).0, Some(0));
    }
    gc(&scratch, &["--days", "0"]);
    assert!(ids(&scratch).is_empty() && scratch.folders().is_empty());
}

/// A number in the letters of an id.
fn radix(mut number: usize) -> String {
    let mut text = String::new();
    while number > 0 {
        text.insert(0, char::from(b'b' + u8::try_from(number % 20).unwrap()));
        number /= 20;
    }
    text
}

#[test]
fn a_clock_that_jumps_removes_nothing_until_two_clean_ups_hours_apart_agree() {
    let scratch = Scratch::new();
    let (old, older) = (spilled(&scratch), id(&scratch.result("true")));
    // As if the clock were years ahead.
    age(&scratch, &old, 1500);
    age(&scratch, &older, 1500);
    serve(&scratch);
    assert!(ids(&scratch).contains(&old));
    run_for_hours(&scratch, 5);
    serve(&scratch);
    assert!(ids(&scratch).contains(&old));
    assert_eq!(removals(&scratch), [Value::Null; 0]);
    // It stayed so for hours.
    run_for_hours(&scratch, 1);
    serve(&scratch);
    let left = ids(&scratch);
    assert!(!left.contains(&old) && !left.contains(&older), "{left:?}");
    assert!(!scratch.folders().contains(&old));
    let entry = &removals(&scratch)[0];
    assert_eq!((&entry["tasks"], &entry["asked"]), (&json!(2), &json!(false)), "{entry:#}");
}

#[test]
fn a_clock_that_goes_back_begins_the_wait_anew() {
    let scratch = Scratch::new();
    let old = spilled(&scratch);
    age(&scratch, &old, 8);
    serve(&scratch);
    run_for_hours(&scratch, 7);
    tamper(&scratch, |evidence| {
        let wall_ms = evidence["last"]["wall_ms"].as_i64().unwrap();
        evidence["last"]["wall_ms"] = json!(wall_ms + 1000 * DAY_MS);
    });
    serve(&scratch);
    assert!(ids(&scratch).contains(&old));
    assert_eq!(evidence(&scratch)["first"]["ran_ms"], 0);
}

#[test]
fn whoever_asks_is_believed_unless_the_clock_just_went_ahead_and_then_says_that_it_is_right() {
    let scratch = Scratch::new();
    let old = spilled(&scratch);
    let young = id(&scratch.result("true"));
    age(&scratch, &old, 8);
    gc(&scratch, &["--days", "100"]);
    tamper(&scratch, |evidence| {
        let wall_ms = evidence["last"]["wall_ms"].as_i64().unwrap();
        evidence["last"]["wall_ms"] = json!(wall_ms - 1500 * DAY_MS - DAY_MS / 2);
    });
    let (code, printed, _) = parts(&scratch.legwork("gc").output().unwrap());
    assert_eq!(code, Some(0));
    assert!(printed.contains("the clock jumped ahead by 1500d"), "{printed}");
    assert!(printed.contains("so 1 tasks"), "{printed}");
    // Also when asked again.
    let kept = gc(&scratch, &[]);
    assert_eq!((&kept["tasks"], &kept["kept_in_doubt"]), (&json!(0), &json!(1)), "{kept:#}");
    assert_eq!(ids(&scratch), [young.clone(), old]);
    let would = gc(&scratch, &["--dry-run", "--trust-clock"]);
    assert_eq!(would["tasks"], 1, "{would:#}");
    let done = gc(&scratch, &["--trust-clock"]);
    assert_eq!(done["tasks"], 1, "{done:#}");
    assert_eq!(ids(&scratch), [young]);
}

#[test]
fn a_task_of_a_time_when_the_clock_was_wrong_is_as_young_as_the_one_before_it() {
    let scratch = Scratch::new();
    let old = spilled(&scratch);
    let young = id(&scratch.result("echo young"));
    let of_1970 = id(&scratch.result("echo back"));
    age(&scratch, &old, 8);
    age(&scratch, &of_1970, 20_000);
    assert_eq!(gc(&scratch, &[])["tasks"], 1);
    assert_eq!(ids(&scratch), [of_1970, young]);
}

#[test]
fn what_a_clean_up_removed_before_it_was_killed_is_noted_by_the_next_one() {
    let scratch = Scratch::new();
    scratch.result("true");
    let removed = json!({ "asked": true, "days": 7, "bytes_max": 1, "by_age": 3, "by_size": 0,
                          "task_ids": ["t_a"] });
    let record = json!({ "evidence": {}, "removed": removed });
    fs::write(scratch.state.path().join("retention.json"), record.to_string()).unwrap();
    gc(&scratch, &[]);
    gc(&scratch, &[]);
    let noted = removals(&scratch);
    assert_eq!(noted.len(), 1, "{noted:#?}");
    assert_eq!((&noted[0]["tasks"], &noted[0]["task_ids"]), (&json!(3), &json!(["t_a"])));
}

#[test]
fn a_server_cleans_up_quietly_and_its_first_answer_does_not_wait() {
    let scratch = Scratch::new();
    let (old, young) = (spilled(&scratch), spilled(&scratch));
    gc(&scratch, &[]);
    run_for_hours(&scratch, 7);
    age(&scratch, &old, 8);
    let mut wire = Wire::initialized(&scratch);
    wire.assert_lives();
    eventually("the old one is gone", || (!ids(&scratch).contains(&old)).then_some(()));
    eventually("and its folder", || (scratch.folders() == [young.clone()]).then_some(()));
    // While another one is at it, a server works all the same, and who asks is told.
    let lock = File::open(scratch.state.path().join("gc.lock")).unwrap();
    eventually("it is through", || flock(&lock, FlockOperation::NonBlockingLockExclusive).ok());
    let mut second = Wire::initialized(&scratch);
    second.assert_lives();
    let output = scratch.legwork("gc").output().unwrap();
    let (code, _, complaint) = parts(&output);
    assert_eq!(code, Some(125));
    assert!(complaint.contains("another process is cleaning up"), "{complaint}");
}

#[test]
fn the_doctor_shows_what_is_kept() {
    let scratch = Scratch::new();
    spilled(&scratch);
    let output = scratch.legwork("doctor").arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let usage = &report["usage"];
    assert_eq!((&usage["tasks"], &usage["folders"]), (&json!(1), &json!(1)), "{report:#}");
    assert!(usage["ledger_bytes"].as_u64().unwrap() > 4096);
    assert!(usage["folder_bytes"].as_u64().unwrap() > 4096);
    assert!(usage["oldest_at_ms"].as_i64().unwrap() > 0);
}
