//! A rule counts from the moment at which it is written, in servers that run already, too.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, program, text},
    http::{Serving, token},
    mcp::Wire,
    sandbox::house::{House, OPERATOR},
};

const NO_TOUCH: &str = "excludeTools = [\"run_shell_command(touch)\"]\n";

/// A running MCP server whose user has a configuration.
struct Session {
    wire: Wire,
}

impl Session {
    fn spawn(mut command: Command) -> Self {
        command.arg("--structured").args(["--tools", "all"]);
        let mut wire = Wire::spawn(command);
        wire.initialize();
        Self { wire }
    }

    fn of(scratch: &Scratch) -> Self {
        Self::spawn(scratch.guarded("mcp", "guarded", None))
    }

    /// The envelope of a call.
    fn call(&mut self, tool: &str, input: &Value) -> Value {
        let answer = self.wire.request("tools/call", &json!({ "name": tool, "arguments": input }));
        answer["result"]["structuredContent"].clone()
    }

    fn exec(&mut self, cmd: &str) -> Value {
        self.call("ExecCommand", &json!({ "cmd": cmd, "login": false }))
    }

    /// The verdict on a command, by what becomes of it.
    fn verdict(&mut self, cmd: &str) -> &'static str {
        let envelope = self.exec(cmd);
        match envelope["error"]["kind"].as_str() {
            None => "allow",
            Some("approval_unavailable") => "ask",
            Some("command_denied") => "deny",
            Some(_) => panic!("{envelope:#}"),
        }
    }

    /// The message of a call that is refused because the configuration is broken.
    fn broken(&mut self, cmd: &str) -> String {
        let error = self.exec(cmd)["error"].clone();
        assert_eq!(error["kind"], "configuration_invalid", "{error:#}");
        error["message"].as_str().unwrap().to_owned()
    }
}

/// The user's file of a scratch place.
fn user_file(scratch: &Scratch) -> PathBuf {
    let folder = scratch.state.path().join("legwork");
    fs::create_dir_all(&folder).unwrap();
    folder.join("config.toml")
}

/// What `legwork policy check` says.
fn checked(scratch: &Scratch, cmd: &str) -> String {
    let mut command = Command::new(program());
    command.args(["policy", "check", "--mode", "guarded", "--json", "--", cmd]);
    command.current_dir(scratch.workspace.path()).env("SHELL", "/bin/sh");
    let output = command.env("XDG_CONFIG_HOME", scratch.state.path()).output().unwrap();
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    checked["verdict"].as_str().unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

/// What the audit log says of configurations: verdict and reason.
fn notes(scratch: &Scratch) -> Vec<(String, String)> {
    let mut command = Command::new(program());
    command.args(["audit", "show", "--json", "--state"]).arg(scratch.state.path());
    let shown = text(&command.output().unwrap().stdout);
    let entries = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ours = entries.filter(|entry| entry["event"] == "configuration");
    let field = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    ours.map(|entry| (field(&entry, "verdict"), field(&entry, "reason"))).collect()
}

#[test]
fn a_deny_counts_in_a_running_server_at_once_and_no_longer_than_it_is_written() {
    let scratch = Scratch::new();
    let mut session = Session::of(&scratch);
    assert_eq!(session.verdict("touch a"), "allow");
    for _ in 0..3 {
        fs::write(user_file(&scratch), NO_TOUCH).unwrap();
        assert_eq!(session.verdict("touch b"), "deny");
        assert_eq!(session.verdict("touch b"), "deny");
        fs::remove_file(user_file(&scratch)).unwrap();
        assert_eq!(session.verdict("touch a"), "allow");
    }
    assert!(!fs::exists(scratch.file("b")).unwrap());
    assert_eq!(notes(&scratch).len(), 6, "once for each change");
}

#[test]
fn a_project_file_that_appears_and_a_link_that_is_turned_count_at_once() {
    let scratch = Scratch::new();
    let mut session = Session::of(&scratch);
    assert_eq!(session.verdict("touch a"), "allow");
    fs::write(scratch.file(".legwork.toml"), NO_TOUCH).unwrap();
    assert_eq!(session.verdict("touch b"), "deny");
    fs::remove_file(scratch.file(".legwork.toml")).unwrap();
    assert_eq!(session.verdict("touch a"), "allow");
    // Both files stay as they are, and are equally long.
    let name = |name: &str| scratch.state.path().join(name);
    fs::write(name("lax"), NO_TOUCH.replace("touch", "chgrp")).unwrap();
    fs::write(name("strict"), NO_TOUCH).unwrap();
    for target in ["lax", "strict", "lax"] {
        symlink(name(target), name("new")).unwrap();
        fs::rename(name("new"), user_file(&scratch)).unwrap();
        let expected = if target == "lax" { "allow" } else { "deny" };
        assert_eq!(session.verdict("touch a"), expected, "{target}");
    }
    // Two files of one length, in the same moment.
    fs::write(name("lax"), NO_TOUCH).unwrap();
    assert_eq!(session.verdict("touch a"), "deny");
    fs::write(name("lax"), NO_TOUCH.replace("touch", "chgrp")).unwrap();
    assert_eq!(session.verdict("touch a"), "allow");
}

#[test]
fn a_saved_rule_counts_in_the_session_that_has_asked() {
    let scratch = Scratch::new();
    let mut session = Session::of(&scratch);
    let asked = session.exec("rm -rf dist");
    let id = asked["error"]["details"]["approval_id"].as_str().unwrap().to_owned();
    let mut approve = scratch.legwork("approve");
    let output = approve.args([&id, "--rule"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(session.verdict("rm -rf dist && echo 1"), "allow");
    assert_eq!(session.verdict("rm -rf dist; rm -rf dist"), "allow");
    assert_eq!(session.verdict("rm -rf other"), "ask");
}

#[test]
fn a_rule_that_was_saved_and_removed_allows_no_more() {
    let scratch = Scratch::new();
    let mut session = Session::of(&scratch);
    let asked = session.exec("rm -rf dist");
    let id = asked["error"]["details"]["approval_id"].as_str().unwrap().to_owned();
    let mut approve = scratch.legwork("approve");
    approve.args([&id, "--rule"]).env("XDG_CONFIG_HOME", scratch.state.path());
    assert!(approve.output().unwrap().status.success());
    assert_eq!(session.verdict("rm -rf dist"), "allow");
    assert_eq!(session.verdict("rm -rf dist"), "allow", "by the rule");
    fs::remove_file(user_file(&scratch)).unwrap();
    assert_eq!(session.verdict("rm -rf dist"), "ask");
    assert_eq!(checked(&scratch, "rm -rf dist"), "ask");
}

#[test]
fn the_rules_of_a_folder_count_that_has_taken_the_place_of_the_workspace() {
    let scratch = Scratch::new();
    let (folder, before) = (scratch.file("ws"), scratch.file("before"));
    fs::create_dir(&folder).unwrap();
    let mut command = scratch.guarded("mcp", "guarded", None);
    command.current_dir(&folder);
    let mut session = Session::spawn(command);
    assert_eq!(session.verdict("touch a"), "allow");
    fs::rename(&folder, before).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(format!("{folder}/.legwork.toml"), NO_TOUCH).unwrap();
    assert_eq!(session.verdict("touch b"), "deny");
}

#[test]
fn a_broken_file_refuses_commands_by_its_line_until_it_is_mended_and_tasks_go_on() {
    let scratch = Scratch::new();
    let mut session = Session::of(&scratch);
    let input = json!({ "cmd": "cat", "accepts_input": true, "login": false, "yield_time_ms": 0 });
    let begun = session.call("ExecCommand", &input);
    let task = begun["result"]["task_handle"]["task_id"].clone();
    assert!(task.is_string(), "{begun:#}");
    let file = user_file(&scratch);
    fs::write(&file, "\nask = \"strict\n").unwrap();
    let place = format!("{}:2:", file.display());
    for _ in 0..2 {
        let message = session.broken("true");
        assert!(message.contains(&place), "{message}");
    }
    let sent = session.call("TaskInput", &json!({ "task_id": task, "input": "still here\n" }));
    assert_eq!(sent["result"]["accepted_input"], true, "{sent:#}");
    let waited = session.call("TaskWait", &json!({ "task_ids": [task], "timeout_ms": 1 }));
    assert_eq!(waited["status"], "success", "{waited:#}");
    let output = session.call("TaskOutput", &json!({ "task_id": task, "block": false }));
    assert_eq!(output["status"], "success", "{output:#}");
    eventually("its output", || (scratch.printed(&task) == b"still here\n").then_some(()));
    // Half of a rule, as an editor leaves it that writes in two steps.
    fs::write(&file, "[[rule]]\nid = \"x\"\ndecision = \"de").unwrap();
    assert!(session.broken("true").contains(":3:"));
    fs::write(&file, NO_TOUCH).unwrap();
    assert_eq!(session.verdict("true"), "allow");
    assert_eq!(session.verdict("touch a"), "deny");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(session.broken("true").contains(file.to_str().unwrap()));
    fs::remove_dir(&file).unwrap();
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    assert!(session.broken("true").contains("not a plain file"));
    fs::remove_file(&file).unwrap();
    assert_eq!(session.verdict("true"), "allow");
    let stopped = session.call("TaskStop", &json!({ "task_id": task }));
    assert_eq!(stopped["status"], "success", "{stopped:#}");
    let verdicts: Vec<String> = notes(&scratch).into_iter().map(|(verdict, _)| verdict).collect();
    assert_eq!(verdicts, ["broken", "broken", "read", "broken", "read"]);
    assert!(notes(&scratch)[0].1.contains(&place), "{:?}", notes(&scratch));
}

#[test]
fn policy_check_and_servers_that_run_never_disagree() {
    let scratch = Scratch::new();
    let mut command = scratch.guarded("serve", "guarded", None);
    command.args(["--listen", "127.0.0.1:0"]);
    let operator = token(&scratch, "op", &["--role", "operator"]);
    let serving = Serving::spawn(command);
    let mut session = Session::of(&scratch);
    let texts =
        ["true", "touch x", "rm -rf gone", "true; touch y", "env touch z", "ls | head -n 1"];
    let rule = |decision: &str, program: &str| {
        format!("[[rule]]\nid = \"r\"\ndecision = \"{decision}\"\nprogram = \"{program}\"\n")
    };
    let files = [
        NO_TOUCH.to_owned(),
        rule("ask", "touch"),
        rule("allow", "rm"),
        rule("deny", "head"),
        "ask = \"strict\"\n".to_owned(),
        "coreTools = [\"run_shell_command(ls)\"]\n".to_owned(),
        String::new(),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for file in files {
        fs::write(user_file(&scratch), &file).unwrap();
        for cmd in texts {
            let expected = checked(&scratch, cmd);
            assert_eq!(session.verdict(cmd), expected, "{file}: {cmd}");
            let asked = serving.post("/api/v1/policy/check", &operator, &json!({ "command": cmd }));
            assert_eq!(asked.good()["verdict"], *expected, "{file}: {cmd}");
            seen.insert(expected);
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    fs::write(user_file(&scratch), "asks = 1\n").unwrap();
    let asked = serving.post("/api/v1/policy/check", &operator, &json!({ "command": "true" }));
    assert!(asked.kind().contains("configuration_invalid"), "{}", asked.kind());
}

#[test]
fn an_approved_command_does_not_run_if_a_rule_denies_it_by_then() {
    let scratch = Scratch::new();
    let patient = "[approval]\nwait_ms = 60000\n";
    fs::write(user_file(&scratch), patient).unwrap();
    fs::create_dir(scratch.file("dist")).unwrap();
    let mut session = Session::of(&scratch);
    let mut ask = |more: &str| {
        let input = json!({ "cmd": "rm -rf dist", "login": false });
        let call = json!({ "name": "ExecCommand", "arguments": input });
        session.wire.send("tools/call", &call);
        let id = eventually("a question", || {
            let listed = scratch.legwork("approvals").arg("--json").output().unwrap();
            let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
            Some(listed["approvals"][0]["approval_id"].as_str()?.to_owned())
        });
        fs::write(user_file(&scratch), format!("{more}{patient}")).unwrap();
        let answered = scratch.legwork("approve").arg(id).output().unwrap();
        assert!(answered.status.success(), "{answered:?}");
        session.wire.read()["result"]["structuredContent"].clone()
    };
    let deny = "[[rule]]\nid = \"no-rm\"\ndecision = \"deny\"\nprogram = \"rm\"\n";
    let denied = ask(deny);
    assert_eq!(denied["error"]["kind"], "command_denied", "{denied:#}");
    assert_eq!(denied["error"]["details"]["rule"], "no-rm", "{denied:#}");
    assert!(fs::exists(scratch.file("dist")).unwrap());
    fs::write(user_file(&scratch), patient).unwrap();
    // It is confined otherwise than the person was told.
    let another = ask("[sandbox]\nnetwork = false\n");
    assert_eq!(another["error"]["kind"], "approval_expired", "{another:#}");
    fs::write(user_file(&scratch), patient).unwrap();
    // What has nothing to do with it changes nothing.
    let run = ask("orphan_ttl_ms = 60000\n");
    assert_eq!(run["status"], "success", "{run:#}");
    assert!(!fs::exists(scratch.file("dist")).unwrap());
}

/// The user's file of a house.
fn configure(house: &House, text: &str) {
    house.file("home/.config/legwork/config.toml", text);
}

/// The session of a house, and one command that has shown that it runs.
fn running(house: &House) -> Session {
    let mut session = Session::spawn(house.legwork("mcp", OPERATOR));
    let first = session.exec("true");
    assert_eq!(first["result"]["exit_status"], 0, "{first:#}");
    session
}

#[test]
fn a_program_that_is_denied_now_is_run_by_no_script_of_the_next_command() {
    for house in House::each() {
        let kept = house.file("workspace/x", "");
        house.script("workspace/go-on", "rm x");
        let mut session = running(&house);
        for _ in 0..2 {
            configure(&house, "excludeTools = [\"run_shell_command(rm)\"]\n");
            let refused = session.exec("./go-on");
            assert!(kept.exists(), "{refused:#}");
            let denial = &refused["result"]["denials"][0];
            assert_eq!(denial["rule"], "run_shell_command(rm)", "{refused:#}");
            // Covered: the file itself cannot even be read.
            let read = session.exec("head -c 4 \"$(readlink -f /bin/rm)\" | od -c");
            assert!(!read["result"]["stdout_preview"].as_str().unwrap().contains("E   L   F"));
            configure(&house, "");
            let run = session.exec("./go-on");
            assert!(!kept.exists(), "{run:#}");
            house.file("workspace/x", "");
        }
        configure(
            &house,
            "[[rule]]\nid = \"r\"\ndecision = \"deny\"\nprogram = \"rm\"\nargs = [[\"x\"]]\n",
        );
        let refused = session.exec("./go-on");
        assert!(kept.exists(), "by its arguments: {refused:#}");
    }
}

#[test]
fn what_the_sandbox_lets_a_command_do_is_what_the_files_say_now() {
    let Some(house) = House::own() else { return };
    house.file("outside/secret", "s3cret");
    let mut session = running(&house);
    let writes = |session: &mut Session| {
        let result = session.exec("echo new > ../outside/made && cat ../outside/secret");
        (result["result"]["exit_status"] == 0, house.path("outside/made").exists())
    };
    assert_eq!(writes(&mut session), (false, false));
    let outside = house.name("outside");
    configure(&house, &format!("[sandbox]\nwritable = [\"{outside}\"]\n"));
    assert_eq!(writes(&mut session), (true, true));
    fs::remove_file(house.path("outside/made")).unwrap();
    let unreadable = format!("unreadable = [\"{outside}/secret\"]");
    configure(&house, &format!("[sandbox]\nwritable = [\"{outside}\"]\n{unreadable}\n"));
    assert_eq!(writes(&mut session), (false, true));
    fs::remove_file(house.path("outside/made")).unwrap();
    configure(&house, "");
    assert_eq!(writes(&mut session), (false, false));
    configure(&house, "[sandbox]\nlevel = \"none\"\n");
    assert_eq!(writes(&mut session), (true, true));
    configure(&house, &format!("roots = [\"{outside}\"]\n"));
    let there = json!({ "cmd": "pwd", "workdir": outside, "login": false });
    let ran = session.call("ExecCommand", &there);
    assert_eq!(ran["result"]["exit_status"], 0, "{ran:#}");
}

#[test]
fn variables_and_limits_are_those_of_the_files_now() {
    let scratch = Scratch::new();
    let mut command = scratch.guarded("mcp", "guarded", None);
    command.env("LEGWORK_TEST_WORD", "heard");
    let mut session = Session::spawn(command);
    let mut says = |cmd: &str| session.exec(cmd)["result"].clone();
    let word = "echo \"$LEGWORK_TEST_WORD\"";
    assert_eq!(says(word)["stdout_preview"], "heard");
    fs::write(user_file(&scratch), "[environment]\ndrop = [\"LEGWORK_TEST_WORD\"]\n").unwrap();
    assert_ne!(says(word)["stdout_preview"], "heard");
    fs::write(user_file(&scratch), "[limits]\nwall_ms_max = 50\n").unwrap();
    assert_eq!(says("sleep 60")["ended_by"], "timeout");
}

#[test]
fn a_server_says_in_its_log_what_it_has_read() {
    let scratch = Scratch::new();
    let mut command = scratch.guarded("serve", "guarded", None);
    command.args(["--listen", "127.0.0.1:0", "--log-format", "json"]);
    let operator = token(&scratch, "op", &["--role", "operator"]);
    let serving = Serving::spawn(command);
    let run = || {
        let input = json!({ "cmd": "touch a", "login": false });
        serving.post("/api/v1/tasks", &operator, &input).status
    };
    assert_eq!(run(), 200);
    fs::write(user_file(&scratch), NO_TOUCH).unwrap();
    assert_ne!(run(), 200);
    assert_ne!(run(), 200);
    let told = eventually("a line of the log", || {
        let said = serving.said();
        said.contains("the configuration has changed and was read").then_some(said)
    });
    assert_eq!(told.matches("the configuration has changed").count(), 1, "{told}");
    assert!(told.contains(user_file(&scratch).to_str().unwrap()), "{told}");
    assert_eq!(notes(&scratch).len(), 1);
}

#[test]
fn a_pipe_that_was_named_is_read_once_and_what_is_named_is_read_again() {
    let scratch = Scratch::new();
    let given = scratch.state.path().join("given.toml");
    fs::write(&given, NO_TOUCH).unwrap();
    let script = format!(
        "exec {} mcp --state {} --mode guarded --structured --policy {} --policy <(printf '{}')",
        program(),
        scratch.state.path().display(),
        given.display(),
        NO_TOUCH.replace("touch", "ls").trim(),
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(scratch.workspace.path());
    command.env("XDG_CONFIG_HOME", scratch.state.path()).env("SHELL", "/bin/sh");
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let mut session = Session { wire };
    assert_eq!((session.verdict("touch a"), session.verdict("ls")), ("deny", "deny"));
    fs::write(&given, "").unwrap();
    assert_eq!((session.verdict("touch a"), session.verdict("ls")), ("allow", "deny"));
    fs::remove_file(&given).unwrap();
    assert!(session.broken("true").contains("given.toml"));
}

#[test]
fn a_rule_is_saved_where_the_link_of_the_users_file_leads() {
    let scratch = Scratch::new();
    let target = scratch.state.path().join("dotfiles.toml");
    fs::write(&target, "").unwrap();
    symlink(&target, user_file(&scratch)).unwrap();
    let mut session = Session::of(&scratch);
    let asked = session.exec("rm -rf dist");
    let id = asked["error"]["details"]["approval_id"].as_str().unwrap().to_owned();
    let output = scratch.legwork("approve").args([&id, "--rule"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(&target).unwrap().contains("[[rule]]"));
    assert!(Path::new(&user_file(&scratch)).is_symlink());
    assert_eq!(session.verdict("rm -rf dist"), "allow");
    assert_eq!(session.verdict("rm -rf dist"), "allow");
}
