//! What a person at the command line meets: where nothing is yet, where something is wrong, where
//! something is asked.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, parts, program, shown, text},
    listing::{Row, fill},
    task_verbs::Person,
};

/// Replaces what is different each time.
pub fn stable(text: &str, replaced: &[(&str, &str)]) -> String {
    let mut shown = text.to_owned();
    for (pattern, by) in replaced {
        shown = regex::Regex::new(pattern).unwrap().replace_all(&shown, *by).into_owned();
    }
    shown
}

#[test]
fn logs_without_an_id_are_of_the_newest_task_and_can_be_some_lines_of_it() {
    let scratch = Scratch::new();
    scratch.result("echo older");
    let script = "for n in 1 2 3 4 5; do echo line $n; done; echo error 7; printf end";
    let task = scratch.result(script)["task_id"].as_str().unwrap().to_owned();
    let logs = |more: &[&str]| {
        let (code, out, err) = parts(&scratch.legwork("logs").args(more).output().unwrap());
        assert_eq!(code, Some(0), "{err}");
        (out, err)
    };
    assert_eq!(logs(&[]), logs(&[&task]));
    assert_eq!(logs(&["-n", "2"]), ("error 7\nend".into(), String::new()));
    assert_eq!(logs(&["--grep", "^error"]).0, "error 7\n");
    assert_eq!(logs(&["--grep", "line", "-n", "1"]).0, "line 5\n", "the last that matches");
    assert_eq!(logs(&["--since", "1h"]), logs(&[]));
    assert_eq!(logs(&["--since", "2100-01-01T00:00:00Z"]), (String::new(), String::new()));
    assert_eq!(logs(&["-f", "-n", "1"]).0, "end");
    scratch.result("echo error out; echo error err >&2; echo other >&2");
    let both = ("error out\n".to_owned(), "error err\n".to_owned());
    assert_eq!(logs(&["--grep", "^error"]), both, "each stream to its own");
    let (code, _, told) = parts(&scratch.legwork("logs").args(["--grep", "("]).output().unwrap());
    assert_eq!(code, Some(125));
    assert!(told.contains("--grep: "), "{told}");
}

#[test]
fn logs_since_a_time_leave_out_what_came_before() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let script = format!("echo early; {} wait-for {gate}; echo late", crate::common::fixture());
    let task = scratch.promote(&script, &json!({}));
    scratch.wait(&task, &json!({ "output_matches": "early" }));
    let started = scratch.tasks()[0]["created_at_ms"].as_i64().unwrap();
    // What comes from now on comes a while after the first line.
    let now = eventually("a while has passed", || {
        let now = jiff::Timestamp::now();
        (now.as_millisecond() > started + 1_500).then_some(now)
    });
    crate::common::open(&gate);
    scratch.wait(&task, &json!({}));
    let since = now.to_string();
    let shown = scratch.legwork("logs").args([&task, "--since", &since]).output().unwrap();
    assert_eq!(text(&shown.stdout), "late\n");
}

#[test]
fn verbs_that_only_look_make_nothing() {
    let scratch = Scratch::new();
    let nothing = scratch.file("nothing");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program());
        command.args(arguments).env("LEGWORK_STATE", &nothing);
        command.env("XDG_CONFIG_HOME", scratch.state.path()).env("COLUMNS", "80");
        let output = command.current_dir(scratch.workspace.path()).output().unwrap();
        assert!(!fs::exists(&nothing).unwrap(), "{arguments:?} makes {nothing}");
        parts(&output)
    };
    assert_eq!(run(&["ps"]), (Some(0), "No tasks\n".into(), String::new()));
    assert_eq!(run(&["ps", "-q"]), (Some(0), String::new(), String::new()));
    assert_eq!(run(&["approvals"]).1, "No open questions\n");
    assert_eq!(run(&["gc"]).1, "Nothing to delete: there are no tasks\n");
    assert_eq!(run(&["audit", "show"]), (Some(0), String::new(), String::new()));
    assert_eq!(run(&["audit", "verify"]).0, Some(0));
    assert!(run(&[]).1.starts_with("No tasks yet\n"));
    assert_eq!(run(&["complete-ids", "tasks"]).1, "");
    let (code, report, _) = run(&["doctor"]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("made with the first task"), "{report}");
    for arguments in [
        &["show", "t_x"][..],
        &["logs"],
        &["attach", "t_x"],
        &["stop", "t_x"],
        &["wait", "t_x"],
        &["send", "t_x", "y"],
        &["ps", "-w"],
        &["approve", "a_x"],
    ] {
        let (code, out, told) = run(arguments);
        assert_eq!((code, out.as_str()), (Some(125), ""), "{arguments:?}");
        assert!(told.contains("no tasks yet in") || told.contains("no open question"), "{told}");
    }
    // And the variable is where tasks go.
    assert_eq!(run_in(&scratch, &nothing, &["run", "--mode", "open", "--", "true"]).0, Some(0));
    assert!(fs::exists(format!("{nothing}/ledger.db")).unwrap());
    assert!(run_in(&scratch, &nothing, &["ps"]).1.contains("exit 0"));
}

fn run_in(scratch: &Scratch, state: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program());
    command.args(arguments).env("LEGWORK_STATE", state);
    command.env("XDG_CONFIG_HOME", scratch.state.path());
    parts(&command.current_dir(scratch.workspace.path()).output().unwrap())
}

#[test]
fn the_doctor_leaves_no_task_and_reads_the_configuration() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.state.path().join("legwork")).unwrap();
    let config = scratch.state.path().join("legwork/config.toml");
    fs::write(&config, "[output]\nmax_token = 3\n").unwrap();
    let doctor = |more: &[&str]| parts(&scratch.legwork("doctor").args(more).output().unwrap());
    let (code, report, complaint) = doctor(&[]);
    assert_eq!((code, complaint.as_str()), (Some(125), ""));
    let place = format!("{}:2:1: unknown key `max_token`", shown(&config));
    assert!(report.contains(&place), "{report}");
    assert!(report.contains("did you mean `max_tokens`?"), "{report}");
    assert!(report.contains("command        ok"), "the rest is looked at: {report}");
    fs::write(&config, "ask = \"strict\"\n[sandbox]\nlevel = \"read-only\"\n").unwrap();
    let (code, report, _) = doctor(&[]);
    assert_eq!(code, Some(0), "{report}");
    for line in ["ask            strict: ", "sandbox        read-only: ", "network        no"] {
        assert!(report.contains(line), "{line} in {report}");
    }
    let (_, report, _) = doctor(&["--ask", "never", "--sandbox", "none", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        report["effective"],
        json!({ "ask": "never", "sandbox": "none", "network": true }),
        "{report:#}"
    );
    assert_eq!(report["configuration"], json!([config]));
    assert!(scratch.tasks().is_empty());
}

#[test]
fn the_doctors_last_line_agrees_with_the_rows_above_it() {
    let scratch = Scratch::new();
    let last = |report: &str| report.lines().last().unwrap_or_default().to_owned();
    let of_state = |state: &str| {
        let mut doctor = Command::new(program());
        doctor.args(["doctor", "--state", state]).env("XDG_CONFIG_HOME", scratch.state.path());
        parts(&doctor.current_dir(scratch.workspace.path()).output().unwrap())
    };
    // Nobody can make a folder there, whatever the permissions say.
    let (code, report, _) = of_state("/proc/x");
    assert_eq!(code, Some(125), "{report}");
    assert!(report.contains("state          FAILED  /proc/x cannot be created: "), "{report}");
    assert_eq!(last(&report), "1 check failed: state", "{report}");
    let new = scratch.file("new");
    let (code, report, _) = of_state(&new);
    assert_eq!(code, Some(0), "{report}");
    assert!(last(&report).starts_with("All checks passed"), "{report}");
    assert_eq!(fs::read_dir(scratch.workspace.path()).unwrap().count(), 0, "nothing is left");
    fs::create_dir(scratch.state.path().join("legwork")).unwrap();
    let config = scratch.state.path().join("legwork/config.toml");
    fs::write(&config, "[output]\nmax_token = 3\n").unwrap();
    let (code, report, _) = of_state("/proc/x");
    assert_eq!(code, Some(125), "{report}");
    assert_eq!(last(&report), "2 checks failed: configuration, state", "{report}");
    assert_eq!(last(&of_state(&new).1), "1 check failed: configuration");
}

#[test]
fn the_doctor_tries_to_write_the_state_folder_that_there_is() {
    let scratch = Scratch::new();
    scratch.result("true");
    let state = scratch.state.path().display();
    let script = format!(
        "mount --bind {state} {state} && mount -o remount,bind,ro {state} && \
         exec {} doctor --state {state}",
        program()
    );
    let Some(mut doctor) = crate::common::in_namespace(&script) else { return };
    let doctor = doctor.current_dir(scratch.workspace.path()).env("XDG_CONFIG_HOME", "/nowhere");
    let (code, report, told) = parts(&doctor.output().unwrap());
    assert_eq!(code, Some(125), "{report}{told}");
    assert!(report.contains("\nstate          FAILED "), "{report}{told}");
    assert!(report.lines().last().unwrap().contains("failed: state"), "{report}");
}

#[test]
fn the_doctor_finds_the_clients_that_are_configured_here() {
    let scratch = Scratch::new();
    let home = scratch.workspace.path().join("home");
    fs::create_dir_all(home.join(".codex")).unwrap();
    let entry = |program: &str| format!("[mcp_servers.legwork]\ncommand = \"{program}\"\n");
    fs::write(home.join(".codex/config.toml"), entry(program())).unwrap();
    fs::write(scratch.file(".mcp.json"), "{\"mcpServers\": {}}").unwrap();
    let doctor = |more: &[&str]| {
        let mut doctor = scratch.legwork("doctor");
        text(&doctor.env("HOME", &home).args(more).output().unwrap().stdout)
    };
    let report = doctor(&[]);
    assert!(report.contains("\nCodex: has legwork (~/.codex/config.toml)\n"), "{report}");
    let other = "\nClaude Code: does not have legwork: legwork setup claude-code (";
    assert!(report.contains(other), "{report}");
    let report: serde_json::Value = serde_json::from_str(&doctor(&["--json"])).unwrap();
    assert_eq!(report["clients"].as_array().unwrap().len(), 2, "{report:#}");
    fs::write(home.join(".codex/config.toml"), entry("/gone/legwork")).unwrap();
    let report = doctor(&[]);
    let gone = "\nCodex: has legwork, but /gone/legwork cannot be started: legwork setup codex (";
    assert!(report.contains(gone), "{report}");
}

#[test]
fn the_doctors_report() {
    let scratch = Scratch::new();
    for (width, colours) in [("60", "0"), ("80", "0"), ("120", "0"), ("80", "1")] {
        let mut command = scratch.legwork("doctor");
        command.env("COLUMNS", width).env("CLICOLOR_FORCE", colours);
        let report = text(&command.output().unwrap().stdout);
        // What this machine has differs.
        let (report, _) = report.split_once("\nProtection that this machine has:").unwrap();
        let state = scratch.state.path().display().to_string();
        let shown = stable(report, &[(&regex::escape(&state), "STATE"), ("\u{1b}", "ESC")]);
        let shown = stable(&shown, &[(r"legwork \d+\.\d+\.\d+", "legwork VERSION")]);
        insta::assert_snapshot!(format!("doctor_{width}_{colours}"), shown);
    }
}

/// `legwork` alone.
fn overview(scratch: &Scratch, width: &str, colours: &str) -> String {
    let mut command = Command::new(program());
    command.arg("--state").arg(scratch.state.path()).env("COLUMNS", width);
    command.env("CLICOLOR_FORCE", colours).env("HOME", scratch.workspace.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

#[test]
fn legwork_alone_tells_what_is_going_on() {
    let scratch = Scratch::new();
    scratch.promote("exec sleep 1000", &json!({}));
    let mut call = scratch.guarded("call", "guarded", None);
    let input = json!({ "command": "rm -rf build" }).to_string();
    call.args(["run_shell_command", &input]).output().unwrap();
    eventually("the task's client is gone", || {
        overview(&scratch, "80", "0").contains("stops in").then_some(())
    });
    for (width, colours) in [("60", "0"), ("80", "0"), ("120", "0"), ("80", "1")] {
        let shown = stable(
            &overview(&scratch, width, colours),
            &[
                ("\u{1b}", "ESC"),
                ("t_[a-z2-7]{4,}", "t_····"),
                ("a_[a-z2-7]{4,}", "a_····"),
                (r"\b\d+s\b", "0s"),
                (r"\b0\.\d+s|\b\d\.\d+s", "0.0s"),
                (r" +stops in \S+", "  stops in 9m"),
                ("  +", "  "),
            ],
        );
        insta::assert_snapshot!(format!("overview_{width}_{colours}"), shown);
    }
    let wrong = Command::new(program()).arg("prune").output().unwrap();
    assert_eq!(wrong.status.code(), Some(125), "{wrong:?}");
}

#[test]
fn a_person_is_told_of_the_processes_that_a_command_left_behind_while_they_live() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let script = format!(
        "{} ignore-term {ready} >/dev/null 2>&1 & while [ ! -e {ready} ]; do :; done; echo over",
        crate::common::fixture()
    );
    let (code, out, told) = parts(&scratch.legwork("sh").arg(&script).output().unwrap());
    let pid = crate::common::announced(&ready);
    let task = scratch.tasks()[0]["task_id"].as_str().unwrap().to_owned();
    assert_eq!((code, out.as_str()), (Some(0), "over\n"));
    let process = format!("{pid} {} ignore-term {ready}", crate::common::fixture());
    let shown: String = process.chars().take(99).collect();
    let ending =
        format!("`legwork stop {task} --state {}` ends it", scratch.state.path().display());
    assert!(told.starts_with("legwork: the command left 1 process running in the"), "{told}");
    assert!(told.contains(&shown) && told.contains(&ending), "{told}");
    let run = |verb: &str, arguments: &[&str]| {
        text(&scratch.legwork(verb).args(arguments).output().unwrap().stdout)
    };
    let listed = run("ps", &[]);
    assert!(listed.contains("1 process ") && listed.contains("stop TASK ends them"), "{listed}");
    assert!(run("ps", &["-a"]).contains("1 process "));
    let details = run("show", &[&task]);
    assert!(details.contains("\nBackground:   ") && details.contains(&shown), "{details}");
    assert!(details.contains(&ending), "{details}");
    let going_on = overview(&scratch, "80", "0");
    assert!(going_on.contains("1 finished task left processes running\n"), "{going_on}");
    assert!(going_on.contains("stop TASK ends them"), "{going_on}");
    // The command that was told ends it; nobody is told of what is gone.
    assert!(run("stop", &[&task, "--grace", "10"]).contains(&pid.to_string()));
    let after = [run("ps", &[]), run("ps", &["-a"]), run("show", &[&task])];
    let after = after.into_iter().chain([overview(&scratch, "80", "0")]);
    for text in after {
        assert!(!text.contains("1 process") && !text.contains("ends "), "{text}");
        assert!(!text.contains(&format!("{pid} ")), "{text}");
    }
}

/// A question in the ledger, whose asker is gone.
pub fn ask(scratch: &Scratch, id: &str, command: &str, age_ms: i64) {
    let ledger = rusqlite::Connection::open(scratch.state.path().join("ledger.db")).unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    ledger
        .execute(
            "INSERT INTO approval (id, key, session, tool, command, workdir, workspace, asked_by,
                                   trust, reason, rule, sandbox, refused, may_leave_sandbox, may_try,
                                   may_repeat, lineage, parts, created_at_ms, expires_at_ms)
             VALUES (?1, ?1, 's_gone', 'run_shell_command', ?2, '/w', '/w', 'an agent',
                     'trusted_operator', 'no rule allows it', 'default', 'none', '[]', 0, 0, 1,
                     '[]', '[]', ?3, ?4)",
            (id, command, now - age_ms, now + 400_000 - age_ms),
        )
        .unwrap();
}

#[test]
fn open_questions_are_listed_a_line_each_and_shown_whole_by_their_id() {
    let scratch = Scratch::new();
    fill(&scratch, &[Row { id: "t_aaaaaaaaaaaaaaaaaaaaaaaaaa", ..Row::default() }]);
    ask(&scratch, "a_caaaaaaaaaaaaaaaaaaaaaaaaa", "git push --force origin main", 130_500);
    let long = "find . -name '*.o' -print0 | xargs -0 rm -f && make clean all install DESTDIR=/opt";
    ask(&scratch, "a_cabaaaaaaaaaaaaaaaaaaaaaaa", long, 70_500);
    let shown = |width: &str, colours: &str, more: &[&str]| {
        let mut command = scratch.legwork("approvals");
        command.env("COLUMNS", width).env("CLICOLOR_FORCE", colours).args(more);
        text(&command.output().unwrap().stdout).replace('\u{1b}', "ESC")
    };
    for (width, colours) in [("60", "0"), ("80", "0"), ("120", "0"), ("80", "1")] {
        insta::assert_snapshot!(format!("approvals_{width}_{colours}"), shown(width, colours, &[]));
    }
    insta::assert_snapshot!("approvals_one", shown("80", "0", &["a_cab"]));
    let (code, _, told) = parts(&scratch.legwork("approvals").arg("a_ca").output().unwrap());
    assert_eq!(code, Some(125));
    assert!(told.contains("more than one question begins with `a_ca`"), "{told}");
    // One whose asker is there comes first, however young it is.
    let mut call = scratch.guarded("call", "guarded", Some("[approval]\nwait_ms = \"1m\"\n"));
    let input = json!({ "command": "touch live" }).to_string();
    let mut waits = call.args(["run_shell_command", &input]).stdout(Stdio::null()).spawn().unwrap();
    let listed = eventually("it is asked", || {
        let listed = shown("80", "0", &[]);
        listed.contains("touch live").then_some(listed)
    });
    let first = listed.lines().nth(1).unwrap();
    assert!(first.contains("running") && first.ends_with("touch live"), "{listed}");
    let id = first.split(' ').next().unwrap();
    let denied = scratch.legwork("deny").arg(id).output().unwrap();
    assert_eq!(text(&denied.stdout), "Denied: the command does not run. touch live\n");
    assert_eq!(waits.wait().unwrap().code(), Some(126));
}

#[test]
fn the_audit_log_tells_in_words_what_happened() {
    let scratch = Scratch::new();
    let line = |event: Value| {
        let mut entry = json!({ "at_ms": 1_800_000_000_000_i64, "task_id": "t_caaaaaaaaaaaaaaaaaaaaa",
            "tool": "ExecCommand", "asked_by": "an agent", "trust": "trusted_operator",
            "command": "cargo test" });
        entry.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        format!("{entry}\n")
    };
    let log: String = [
        json!({ "event": "verdict", "verdict": "allow", "reason": "r", "rule": "default" }),
        json!({ "event": "verdict", "verdict": "ask", "reason": "no rule allows `cargo test`" }),
        json!({ "event": "verdict", "verdict": "deny", "reason": "`cargo` is denied" }),
        json!({ "event": "approval", "decision": "allow_rule", "answered_by": "the command line",
                "rule_file": "/home/me/.config/legwork/config.toml", "note": "fine" }),
        json!({ "event": "approval_used", "decision": "allow_once" }),
        json!({ "event": "outcome", "status": "completed", "exit_status": 0, "duration_ms": 1200 }),
        json!({ "event": "outcome", "status": "failed", "signal": 9, "duration_ms": 600_000 }),
        json!({ "event": "outcome", "status": "cancelled", "reason": "abandoned", "signal": 15,
                "duration_ms": 600_000 }),
        json!({ "event": "outcome", "status": "interrupted", "reason": "warden_lost",
                "duration_ms": 0 }),
        json!({ "event": "refused", "kind": "invalid_tool_input", "message": "no `cmd`" }),
        json!({ "event": "input", "input_bytes": 3, "reader": "shell", "input": "ls\n" }),
        json!({ "event": "request", "tool": "TaskStop", "summary": "task stopped" }),
        json!({ "event": "cleaned_up", "tasks": 3, "by_age": 2, "by_size": 1 }),
        json!({ "event": "repaired", "torn_bytes": 12 }),
        json!({ "event": "rebuilt", "why": "is missing", "from_daybook": 1,
                "from_folders": 2 }),
        json!({ "event": "set_aside", "name": "tasks", "why": "is a file",
                "set_aside": "tasks.aside-1" }),
    ]
    .into_iter()
    .map(line)
    .collect();
    fs::write(scratch.state.path().join("audit.jsonl"), log).unwrap();
    let show = |more: &[&str]| -> Output {
        let mut command = Command::new(program());
        command.args(["audit", "show", "--state"]).arg(scratch.state.path()).args(more);
        command.env("TZ", "UTC").output().unwrap()
    };
    for width in ["60", "80", "120", "400"] {
        let mut command = Command::new(program());
        command.args(["audit", "show", "--state"]).arg(scratch.state.path());
        let shown = command.env("TZ", "UTC").env("COLUMNS", width).output().unwrap();
        insta::assert_snapshot!(format!("audit_show_{width}"), text(&shown.stdout));
    }
    let count = |more: &[&str]| text(&show(more).stdout).lines().count();
    assert_eq!((count(&[]), count(&["-n", "3"]), count(&["--verdict", "deny"])), (16, 3, 1));
    assert_eq!((count(&["--since", "2027-01-14"]), count(&["--since", "2027-01-16"])), (16, 0));
    for wrong in [["--verdict", "maybe"], ["--since", "soon"], ["--event", "verdict"]] {
        assert_eq!(show(&wrong).status.code(), Some(125), "{wrong:?}");
    }
}

#[test]
fn the_audit_log_can_be_followed() {
    use std::io::{BufRead, BufReader};
    let scratch = Scratch::new();
    scratch.result("echo before");
    let mut command = Command::new(program());
    command.args(["audit", "show", "-f", "-n", "1", "--state"]).arg(scratch.state.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("exit code 0"));
    scratch.result("echo after");
    assert!(lines.next().unwrap().ends_with("call runs with ExecCommand: echo after"));
    crate::common::signal(child.id(), rustix::process::Signal::INT);
    child.wait().unwrap();
}

/// `legwork run` at a terminal, asked about everything.
fn asked(scratch: &Scratch, command: &str) -> Person {
    Person::types(&format!(
        "XDG_CONFIG_HOME={state} exec {} run --ask strict --state {state} -- {command}",
        program(),
        state = scratch.state.path().display(),
    ))
}

#[test]
fn ctrl_c_at_a_question_cancels_and_a_wrong_key_asks_again() {
    let scratch = Scratch::new();
    let person = asked(&scratch, "touch cancelled");
    person.sees("[N] deny, with a note");
    person.sends(&json!({ "input": "x" }));
    person.sees("Typing answers nothing");
    person.sends(&json!({ "key": "ctrl-c" }));
    person.sees("legwork: cancelled; nothing was run");
    person.leaves_with(130);
    assert!(!fs::exists(person.scratch.file("cancelled")).unwrap());
    let open = scratch.legwork("approvals").output().unwrap();
    assert_eq!(text(&open.stdout), "No open questions\n", "it is withdrawn");
    // The same at a call; somebody who only watches leaves the question to others.
    let state = scratch.state.path().display().to_string();
    let input = r#"{"command": "touch cancelled"}"#;
    let call = format!("{} call --state {state} run_shell_command '{input}'", program());
    let person = Person::types(&format!("exec {call}"));
    person.sees("[N] deny, with a note");
    let watcher = Person::types(&format!("exec {} approvals -w --state {state}", program()));
    watcher.sees("[N] deny, with a note");
    watcher.sends(&json!({ "key": "ctrl-c" }));
    watcher.leaves_with(130);
    let open = scratch.legwork("approvals").output().unwrap();
    assert!(text(&open.stdout).contains("touch cancelled"), "{open:?}");
    person.sends(&json!({ "key": "ctrl-c" }));
    person.sees("legwork: cancelled; nothing was run");
    person.leaves_with(130);
    let open = scratch.legwork("approvals").output().unwrap();
    assert_eq!(text(&open.stdout), "No open questions\n");
}

#[test]
fn an_answer_is_confirmed_with_what_it_does() {
    let scratch = Scratch::new();
    let file = scratch.state.path().join("legwork/config.toml");
    for (key, words, told) in [
        ("n", "deny", "Denied: the command does not run."),
        ("y", "allow once", "Allowed once."),
        ("s", "allow for this session", "Allowed in this folder for as long as run runs."),
        ("r", "allow always, save the rule", "Allowed from now on: the rule is saved in"),
    ] {
        let person = asked(&scratch, "touch here");
        person.sees("[N] deny, with a note");
        match key {
            "n" => person.sends(&json!({ "input": key })),
            letter => {
                let letter = letter.chars().next().unwrap();
                person.scratch.confirms(&person.terminal, letter, words);
            }
        }
        person.sees(told);
        person.leaves_with(if key == "n" { 126 } else { 0 });
        assert_eq!(fs::exists(person.scratch.file("here")).unwrap(), key != "n", "{key}");
    }
    assert!(fs::read_to_string(&file).unwrap().contains("program = \"touch\""));
}

#[test]
fn a_refusal_of_run_prints_what_would_allow_it_and_where() {
    let scratch = Scratch::new();
    let run = |policy: Option<&str>, ask: &str, command: &[&str]| {
        let mut run = scratch.guarded("run", "guarded", policy);
        parts(&run.args(["--ask", ask, "--"]).args(command).output().unwrap())
    };
    let (code, _, told) = run(None, "strict", &["touch", "x"]);
    assert_eq!(code, Some(126));
    let file = scratch.state.path().join("legwork/config.toml");
    assert!(!told.contains("hint:"), "that is for programs: {told}");
    for part in [
        "To allow it once: legwork approve a_",
        &format!("add this to {}:", shown(&file)),
        "    program = \"touch\"",
        &format!("--state {}", shown(scratch.state.path())),
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    // What is printed works: the rule, put there, allows exactly this.
    let (_, rule) = told.split_once("[[rule]]").unwrap();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, format!("[[rule]]{rule}")).unwrap();
    assert_eq!(run(None, "strict", &["touch", "x"]).0, Some(0));
    assert_eq!(run(None, "strict", &["touch", "y"]).0, Some(126));
    let no_touch = "[[rule]]\nid = \"no-touch\"\ndecision = \"deny\"\nprogram = \"touch\"\n";
    let (code, _, told) = run(Some(no_touch), "guarded", &["touch", "x"]);
    assert_eq!(code, Some(126));
    let place = scratch.state.path().join("given-policy.toml");
    assert!(told.contains(&format!("The rule `no-touch` is in {}.", shown(place))), "{told}");
    assert!(told.contains("    decision = \"ask\""), "{told}");
}

#[test]
fn policy_check_prints_the_rule_that_would_change_its_verdict() {
    let scratch = Scratch::new();
    let check = |more: &[&str]| {
        let mut command = Command::new(program());
        command.args(["policy", "check", "--ask", "strict"]).args(more);
        command.current_dir(scratch.workspace.path()).env("XDG_CONFIG_HOME", scratch.state.path());
        parts(&command.output().unwrap())
    };
    let (code, told, _) = check(&["touch x"]);
    assert_eq!(code, Some(126));
    assert!(told.contains("To allow it, add this to"), "{told}");
    let (_, rule) = told.split_once("[[rule]]").unwrap();
    let policy = scratch.file("rule.toml");
    fs::write(&policy, format!("[[rule]]{rule}")).unwrap();
    assert_eq!(check(&["--policy", &policy, "touch x"]).0, Some(0), "{rule}");
    // Of several commands each gets one.
    let (_, told, _) = check(&["touch x && mkdir y"]);
    assert_eq!(told.matches("[[rule]]").count(), 2, "{told}");
    let (_, told, _) = check(&["touch $(date)"]);
    assert!(told.contains("No rule can allow it as it is written"), "{told}");
}

#[test]
fn asking_and_confining_are_two_choices() {
    let scratch = Scratch::new();
    let outside = scratch.file("outside");
    let write = |more: &[&str]| {
        // A folder of its own, so that the file is outside of the workspace.
        let folder = scratch.file("project");
        fs::create_dir_all(&folder).unwrap();
        let _ = fs::remove_file(&outside);
        let mut command = Command::new(program());
        command.arg("run").arg("--state").arg(scratch.state.path()).args(more);
        command.args(["--", "touch", &outside]).current_dir(folder);
        command.env("XDG_CONFIG_HOME", scratch.state.path());
        command.output().unwrap();
        // In its own `/tmp` a command may write what it likes.
        fs::exists(&outside).unwrap()
    };
    if !is_confined(&scratch) {
        return;
    }
    assert!(write(&["--mode", "open"]));
    assert!(!write(&["--ask", "never"]), "asking is off, the sandbox is not");
    assert!(write(&["--ask", "never", "--sandbox", "none"]));
    assert!(!write(&["--mode", "open", "--sandbox", "workspace-write"]));
    fs::create_dir_all(scratch.state.path().join("legwork")).unwrap();
    let config = scratch.state.path().join("legwork/config.toml");
    fs::write(&config, "ask = \"never\"\n[sandbox]\nlevel = \"read-only\"\n").unwrap();
    assert!(!write(&["--mode", "open"]), "a mode weakens no level");
    assert!(write(&["--sandbox", "none"]), "a choice goes before the files");
}

/// Whether this machine can confine commands.
fn is_confined(scratch: &Scratch) -> bool {
    let report = scratch.legwork("doctor").arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let layers = report["layers"].as_array().unwrap();
    let has =
        |name: &str| layers.iter().any(|layer| layer["name"] == name && layer["available"] == true);
    let confined = has("landlock") || has("mounts");
    if !confined {
        skips::skip("this machine confines nothing");
    }
    confined
}

#[test]
fn durations_and_sizes_take_units() {
    let scratch = Scratch::new();
    let run =
        |verb: &str, more: &[&str]| parts(&scratch.legwork(verb).args(more).output().unwrap());
    assert_eq!(run("run", &["--timeout", "50ms", "--", "sleep", "100"]).0, Some(124));
    assert_eq!(run("run", &["--timeout", "1h", "--", "true"]).0, Some(0));
    let task = scratch.promote("exec sleep 1000", &json!({}));
    assert_eq!(run("wait", &[&task, "--timeout", "10ms"]).0, Some(124));
    assert_eq!(run("wait", &[&task, "--silence", "20ms"]).0, Some(0));
    let (code, _, told) = run("wait", &[&task, "--timeout", "2h"]);
    assert_eq!((code, told.contains("at most 1h")), (Some(125), true), "{told}");
    assert_eq!(run("stop", &[&task, "--grace", "5s"]).0, Some(0));
    assert_eq!(run("gc", &["--days", "2w", "--bytes-max", "2GiB"]).0, Some(0));
    let (code, _, told) = run("gc", &["--bytes-max", "much"]);
    assert_eq!(code, Some(125));
    assert!(told.contains("write a size, such as 4096, 512KiB or 2GiB"), "{told}");
}

#[test]
fn what_takes_long_says_what_it_waits_for_on_a_terminal_only() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let task =
        scratch.promote(&format!("exec {} wait-for {gate}", crate::common::fixture()), &json!({}));
    let state = scratch.state.path().display().to_string();
    let person = Person::types(&format!("exec {} wait {task} --state {state}", program()));
    person.sees("legwork: waiting for the end of t_");
    crate::common::open(&gate);
    person.leaves_with(0);
    let (_, _, told) = parts(&scratch.legwork("wait").arg(&task).output().unwrap());
    assert_eq!(told, "");
}
