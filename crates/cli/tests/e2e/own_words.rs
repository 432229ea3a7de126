//! Errors of the command line name what was typed: options and verbs, not fields of the tools that
//! do the work.

use std::process::Command;

use serde_json::json;

use crate::common::{Scratch, by_system, parts, program, text};

/// Words that only a caller of the tools knows.
const TOOL_WORDS: [&str; 11] = [
    "TaskWait",
    "TaskStop",
    "TaskInput",
    "TaskList",
    "task_id",
    "timeout_ms",
    "until.",
    "silence_ms",
    "grace_ms",
    "`input`",
    "schema",
];

#[test]
fn errors_of_the_task_verbs_name_options_and_not_fields_of_a_tool() {
    let scratch = Scratch::new();
    let task = scratch.promote("exec sleep 1000", &json!({}));
    for (verb, arguments, expected) in [
        ("wait", &["--matches", "("][..], "legwork: --matches is no regular expression: "),
        ("wait", &["--matches", "(?=x)"], "hint: wait for a simpler text"),
        ("wait", &["--matches", "a("], "hint: put `\\` before each of "),
        ("wait", &["--silence", "0"], "legwork: --silence must be from 1"),
        ("wait", &["--port", "0"], "legwork: --port must be from 1 to 65535\n"),
        ("wait", &["--timeout", "2h"], "legwork: --timeout can be at most 1h"),
        ("stop", &["--signal", "LOUD"], "legwork: --signal `LOUD` is not known\nhint: use TERM"),
        ("stop", &["--grace", "2h"], "legwork: --grace is over the limit"),
        ("send", &["--key", "loud"], "legwork: --key `loud` is not known; the keys are: "),
        ("send", &["--key", "ctrl-c"], "legwork: --key needs a terminal, and the task has none\n"),
        ("send", &["--key", "ctrl-c"], "hint: `legwork stop TASK --signal INT` interrupts"),
        ("send", &[], "legwork: nothing to send: give a text, --key or --eof\n"),
    ] {
        let mut command = scratch.legwork(verb);
        let (code, out, told) = parts(&command.arg(&task).args(arguments).output().unwrap());
        assert_eq!((code, out.as_str()), (Some(125), ""), "{verb} {arguments:?}: {told}");
        assert!(told.contains(expected), "{verb} {arguments:?}: {told}");
        for word in TOOL_WORDS {
            assert!(!told.contains(word), "`{word}` in {verb} {arguments:?}: {told}");
        }
    }
    for verb in ["wait", "stop", "send", "attach"] {
        let more: &[&str] = if verb == "send" { &["x"] } else { &[] };
        let output = scratch.legwork(verb).arg("t_nosuch").args(more).output().unwrap();
        let (code, _, told) = parts(&output);
        assert_eq!(code, Some(125), "{verb}");
        let expected =
            "legwork: no task has the id `t_nosuch`\nhint: `legwork ps` lists the tasks\n";
        assert_eq!(told, expected, "{verb}");
    }
}

#[test]
fn a_tools_error_has_the_hint_that_fits() {
    let scratch = Scratch::new();
    let task = scratch.promote("exec sleep 1000", &json!({}));
    for (tool, input, expected) in [
        ("TaskWait", json!({ "task_ids": [task], "until": { "output_matches": "(" } }), "put `\\`"),
        ("TaskOutput", json!({ "task_id": task, "after": "c9" }), "leave `after` out"),
        ("TaskWait", json!({ "task_ids": [task], "after": "c9" }), "leave `after` out"),
        ("TaskInput", json!({ "task_id": task, "key": "loud" }), "name one of these keys"),
        ("TaskInput", json!({ "task_id": task, "key": "ctrl-c" }), "use TaskStop with `signal`"),
        ("TaskStop", json!({ "task_id": task, "signal": "LOUD" }), "use TERM, INT"),
    ] {
        let envelope = scratch.call(tool, &input);
        let hint = envelope["error"]["recovery_hint"].as_str().unwrap();
        assert!(hint.starts_with(expected), "{tool} {input}: {envelope:#}");
    }
}

#[test]
fn a_configuration_file_that_is_not_there_is_no_line_to_fix() {
    let scratch = Scratch::new();
    let told = |policy: &str| {
        let mut run = scratch.legwork("run");
        let output = run.args(["--policy", policy, "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        text(&output.stderr)
    };
    let missing = told("nosuch.toml");
    let problem =
        by_system("nosuch.toml: No such file or directory", "nosuch.toml: File not found");
    assert!(missing.contains(problem), "{missing}");
    assert!(missing.contains("hint: name a file that exists"), "{missing}");
    assert!(told(".").contains("hint: make that file readable"));
    let wrong = scratch.file("wrong.toml");
    std::fs::write(&wrong, "[output]\nmax_token = 3\n").unwrap();
    assert!(told(&wrong).contains("hint: fix that line"));
}

#[test]
fn the_state_folder_can_be_named_before_the_verb() {
    let scratch = Scratch::new();
    let task = scratch.result("echo here")["task_id"].as_str().unwrap().to_owned();
    let elsewhere = scratch.file("elsewhere");
    let run = |state: &str, arguments: &[&str]| {
        let mut command = Command::new(program());
        command.args(["--state", state]).args(arguments);
        command.env("XDG_CONFIG_HOME", scratch.state.path()).env_remove("LEGWORK_STATE");
        parts(&command.current_dir(scratch.workspace.path()).output().unwrap())
    };
    let state = scratch.state.path().to_str().unwrap();
    for arguments in [
        &["ps", "-q"][..],
        &["show", &task],
        &["wait", &task],
        &["stop", &task],
        &["audit", "show"],
        &["complete-ids", "tasks"],
    ] {
        let (code, out, told) = run(state, arguments);
        assert!(code == Some(0) && out.contains(&task[..8]), "{arguments:?}: {out}{told}");
    }
    assert_eq!(run(state, &["logs"]).1, "here\n");
    for arguments in
        [&["attach", &task][..], &["audit", "verify"], &["gc", "--dry-run"], &["approvals"]]
    {
        assert_eq!(run(state, arguments).0, Some(0), "{arguments:?}");
    }
    assert_eq!(run(state, &["run", "--mode", "open", "--", "echo", "more"]).1, "more\n");
    assert_eq!(scratch.tasks().len(), 2);
    // What stands behind the verb goes before.
    assert!(run(&elsewhere, &["ps", "-q", "--state", state]).1.contains(&task));
    let (code, _, told) = run(state, &["tools"]);
    assert_eq!(code, Some(125));
    assert!(told.contains("--state: this command has no state folder"), "{told}");
}

#[test]
fn policy_check_says_what_it_cannot_read() {
    let scratch = Scratch::new();
    let check = |command: &str| {
        let mut check = Command::new(program());
        check.args(["policy", "check", command]).env("XDG_CONFIG_HOME", scratch.state.path());
        parts(&check.current_dir(scratch.workspace.path()).output().unwrap())
    };
    for empty in ["", "  \n"] {
        let (code, out, told) = check(empty);
        assert_eq!((code, out.as_str()), (Some(125), ""), "{told}");
        assert_eq!(told, "legwork: the command is empty: there is nothing to check\n");
    }
    let (_, told, _) = check("echo 'unclosed");
    assert!(told.contains("not understood: a single quote is not closed; close it"), "{told}");
    assert!(told.contains("(`'` at byte 5)\n"), "{told}");
    assert!(!check("echo 'closed'").1.contains("not understood"));
    let (code, told, _) = check("shred -u notes.txt");
    assert_eq!(code, Some(126));
    assert!(told.contains("overwrites files so that nothing can restore them"), "{told}");
}

#[test]
fn the_audit_log_says_that_it_knows_no_such_task() {
    let scratch = Scratch::new();
    let task = scratch.result("true")["task_id"].as_str().unwrap().to_owned();
    let show = |more: &[&str]| {
        let mut show = Command::new(program());
        show.args(["audit", "show", "--state"]).arg(scratch.state.path()).args(more);
        parts(&show.output().unwrap())
    };
    let (code, out, told) = show(&["--task", "t_nosuch"]);
    assert_eq!((code, out.as_str()), (Some(125), ""));
    assert!(told.starts_with("legwork: the audit log has no entry about a task `t_nosuch`\n"));
    // A task that is there, and entries that are not.
    assert_eq!(
        show(&["--task", &task, "--verdict", "deny"]),
        (Some(0), String::new(), "No entries match\n".to_owned())
    );
    assert!(show(&["--task", &task[..6]]).1.contains("exit code 0"));
}

#[test]
fn a_folder_that_is_missing_is_not_called_outside() {
    let scratch = Scratch::new();
    let link = scratch.state.path().join("link");
    std::os::unix::fs::symlink(scratch.workspace.path(), &link).unwrap();
    for workdir in ["nosuch".to_owned(), format!("{}/nosuch", link.display()), "a/../b".to_owned()]
    {
        let error = scratch.exec(&json!({ "cmd": "true", "workdir": workdir }))["error"].clone();
        assert_eq!(error["kind"], "workdir_not_found", "{error:#}");
        let expected = format!("`workdir`: the folder `{workdir}` does not exist");
        assert_eq!(error["message"], expected.as_str());
    }
    // Of what is outside, nobody is told whether it is there.
    for workdir in ["..", "../nosuch", "nosuch/../../..", "/nosuch"] {
        let error = scratch.exec(&json!({ "cmd": "true", "workdir": workdir }))["error"].clone();
        assert_eq!(error["kind"], "execution_root_violation", "{workdir}: {error:#}");
    }
}

#[test]
fn a_command_that_ran_into_its_time_limit_is_told_as_that() {
    let scratch = Scratch::new();
    let mut run = scratch.legwork("run");
    let (code, out, told) =
        parts(&run.args(["--timeout", "0.2", "--", "sleep", "1000"]).output().unwrap());
    assert_eq!((code, out.as_str()), (Some(124), ""));
    assert!(told.starts_with("legwork: the command was stopped: it reached its time limit"));
    assert_eq!(told.lines().count(), 1, "{told}");
}
