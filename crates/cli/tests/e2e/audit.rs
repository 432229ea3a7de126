//! The audit log: what was asked, decided and done, in a chain that shows every change.

use std::{fs, io::Write, os::unix::fs::PermissionsExt, thread};

use serde_json::{Value, json};

use crate::common::{Scratch, parts, program, text};

fn entries(scratch: &Scratch, more: &[&str]) -> Vec<Value> {
    let mut command = std::process::Command::new(program());
    command.args(["audit", "show", "--json", "--state"]).arg(scratch.state.path()).args(more);
    let shown = text(&command.output().unwrap().stdout);
    shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn verify(scratch: &Scratch) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(program());
    parts(&command.args(["audit", "verify", "--state"]).arg(scratch.state.path()).output().unwrap())
}

#[test]
fn every_verdict_outcome_and_refusal_is_noted() {
    let scratch = Scratch::new();
    let ran = scratch.result("exit 3");
    for command in ["echo $(id)", "touch x"] {
        let input = json!({ "command": command }).to_string();
        let mut call = scratch.guarded("call", "guarded", None);
        call.args(["run_shell_command", &input]).output().unwrap();
    }
    scratch.call("ExecCommand", &json!({ "cmd": "true", "workdir": "/" }));
    let task = scratch.promote("sleep 1000", &json!({}));
    scratch.get("TaskStop", &json!({ "task_id": task }));
    let noted: Vec<(String, String)> = entries(&scratch, &[])
        .iter()
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let second = ["verdict", "kind", "status", "tool"].map(text);
            (text("event"), second.into_iter().find(|text| !text.is_empty()).unwrap())
        })
        .collect();
    let noted: Vec<(&str, &str)> =
        noted.iter().map(|(event, more)| (event.as_str(), more.as_str())).collect();
    assert_eq!(
        noted,
        [
            ("verdict", "allow"),
            ("outcome", "failed"),
            ("verdict", "deny"),
            ("refused", "command_substitution_denied"),
            ("verdict", "ask"),
            ("refused", "approval_unavailable"),
            ("refused", "execution_root_violation"),
            ("verdict", "allow"),
            ("outcome", "cancelled"),
            ("request", "TaskStop"),
        ]
    );
    let id = ran["task_id"].as_str().unwrap();
    let of_one = entries(&scratch, &["--task", &id[..10]]);
    assert_eq!(of_one.len(), 2);
    assert_eq!(
        (&of_one[0]["trust"], &of_one[1]["exit_status"]),
        (&json!("trusted_operator"), &json!(3))
    );
    for entry in entries(&scratch, &[]) {
        assert_eq!(entry["trust"], "trusted_operator", "{entry}");
    }
    assert_eq!(entries(&scratch, &["--verdict", "deny"]).len(), 1);
    assert_eq!(entries(&scratch, &["--since", "2100-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(
        verify(&scratch),
        (Some(0), "10 lines, none changed, removed or inserted\n".into(), String::new())
    );
}

#[test]
fn a_command_that_could_not_be_started_leaves_a_line_whoever_asked() {
    let scratch = Scratch::new();
    let broken = scratch.file("broken");
    fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    // What is asked, and the events, kinds and reasons that are noted of it.
    let call = |tool: &str, input: Value| {
        scratch.call(tool, &input);
    };
    let run = |verb: &str, words: &[&str]| {
        assert!(!scratch.legwork(verb).args(words).output().unwrap().status.success());
    };
    let not_found: &[&str] = &["refused command_spawn_failed"];
    let not_executed: &[&str] = &["verdict allow", "outcome spawn_failed"];
    let cases: [(&dyn Fn(), &[&str]); 8] = [
        (&|| call("execute_command", json!({ "command": "no-such-program" })), not_found),
        (&|| run("run", &["--", "no-such-program"]), not_found),
        (&|| run("sh", &["--shell", "no-such-shell", "true"]), not_found),
        (&|| call("execute_command", json!({ "command": broken })), not_executed),
        (&|| run("run", &["--", &broken]), not_executed),
        (
            &|| call("execute_command", json!({ "command": "true", "cwd": "/no/such/folder" })),
            &["refused workdir_not_found"],
        ),
        (
            &|| call("run_shell_command", json!({ "command": "true", "directory": "/" })),
            &["refused execution_root_violation"],
        ),
        (
            &|| call("ExecCommand", json!({ "cmd": "true", "shell": broken, "login": false })),
            &["verdict allow", "outcome spawn_failed", "refused command_spawn_failed"],
        ),
    ];
    let mut known = 0;
    for (number, (ask, expected)) in cases.iter().enumerate() {
        ask();
        let all = entries(&scratch, &[]);
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let noted: Vec<String> = all[known..]
            .iter()
            .map(|entry| {
                let more = ["kind", "verdict", "reason"].map(|name| text(entry, name));
                let more = more.into_iter().find(|text| !text.is_empty()).unwrap();
                format!("{} {more}", text(entry, "event"))
            })
            .collect();
        assert_eq!(noted, *expected, "case {number}: {:#?}", &all[known..]);
        for entry in &all[known..] {
            assert_eq!(entry["trust"], "trusted_operator", "{entry:#}");
        }
        // What was refused before there was a verdict names the command, too.
        if expected.len() == 1 {
            assert!(!text(&all[known], "command").is_empty(), "{:#}", all[known]);
        }
        known = all.len();
    }
    assert_eq!(verify(&scratch).0, Some(0));
}

#[test]
fn one_changed_byte_is_found_and_a_torn_line_is_repaired() {
    let scratch = Scratch::new();
    for code in 0..3 {
        scratch.result(&format!("exit {code}"));
    }
    let path = scratch.state.path().join("audit.jsonl");
    let whole = fs::read(&path).unwrap();
    let mut changed = whole.clone();
    let third = whole.split(|byte| *byte == b'\n').take(2).map(<[u8]>::len).sum::<usize>() + 2;
    changed[third + 100] ^= 1;
    fs::write(&path, &changed).unwrap();
    let (code, _, complaint) = verify(&scratch);
    assert_eq!(code, Some(125));
    assert!(complaint.contains("line 3 of the audit log was changed"), "{complaint}");
    // Torn by a kill: the next entry cuts it off and says so.
    fs::write(&path, &whole).unwrap();
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"prev\":\"to").unwrap();
    scratch.result("true");
    assert_eq!(verify(&scratch).0, Some(0));
    assert!(entries(&scratch, &[]).iter().any(|entry| entry["event"] == "repaired"));
}

#[test]
fn eight_processes_at_once_leave_a_valid_chain() {
    let scratch = Scratch::new();
    thread::scope(|scope| {
        for process in 0..8 {
            let scratch = &scratch;
            scope.spawn(move || {
                for number in 0..8 {
                    scratch.result(&format!("exit 0; : {process} {number}"));
                }
            });
        }
    });
    assert_eq!(
        verify(&scratch),
        (Some(0), "128 lines, none changed, removed or inserted\n".into(), String::new())
    );
}

#[test]
fn what_a_command_holds_cannot_forge_a_line() {
    let scratch = Scratch::new();
    scratch.result("true '\n{\"event\":\"forged\"}\n' \u{1b}[2J");
    let raw = fs::read(scratch.state.path().join("audit.jsonl")).unwrap();
    assert!(!raw.contains(&0x1b));
    assert_eq!(text(&raw).lines().count(), 2);
    let shown = std::process::Command::new(program())
        .args(["audit", "show", "--state"])
        .arg(scratch.state.path())
        .output()
        .unwrap();
    assert!(!shown.stdout.contains(&0x1b), "escaped for people, too");
}

/// A state folder in which some commands ran, and its log.
fn with_log(commands: usize) -> (Scratch, std::path::PathBuf) {
    let scratch = Scratch::new();
    for number in 0..commands {
        scratch.result(&format!("exit {number}"));
    }
    let log = scratch.state.path().join("audit.jsonl");
    assert_eq!(verify(&scratch).0, Some(0));
    (scratch, log)
}

#[track_caller]
fn assert_found(scratch: &Scratch, what: &str) {
    let (code, _, told) = verify(scratch);
    assert_eq!(code, Some(125), "{told}");
    assert!(told.contains(what), "{told}");
}

#[test]
fn a_cut_tail_is_found_by_the_ledger_that_knows_the_end_of_the_log() {
    let (scratch, log) = with_log(2);
    let whole = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    // Also the last line, the outcome of the last command.
    for kept in [lines.len() - 1, 1, 0] {
        fs::write(&log, lines[..kept].concat()).unwrap();
        assert_found(&scratch, "the audit log is cut");
    }
    fs::write(&log, &whole).unwrap();
    assert_eq!(verify(&scratch).0, Some(0));
    // What is noted later does not hide it.
    fs::write(&log, lines[..1].concat()).unwrap();
    scratch.result("true");
    assert_found(&scratch, "the audit log");
}

#[test]
fn a_chain_that_was_written_anew_is_found() {
    let (scratch, log) = with_log(2);
    // Longer, and whole in itself.
    let (_other, another) = with_log(4);
    fs::write(&log, fs::read(another).unwrap()).unwrap();
    assert_found(&scratch, "the audit log was rewritten");
}

#[test]
fn a_log_that_is_gone_is_missed_and_one_that_was_moved_aside_is_not() {
    let (scratch, log) = with_log(1);
    let aside = log.with_file_name("audit.jsonl.1");
    fs::rename(&log, &aside).unwrap();
    scratch.result("true");
    assert_eq!(verify(&scratch).0, Some(0), "{:?}", verify(&scratch));
    fs::remove_file(&aside).unwrap();
    assert_found(&scratch, "the audit log is missing");
    let (scratch, log) = with_log(1);
    fs::remove_file(&log).unwrap();
    assert_found(&scratch, "the audit log is missing");
}

#[test]
fn a_server_anchors_what_it_notes_while_it_runs() {
    let scratch = Scratch::new();
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    wire.exec(&json!({ "cmd": "true" }));
    let log = scratch.state.path().join("audit.jsonl");
    let anchored = || -> u64 {
        let mut command = std::process::Command::new(program());
        command.args(["audit", "verify", "--json", "--state"]).arg(scratch.state.path());
        let told: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        told["anchored_bytes"].as_u64().unwrap()
    };
    let whole = fs::metadata(&log).unwrap().len();
    crate::common::eventually("all of it is anchored", || (anchored() == whole).then_some(()));
}
