//! A deny holds at the exec, not only in the text: whatever runs a denied program, it does not run,
//! and the result says which rule denies it.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, has_program, program, signal, text},
    mcp::Wire,
    sandbox::{
        degraded,
        house::{House, INTEGRATION, OPERATOR, UNTRUSTED},
    },
};

const NO_RM: &str = "excludeTools = [\"run_shell_command(rm)\"]\n";

const NO_PUSH: &str = "[[rule]]\nid = \"no-push\"\ndecision = \"deny\"\nprogram = \"git\"\n\
    args = [[\"push\"]]\n";

/// The layer and the rule of each denial by a rule.
fn denials(result: &Value) -> Vec<(&str, &str)> {
    let all = result["denials"].as_array().map(Vec::as_slice).unwrap_or_default();
    let by_rule = all.iter().filter(|denial| denial["rule"].is_string());
    by_rule.map(|it| (it["layer"].as_str().unwrap(), it["rule"].as_str().unwrap())).collect()
}

fn stderr(result: &Value) -> &str {
    result["stderr_preview"].as_str().unwrap_or_default()
}

#[test]
fn a_denied_program_is_run_by_no_script_no_makefile_and_no_interpreter() {
    for house in House::each() {
        let house = house.with_policy(NO_RM);
        let kept = house.file("workspace/x", "");
        house.script("workspace/go-on", "rm x");
        house.file("workspace/Makefile", "all:\n\trm x\n");
        house.file("workspace/system.py", "import os\nos.system('rm x')\n");
        house.file("workspace/exec.py", "import os\nos.execv('/bin/rm', ['rm', 'x'])\n");
        let script = "PATH=/usr/bin:/bin\nexec env -i /usr/bin/rm x";
        house.script("workspace/by-env", script);
        let mut commands = vec!["./go-on", "./by-env"];
        commands.extend(has_program("make", &["--version"]).then_some("make"));
        if has_program("python3", &["--version"]) {
            commands.extend(["python3 system.py", "python3 exec.py"]);
        }
        for command in commands {
            let result = house.exec(OPERATOR, command);
            assert!(kept.exists(), "{command}: {result:#}");
            assert_eq!(denials(&result), [("covered", "run_shell_command(rm)")], "{command}");
            assert_eq!(result["denials"][0]["program"], "rm", "{command}: {result:#}");
            assert_eq!(result["denials"][0]["arguments"], json!(["x"]), "{command}: {result:#}");
            let said = "legwork: rm is denied by the rule run_shell_command(rm)";
            assert!(stderr(&result).contains(said), "{command}: {result:#}");
        }
        let audit = house.verb_of(&["audit", "show"]);
        assert!(audit.contains("rm x: denied by the rule run_shell_command(rm)"), "{audit}");
        let input = json!({ "cmd": "./go-on", "login": false }).to_string();
        let receipt =
            house.legwork("call", OPERATOR).args(["ExecCommand", &input]).output().unwrap();
        let block = "\nRefused by a rule:\nrm x: denied by the rule run_shell_command(rm)\n";
        assert!(text(&receipt.stdout).contains(block), "{receipt:?}");
        assert!(!text(&receipt.stdout).contains("Refused by the sandbox"), "{receipt:?}");
    }
}

#[test]
fn what_is_denied_can_neither_be_copied_nor_loaded_nor_linked() {
    for house in House::each() {
        let house = house.with_policy(NO_RM);
        let kept = house.file("workspace/x", "");
        house.script("workspace/copy", "cp /bin/rm y && ./y x");
        house.script("workspace/link", "ln -sf /usr/bin/rm z; ./z x");
        house.script("workspace/load", "for l in /lib64/ld-linux*.so.*; do $l /usr/bin/rm x; done");
        house.script("workspace/bare", "cat /usr/bin/rm > w; chmod +x w; ./w x");
        // A rename over it, or a mount, would uncover it.
        house.script("workspace/fight", "mv /usr/bin/rm m; umount /usr/bin/rm; ./m x");
        for command in ["./copy", "./link", "./load", "./bare", "./fight"] {
            let result = house.exec(OPERATOR, command);
            assert!(kept.exists(), "{command}: {result:#}");
            assert_ne!(result["exit_status"], 0, "{command}: {result:#}");
            let told = stderr(&result).contains("run_shell_command(rm)");
            let known = denials(&result).iter().any(|(_, rule)| *rule == "run_shell_command(rm)");
            assert!(told || known || command == "./fight", "{command}: {result:#}");
        }
        // Whatever else is there goes on as ever.
        assert_eq!(house.prints(OPERATOR, "echo hi; ls /usr/bin/env").lines().count(), 2);
    }
}

#[test]
fn a_program_that_is_many_refuses_the_denied_one_and_is_all_others() {
    if !has_program("busybox", &["true"]) {
        return;
    }
    for house in House::each() {
        let house = house.with_policy(NO_RM);
        let kept = house.file("workspace/x", "");
        house.script("workspace/direct", "busybox rm x");
        house.script("workspace/named", "exec -a rm busybox x");
        house.script("workspace/linked", "ln -sf \"$(command -v busybox)\" rm; ./rm x");
        house.script("workspace/through", "echo x | busybox xargs busybox rm");
        house.script("workspace/shell", "busybox sh -c 'rm x'");
        for command in ["./direct", "bash ./named", "./linked", "./through", "./shell"] {
            let result = house.exec(OPERATOR, command);
            assert!(kept.exists(), "{command}: {result:#}");
            assert_eq!(denials(&result), [("exec", "run_shell_command(rm)")], "{command}");
        }
        house.script("workspace/other", "busybox echo rm; busybox ls x");
        let result = house.exec(OPERATOR, "./other");
        assert_eq!(denials(&result), [], "{result:#}");
        assert_eq!(result["stdout_preview"], "rm\nx", "{result:#}");
    }
}

#[test]
fn arguments_are_denied_at_the_exec_whoever_starts_the_program() {
    if !has_program("git", &["--version"]) {
        return;
    }
    for house in House::each() {
        let house = house.with_policy(NO_PUSH);
        house.script("workspace/go-on", "git push");
        house.script("workspace/runner", "sh -c \"cd . && git -C . push origin main\"");
        house.script("workspace/exec-path", "\"$(git --exec-path)/git\" push");
        house.script("workspace/set-up", "git init -q . && git config alias.q push");
        assert_eq!(house.exec(OPERATOR, "./set-up")["exit_status"], 0);
        let run = "import json, subprocess\n\
            subprocess.run(json.load(open('package.json'))['scripts']['release'], shell=True)\n";
        house.file("workspace/run.py", run);
        house.file("workspace/package.json", "{\"scripts\": {\"release\": \"git push --tags\"}}");
        let mut commands =
            vec!["./go-on", "./runner", "./exec-path", "git -c alias.p=push p", "git q"];
        commands.extend(has_program("python3", &["--version"]).then_some("python3 run.py"));
        for command in commands {
            let result = house.exec(OPERATOR, command);
            assert_eq!(denials(&result), [("exec", "no-push")], "{command}: {result:#}");
            assert!(stderr(&result).contains("ermission denied"), "{command}: {result:#}");
        }
        // A person is told which rule it was.
        let mut run = house.verb("run");
        run.arg("--policy").arg(house.path("policy.toml")).arg("./go-on");
        let run = run.output().unwrap();
        let line = "legwork: git push: denied by the rule no-push";
        assert!(text(&run.stderr).lines().any(|it| it == line), "{run:?}");
        house.script("workspace/other", "git status --porcelain push; git log push");
        assert_eq!(denials(&house.exec(OPERATOR, "./other")), []);
    }
}

#[test]
fn a_rule_that_asks_refuses_what_nobody_approves_and_lets_go_on_what_was_approved() {
    if !has_program("git", &["--version"]) {
        return;
    }
    let policy = NO_PUSH.replace("deny", "ask");
    for house in House::each() {
        let house = house.with_policy(&policy);
        // One without anything to push to, whatever is around this house.
        assert!(house.outside("git").args(["init", "-q"]).output().unwrap().status.success());
        house.script("workspace/go-on", "git push");
        let result = house.exec(OPERATOR, "./go-on");
        assert_eq!(denials(&result), [("exec", "no-push")], "{result:#}");
        let what = result["denials"][0]["what"].as_str().unwrap();
        let (_, id) = what.split_once("it has to be approved (question ").unwrap();
        let (id, _) = id.split_once(')').unwrap();
        assert!(house.verb("approve").arg(id).output().unwrap().status.success());
        let result = house.exec(OPERATOR, "./go-on");
        assert_eq!(denials(&result), [], "an earlier answer counts: {result:#}");
        assert_eq!(result["exit_status"], 128, "git has run: {result:#}");
        assert_eq!(denials(&house.exec(OPERATOR, "./go-on")).len(), 1, "once is once");
        // The same on its own is asked about, and goes on once somebody says yes.
        let input = json!({ "cmd": "git push", "login": false });
        let asked = house.call(OPERATOR, "ExecCommand", &input);
        assert_eq!(asked["error"]["kind"], "approval_unavailable", "{asked:#}");
        let id = asked["error"]["details"]["approval_id"].as_str().unwrap().to_owned();
        assert!(house.verb("approve").arg(&id).output().unwrap().status.success());
        let result = house.get(OPERATOR, "ExecCommand", &input);
        assert_eq!(denials(&result), [], "{result:#}");
        assert_eq!(result["exit_status"], 128, "git has run: {result:#}");
    }
}

/// The question that is open once there is one.
fn open_question(house: &House) -> Value {
    eventually("a question is open", || {
        let listed = house.verb("approvals").arg("--json").output().unwrap();
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        listed["approvals"].as_array().unwrap().first().cloned()
    })
}

/// A rule that asks about `touch`, and callers who wait for the answer.
const ASK_TOUCH: &str = "[[rule]]\nid = \"ask-touch\"\ndecision = \"ask\"\nprogram = \"touch\"\n\
    [approval]\nwait_ms = 60000\n";

#[test]
fn a_program_that_a_rule_asks_about_waits_for_the_answer() {
    for house in House::each() {
        let house = house.with_policy(ASK_TOUCH);
        house.script("workspace/release", "sh ./inner 'a b'; echo \"touch gave $?\"");
        house.script("workspace/inner", "touch \"$1\"");
        let made = house.path("workspace/a b");
        let input = json!({ "cmd": "./release", "login": false, "yield_time_ms": 60_000 });
        let begin_with = |more: &[&str]| {
            let mut call = house.legwork("call", OPERATOR);
            call.args(["ExecCommand", &input.to_string()]).args(more);
            call.stdout(Stdio::piped()).spawn().unwrap()
        };
        let begin = || begin_with(&["--json"]);
        let end = |call: Child| -> Value {
            let output = call.wait_with_output().unwrap();
            let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
            envelope["result"].clone()
        };
        // A no, with a word for the caller.
        let call = begin();
        let question = open_question(&house);
        assert_eq!(question["cause"], "touch 'a b'", "{question:#}");
        assert_eq!(question["rule"], "ask-touch", "{question:#}");
        assert_eq!(question["command"], "./release", "{question:#}");
        let lineage: Vec<&str> =
            question["lineage"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        assert!(lineage.iter().any(|it| it.contains("./release")), "{question:#}");
        assert!(lineage.last().unwrap().contains("./inner a b"), "{question:#}");
        let id = question["approval_id"].as_str().unwrap();
        let shown = text(&house.verb("approvals").arg(id).output().unwrap().stdout);
        assert!(shown.contains("May this program run?"), "{shown}");
        assert!(!made.exists());
        let mut deny = house.verb("deny");
        assert!(deny.args([id, "--note", "not now"]).output().unwrap().status.success());
        let result = end(call);
        assert!(!made.exists(), "{result:#}");
        assert_eq!(denials(&result), [("exec", "ask-touch")], "{result:#}");
        let what = result["denials"][0]["what"].as_str().unwrap();
        assert!(what.contains("the person says: not now"), "{what}");
        assert_eq!(result["denials"][0]["by"], "person", "{result:#}");
        // Another, whose receipt names who refused.
        let call = begin_with(&[]);
        let id = open_question(&house)["approval_id"].as_str().unwrap().to_owned();
        assert!(house.verb("deny").arg(&id).output().unwrap().status.success());
        let receipt = text(&call.wait_with_output().unwrap().stdout);
        assert!(
            receipt.contains("\nRefused by a person:\ntouch a b: asked about, and"),
            "{receipt}"
        );
        // A yes.
        let call = begin();
        let id = open_question(&house)["approval_id"].as_str().unwrap().to_owned();
        let mut approve = house.verb("approve");
        assert!(approve.args([&id, "--note", "mind it"]).output().unwrap().status.success());
        let result = end(call);
        assert_eq!(result["stdout_preview"], "touch gave 0", "{result:#}");
        assert!(made.exists());
        let said = result["warnings"][0].as_str().unwrap();
        assert!(said.ends_with("the person who allowed it says: mind it"), "{result:#}");
        assert_eq!(denials(&result), [], "{result:#}");
    }
}

#[test]
fn a_program_that_waits_for_an_answer_outlives_its_engine() {
    let Some(house) = House::own() else { return };
    let house = house.with_policy(ASK_TOUCH);
    house.script("workspace/release", "touch made");
    let serve = || {
        let mut server = house.legwork("mcp", OPERATOR);
        server.arg("--structured");
        let mut wire = Wire::spawn(server);
        wire.initialize();
        wire
    };
    let mut first = serve();
    let input = json!({ "cmd": "./release", "login": false, "yield_time_ms": 0 });
    let begun = first.exec(&input);
    let task = begun["result"]["structuredContent"]["result"]["task_handle"]["task_id"].clone();
    assert!(task.is_string(), "{begun:#}");
    let asked = open_question(&house)["approval_id"].clone();
    signal(first.child.id(), Signal::KILL);
    first.child.wait().unwrap();
    // Whoever adopts the task asks again: it is the same question.
    let mut second = serve();
    eventually("it is asked about again", || {
        let again = open_question(&house);
        (again["approval_id"] == asked).then_some(())
    });
    let id = asked.as_str().unwrap();
    assert!(house.verb("approve").arg(id).output().unwrap().status.success());
    let wait = json!({ "task_ids": [task], "timeout_ms": 60_000 });
    let waited = second.tool("TaskWait", &wait);
    assert!(house.path("workspace/made").exists(), "{waited}");
}

/// A server with a rule that asks, and a promoted task that it holds: its id and the question's.
fn held_task(house: &House) -> (Wire, String, String) {
    house.script("workspace/release", "touch made");
    let mut wire = Wire::spawn(house.legwork("mcp", OPERATOR));
    wire.initialize();
    wire.exec(&json!({ "cmd": "./release", "login": false, "yield_time_ms": 0 }));
    let question = open_question(house);
    let of = |name: &str| question[name].as_str().unwrap().to_owned();
    (wire, of("task_id"), of("approval_id"))
}

#[test]
fn a_task_that_a_question_holds_says_so_and_the_question_ends_with_it() {
    let Some(house) = House::own() else { return };
    let house = house.with_policy(ASK_TOUCH);
    let (mut wire, task, question) = held_task(&house);
    let told = format!("Waiting for approval: `touch made` (question {question})");
    let wait = json!({ "task_ids": [task], "timeout_ms": 1 });
    for (tool, input) in
        [("TaskStatus", json!({ "task_id": task })), ("TaskList", json!({})), ("TaskWait", wait)]
    {
        let receipt = wire.tool(tool, &input);
        assert!(receipt.contains(&told), "{tool}: {receipt}");
    }
    let listed = text(&house.verb("ps").output().unwrap().stdout);
    assert!(listed.contains(" asks "), "{listed}");
    let shown = text(&house.verb("show").arg(&task).output().unwrap().stdout);
    assert!(shown.contains("may `touch made` run?"), "{shown}");
    // It is over, and with it the question.
    wire.tool("TaskStop", &json!({ "task_id": task }));
    let listed = text(&house.verb("approvals").output().unwrap().stdout);
    assert_eq!(listed, "No open questions\n");
    let approved = house.verb("approve").arg(&question).output().unwrap();
    assert!(!approved.status.success(), "{approved:?}");
    assert!(!house.path("workspace/made").exists());
}

#[test]
fn an_answer_reaches_a_program_whose_engine_is_gone() {
    for (verb, expected) in [("approve", true), ("deny", false)] {
        let Some(house) = House::own() else { return };
        let house = house.with_policy(ASK_TOUCH);
        let (mut wire, task, question) = held_task(&house);
        signal(wire.child.id(), Signal::KILL);
        wire.child.wait().unwrap();
        let refused = house.verb("approve").args([&question, "--session"]).output().unwrap();
        let complaint = text(&refused.stderr);
        assert!(complaint.contains("the program that asked is gone"), "{complaint}");
        let answered = house.verb(verb).arg(&question).output().unwrap();
        assert!(answered.status.success(), "{answered:?}");
        // It goes on without any server.
        assert!(house.verb("wait").arg(&task).output().unwrap().status.code().is_some());
        assert_eq!(house.path("workspace/made").exists(), expected);
    }
}

#[test]
fn a_deny_holds_at_every_trust_and_for_what_is_left_running() {
    for house in House::each() {
        let house = house.with_policy(NO_RM);
        let kept = house.file("workspace/x", "");
        house.script("workspace/go-on", "rm x");
        let result = house.exec(INTEGRATION, "./go-on");
        assert_eq!(denials(&result).len(), 1, "{result:#}");
        // What nobody can write may be allowed to anybody.
        let allowed = house.script("outside/go-on", "rm x").display().to_string();
        let rule = format!("[[rule]]\ndecision = \"allow\"\nprogram = \"{allowed}\"\n");
        let house = house.with_policy(&format!("{NO_RM}{rule}"));
        let result = house.exec(UNTRUSTED, &allowed);
        assert_eq!(denials(&result), [("covered", "run_shell_command(rm)")], "{result:#}");
        // What goes on in the background is answered too.
        house.script(
            "workspace/later",
            "(until [ -e now ]; do sleep 0.01; done; echo on; rm x; touch done) &",
        );
        let result = house.exec(OPERATOR, "./later");
        assert_eq!(result["exit_status"], 0, "{result:#}");
        house.file("workspace/now", "");
        eventually("it has gone on", || house.path("workspace/done").exists().then_some(()));
        assert!(kept.exists());
    }
}

#[test]
fn without_namespaces_a_deny_is_held_at_the_exec() {
    let Some(house) = degraded::house() else { return };
    let house = house.with_policy(NO_RM);
    let kept = house.file("workspace/x", "");
    house.script("workspace/go-on", "rm x");
    let result = house.exec(OPERATOR, "./go-on");
    assert!(kept.exists(), "{result:#}");
    assert_eq!(denials(&result), [("exec", "run_shell_command(rm)")], "{result:#}");
}

#[test]
fn nobody_is_asked_about_what_is_executed_unless_a_rule_speaks_of_a_program() {
    let Some(house) = House::own() else { return };
    if !has_program("strace", &["--version"]) {
        return;
    }
    let asked = |policy: &str| {
        let policy = house.file("policy.toml", policy);
        let trace = house.path("trace");
        let mut command = house.outside("strace");
        command.args(["-f", "-e", "trace=ioctl", "-o"]).arg(&trace).arg(program());
        command.arg("call").arg("--state").arg(house.path("state"));
        command.arg("--workspace").arg(house.path("workspace"));
        command.args(["--policy", policy.to_str().unwrap(), "ExecCommand"]);
        command.arg(json!({ "cmd": "ls; ls; ls", "login": false }).to_string());
        assert!(command.output().unwrap().status.success());
        fs::read_to_string(&trace).unwrap().matches("SECCOMP_IOCTL_NOTIF_RECV").count()
    };
    assert_eq!(asked("coreTools = [\"Bash(ls)\"]\n"), 0);
    assert!(asked(NO_RM) >= 4);
}

fn checked(scratch: &Scratch, policy: &str, more: &[&str]) -> Value {
    let path = scratch.state.path().join("policy.toml");
    fs::write(&path, policy).unwrap();
    let mut command = Command::new(program());
    command.args(["policy", "check", "--json", "--policy"]).arg(path).args(more).arg("ls");
    command.current_dir(scratch.workspace.path()).env("XDG_CONFIG_HOME", scratch.state.path());
    serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
}

#[test]
fn a_check_says_what_holds_each_rule() {
    let scratch = Scratch::new();
    let policy = format!("{NO_RM}{NO_PUSH}");
    let held = |value: &Value| -> Vec<(String, Value)> {
        let all = value["held"].as_array().unwrap().iter();
        all.map(|it| (it["rule"].as_str().unwrap().to_owned(), it["held"].clone())).collect()
    };
    let whole = checked(&scratch, &policy, &[]);
    let mut rules = held(&whole);
    rules.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        rules,
        [
            ("no-push".to_owned(), json!(["text", "exec"])),
            ("run_shell_command(rm)".to_owned(), json!(["text", "exec", "covered"])),
        ],
        "{whole:#}"
    );
    let open = checked(&scratch, &policy, &["--mode", "open"]);
    assert!(held(&open).iter().all(|(_, held)| *held == json!(["text"])), "{open:#}");
    let none = checked(&scratch, "coreTools = [\"Bash(ls)\"]\n", &[]);
    assert!(none.get("held").is_none(), "{none:#}");
    let mut people = Command::new(program());
    people.args(["policy", "check", "--mode", "open", "--policy"]);
    people.arg(scratch.state.path().join("policy.toml")).arg("ls");
    people.current_dir(scratch.workspace.path()).env("XDG_CONFIG_HOME", scratch.state.path());
    fs::write(scratch.state.path().join("policy.toml"), NO_RM).unwrap();
    let shown = text(&people.output().unwrap().stdout);
    assert!(shown.contains("deny run_shell_command(rm): text only"), "{shown}");
}
