//! A state folder with a long history, and what a call costs on it.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use rusqlite::Connection;
use tempfile::TempDir;

use crate::{
    client::Client,
    measure::{median, micros},
    report::Report,
};

/// Tasks in a long history.
const TASKS: u32 = 100_000;

/// What a call, a list and `ps` cost with a long history, beside what they cost with none.
pub fn history(legwork: &Path, quick: bool, report: &mut Report) {
    let rounds = if quick { 200 } else { 2000 };
    let (empty, full) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for state in [&empty, &full] {
        // The first task makes the ledger; a verb that only looks would not.
        run_verb(legwork, state.path(), &["run", "--mode", "open"], &["--", "true"]);
    }
    fill(full.path(), TASKS);
    let mut with = Client::start_on(legwork, full);
    let mut without = Client::start_on(legwork, empty);
    let mut compare = |what: &str, rounds: u32, work: fn(&mut Client)| {
        for _ in 0..rounds / 10 {
            work(&mut with);
            work(&mut without);
        }
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(micros(|| work(&mut with)));
            others.push(micros(|| work(&mut without)));
        }
        let what = format!("history of {TASKS}, {what}, p50");
        report.compare(&what, median(&ours), median(&others), "us", "1.1");
    };
    compare("trivial call", rounds, |client| drop(client.run("true")));
    compare("TaskList of all", rounds, |client| {
        client.tool("TaskList", &serde_json::json!({ "include_finished": true }));
    });
    let states = [with.state().to_owned(), without.state().to_owned()];
    let [mut ours, mut others] = [Vec::new(), Vec::new()];
    for _ in 0..rounds / 20 {
        ours.push(micros(|| run_verb(legwork, &states[0], &["ps"], &[])));
        others.push(micros(|| run_verb(legwork, &states[1], &["ps"], &[])));
    }
    let what = format!("history of {TASKS}, legwork ps, p50");
    report.compare(&what, median(&ours), median(&others), "us", "1.1");
}

fn run_verb(legwork: &Path, state: &Path, verb: &[&str], rest: &[&str]) {
    let mut command = Command::new(legwork);
    command.args(verb).arg("--state").arg(state).args(rest);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    assert!(command.status().unwrap().success());
}

/// Fills the ledger of a state folder with short tasks that are over, in a hundred workspaces and
/// the bench's own.
fn fill(state: &Path, tasks: u32) {
    let ledger = Connection::open(state.join("ledger.db")).unwrap();
    let sql = "
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
        INSERT INTO task (id, tool, workspace, asked_by, trust, command, workdir, login, tty, fingerprint,
                          boot_id, warden, status, created_at_ms, updated_at_ms, outcome, stdout, stderr, timeline)
        SELECT 't_' || lower(hex(randomblob(13))), 'ExecCommand',
               CASE i % 2 WHEN 0 THEN '/tmp' ELSE '/somewhere/' || (i % 100) END,
               'bench', 'trusted_operator', 'echo ' || i, '/tmp', 0, 0, randomblob(32), 'boot', 'gone', 'completed',
               (unixepoch() - ?1 + i) * 1000, (unixepoch() - ?1 + i) * 1000,
               '{\"exit_status\":0,\"pid\":7,\"duration_ms\":5,\"stdout\":{\"bytes\":60,\"lines\":1},\
                 \"stderr\":{\"bytes\":0,\"lines\":0}}',
               randomblob(60), x'', zeroblob(16)
          FROM n";
    assert_eq!(ledger.execute(sql, [tasks]).unwrap(), tasks as usize);
}
