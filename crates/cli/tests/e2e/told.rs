//! Programs of the user's that are told of something: of questions, and of the end of the audit
//! log.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, program, text},
    mcp::Wire,
};

/// A policy, for whoever is told what by a program that appends it to a file.
fn policy(section: &str, key: &str, file: &Path) -> String {
    let append = format!("cat >> '{}'", file.display());
    format!("[{section}]\n{key} = {}\n", json!(["sh", "-c", append]))
}

/// The lines of a file, once there is one.
fn lines(file: &Path) -> Vec<Value> {
    eventually("somebody was told", || {
        let text = fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'))?;
        Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    })
}

#[test]
fn a_question_is_told_to_a_program_of_the_users() {
    let scratch = Scratch::new();
    let file = PathBuf::from(scratch.file("questions"));
    let policy = policy("approval", "notify", &file);
    let mut call = scratch.guarded("call", "strict", Some(&policy));
    let asked = json!({ "cmd": "touch x", "login": false }).to_string();
    let output = call.args(["ExecCommand", &asked, "--json"]).output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = lines(&file);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["approval_id"], envelope["error"]["details"]["approval_id"]);
    assert_eq!(told[0]["command"], "touch x");
    // It is told once, whoever else asks the same.
    let mut again = scratch.guarded("call", "strict", Some(&policy));
    assert!(!again.args(["ExecCommand", &asked]).output().unwrap().status.success());
    assert_eq!(lines(&file).len(), 1);
}

#[test]
fn the_end_of_the_audit_log_is_sent_elsewhere_and_shows_a_log_that_was_cut() {
    let scratch = Scratch::new();
    let sent = PathBuf::from(scratch.file("heads"));
    let mut wire =
        Wire::spawn(scratch.guarded("mcp", "guarded", Some(&policy("audit", "anchor", &sent))));
    wire.initialize();
    wire.assert_lives();
    let head = lines(&sent).pop().unwrap();
    assert!(head["length"].as_u64().unwrap() > 0 && head["hash"].is_string(), "{head}");
    drop(wire);
    let verify = || {
        let mut verify = Command::new(program());
        verify.args(["audit", "verify", "--state"]).arg(scratch.state.path());
        let output = verify.arg("--heads").arg(&sent).output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    assert_eq!(verify(), (true, String::new()));
    // Whoever can write the state folder can cut the log, and take the ledger away that knows it.
    let log = scratch.state.path().join("audit.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let first = whole.lines().next().unwrap();
    fs::write(&log, format!("{first}\n")).unwrap();
    for file in fs::read_dir(scratch.state.path()).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("ledger") {
            fs::remove_file(file.path()).unwrap();
        }
    }
    let (holds, said) = verify();
    assert!(!holds && said.contains("the audit log is cut"), "{said}");
}
