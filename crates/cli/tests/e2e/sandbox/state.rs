//! Our own state is hidden; a workspace's own artifacts are not.

use std::{fs, os::unix::fs::symlink};

use super::house::{House, INTEGRATION, OPERATOR, TRUSTS};
use crate::common::{fixture, program};

#[test]
fn the_state_folder_is_hidden_and_cannot_be_changed() {
    for house in House::each() {
        house.exec(OPERATOR, "true");
        let state = house.name("state");
        assert!(house.path("state/ledger.db").exists() && house.path("state/audit.jsonl").exists());
        let attempts = [
            format!("read {state}/ledger.db"),
            format!("read {state}/audit.jsonl"),
            format!("read {state}/wardens"),
            format!("read {state}/tmp"),
            format!("read {state}/recent"),
            format!("write {state}/ledger.db"),
            format!("write {state}/audit.jsonl"),
            format!("rename {state} {state}.away"),
            format!("read /proc/self/root{state}/ledger.db"),
        ];
        for trust in TRUSTS {
            house.refuses(trust, &attempts);
        }
    }
}

#[test]
fn a_state_folder_inside_the_workspace_is_hidden_and_held_too() {
    let Some(house) = House::own() else { return };
    let inner = house.folder("workspace/below/state");
    let call = |cmd: &str| {
        let mut command = house.outside(program());
        let input = serde_json::json!({ "cmd": cmd, "login": false }).to_string();
        command
            .arg("call")
            .arg("--state")
            .arg(&inner)
            .arg("--workspace")
            .arg(house.path("workspace"));
        let output = command.args(["ExecCommand", "--json", &input]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    call("true");
    assert!(inner.join("ledger.db").exists());
    for probe in ["read below/state/ledger.db", "replace below", "replace below/state"] {
        let answer = call(&format!("{} probe {probe}", fixture()));
        assert!(answer.contains("refused: "), "{probe}: {answer}");
    }
    assert!(inner.join("ledger.db").exists());
}

#[test]
fn artifacts_of_the_own_workspace_are_read_and_those_of_others_are_not() {
    for house in House::each() {
        let flood = format!("{} flood 200000", fixture());
        let own = house.exec(OPERATOR, &flood)["task_id"].as_str().unwrap().to_owned();
        let artifact = house.name(&format!("state/tasks/{own}/stdout"));
        assert!(fs::exists(&artifact).unwrap(), "it has spilled");
        house.allows(OPERATOR, &[format!("read {artifact}")]);
        house.refuses(OPERATOR, &[format!("write {artifact}"), format!("truncate {artifact}")]);
        // Another workspace with the same state.
        fs::rename(house.path("workspace"), house.path("first")).unwrap();
        house.folder("workspace");
        house.folder("second");
        fs::remove_dir(house.path("workspace")).unwrap();
        symlink(house.path("second"), house.path("workspace")).unwrap();
        house.refuses(OPERATOR, &[format!("read {artifact}")]);
    }
}

#[test]
fn a_file_that_decides_about_commands_cannot_be_written_by_them() {
    for house in House::each() {
        house.file("workspace/.legwork.toml", "");
        let house = house.with_policy_in("workspace/rules/policy.toml", "");
        for trust in [OPERATOR, INTEGRATION] {
            house.refuses(
                trust,
                &[
                    "write .legwork.toml",
                    "rename .legwork.toml away",
                    "write rules/policy.toml",
                    "replace rules",
                ],
            );
        }
    }
}

#[test]
fn a_file_that_never_ends_in_the_place_of_a_policy_is_an_error_and_no_wait() {
    let Some(house) = House::own() else { return };
    house.exec(OPERATOR, "mkfifo .legwork.toml");
    let input = r#"{"cmd":"true","login":false}"#;
    let output = house.legwork("call", OPERATOR).args(["ExecCommand", input]).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("not a plain file"), "{output:?}");
    fs::remove_file(house.path("workspace/.legwork.toml")).unwrap();
    // The same where git keeps its configuration, which is looked at after each command.
    house.script("workspace/pipe.sh", "git init -q . && rm .git/config && mkfifo .git/config");
    house.prints(OPERATOR, "./pipe.sh");
    house.prints(OPERATOR, "true");
}

#[test]
fn the_way_to_a_workspace_in_a_temporary_folder_is_held() {
    let scratch = tempfile::tempdir().unwrap();
    let workspace = scratch.path().join("below/workspace");
    fs::create_dir_all(&workspace).unwrap();
    let Some(house) = House::own() else { return };
    let house = house.with_policy("[sandbox]\nrequired = true\n");
    let call = |cmd: &str| {
        let mut command = house.verb("call");
        let policy = house.path("policy.toml");
        command.arg("--workspace").arg(&workspace).arg("--policy").arg(policy);
        let input = serde_json::json!({ "cmd": cmd, "login": false }).to_string();
        let output = command.args(["ExecCommand", "--json", &input]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for way in [scratch.path(), &scratch.path().join("below")] {
        let answer = call(&format!("{} probe replace {}", fixture(), way.display()));
        assert!(answer.contains("refused: "), "{answer}");
    }
    let answer = call("echo still here");
    assert!(answer.contains("still here"), "{answer}");
}

#[test]
fn a_link_in_the_place_of_a_policy_does_not_tell_what_it_leads_to() {
    let Some(house) = House::own() else { return };
    house.file("home/.netrc", "very-secret = 1\n");
    house.script("workspace/make.sh", "ln -s ../home/.netrc .legwork.toml");
    house.prints(OPERATOR, "./make.sh");
    let input = r#"{"cmd":"true","login":false}"#;
    let output = house.legwork("call", OPERATOR).args(["ExecCommand", input]).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(!format!("{output:?}").contains("very-secret"), "{output:?}");
}
