//! `legwork hook`: what agents that keep their own shell are told. The calls are those that the
//! agents themselves have sent (`data/hooks`).

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::common::{Scratch, text};

const CLIENTS: [&str; 5] = ["claude-code", "codex", "gemini", "cursor", "copilot"];

/// The clients that ask a person when they are told to; others would run the command.
const ASKING: [&str; 3] = ["claude-code", "cursor", "copilot"];

fn samples(client: &str) -> Value {
    let path = format!("{}/tests/e2e/data/hooks/{client}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Calls a hook with these bytes.
fn called(mut hook: Command, client: &str, call: &[u8]) -> Output {
    hook.arg(client).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut hook = hook.spawn().unwrap();
    hook.stdin.take().unwrap().write_all(call).unwrap();
    hook.wait_with_output().unwrap()
}

/// A recorded call in this workspace, with this command if it is to be another one.
fn call(scratch: &Scratch, client: &str, command: Option<&str>) -> Value {
    let call = samples(client)["DENY"]["call"].to_string();
    let call = call.replace("/RUN/work", scratch.workspace.path().to_str().unwrap());
    let mut call: Value = serde_json::from_str(&call).unwrap();
    if let Some(command) = command {
        let place = ["/tool_input/command", "/toolArgs/command", "/command"]
            .into_iter()
            .find(|place| call.pointer(place).is_some())
            .unwrap();
        *call.pointer_mut(place).unwrap() = command.into();
    }
    call
}

/// The answer of a hook; none if it prints nothing.
fn answer(scratch: &Scratch, client: &str, policy: &str, command: Option<&str>) -> Option<Value> {
    let call = call(scratch, client, command).to_string();
    let output = called(scratch.guarded("hook", "guarded", Some(policy)), client, call.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer = text(&output.stdout);
    (!answer.is_empty()).then(|| serde_json::from_str(&answer).unwrap())
}

/// An answer with every reason replaced by one word.
fn form(answer: &Value) -> Value {
    match answer {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let is_reason = name.to_lowercase().ends_with("reason")
                    || name.to_lowercase().ends_with("message");
                (name.clone(), if is_reason { json!("because") } else { form(value) })
            });
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// A policy that decides so about `touch`, which is in every recorded call.
fn policy(decision: &str) -> String {
    let allows_echo = "[[rule]]\nid = \"talk\"\ndecision = \"allow\"\nprogram = \"echo\"\n";
    format!(
        "{allows_echo}[[rule]]\nid = \"no-touch\"\ndecision = \"{decision}\"\nprogram = \"touch\"\n"
    )
}

#[test]
fn recorded_calls_are_answered_in_the_form_that_each_agent_understands() {
    for client in CLIENTS {
        let (scratch, samples) = (Scratch::new(), samples(client));
        for (decision, sample) in [("allow", "ALLOW"), ("ask", "ASK"), ("deny", "DENY")] {
            // To ask would let the command run, or hang.
            let can_ask = ASKING.contains(&client);
            let sample = if decision == "ask" && !can_ask { "DENY" } else { sample };
            let answer = answer(&scratch, client, &policy(decision), None).unwrap();
            assert_eq!(form(&answer), form(&samples[sample]["answer"]), "{client} {decision}");
        }
        // No rule speaks of it: the agent goes on as without a hook, and asks as it would.
        let silent = answer(&scratch, client, "", None);
        assert!(silent.is_none_or(|it| it == json!({})), "{client}");
    }
}

#[test]
fn a_denied_command_is_told_with_its_rule_and_is_in_the_audit_log() {
    for client in CLIENTS {
        let scratch = Scratch::new();
        let policy = "excludeTools = [\"run_shell_command(rm)\"]";
        let answer = answer(&scratch, client, policy, Some("cd / && rm -rf ~")).unwrap();
        let told = answer.to_string();
        assert!(told.contains("deny") && told.contains("run_shell_command(rm)"), "{told}");
        let log = scratch.legwork("audit").args(["show", "--json"]).output();
        let log = match log {
            Ok(log) if log.status.success() => text(&log.stdout),
            _ => fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap(),
        };
        let entry: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(entry["verdict"], "deny", "{entry}");
        assert_eq!((&entry["asked_by"], &entry["tool"]), (&json!(client), &json!("hook")));
        assert_eq!(entry["command"], "cd / && rm -rf ~");
    }
}

#[test]
fn whatever_cannot_be_judged_is_denied_unless_the_configuration_says_otherwise() {
    let open = "[hook]\non_failure = \"allow\"";
    for client in CLIENTS {
        let scratch = Scratch::new();
        let mut homeless = call(&scratch, client, None);
        homeless["cwd"] = json!("/no/such/folder");
        let mut nameless = call(&scratch, client, None);
        nameless.as_object_mut().unwrap().retain(|name, _| name == "cwd" || name == "tool_name");
        let garbage: [&[u8]; 5] = [
            b"",
            b"garbage",
            b"\xff\xfe[",
            homeless.to_string().leak().as_bytes(),
            nameless.to_string().leak().as_bytes(),
        ];
        for call in garbage {
            let output = called(scratch.guarded("hook", "guarded", None), client, call);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(form(&answer), form(&samples(client)["DENY"]["answer"]), "{client}");
            assert!(answer.to_string().contains("could not judge"), "{answer}");
            let output = called(scratch.guarded("hook", "guarded", Some(open)), client, call);
            assert!(text(&output.stdout).trim().trim_matches(['{', '}']).is_empty(), "{output:?}");
        }
        // A configuration with a mistake is none.
        let mut broken = scratch.guarded("hook", "guarded", Some("what = 1"));
        broken.env("LEGWORK_LOG", "debug");
        let sent = call(&scratch, client, None).to_string();
        let output = called(broken, client, sent.as_bytes());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(answer.to_string().contains("deny"), "{answer}");
    }
}

#[test]
fn an_answer_to_a_question_that_the_agent_cannot_ask_counts_for_the_next_call_once() {
    let scratch = Scratch::new();
    let ask = || answer(&scratch, "codex", "", Some("rm -rf build")).unwrap();
    let told = ask()["hookSpecificOutput"]["permissionDecisionReason"].as_str().unwrap().to_owned();
    let id = regex::Regex::new("a_[a-z0-9]{20,}").unwrap();
    let id = id.find(&told).unwrap_or_else(|| panic!("{told}")).as_str();
    assert!(told.contains("legwork approve --state"), "{told}");
    let mut approve = scratch.legwork("approve");
    assert!(approve.arg(id).output().unwrap().status.success());
    assert_eq!(ask()["hookSpecificOutput"]["permissionDecision"], "allow");
    assert_eq!(ask()["hookSpecificOutput"]["permissionDecision"], "deny");
}

#[test]
fn a_rewritten_command_runs_in_the_sandbox_recorded_and_with_its_secrets_masked() {
    let scratch = Scratch::new();
    let workspace = scratch.workspace.path();
    let rewritten = |command: &str, policy: &str| {
        let call = call(&scratch, "claude-code", Some(command)).to_string();
        let mut hook = scratch.guarded("hook", "guarded", Some(policy));
        hook.arg("--rewrite");
        let output = called(hook, "claude-code", call.as_bytes());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["hookSpecificOutput"].clone()
    };
    let run = |answer: &Value| {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(answer["updatedInput"]["command"].as_str().unwrap());
        shell.current_dir(workspace).stdin(Stdio::null()).env("SHELL", "/bin/sh");
        shell.env("XDG_CONFIG_HOME", scratch.state.path());
        shell.env("GITHUB_TOKEN", "correct-horse-battery").output().unwrap()
    };
    let outside = tempfile::TempDir::new_in("/var/tmp").unwrap();
    let command = format!(
        "echo \"it's $GITHUB_TOKEN\"; echo made > inside; echo made > {}/outside; exit 3",
        outside.path().display()
    );
    let answer = rewritten(&command, "");
    assert_eq!(answer["permissionDecision"], "allow", "{answer:#}");
    assert_eq!(answer["updatedInput"]["description"], "probe", "the rest of the input stays");
    let reason = answer["permissionDecisionReason"].as_str().unwrap();
    assert!(reason.contains("runs through `legwork sh`: in a sandbox"), "{reason}");
    let output = run(&answer);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(text(&output.stdout), "it's [masked:GITHUB_TOKEN]\n", "{output:?}");
    assert!(workspace.join("inside").exists() && !outside.path().join("outside").exists());
    let tasks = scratch.legwork("ps").arg("--json").output().unwrap();
    assert!(text(&tasks.stdout).contains("it's"), "{tasks:?}");
    // What cannot be read is confined, and so not asked about.
    let answer = rewritten("for f in $(ls); do eval \"echo $f\"; done", "");
    assert_eq!(answer["permissionDecision"], "allow", "{answer:#}");
    assert_eq!(text(&run(&answer).stdout), "inside\n");
    // The agent asks, and then nobody else does; what is denied stays so.
    fs::create_dir(workspace.join("build")).unwrap();
    let answer = rewritten("rm -rf build", "");
    assert_eq!(answer["permissionDecision"], "ask", "{answer:#}");
    assert!(run(&answer).status.success() && !workspace.join("build").exists());
    let answer = rewritten("rm -rf build", "excludeTools = [\"run_shell_command(rm)\"]");
    assert_eq!(answer["permissionDecision"], "deny", "{answer:#}");
    assert_eq!(answer["updatedInput"], Value::Null);
}

#[test]
fn other_tools_are_passed_over_and_a_wrong_option_does_not_let_a_command_run() {
    let scratch = Scratch::new();
    for client in ["claude-code", "codex", "gemini", "copilot"] {
        let mut call = call(&scratch, client, None);
        let name = if client == "copilot" { "toolName" } else { "tool_name" };
        call[name] = json!("Read");
        let hook = scratch.guarded("hook", "guarded", Some(&policy("deny")));
        let output = called(hook, client, call.to_string().as_bytes());
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]));
    }
    let mut wrong = scratch.legwork("hook");
    let output = wrong.args(["claude-code", "--no-such-option"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{output:?}");
}

#[test]
fn an_agent_does_not_answer_for_the_person_nor_choose_its_rules() {
    let scratch = Scratch::new();
    for command in [
        "legwork approve a_2acudcligfmjukq3yfnhmdod5g",
        "legwork sh --ask never 'rm -rf build'",
        "legwork run --mode open -- ls",
        "legwork setup --remove",
        "legwork token add me",
        "echo '{}' > ~/.copilot/hooks/legwork.json",
        "cp nothing ~/.claude.json",
    ] {
        let told = answer(&scratch, "claude-code", "", Some(command)).unwrap().to_string();
        assert!(told.contains(r#""permissionDecision":"ask""#), "{command}: {told}");
    }
    assert!(answer(&scratch, "claude-code", "", Some("legwork ps")).is_none());
}

#[test]
fn the_rules_of_a_project_count_in_the_folders_below_it() {
    let scratch = Scratch::new();
    let below = scratch.workspace.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    fs::write(scratch.file(".legwork.toml"), policy("deny").replace("allow", "ask")).unwrap();
    for client in CLIENTS {
        let mut call = call(&scratch, client, Some("touch x"));
        call["cwd"] = json!(below);
        let hook = scratch.guarded("hook", "guarded", None);
        let output = called(hook, client, call.to_string().as_bytes());
        assert!(text(&output.stdout).contains("no-touch"), "{client}: {output:?}");
    }
}

#[test]
fn a_shell_without_a_sandbox_runs_nothing_that_needs_one() {
    let scratch = Scratch::new();
    let required = "[sandbox]\nrequired = true";
    let told = answer(&scratch, "gemini", required, Some("ls")).unwrap().to_string();
    assert!(told.contains("deny") && told.contains("[sandbox] required"), "{told}");
    let confined = "[[rule]]\nid = \"careful\"\ndecision = \"allow\"\nprogram = \"ls\"\nsandbox = \"read-only\"";
    let told = answer(&scratch, "gemini", confined, Some("ls")).unwrap().to_string();
    assert!(told.contains("deny") && told.contains("careful"), "{told}");
}

#[test]
fn an_agent_that_leaves_stdin_open_is_answered() {
    let scratch = Scratch::new();
    let call = call(&scratch, "claude-code", Some("touch x")).to_string();
    // The whole call, and one that stops in the middle: judging that has failed.
    for (sent, expected) in [(call.as_str(), "no-touch"), (&call[..call.len() / 2], "took more")] {
        let mut hook = scratch.guarded("hook", "guarded", Some(&policy("deny")));
        hook.arg("claude-code").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut hook = hook.spawn().unwrap();
        let mut stdin = hook.stdin.take().unwrap();
        stdin.write_all(sent.as_bytes()).unwrap();
        let output = hook.wait_with_output().unwrap();
        drop(stdin);
        assert!(text(&output.stdout).contains(expected), "{output:?}");
        assert!(text(&output.stdout).contains("\"deny\""), "{output:?}");
    }
}
