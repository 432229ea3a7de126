//! Who may act on a task, and who only sees it: by trust, sandbox and network, on every face.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, program, text},
    http::{Serving, token},
    mcp::Wire,
    trials::can_try,
};

pub const OPERATOR: &str = "trusted_operator";
pub const INTEGRATION: &str = "trusted_integration";
const UNTRUSTED: &str = "untrusted_external";

/// Nobody is asked, so that a refusal is about the task.
pub const CONFINED: [&str; 4] = ["--ask", "never", "--sandbox", "workspace-write"];

/// A verb of a caller, with these rules.
pub fn by(scratch: &Scratch, verb: &str, trust: &str, rules: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg(verb).arg("--state").arg(scratch.state.path()).args(["--trust", trust]);
    command.args(rules).current_dir(scratch.workspace.path()).stdin(Stdio::null());
    command.env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", scratch.state.path());
    command
}

/// The envelope of a call.
fn call(scratch: &Scratch, trust: &str, rules: &[&str], tool: &str, input: &Value) -> Value {
    let mut call = by(scratch, "call", trust, rules);
    let output = call.args([tool, "--json", &input.to_string()]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// Starts a command that reads its input, and returns the task.
fn begin(scratch: &Scratch, trust: &str, rules: &[&str], cmd: &str) -> String {
    begin_with(scratch, trust, rules, &json!({ "cmd": cmd, "accepts_input": true }))
}

/// The same with other input.
pub fn begin_with(scratch: &Scratch, trust: &str, rules: &[&str], input: &Value) -> String {
    let mut input = input.clone();
    let usual = json!({ "login": false, "yield_time_ms": 0 });
    input.as_object_mut().unwrap().extend(usual.as_object().unwrap().clone());
    let begun = call(scratch, trust, rules, "ExecCommand", &input);
    let id = &begun["result"]["task_handle"]["task_id"];
    id.as_str().unwrap_or_else(|| panic!("{begun:#}")).to_owned()
}

/// Everything that a caller could do to a task.
fn acts(task: &str) -> [(&'static str, Value); 7] {
    [
        ("TaskInput", json!({ "task_id": task, "input": "" })),
        ("TaskInput", json!({ "task_id": task, "input": "echo typed\n" })),
        ("TaskInput", json!({ "task_id": task, "key": "enter" })),
        ("TaskInput", json!({ "task_id": task, "eof": true })),
        ("TaskInput", json!({ "task_id": task, "input": "x\n", "eof": true })),
        ("TaskStop", json!({ "task_id": task })),
        ("TaskStop", json!({ "task_id": task, "signal": "INT", "grace_ms": 600_000 })),
    ]
}

/// A caller sees a task, and is refused everything else for this reason.
#[track_caller]
fn only_sees(scratch: &Scratch, trust: &str, rules: &[&str], task: &str, less: &str) {
    for (tool, input) in acts(task) {
        let refused = call(scratch, trust, rules, tool, &input);
        let error = &refused["error"];
        assert_eq!(error["kind"], "command_denied", "{tool} {input}: {refused:#}");
        assert_eq!(error["details"]["less"], less, "{refused:#}");
        assert!(error["message"].as_str().unwrap().contains(task), "{refused:#}");
    }
    let status = call(scratch, trust, rules, "TaskStatus", &json!({ "task_id": task }));
    assert_eq!(status["result"]["task"]["status"], "running", "{status:#}");
    let output = json!({ "task_id": task, "block": false });
    let output = call(scratch, trust, rules, "TaskOutput", &output);
    assert_eq!(output["status"], "success", "{output:#}");
}

/// A caller types into a task, and then stops it.
#[track_caller]
fn acts_on(scratch: &Scratch, trust: &str, rules: &[&str], task: &str) {
    let input = json!({ "task_id": task, "input": "echo typed\n" });
    let sent = call(scratch, trust, rules, "TaskInput", &input);
    assert_eq!(sent["result"]["accepted_input"], true, "{sent:#}");
    let stopped = call(scratch, trust, rules, "TaskStop", &json!({ "task_id": task }));
    assert_eq!(stopped["result"]["stop_requested"], true, "{stopped:#}");
}

#[test]
fn a_caller_of_lower_trust_only_sees_in_every_mode() {
    let scratch = Scratch::new();
    let task = begin(&scratch, OPERATOR, &CONFINED, "sh");
    for rules in [&CONFINED[..], &["--mode", "guarded"], &["--mode", "strict"], &["--mode", "open"]]
    {
        for trust in [INTEGRATION, UNTRUSTED] {
            only_sees(&scratch, trust, rules, &task, "trust");
        }
    }
    acts_on(&scratch, "trusted_system", &CONFINED, &task);
    let task = begin(&scratch, INTEGRATION, &CONFINED, "sh");
    only_sees(&scratch, UNTRUSTED, &CONFINED, &task, "trust");
    acts_on(&scratch, OPERATOR, &CONFINED, &task);
    let task = begin(&scratch, UNTRUSTED, &CONFINED, "cat");
    acts_on(&scratch, UNTRUSTED, &CONFINED, &task);
}

#[test]
fn a_second_server_of_lower_trust_cannot_type_into_what_the_first_started() {
    let scratch = Scratch::new();
    let mut first = Wire::spawn(by(&scratch, "mcp", OPERATOR, &CONFINED));
    first.initialize();
    let mut second = Wire::spawn(by(&scratch, "mcp", UNTRUSTED, &CONFINED));
    second.initialize();
    for tty in [false, true] {
        let input = json!({
            "cmd": "sh", "login": false, "accepts_input": true, "tty": tty, "yield_time_ms": 0,
        });
        let begun = first.tool("ExecCommand", &input);
        let task = begun.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
        assert!(second.tool("TaskList", &json!({})).contains(&task));
        let mut tried = acts(&task).to_vec();
        tried.push(("TaskInput", json!({ "task_id": task, "rows": 9, "cols": 9 })));
        for (tool, input) in tried {
            if !tty && input.get("rows").is_some() {
                continue;
            }
            let answer = second.request("tools/call", &json!({ "name": tool, "arguments": input }));
            assert_eq!(answer["result"]["isError"], true, "{tool} {input}: {answer}");
            let told = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert!(
                told.contains("its caller is trusted_operator, and you are untrusted_external")
            );
        }
        let typed = json!({ "task_id": task, "input": "echo ty''ped\n", "wait_ms": 10_000 });
        assert!(first.tool("TaskInput", &typed).contains("typed"));
        assert!(first.tool("TaskStop", &json!({ "task_id": task })).starts_with("Task stopped"));
    }
}

#[test]
fn a_stricter_sandbox_or_less_of_a_network_only_sees() {
    let scratch = Scratch::new();
    let free = begin(&scratch, OPERATOR, &["--mode", "open"], "sh");
    only_sees(&scratch, OPERATOR, &CONFINED, &free, "sandbox");
    let confined = begin(&scratch, OPERATOR, &CONFINED, "sh");
    let read_only = ["--ask", "never", "--sandbox", "read-only"];
    only_sees(&scratch, OPERATOR, &read_only, &confined, "sandbox");
    let offline = scratch.file("offline.toml");
    fs::write(&offline, "[sandbox]\nnetwork = false\n").unwrap();
    let offline = [&CONFINED[..], &["--policy", &offline]].concat();
    only_sees(&scratch, OPERATOR, &offline, &confined, "network");
    acts_on(&scratch, OPERATOR, &["--mode", "open"], &confined);
    // The person at the machine is confined by nothing.
    let sent = scratch.legwork("send").args([&free, "exit 3"]).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    assert_eq!(scratch.wait(&free, &json!({}))["tasks"][0]["exit_status"], 3);
    let free = begin(&scratch, OPERATOR, &["--mode", "open"], "sh");
    let stopped = scratch.legwork("stop").arg(&free).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
}

#[test]
fn what_a_rule_lets_out_of_the_sandbox_is_acted_on_by_those_for_whom_the_rule_is() {
    let scratch = Scratch::new();
    let policy = scratch.file("out.toml");
    let rule =
        "[[rule]]\nid = \"out\"\ndecision = \"allow\"\nprogram = \"cat\"\nsandbox = \"none\"\n";
    fs::write(&policy, rule).unwrap();
    let with_rule = ["--mode", "guarded", "--policy", &policy];
    let task = begin(&scratch, OPERATOR, &with_rule, "cat");
    let record = text(&scratch.legwork("show").args([&task, "--json"]).output().unwrap().stdout);
    let record: Value = serde_json::from_str(&record).unwrap();
    let (level, by) = (&record["sandbox"]["level"], &record["sandbox"]["granted_by"]);
    assert_eq!((level, by), (&json!("none"), &json!("out")), "{record:#}");
    only_sees(&scratch, OPERATOR, &["--mode", "guarded"], &task, "sandbox");
    only_sees(&scratch, INTEGRATION, &with_rule, &task, "trust");
    // Another rule of that id is none for this command.
    let other = scratch.file("other.toml");
    fs::write(&other, rule.replace("\"cat\"", "\"date\"")).unwrap();
    only_sees(&scratch, OPERATOR, &["--mode", "guarded", "--policy", &other], &task, "sandbox");
    acts_on(&scratch, OPERATOR, &with_rule, &task);
}

#[test]
fn what_a_person_let_out_of_the_sandbox_belongs_to_the_session_that_asked() {
    let scratch = Scratch::new();
    let policy = scratch.file("ask.toml");
    let rules = "[approval]\nwait_ms = 60000\n[[rule]]\ndecision = \"ask\"\nprogram = \"cat\"\n";
    fs::write(&policy, rules).unwrap();
    let asked = ["--mode", "guarded", "--policy", &policy];
    let input = json!({
        "cmd": "cat", "login": false, "accepts_input": true, "yield_time_ms": 0,
    });
    let run = json!({ "name": "ExecCommand", "arguments": input });
    let mut wire = Wire::spawn(by(&scratch, "mcp", OPERATOR, &asked));
    wire.initialize();
    wire.send("tools/call", &run);
    let question = eventually("the question is there", || {
        let listed = scratch.legwork("approvals").arg("--json").output().unwrap();
        let open: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let open = open.as_array().or_else(|| open["approvals"].as_array())?.clone();
        Some(open.first()?["approval_id"].as_str()?.to_owned())
    });
    let approved =
        scratch.legwork("approve").args([&question, "--outside-sandbox"]).output().unwrap();
    assert!(approved.status.success(), "{approved:?}");
    let begun = wire.read()["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    let task = begun.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    only_sees(&scratch, OPERATOR, &asked, &task, "sandbox");
    // That of the session is joined to it without a second question.
    let again = wire.tool("ExecCommand", &input);
    assert!(again.starts_with(&format!("Command is already running\nTask: {task}")), "{again}");
    // Another session is not joined to it either: it is asked about its own.
    let second = call(&scratch, OPERATOR, &asked[..2], "ExecCommand", &input);
    assert_ne!(second["result"]["task_handle"]["task_id"], task, "{second:#}");
    let typed = json!({ "task_id": task, "input": "typed\n", "wait_ms": 10_000 });
    assert!(wire.tool("TaskInput", &typed).contains("typed"));
    assert!(wire.tool("TaskStop", &json!({ "task_id": task })).starts_with("Task stopped"));
}

#[test]
fn a_duplicate_is_joined_by_those_alone_who_could_have_started_it() {
    let scratch = Scratch::new();
    let first = begin(&scratch, OPERATOR, &CONFINED, "cat");
    let input = json!({
        "cmd": "cat", "login": false, "accepts_input": true, "yield_time_ms": 0,
    });
    let joins = |trust: &str| {
        let begun = call(&scratch, trust, &CONFINED, "ExecCommand", &input);
        let result = &begun["result"];
        let id = result["task_handle"]["task_id"].as_str().unwrap_or_else(|| panic!("{begun:#}"));
        (id.to_owned(), result["disposition"] == "already_running")
    };
    let (own, joined) = joins(INTEGRATION);
    assert!(!joined && own != first, "it starts its own");
    assert_eq!(joins(INTEGRATION), (own.clone(), true), "which is the one it joins then");
    let (untrusted, joined) = joins(UNTRUSTED);
    assert!(!joined && untrusted != own);
    assert_eq!(joins(OPERATOR), (first.clone(), true), "never what one of less trust has prepared");
    // Whom a rule gives less, or more, is given that.
    for level in ["read-only", "none"] {
        let policy = scratch.file(level);
        let rule =
            format!("[[rule]]\ndecision = \"allow\"\nprogram = \"cat\"\nsandbox = \"{level}\"\n");
        fs::write(&policy, rule).unwrap();
        let rules = ["--mode", "guarded", "--policy", &policy];
        let begun = call(&scratch, OPERATOR, &rules, "ExecCommand", &input);
        assert_eq!(begun["result"]["disposition"], "promoted_to_task", "{level}: {begun:#}");
    }
}

#[test]
fn a_trial_is_stopped_by_its_kind_of_caller_whatever_that_may_write() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let mut child = scratch.legwork("try").args(["--sh", "sleep 1000"]).spawn().unwrap();
    let task = eventually("the trial runs", || {
        let task = scratch.tasks().first()?.clone();
        (task["status"] == "running").then(|| task["task_id"].as_str().unwrap().to_owned())
    });
    only_sees(&scratch, UNTRUSTED, &CONFINED, &task, "trust");
    let read_only = ["--ask", "never", "--sandbox", "read-only"];
    let stop = json!({ "task_id": task });
    let stopped = call(&scratch, OPERATOR, &read_only, "TaskStop", &stop);
    assert_eq!(stopped["result"]["stop_requested"], true, "{stopped:#}");
    child.wait().unwrap();
}

#[test]
fn what_a_rebuilt_ledger_knows_is_enough_to_refuse() {
    let scratch = Scratch::new();
    let task = begin(&scratch, OPERATOR, &["--mode", "open"], "sh");
    for entry in fs::read_dir(scratch.state.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("ledger") {
            fs::remove_file(path).unwrap();
        }
    }
    only_sees(&scratch, UNTRUSTED, &["--mode", "open"], &task, "trust");
    only_sees(&scratch, OPERATOR, &CONFINED, &task, "sandbox");
    acts_on(&scratch, OPERATOR, &["--mode", "open"], &task);
}

#[test]
fn the_web_interface_refuses_agents_what_they_may_not() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let agent = token(&scratch, "agent", &["--role", "agent"]);
    let other = token(&scratch, "other", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let start = |secret: &str| {
        let input = json!({
            "cmd": "sh", "login": false, "accepts_input": true, "yield_time_ms": 0,
            "duplicate_policy": "start_new",
        });
        let begun = serving.post("/api/v1/tasks", secret, &input).good();
        begun["task_handle"]["task_id"].as_str().unwrap().to_owned()
    };
    let task = start(&operator);
    for (path, body) in [
        ("input", json!({ "input": "echo typed\n" })),
        ("input", json!({ "eof": true })),
        ("stop", json!({})),
        ("stop", json!({ "signal": "KILL" })),
    ] {
        let reply = serving.post(&format!("/api/v1/tasks/{task}/{path}"), &agent, &body);
        assert_eq!((reply.status, reply.kind()), (403, "command_denied".into()), "{reply:?}");
        assert_eq!(reply.json()["error"]["details"]["less"], "trust");
    }
    assert_eq!(
        serving.get(&format!("/api/v1/tasks/{task}"), &agent).good()["task"]["status"],
        "running"
    );
    let of_agent = start(&agent);
    for secret in [&agent, &other, &operator] {
        let path = format!("/api/v1/tasks/{of_agent}/input");
        let sent = serving.post(&path, secret, &json!({ "input": "echo typed\n" })).good();
        assert_eq!(sent["accepted_input"], true);
    }
    for (secret, id) in [(&other, &of_agent), (&operator, &task)] {
        serving.post(&format!("/api/v1/tasks/{id}/stop"), secret, &json!({})).good();
    }
}

/// Unlike the rest, this is about paths: what the sandbox keeps from a command, in all three tools.
#[test]
fn what_the_sandbox_keeps_from_a_command_is_among_the_denials_of_every_tool() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let policy = scratch.file("allow.toml");
    fs::write(&policy, "coreTools = [\"run_shell_command(touch)\"]\n").unwrap();
    let rules = [&CONFINED[..], &["--policy", &policy, "--tools", "all"]].concat();
    for (tool, input) in [
        ("ExecCommand", json!({ "cmd": "touch /usr/zz", "login": false })),
        ("execute_command", json!({ "command": "touch", "args": ["/usr/zz"] })),
        ("run_shell_command", json!({ "command": "touch /usr/zz" })),
    ] {
        let answer = call(&scratch, OPERATOR, &rules, tool, &input);
        let denials = &answer["result"]["denials"];
        assert_eq!(denials[0]["layer"], "files", "{tool}: {answer:#}");
        let what = "/usr/zz is not writable here (workspace-write)";
        assert_eq!(denials[0]["what"], what, "{tool}: {answer:#}");
    }
    // One that succeeds has none.
    let input = json!({ "command": "touch", "args": ["here"] });
    let answer = call(&scratch, OPERATOR, &rules, "execute_command", &input);
    assert_eq!(answer["result"].get("denials"), None, "{answer:#}");
}

#[test]
fn an_end_of_input_that_ends_the_task_says_that_nothing_more_comes() {
    let scratch = Scratch::new();
    let task = begin(&scratch, OPERATOR, &CONFINED, "cat");
    let input = json!({ "task_id": task, "eof": true, "wait_ms": 10_000 }).to_string();
    let mut send = by(&scratch, "call", OPERATOR, &CONFINED);
    let receipt = text(&send.args(["TaskInput", &input]).output().unwrap().stdout);
    assert!(receipt.contains("(nothing more)"), "{receipt}");
}
