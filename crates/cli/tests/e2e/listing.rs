//! `legwork ps`: a list that fits, is ordered and filtered, and follows what happens.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use rusqlite::Connection;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::{
    common::{Scratch, fixture, open, parts, text},
    task_verbs::Person,
};

const COLUMNS: &str = "tool, workspace, asked_by, trust, workdir, shell, login, tty, \
    fingerprint, boot_id, warden, status, reason, updated_at_ms";

/// A task as it is to be in the ledger.
pub struct Row<'r> {
    pub id: &'r str,
    pub command: &'r str,
    pub workdir: &'r str,
    pub status: &'r str,
    pub outcome: Value,
    pub age_ms: i64,
}

impl Default for Row<'_> {
    fn default() -> Self {
        let outcome = json!({ "exit_status": 0, "pid": 1, "duration_ms": 1200,
            "stdout": { "bytes": 0, "lines": 0 }, "stderr": { "bytes": 0, "lines": 0 } });
        let (id, command, workdir, status) = ("", "true", "/home/me/project", "completed");
        Self { id, command, workdir, status, outcome, age_ms: 90_000 }
    }
}

/// An outcome with these fields.
pub fn outcome(more: &Value) -> Value {
    let mut outcome = Row::default().outcome;
    outcome.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    outcome
}

/// Writes tasks that have ended into a ledger, the oldest first; the one that made it goes.
pub fn fill(scratch: &Scratch, rows: &[Row<'_>]) {
    let template = scratch.result("true")["task_id"].as_str().unwrap().to_owned();
    scratch.tasks();
    let ledger = Connection::open(scratch.state.path().join("ledger.db")).unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    let sql = format!(
        "INSERT INTO task (id, command, outcome, created_at_ms, {COLUMNS}) \
         SELECT ?1, ?2, ?3, ?4, {COLUMNS} FROM task WHERE id = ?5"
    );
    let transaction = ledger.unchecked_transaction().unwrap();
    for row in rows {
        let values = (row.id, row.command, row.outcome.to_string(), now - row.age_ms, &template);
        transaction.execute(&sql, values).unwrap();
        let sql = "UPDATE task SET workdir = ?1, status = ?2 WHERE id = ?3";
        transaction.execute(sql, (row.workdir, row.status, row.id)).unwrap();
    }
    transaction.execute("DELETE FROM task WHERE id = ?", [&template]).unwrap();
    transaction.commit().unwrap();
}

/// `legwork ps` on a terminal of this width.
fn ps(scratch: &Scratch, width: usize, more: &[&str]) -> String {
    let mut command = scratch.legwork("ps");
    command.env("COLUMNS", width.to_string()).env("HOME", "/home/me").args(more);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// An id that is as long as real ones are.
fn id(number: usize) -> String {
    let digits: String =
        format!("{number:04}").chars().map(|it| char::from(it as u8 + 49)).collect();
    format!("t_{digits:a<26}")
}

#[test]
fn a_thousand_tasks_fit_eighty_columns_newest_first() {
    let scratch = Scratch::new();
    let ids: Vec<String> = (0..1000).map(id).collect();
    let long = "cargo test --workspace --all-targets --locked -- --nocapture 日本語 ".repeat(3);
    let failed = outcome(&json!({ "exit_status": 3 }));
    let rows: Vec<Row<'_>> = ids
        .iter()
        .enumerate()
        .map(|(at, id)| Row {
            id,
            command: if at % 2 == 0 { &long } else { "make" },
            workdir: "/home/me/a/long/way/down/to/the/project",
            status: if at % 4 == 0 { "failed" } else { "completed" },
            outcome: if at % 4 == 0 { failed.clone() } else { outcome(&json!({})) },
            age_ms: i64::try_from(1000 - at).unwrap() * 60_000,
        })
        .collect();
    fill(&scratch, &rows);
    for width in [60, 80, 120] {
        let listed = ps(&scratch, width, &[]);
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines.len(), 22, "titles, twenty tasks, the rest: {listed}");
        for line in &lines {
            assert!(line.width() <= width, "{width}: {} columns: {line}", line.width());
        }
        assert_eq!(lines[21], "980 more: -n 1000");
        // Each id is as short as can be, and enough to find its task.
        let shown: Vec<&str> =
            lines[1..21].iter().map(|line| line.split(' ').next().unwrap()).collect();
        let newest: Vec<&str> = ids.iter().rev().take(20).map(|id| &id[..6]).collect();
        assert_eq!(shown, newest);
        assert_eq!(parts(&scratch.legwork("show").arg(shown[0]).output().unwrap()).0, Some(0));
    }
    // Filters.
    let ids_of = |more: &[&str]| -> Vec<String> {
        let more = [more, &["-q", "-n", "2000"]].concat();
        ps(&scratch, 80, &more).lines().map(str::to_owned).collect()
    };
    assert_eq!(ids_of(&[]).len(), 1000);
    assert_eq!(ids_of(&["--status", "failed"]).len(), 250);
    assert_eq!(ids_of(&["--status", "failed", "--status", "completed"]).len(), 1000);
    assert_eq!(ids_of(&["--status", "failed"])[0], ids[996]);
    assert_eq!(ids_of(&["--since", "1h"]).len(), 59);
    assert_eq!(ids_of(&["--since", "2100-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(ids_of(&["--running"]).len(), 0);
    assert_eq!(ids_of(&["--workspace", scratch.workspace.path().to_str().unwrap()]).len(), 1000);
    assert_eq!(ids_of(&["--workspace", "/elsewhere"]).len(), 0);
    assert!(ps(&scratch, 80, &["--workspace", "/elsewhere"]).contains("No task matches"));
    let wrong = scratch.legwork("ps").args(["--status", "done"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(125));
    let listed = "[possible values: queued, running, stopping, exit-0, failed, stopped, lost]";
    assert!(text(&wrong.stderr).contains(listed), "{wrong:?}");
    // Into a pipe, and with all columns, nothing is cut.
    let piped = text(&scratch.legwork("ps").env_remove("COLUMNS").output().unwrap().stdout);
    assert!(piped.contains(long.trim()), "{piped}");
    let all = ps(&scratch, 80, &["--all-columns"]);
    assert!(all.contains(&ids[999]) && all.contains(long.trim()), "{all}");
}

#[test]
fn the_list_in_its_widths_with_and_without_colours() {
    let scratch = Scratch::new();
    let stopped = outcome(&json!({ "exit_status": null, "signal": 15, "ended_by": "stopped" }));
    let killed = outcome(&json!({ "exit_status": null, "signal": 15, "duration_ms": 600_000 }));
    let rows = [
        Row { id: "t_caaaaaaaaaaaaaaaaaaaaaaaaa", age_ms: 3 * 86_400_000, ..Row::default() },
        Row {
            id: "t_cbaaaaaaaaaaaaaaaaaaaaaaaa",
            command: "npm run dev",
            status: "cancelled",
            outcome: stopped,
            workdir: "/srv/www",
            age_ms: 7_300_000,
        },
        Row {
            id: "t_cbabaaaaaaaaaaaaaaaaaaaaaa",
            command: "cargo test --workspace --all-targets --locked -- --test-threads 1 --nocapture",
            status: "failed",
            outcome: killed,
            workdir: "/home/me/work/a-rather-long-name/project",
            ..Row::default()
        },
        Row {
            id: "t_daaaaaaaaaaaaaaaaaaaaaaaaa",
            command: "printf 'a\nb'\u{1b}[2J",
            status: "failed",
            outcome: outcome(&json!({ "exit_status": 3, "duration_ms": 12 })),
            ..Row::default()
        },
    ];
    fill(&scratch, &rows);
    for width in [60, 80, 120] {
        insta::assert_snapshot!(format!("ps_{width}"), ps(&scratch, width, &[]));
    }
    let coloured = |forbidden: &str| {
        let mut command = scratch.legwork("ps");
        command.env("COLUMNS", "80").env("HOME", "/home/me").env("CLICOLOR_FORCE", "1");
        let output = command.env("NO_COLOR", forbidden).output().unwrap();
        text(&output.stdout)
    };
    insta::assert_snapshot!("ps_80_colours", coloured("").replace('\u{1b}', "ESC"));
    assert_eq!(coloured("1"), ps(&scratch, 80, &[]));
}

#[test]
fn a_watched_list_is_printed_again_when_a_task_starts_or_ends() {
    let scratch = Scratch::new();
    scratch.result("true");
    let mut child =
        scratch.legwork("ps").args(["-w", "--running"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut sees = |what: &str| {
        let found = lines.by_ref().map(Result::unwrap).find(|line| line.contains(what));
        assert!(found.is_some(), "{what}");
    };
    sees("No task matches");
    let gate = scratch.file("gate");
    let task = scratch.promote(&format!("exec {} wait-for {gate}", fixture()), &json!({}));
    sees("wait-for");
    open(&gate);
    sees("No task matches");
    assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 0);
    crate::common::signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_watched_list_repaints_a_terminal() {
    let scratch = Scratch::new();
    scratch.result("true");
    let command = format!(
        "exec {} ps -w --state {}",
        crate::common::program(),
        scratch.state.path().display()
    );
    let person = Person::types(&command);
    person.sees("exit 0");
    let gate = scratch.file("gate");
    let task = scratch.promote(&format!("exec {} wait-for {gate}", fixture()), &json!({}));
    let screen = person.sees("running");
    assert_eq!(screen.matches("STATUS").count(), 1, "one list, painted over: {screen}");
    open(&gate);
    scratch.wait(&task, &json!({}));
    person.sends(&json!({ "key": "ctrl-c" }));
    person.leaves_with(130);
}

#[test]
fn a_task_of_a_program_that_has_gone_says_when_it_is_stopped_and_a_persons_never_is() {
    let scratch = Scratch::new();
    let mut call = scratch.guarded("call", "open", Some("orphan_ttl_ms = \"1h\"\n"));
    let input = json!({ "cmd": "sleep 1000", "login": false, "yield_time_ms": 0 }).to_string();
    assert!(call.args(["ExecCommand", &input]).output().unwrap().status.success());
    let mine = scratch.legwork("run").args(["-d", "--", "sleep", "1001"]).output().unwrap();
    assert!(mine.status.success(), "{mine:?}");
    let listed = crate::common::eventually("its client is gone", || {
        let listed = ps(&scratch, 120, &[]);
        listed.contains("stops in").then_some(listed)
    });
    let line = |command: &str| listed.lines().find(|line| line.contains(command)).unwrap();
    assert!(line("sleep 1000").contains("stops in 59m"), "{listed}");
    assert!(!line("sleep 1001").contains("stops in"), "{listed}");
    // Whoever attaches to it and leaves gives it its whole time again; a list does not.
    assert!(text(&mine.stdout).trim().starts_with("t_"), "run -d prints the id");
}

#[test]
fn what_a_person_started_outlives_what_a_program_left_alone() {
    let scratch = Scratch::new();
    let short = Some("orphan_ttl_ms = \"1s\"\n");
    let mut run = scratch.guarded("run", "open", short);
    let mine = run.args(["-d", "--", "sleep", "1001"]).output().unwrap();
    assert!(mine.status.success(), "{mine:?}");
    let mut call = scratch.guarded("call", "open", short);
    let input = json!({ "cmd": "sleep 1000", "login": false, "yield_time_ms": 0 }).to_string();
    assert!(call.args(["ExecCommand", &input]).output().unwrap().status.success());
    // A list knocks and does not count as somebody who looks after a task.
    let of = |command: &str| {
        let tasks = scratch.tasks();
        tasks.into_iter().find(|task| task["command"] == command).unwrap()
    };
    crate::common::eventually("the program's task is stopped", || {
        (of("sleep 1000")["reason"] == "abandoned").then_some(())
    });
    assert_eq!(of("sleep 1001")["status"], "running", "though it was alone for longer");
    assert!(ps(&scratch, 80, &[]).contains("no client"));
}

#[test]
fn a_status_is_asked_for_in_the_words_of_the_list_or_of_json() {
    let scratch = Scratch::new();
    let lost = json!({ "exit_status": null, "lost": "reboot" });
    // The words of the list, the name to ask by, the name in JSON, the outcome.
    let kinds = [
        ("exit 0", "exit-0", "completed", json!({})),
        ("exit 3", "failed", "failed", json!({ "exit_status": 3 })),
        ("stopped", "stopped", "cancelled", json!({ "ended_by": "stopped" })),
        ("lost", "lost", "interrupted", lost),
    ];
    let ids: Vec<String> = ('a'..='d').map(|it| format!("t_{it}{}", "a".repeat(25))).collect();
    let row = |(id, (_, _, status, more)): (&'_ String, &(_, _, &'static str, Value))| {
        (id.clone(), *status, outcome(more))
    };
    let rows: Vec<(String, &str, Value)> = ids.iter().zip(&kinds).map(row).collect();
    let rows: Vec<Row<'_>> = rows
        .iter()
        .map(|(id, status, outcome)| Row { id, status, outcome: outcome.clone(), ..Row::default() })
        .collect();
    fill(&scratch, &rows);
    for (id, (shown, name, in_json, _)) in ids.iter().zip(&kinds) {
        for name in [name, in_json] {
            assert_eq!(ps(&scratch, 80, &["--status", name, "-q"]), format!("{id}\n"), "{name}");
        }
        let listed = ps(&scratch, 80, &["--status", name]);
        assert!(listed.contains(&format!("  {shown}  ")), "{name}: {listed}");
    }
    assert_eq!(ps(&scratch, 80, &["--status", "exit 0", "-q"]), format!("{}\n", ids[0]));
    for name in ["queued", "running", "stopping", "cancelling"] {
        assert_eq!(ps(&scratch, 80, &["--status", name]), "No task matches\n", "{name}");
    }
}

#[test]
fn aliases_are_the_verbs_that_others_have() {
    let scratch = Scratch::new();
    let task = scratch.promote("exec sleep 1000", &json!({}));
    assert!(text(&scratch.legwork("list").output().unwrap().stdout).contains("sleep 1000"));
    assert!(
        text(&scratch.legwork("status").arg(&task).output().unwrap().stdout).contains("running")
    );
    assert!(scratch.legwork("kill").arg(&task).output().unwrap().status.success());
    assert_eq!(scratch.status(&task)["status"], "cancelled");
}
