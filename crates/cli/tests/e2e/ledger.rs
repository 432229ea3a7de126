//! The ledger missing or damaged: it is rebuilt, nothing that was in a folder or in the daybook is
//! lost, and the user is told.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Scratch, announced, eventually, fixture, open, parent, parts, signal, text};

const PAGE: u64 = 4096;

/// What becomes of the ledger's bytes.
type Change = fn(Vec<u8>) -> Vec<u8>;

fn ledger(scratch: &Scratch) -> PathBuf {
    scratch.state.path().join("ledger.db")
}

fn daybook(scratch: &Scratch) -> PathBuf {
    scratch.state.path().join("ledger.db-daybook")
}

/// Lets the daybook be begun anew, as it is when it has grown: what is over is in the ledger only.
fn turn_the_page(scratch: &Scratch) {
    scratch.tasks();
    fs::remove_file(daybook(scratch)).unwrap();
    scratch.tasks();
}

/// Removes the ledger and its daybook.
fn lose(scratch: &Scratch) {
    for file in [ledger(scratch), daybook(scratch)] {
        fs::remove_file(file).unwrap();
    }
}

/// Writes noise over a page of the ledger, counted from 1 as SQLite does.
fn spoil(scratch: &Scratch, page: u64) {
    let file = OpenOptions::new().write(true).open(ledger(scratch)).unwrap();
    let noise: Vec<u8> = (1..=251).cycle().take(4096).collect();
    file.write_all_at(&noise, (page - 1) * PAGE).unwrap();
}

/// The first page of a table or an index.
fn root_page(scratch: &Scratch, name: &str) -> u64 {
    let connection = Connection::open(ledger(scratch)).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?";
    connection.query_row(sql, [name], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

/// A command that is long enough for a folder, and its task.
fn spilled(scratch: &Scratch, word: &str) -> String {
    let result = scratch.result(&format!("echo {word}; sleep 0.3; exit 7"));
    result["task_id"].as_str().unwrap().to_owned()
}

fn ids(scratch: &Scratch) -> Vec<String> {
    let tasks = scratch.tasks();
    tasks.iter().map(|task| task["task_id"].as_str().unwrap().to_owned()).collect()
}

fn ps(scratch: &Scratch) -> Output {
    scratch.legwork("ps").arg("--json").output().unwrap()
}

/// What is told of a rebuild: in one line, in the audit log, and by the doctor.
fn is_told(scratch: &Scratch, output: &Output, why: &str) {
    let (code, _, told) = parts(output);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.starts_with("legwork: the ledger ") && told.contains(why), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let doctor = scratch.legwork("doctor").arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let rebuilds = report["rebuilds"].as_array().unwrap();
    assert!(rebuilds.last().unwrap()["why"].as_str().unwrap().contains(why), "{report:#}");
    assert_eq!(report["healthy"], true, "{report:#}");
    // And that is the end of it.
    assert_eq!(parts(&ps(scratch)).2, "");
}

#[test]
fn a_new_state_folder_is_no_damage() {
    let scratch = Scratch::new();
    assert_eq!(
        parts(&ps(&scratch)),
        (Some(0), "{\n  \"tasks\": [],\n  \"total\": 0\n}\n".into(), String::new())
    );
}

#[test]
fn the_ledger_removed_what_has_a_folder_is_there_again_in_full() {
    let scratch = Scratch::new();
    let task = spilled(&scratch, "kept");
    let before = scratch.tasks()[0].clone();
    let short = scratch.result("echo short")["task_id"].as_str().unwrap().to_owned();
    let (ready, gate) = (scratch.file("ready"), scratch.file("gate"));
    let cmd = format!("echo on; echo $$ > {ready}; {} wait-then-exit {gate} 5", fixture());
    let running = scratch.promote(&cmd, &json!({}));
    lose(&scratch);
    let output = ps(&scratch);
    is_told(&scratch, &output, "is missing");
    assert!(!ids(&scratch).contains(&short), "it was nowhere else");
    let after = scratch.tasks().into_iter().find(|found| found["task_id"] == json!(task)).unwrap();
    let without_time = |task: &Value| {
        let mut task = task.clone();
        task.as_object_mut().unwrap().remove("updated_at_ms");
        task
    };
    assert_eq!(without_time(&after), without_time(&before));
    assert_eq!(scratch.printed(&json!(task)), b"kept\n");
    // The same command is known as running, and can be waited for.
    let again = scratch.exec(&json!({ "cmd": cmd }));
    assert_eq!(again["result"]["disposition"], "already_running", "{again:#}");
    open(&gate);
    let waited = scratch.wait(&running, &json!({ "exit": true }));
    assert_eq!(waited["tasks"][0]["exit_status"], 5, "{waited:#}");
    assert_eq!(scratch.printed(&json!(running)), b"on\n");
}

#[test]
fn the_ledger_removed_the_daybook_still_knows_what_was_short() {
    let scratch = Scratch::new();
    scratch.result("echo old");
    turn_the_page(&scratch);
    let short = scratch.result("echo short; exit 3")["task_id"].clone();
    fs::remove_file(ledger(&scratch)).unwrap();
    let output = ps(&scratch);
    is_told(&scratch, &output, "is missing");
    let tasks = scratch.tasks();
    assert!(!tasks.iter().any(|task| task["command"] == "echo old"), "it was nowhere else");
    let found = tasks.iter().find(|task| task["task_id"] == short).unwrap();
    assert_eq!(found["outcome"]["exit_status"], 3, "{found:#}");
    assert_eq!(scratch.printed(&short), b"short\n");
}

#[test]
fn the_daybook_removed_what_was_posted_and_what_runs_is_known() {
    let scratch = Scratch::new();
    let over = scratch.result("echo over")["task_id"].as_str().unwrap().to_owned();
    let gate = scratch.file("gate");
    let cmd = format!("{} wait-then-exit {gate} 5", fixture());
    let running = scratch.promote(&cmd, &json!({}));
    assert_eq!(ids(&scratch), [running.clone(), over]);
    fs::remove_file(daybook(&scratch)).unwrap();
    let again = scratch.exec(&json!({ "cmd": cmd }));
    assert_eq!(again["result"]["disposition"], "already_running", "{again:#}");
    open(&gate);
    let waited = scratch.wait(&running, &json!({ "exit": true }));
    assert_eq!(waited["tasks"][0]["exit_status"], 5, "{waited:#}");
    assert_eq!(ids(&scratch).len(), 2);
}

#[test]
fn the_daybook_removed_under_a_server_loses_nothing() {
    let scratch = Scratch::new();
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    let exec = |wire: &mut crate::mcp::Wire, cmd: &str| {
        wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
    };
    let gate = scratch.file("gate");
    let waiting = format!("{} wait-then-exit {gate} 5", fixture());
    wire.tool("ExecCommand", &json!({ "cmd": waiting, "login": false, "yield_time_ms": 0 }));
    exec(&mut wire, "echo one");
    fs::remove_file(daybook(&scratch)).unwrap();
    open(&gate);
    exec(&mut wire, "echo two");
    let all_over = || scratch.tasks().iter().all(|task| task["status"] != "running").then_some(());
    eventually("everything is recorded", all_over);
    let tasks = scratch.tasks();
    let commands: Vec<&Value> = tasks.iter().map(|task| &task["command"]).collect();
    assert_eq!(commands, [&json!("echo two"), &json!("echo one"), &json!(waiting)]);
    assert_eq!(tasks[2]["outcome"]["exit_status"], 5, "{tasks:#?}");
}

/// Where the last entry of a daybook begins: its length stands there, and the same turned over.
fn last_entry(whole: &[u8]) -> usize {
    let number = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
    let is_last = |at: &usize| {
        let length = number(*at);
        length == !number(at + 4) && at + 12 + length as usize == whole.len()
    };
    (0..whole.len() - 12).rev().find(is_last).unwrap()
}

#[test]
fn a_daybook_that_is_cut_off_anywhere_loses_no_more_than_its_last_entry() {
    let scratch = Scratch::new();
    for cut in [1, 9, 60] {
        scratch.result(&format!("echo {cut}"));
        let whole = fs::read(daybook(&scratch)).unwrap();
        // The very last one says where the audit log ends.
        let end = last_entry(&whole);
        fs::write(daybook(&scratch), &whole[..end - cut]).unwrap();
        assert_eq!(scratch.result("echo on")["exit_status"], 0);
        let tasks = scratch.tasks();
        assert_eq!(tasks[0]["outcome"]["exit_status"], 0, "{tasks:#?}");
        // Its end was cut off, and it was too short for a folder.
        assert_eq!(tasks[1]["command"], json!(format!("echo {cut}")));
        assert_eq!(tasks[1]["reason"], "warden_lost", "{tasks:#?}");
        assert!(tasks[2..].iter().all(|task| task["status"] != "running"), "{tasks:#?}");
    }
}

#[test]
fn a_spoilt_daybook_is_set_aside_and_what_runs_is_known() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let running = scratch
        .promote(&format!("{} wait-then-exit {gate} 5", fixture()), &json!({ "yield_time_ms": 0 }));
    for place in [2, 60] {
        scratch.result("echo on");
        let mut bytes = fs::read(daybook(&scratch)).unwrap();
        bytes[place] ^= 0x10;
        fs::write(daybook(&scratch), bytes).unwrap();
        let output = ps(&scratch);
        is_told(&scratch, &output, "its daybook cannot be read");
        assert!(ids(&scratch).contains(&running));
    }
    open(&gate);
    let waited = scratch.wait(&running, &json!({ "exit": true }));
    assert_eq!(waited["tasks"][0]["exit_status"], 5, "{waited:#}");
}

#[test]
fn the_ledger_removed_a_running_task_can_be_stopped() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let task = scratch.promote(&format!("{} ignore-term {ready}", fixture()), &json!({}));
    announced(&ready);
    fs::remove_file(ledger(&scratch)).unwrap();
    let stopped = scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 100 }));
    assert_eq!(stopped["stop_requested"], true, "{stopped:#}");
    assert_eq!(scratch.status(&task)["status"], "cancelled");
}

#[test]
fn the_ledger_removed_under_a_server_loses_only_what_was_in_it_alone() {
    let scratch = Scratch::new();
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    let exec = |wire: &mut crate::mcp::Wire, cmd: &str| {
        wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
    };
    exec(&mut wire, "echo one");
    exec(&mut wire, "echo two");
    wire.tool("TaskList", &json!({}));
    let remove = || {
        for name in ["ledger.db", "ledger.db-daybook", "ledger.db-wal", "ledger.db-shm"] {
            // Whoever was the last to close the ledger has removed its log.
            let _ = fs::remove_file(scratch.state.path().join(name));
        }
    };
    remove();
    exec(&mut wire, "echo three");
    let commands = || {
        let tasks = scratch.tasks();
        let all = tasks.iter().map(|task| task["command"].as_str().unwrap().to_owned());
        all.collect::<BTreeSet<String>>()
    };
    let knows = |names: &[&str]| names.iter().all(|name| commands().contains(*name));
    assert!(knows(&["echo one", "echo two", "echo three"]), "{:?}", commands());
    // Another process may be the first to miss it. The daybook was begun anew meanwhile.
    remove();
    ids(&scratch);
    exec(&mut wire, "echo four");
    assert!(knows(&["echo three", "echo four"]), "{:?}", commands());
}

#[test]
fn every_page_spoilt_in_turn_is_survived() {
    let scratch = Scratch::new();
    let kept = spilled(&scratch, "kept");
    scratch.result("echo short");
    let pages = fs::metadata(ledger(&scratch)).unwrap().len() / PAGE;
    let whole = fs::read(ledger(&scratch)).unwrap();
    for page in 1..=pages {
        fs::write(ledger(&scratch), &whole).unwrap();
        spoil(&scratch, page);
        let doctor = scratch.legwork("doctor").output().unwrap();
        assert_eq!(doctor.status.code(), Some(0), "page {page}: {doctor:?}");
        assert_eq!(scratch.printed(&json!(kept)), b"kept\n", "page {page}");
        assert_eq!(scratch.status(&kept)["exit_status"], 7, "page {page}");
        assert_eq!(scratch.result("echo on")["exit_status"], 0, "page {page}");
    }
}

#[test]
fn a_ledger_that_is_short_empty_or_something_else_is_rebuilt() {
    let scratch = Scratch::new();
    let kept = spilled(&scratch, "kept");
    let spoils: [(&str, Change); 4] = [
        ("is damaged", |bytes| bytes[..bytes.len() / 2].to_vec()),
        ("the file is empty", |_| Vec::new()),
        ("not a database", |bytes| vec![7; bytes.len()]),
        ("not a database", |_| b"a note to myself".repeat(100)),
    ];
    for (why, change) in spoils {
        let bytes = fs::read(ledger(&scratch)).unwrap();
        fs::write(ledger(&scratch), change(bytes)).unwrap();
        let output = ps(&scratch);
        is_told(&scratch, &output, why);
        assert!(ids(&scratch).contains(&kept));
    }
}

/// Leaves a ledger with a log that nobody has folded in, as a crash does.
fn crashed(scratch: &Scratch) {
    let mut wire = crate::mcp::Wire::initialized(scratch);
    for number in 0..3 {
        let input = json!({ "cmd": format!("echo {number}"), "login": false });
        wire.tool("ExecCommand", &input);
    }
    // Whoever reads the ledger makes sure that everything is in it.
    wire.tool("TaskList", &json!({}));
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
}

#[test]
fn after_a_crash_the_whole_ledger_is_checked_and_otherwise_by_the_doctor() {
    let scratch = Scratch::new();
    let kept = spilled(&scratch, "kept");
    // A page that no list looks at.
    spoil(&scratch, root_page(&scratch, "approval_key"));
    assert_eq!(parts(&ps(&scratch)).2, "", "a normal start looks at nothing");
    let doctor = scratch.legwork("doctor").output().unwrap();
    assert!(text(&doctor.stderr).contains("the ledger is damaged"), "{doctor:?}");
    // Looking for the page would fold the log in.
    let page = root_page(&scratch, "approval_key");
    crashed(&scratch);
    spoil(&scratch, page);
    let output = ps(&scratch);
    is_told(&scratch, &output, "is damaged");
    assert!(ids(&scratch).contains(&kept));
}

#[test]
fn a_log_of_another_ledger_is_found_after_a_crash() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let kept = spilled(&scratch, "kept");
    for _ in 0..30 {
        other.result("echo other");
    }
    crashed(&scratch);
    crashed(&other);
    let log = |scratch: &Scratch| scratch.state.path().join("ledger.db-wal");
    fs::copy(log(&other), log(&scratch)).unwrap();
    let output = ps(&scratch);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(ids(&scratch).contains(&kept));
    assert_eq!(scratch.printed(&json!(kept)), b"kept\n");
    assert_eq!(scratch.result("echo on")["exit_status"], 0);
}

#[test]
fn a_lost_log_is_noticed_and_what_has_a_folder_is_there() {
    let scratch = Scratch::new();
    scratch.result("echo first");
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    let told =
        wire.tool("ExecCommand", &json!({ "cmd": "echo kept; sleep 0.3; exit 7", "login": false }));
    assert!(told.starts_with("Process exited with code 7"), "{told}");
    let kept = scratch.folders()[0].clone();
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
    fs::remove_file(scratch.state.path().join("ledger.db-wal")).unwrap();
    let output = ps(&scratch);
    is_told(&scratch, &output, "its log is missing");
    assert!(ids(&scratch).contains(&kept));
    // With the file beside it gone too nothing shows; a task is found by its name all the same.
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    wire.tool("ExecCommand", &json!({ "cmd": "echo kept; sleep 0.3; exit 8", "login": false }));
    let kept = scratch.folders().into_iter().find(|id| *id != kept).unwrap();
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
    fs::remove_file(scratch.state.path().join("ledger.db-wal")).unwrap();
    fs::remove_file(scratch.state.path().join("ledger.db-shm")).unwrap();
    assert_eq!(scratch.status(&kept)["exit_status"], 8);
}

#[test]
fn a_server_whose_ledger_is_damaged_under_it_goes_on() {
    let scratch = Scratch::new();
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    let kept = spilled(&scratch, "kept");
    for round in 0..3 {
        let bytes = fs::metadata(ledger(&scratch)).unwrap().len();
        let file = OpenOptions::new().write(true).open(ledger(&scratch)).unwrap();
        file.write_all_at(&vec![9; usize::try_from(bytes).unwrap()], 0).unwrap();
        // Another process notices; the server must not go on with what was set aside.
        assert!(ids(&scratch).contains(&kept), "round {round}");
        let input = json!({ "cmd": format!("echo after {round}"), "login": false });
        wire.tool("ExecCommand", &input);
        let listed = scratch.tasks();
        assert_eq!(listed[0]["command"], json!(format!("echo after {round}")));
    }
}

#[test]
fn of_many_processes_one_rebuilds_and_all_see_the_same() {
    let scratch = Scratch::new();
    let kept = spilled(&scratch, "kept");
    fs::write(ledger(&scratch), "noise").unwrap();
    let start = || {
        let mut command = scratch.legwork("ps");
        command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..12).map(|_| start()).collect();
    let mut told = 0;
    for child in all {
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stdout).contains(&kept), "{output:?}");
        told += text(&output.stderr).lines().count();
    }
    assert_eq!(told, 1);
    let names = fs::read_dir(scratch.state.path()).unwrap();
    let aside: Vec<String> = names
        .map(|name| name.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".aside-"))
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
}

#[test]
fn a_rebuild_that_was_cut_off_is_taken_up_again() {
    let scratch = Scratch::new();
    scratch.result("echo short");
    let kept = spilled(&scratch, "kept");
    // As it is after the ledger was moved away, and before a new one stands in its place.
    let state = scratch.state.path();
    fs::rename(ledger(&scratch), state.join("ledger.db.aside-123")).unwrap();
    fs::write(state.join("ledger.db.rebuild"), "123").unwrap();
    fs::write(state.join("ledger.db.new"), "half a ledger").unwrap();
    assert_eq!(ids(&scratch).len(), 2);
    assert!(ids(&scratch).contains(&kept));
}

#[test]
fn a_ledger_that_another_process_holds_keeps_no_command_waiting() {
    let scratch = Scratch::new();
    scratch.result("true");
    let holder = Connection::open(ledger(&scratch)).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    wire.tool("ExecCommand", &json!({ "cmd": "touch started", "login": false }));
    assert!(scratch.workspace.path().join("started").exists());
    // A list would not be the whole truth.
    let begin = Instant::now();
    let (code, _, told) = parts(&ps(&scratch));
    assert_eq!(code, Some(125), "{told}");
    assert!(begin.elapsed() > Duration::from_secs(4) && begin.elapsed() < Duration::from_secs(25));
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(ids(&scratch).len(), 2);
}

#[test]
fn a_daybook_that_another_process_holds_is_waited_for_and_then_refused() {
    let scratch = Scratch::new();
    scratch.result("true");
    let holder = fs::File::open(daybook(&scratch)).unwrap();
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    holder.lock().unwrap();
    let begin = Instant::now();
    let call =
        json!({ "name": "ExecCommand", "arguments": { "cmd": "touch started", "login": false } });
    let refused = wire.request("tools/call", &call);
    assert!(refused.to_string().contains("state_unavailable"), "{refused:#}");
    assert!(begin.elapsed() > Duration::from_secs(4) && begin.elapsed() < Duration::from_secs(25));
    assert!(!scratch.workspace.path().join("started").exists());
    holder.unlock().unwrap();
    assert_eq!(scratch.result("echo on")["exit_status"], 0);
}

#[test]
fn an_exit_record_that_is_torn_or_altered_is_no_outcome_and_the_output_is_kept() {
    let scratch = Scratch::new();
    for (spoilt, round) in [(3..40, 1), (30..31, 2)] {
        let gate = scratch.file(&format!("gate{round}"));
        let cmd = format!("echo kept; {} wait-then-exit {gate} 0", fixture());
        let task = scratch.promote(&cmd, &json!({}));
        // Nobody hears of its end.
        let pid = scratch.status(&task)["pid"].as_u64().unwrap();
        let warden = parent(u32::try_from(pid).unwrap());
        open(&gate);
        eventually("its warden is gone", || (!crate::common::is_alive(warden)).then_some(()));
        let record = scratch.folder(&json!(task)).join("exit");
        let mut bytes = fs::read(&record).unwrap();
        for place in spoilt {
            bytes[place] ^= 0x10;
        }
        fs::write(&record, bytes).unwrap();
        let status = scratch.status(&task);
        assert_eq!(status["status"], "interrupted", "{status:#}");
        assert_eq!(status["reason"], "exit_record_damaged", "{status:#}");
        assert_eq!(scratch.printed(&json!(task)), b"kept\n");
    }
}

#[test]
fn a_folder_whose_note_is_torn_keeps_its_output_and_its_code() {
    let scratch = Scratch::new();
    let task = spilled(&scratch, "kept");
    let note = scratch.folder(&json!(task)).join("spec");
    let bytes = fs::read(&note).unwrap();
    fs::write(&note, &bytes[..bytes.len() / 2]).unwrap();
    lose(&scratch);
    let found = scratch.tasks()[0].clone();
    assert_eq!(found["outcome"]["exit_status"], 7, "{found:#}");
    assert!(found["command"].as_str().unwrap().starts_with("(not known"), "{found:#}");
    assert_eq!(scratch.printed(&json!(task)), b"kept\n");
}

#[test]
fn a_reboot_and_a_lost_ledger_together_are_interrupted_and_not_run_again() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let task =
        scratch.promote(&format!("echo kept; exec {} ignore-term {ready}", fixture()), &json!({}));
    let pid = announced(&ready);
    signal(parent(pid), Signal::KILL);
    eventually("it is gone", || (!crate::common::is_alive(pid)).then_some(()));
    let note = scratch.folder(&json!(task)).join("spec");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let changed = fs::read_to_string(&note).unwrap().replace(boot.trim(), "another");
    fs::write(&note, changed).unwrap();
    lose(&scratch);
    let status = scratch.status(&task);
    assert_eq!((&status["status"], &status["reason"]), (&json!("interrupted"), &json!("reboot")));
    assert_eq!(scratch.printed(&json!(task)), b"kept\n");
}

#[test]
fn a_spoilt_index_of_open_tasks_is_found_by_the_next_list_of_them() {
    let scratch = Scratch::new();
    let kept = spilled(&scratch, "kept");
    scratch.result("echo short");
    spoil(&scratch, root_page(&scratch, "task_open"));
    let output = scratch.legwork("ps").args(["--json", "--running"]).output().unwrap();
    is_told(&scratch, &output, "is damaged");
    assert!(ids(&scratch).contains(&kept));
    assert!(scratch.tasks().iter().any(|task| task["command"] == "echo short"));
}
