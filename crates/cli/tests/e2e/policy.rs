//! The gate, end to end: rules from files, verdicts that explain themselves, and no way around
//! them.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::common::{Scratch, parts, program, text};

const NO_RM: &str = "excludeTools = [\"run_shell_command(rm)\"]\n";

fn check(scratch: &Scratch, policy: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let path = scratch.state.path().join("policy.toml");
    fs::write(&path, policy).unwrap();
    let mut command = Command::new(program());
    command.args(["policy", "check", "--policy"]).arg(path).args(more);
    command.current_dir(scratch.workspace.path()).env("XDG_CONFIG_HOME", scratch.state.path());
    parts(&command.output().unwrap())
}

#[test]
fn a_denied_program_runs_through_no_tool_and_by_no_trick() {
    let scratch = Scratch::new();
    fs::write(scratch.file("x"), "").unwrap();
    for command in [
        "rm x",
        "/bin/rm x",
        "\\rm x",
        "'r'm x",
        "X=1 rm x",
        "command rm x",
        "env -S 'rm x'",
        "sudo -u x rm x",
        "timeout 5 rm x",
        "echo x | xargs rm",
        "find . -exec rm {} +",
        "bash -lc \"rm x\"",
        "if true; then rm x; fi",
        "f() { rm x; }; f",
        "a=rm; $a x",
    ] {
        for (tool, input) in [
            ("ExecCommand", json!({ "cmd": command, "login": false })),
            ("run_shell_command", json!({ "command": command })),
            ("execute_command", json!({ "command": "bash", "args": ["-c", command] })),
        ] {
            let output = scratch
                .guarded("call", "guarded", Some(NO_RM))
                .args([tool, &input.to_string()])
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(126), "{tool}: {command}: {output:?}");
        }
        assert!(fs::exists(scratch.file("x")).unwrap(), "{command}");
        let (code, shown, _) = check(&scratch, NO_RM, &[command]);
        assert_eq!(code, Some(126), "{command}");
        assert!(!shown.starts_with("allow"), "{command}: {shown}");
    }
    assert!(scratch.tasks().is_empty());
}

#[test]
fn deny_rules_hold_in_the_open_mode_too() {
    let scratch = Scratch::new();
    let output = scratch
        .guarded("call", "open", Some(NO_RM))
        .args(["ExecCommand", r#"{"cmd":"true; rm x","login":false}"#, "--json"])
        .output()
        .unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &envelope["error"];
    assert_eq!(error["kind"], "command_denied");
    // The same explanation as of `policy check`.
    let details = &error["details"];
    assert_eq!(
        (&details["command"], &details["span"]),
        (&json!("rm x"), &json!({"start": 6, "end": 10}))
    );
    assert_eq!(details["rule"], "run_shell_command(rm)");
    assert!(error["recovery_hint"].as_str().unwrap().contains("rule"), "{error}");
}

#[test]
fn a_verdict_explains_itself() {
    let scratch = Scratch::new();
    let (code, shown, _) = check(&scratch, NO_RM, &["ls -l && rm -f x"]);
    assert_eq!(code, Some(126));
    for part in [
        "deny\n",
        "  ls -l\n",
        "^^^^^^^",
        "reason: ",
        "rule:   run_shell_command(rm)",
        "to change it: ",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let (code, shown, _) = check(&scratch, "", &["cargo test"]);
    assert_eq!(code, Some(0));
    assert!(shown.starts_with("allow\n"), "{shown}");
    let (_, shown, _) =
        check(&scratch, "", &["--json", "--tool", "run_shell_command", "cargo test"]);
    let value: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&value["verdict"], &value["commands"]), (&json!("ask"), &json!(["cargo"])));
}

#[test]
fn a_batch_is_answered_line_by_line() {
    let scratch = Scratch::new();
    let mut child = Command::new(program())
        .args(["policy", "check", "--batch"])
        .env("XDG_CONFIG_HOME", scratch.state.path())
        .current_dir(scratch.workspace.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = [
        json!({ "id": 1, "input": "env X=1 ls $(whoami)" }),
        json!({ "id": "two", "input": "echo hi", "tool": "run_shell_command" }),
        json!({ "id": 3, "input": "for ((" }),
        json!({ "id": 4, "input": ["bash", "-c", "ls"], "tool": "execute_command" }),
    ];
    let mut stdin = child.stdin.take().unwrap();
    for line in lines {
        writeln!(stdin, "{line}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let answers: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0]["id"], 1);
    assert_eq!(answers[0]["substitution"], true);
    assert!(answers[0]["runs"].to_string().contains("\"ls\""), "{}", answers[0]);
    assert_eq!((&answers[1]["id"], &answers[1]["verdict"]), (&json!("two"), &json!("ask")));
    assert_eq!(answers[2]["understood"], false);
    assert!(answers[3]["runs"].to_string().contains("\"ls\""), "{}", answers[3]);
    for answer in &answers {
        assert!(answer["reason"].is_string() && answer["commands"].is_array(), "{answer}");
    }
}

#[test]
fn an_allowlist_as_the_original_writes_it() {
    let scratch = Scratch::new();
    let policy = "coreTools = [\"run_shell_command(echo)\", \"run_shell_command(git status)\"]\n";
    let call = |command: &str| {
        let input = json!({ "command": command }).to_string();
        let output = scratch
            .guarded("call", "guarded", Some(policy))
            .args(["run_shell_command", &input])
            .output()
            .unwrap();
        (output.status.code(), text(&output.stdout))
    };
    let (code, printed) = call("echo hi");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.starts_with("{\"stdout\":\"hi\\n\""), "{printed}");
    for command in ["echo hi > file", "echo hi; touch x", "git push", "echoo hi"] {
        assert_eq!(call(command).0, Some(126), "{command}");
    }
    assert!(!fs::exists(scratch.file("file")).unwrap() && !fs::exists(scratch.file("x")).unwrap());
}

#[test]
fn a_project_can_only_tighten_and_mistakes_have_their_place() {
    let scratch = Scratch::new();
    fs::write(scratch.file(".legwork.toml"), "excludeTools = [\"Bash(touch)\"]\n").unwrap();
    let output = scratch
        .guarded("call", "open", None)
        .args(["ExecCommand", r#"{"cmd":"touch x","login":false}"#])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    fs::write(scratch.file(".legwork.toml"), "coreTools = [\"run_shell_command\"]\n").unwrap();
    let loosened = scratch
        .guarded("call", "guarded", None)
        .args(["run_shell_command", r#"{"command":"touch x"}"#])
        .output()
        .unwrap();
    assert_ne!(loosened.status.code(), Some(0), "{loosened:?}");
    assert!(!fs::exists(scratch.file("x")).unwrap());
    fs::remove_file(scratch.file(".legwork.toml")).unwrap();
    let (code, _, complaint) = check(&scratch, "\n[[rules]]\nid = \"x\"\n", &["ls"]);
    assert_eq!(code, Some(125));
    assert!(complaint.contains("policy.toml:2:3: ") && complaint.contains("`rule`"), "{complaint}");
    let mcp = scratch.guarded("mcp", "guarded", Some("nonsense = 1\n")).output().unwrap();
    assert_eq!(mcp.status.code(), Some(125));
    assert!(text(&mcp.stderr).contains("given-policy.toml:1:1"), "{mcp:?}");
}

#[test]
fn an_untrusted_caller_needs_a_rule_for_everything_that_does_more_than_read() {
    let scratch = Scratch::new();
    let call = |cmd: &str| {
        let input = json!({ "cmd": cmd, "login": false }).to_string();
        let mut call = scratch.guarded("call", "guarded", None);
        call.args(["--trust", "untrusted_external", "ExecCommand", &input]);
        call.output().unwrap().status.code()
    };
    assert_eq!(call("ls"), Some(0));
    assert_eq!(call("touch x"), Some(126));
    assert_eq!(scratch.tasks()[0]["trust"], "untrusted_external");
}

#[test]
fn users_can_test_their_own_rules() {
    let scratch = Scratch::new();
    let cases = scratch.file("cases.toml");
    let run = |text: &str| {
        fs::write(&cases, text).unwrap();
        let policy = scratch.state.path().join("policy.toml");
        fs::write(&policy, NO_RM).unwrap();
        let mut command = Command::new(program());
        command.args(["policy", "test", &cases, "--policy"]).arg(policy);
        command.env("XDG_CONFIG_HOME", scratch.state.path());
        parts(&command.output().unwrap())
    };
    let good = "[[case]]\ninput = \"rm x\"\nverdict = \"deny\"\n\n[[case]]\ninput = \"ls\"\nverdict = \"allow\"\n";
    assert_eq!(run(good), (Some(0), "2 cases, 0 failed\n".into(), String::new()));
    let (code, shown, _) = run("[[case]]\ninput = \"rm x\"\nverdict = \"allow\"\n");
    assert_eq!(code, Some(1));
    assert!(shown.contains("expected allow, got deny: rm x"), "{shown}");
}

#[test]
fn an_allow_rule_is_named_also_where_the_tool_allows_by_default() {
    let scratch = Scratch::new();
    let policy = "[[rule]]\nid = \"clean-build\"\ndecision = \"allow\"\nprogram = \"rm\"\n\
                  args = [\"-rf\", \"build\"]\nexact = true\nbecause = \"it can be made again\"\n";
    let file = scratch.file("rules.toml");
    fs::write(&file, policy).unwrap();
    let check = |command: &str| {
        let mut check = Command::new(program());
        check.args(["policy", "check", command, "--policy", &file]);
        check.current_dir(scratch.workspace.path()).env("XDG_CONFIG_HOME", "/nowhere");
        let output = check.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    };
    let told = check("rm -rf build");
    let reason =
        "reason: `rm -rf build` is allowed by the rule `clean-build`: it can be made again";
    assert!(told.contains(reason) && told.contains("rule:   clean-build\n"), "{told}");
    let told = check("rm -rf build && make");
    assert!(told.contains("no rule matches `make`, and ExecCommand allows by default"), "{told}");
    let told = check("make");
    assert!(told.contains("no rule matches, and ExecCommand allows by default"), "{told}");
    // The verdict of a command that ran is explained the same way.
    let mut call = scratch.guarded("call", "guarded", Some(policy));
    let input = json!({ "cmd": "rm -rf build", "login": false }).to_string();
    assert!(call.args(["ExecCommand", &input]).output().unwrap().status.success());
    let log = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    assert!(log.contains("clean-build"), "{log}");
}

#[test]
fn every_face_says_that_a_rule_lets_a_command_out_of_the_sandbox() {
    let scratch = Scratch::new();
    let rule =
        "[[rule]]\nid = \"push\"\ndecision = \"allow\"\nprogram = \"echo\"\nsandbox = \"none\"\n";
    let words = "runs OUTSIDE the sandbox (rule push)";
    let (code, shown, _) = check(&scratch, rule, &["echo hi"]);
    assert_eq!(code, Some(0));
    assert!(shown.contains(&format!("sandbox none, {words}")), "{shown}");
    // One that no rule lets out is where it was.
    let (_, shown, _) = check(&scratch, rule, &["true"]);
    assert!(shown.contains("sandbox workspace-write") && !shown.contains("OUTSIDE"), "{shown}");
    let input = json!({ "cmd": "echo hi", "login": false, "yield_time_ms": 30_000 }).to_string();
    let mut call = scratch.guarded("call", "guarded", Some(rule));
    let receipt = text(&call.args(["ExecCommand", &input]).output().unwrap().stdout);
    assert!(receipt.contains(words), "{receipt}");
    let of = |verb: &str, more: &[&str]| {
        text(&scratch.legwork(verb).args(more).output().unwrap().stdout)
    };
    let shown = of("show", &["@"]);
    assert!(shown.contains(&format!("none, {words}")), "{shown}");
    let listed = of("ps", &[]);
    assert!(listed.contains("OUTSIDE echo hi"), "{listed}");
    // Asked about, the question says it.
    let asks = rule.replace("allow", "ask");
    let mut call = scratch.guarded("call", "guarded", Some(&asks));
    call.args(["ExecCommand", &input]).output().unwrap();
    let question = of("approvals", &["a_"]);
    assert!(question.contains(&format!("sandbox:  none, {words}")), "{question}");
    // The same rule is named once a person has said yes.
    let approval = question.split_once(',').unwrap().0.to_owned();
    assert!(scratch.legwork("approve").arg(&approval).output().unwrap().status.success());
    let mut call = scratch.guarded("call", "guarded", Some(&asks));
    let receipt = text(&call.args(["ExecCommand", &input]).output().unwrap().stdout);
    assert!(receipt.contains(words), "{receipt}");
    // And whatever the tool, and however long it takes.
    let program = json!({ "command": "echo", "args": ["hi"] });
    let long = json!({ "cmd": "echo hi", "login": false, "yield_time_ms": 0 });
    let shell = json!({ "command": "echo hi" });
    for (tool, input) in
        [("execute_command", program), ("run_shell_command", shell), ("ExecCommand", long)]
    {
        let mut call = scratch.guarded("call", "guarded", Some(rule));
        let told = text(&call.args([tool, &input.to_string()]).output().unwrap().stdout);
        assert!(told.contains(words), "{tool}: {told}");
    }
}

#[test]
fn entries_for_tools_of_other_programs_are_named_and_have_no_effect() {
    let scratch = Scratch::new();
    let rules = scratch.file("lists.toml");
    std::fs::write(&rules, "coreTools = [\"read_file\", \"run_shell_command(git)\"]").unwrap();
    let said = |verb: &[&str]| {
        let mut told = Command::new(program());
        told.args(verb).args(["--policy", &rules]).env("XDG_CONFIG_HOME", scratch.state.path());
        told.env("LEGWORK_STATE", scratch.state.path());
        parts(&told.current_dir(scratch.workspace.path()).output().unwrap())
    };
    let note = "`read_file` is no tool of Legwork, so this entry of `coreTools` is ignored";
    let (code, out, told) = said(&["policy", "check", "git status", "--tool", "run_shell_command"]);
    assert_eq!((code, out.starts_with("allow\n")), (Some(0), true), "{out}{told}");
    assert!(told.contains(note), "{told}");
    let (_, out, told) = said(&["doctor"]);
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.contains(note), "{out}{told}");
}

#[test]
fn a_tool_that_is_denied_has_no_other_command() {
    let scratch = Scratch::new();
    let policy = Some("excludeTools = [\"run_shell_command\"]");
    let mut call = scratch.guarded("call", "guarded", policy);
    call.args(["run_shell_command", r#"{"command":"ls"}"#]);
    let said = text(&call.output().unwrap().stdout);
    assert!(said.contains("use another tool, or ask the person whose rule it is"), "{said}");
    assert!(!said.contains("use another command"), "{said}");
}
