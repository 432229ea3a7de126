//! `execute_command` and `run_shell_command`: their results, to the letter.

use std::{fs, io::Write, os::unix::fs::PermissionsExt, time::Instant};

use serde_json::{Value, json};

use crate::common::{Scratch, announced, by_system, fixture, here, is_alive, program, text};

/// The text of a call in the open mode, and its exit code.
fn call(scratch: &Scratch, tool: &str, input: &Value) -> (String, i32) {
    let output = scratch.legwork("call").args([tool, &input.to_string()]).output().unwrap();
    (text(&output.stdout), output.status.code().unwrap())
}

/// The JSON of a call that must bring a result.
fn result(scratch: &Scratch, tool: &str, input: &Value) -> Value {
    let (printed, code) = call(scratch, tool, input);
    assert_eq!(code, 0, "{printed}");
    serde_json::from_str(&printed).unwrap()
}

/// The error of a call that must be refused.
fn refused(scratch: &Scratch, tool: &str, input: &Value) -> Value {
    let (printed, code) = call(scratch, tool, input);
    assert_ne!(code, 0, "{printed}");
    serde_json::from_str(printed.strip_prefix("Command failed\n").unwrap()).unwrap()
}

#[test]
fn a_program_that_ends_gives_exactly_four_keys() {
    let scratch = Scratch::new();
    let (printed, _) =
        call(&scratch, "execute_command", &json!({ "command": "echo", "args": ["hi"] }));
    assert_eq!(
        printed,
        "{\"stdout\":\"hi\\n\",\"stderr\":\"\",\"return_code\":0,\"timed_out\":false}\n"
    );
    // A signal has a number below zero; where there are none, a code has 32 bits.
    let (how, code) = by_system((["signal", "11"], -11), (["exit", "300000"], 300_000));
    let input = json!({ "command": fixture(), "args": how });
    assert_eq!(result(&scratch, "execute_command", &input)["return_code"], code);
}

#[test]
fn arguments_arrive_unchanged() {
    let scratch = Scratch::new();
    let words = ["a b", "it's", "\"q\"", "x\ny", "*", "$(x)", "`y`", "$HOME", "", "-n", "grüße"];
    let mut args = vec!["%s|"];
    args.extend(words);
    let printed =
        result(&scratch, "execute_command", &json!({ "command": "printf", "args": args }));
    let expected: String = words.iter().map(|word| format!("{word}|")).collect();
    assert_eq!(printed["stdout"], expected);
}

#[test]
fn what_cannot_be_started_is_a_result_with_its_own_text() {
    let scratch = Scratch::new();
    for (name, content) in
        [("script", "#!/no/such/interpreter\n"), ("garbage", "\0\0\0"), ("my_script.sh", "")]
    {
        fs::write(scratch.file(name), content).unwrap();
        fs::set_permissions(scratch.file(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let long = "y".repeat(200_000);
    for (input, cause) in [
        (json!({ "command": "no-such-program" }), "it was not found on PATH"),
        (
            json!({ "command": "my_script.sh" }),
            "it was not found on PATH; the file of this folder is `./my_script.sh`",
        ),
        (json!({ "command": "./nothing" }), "no such file"),
        (json!({ "command": "/etc/passwd" }), "permission denied"),
        (json!({ "command": "/etc" }), "it is a folder"),
        (json!({ "command": "./script" }), "bad interpreter: /no/such/interpreter does not exist"),
        (json!({ "command": "./garbage" }), "exec format error"),
        (json!({ "command": "true", "args": [long] }), "argument list too long"),
        (
            json!({ "command": "true", "cwd": "nowhere" }),
            "`cwd`: the folder `nowhere` does not exist",
        ),
        (
            json!({ "command": "true", "cwd": "script" }),
            "`cwd`: the folder `script` cannot be used: it is no folder",
        ),
    ] {
        // The long one does not fit on a command line.
        let output = {
            let mut child = scratch
                .legwork("call")
                .args(["execute_command", "-"])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        };
        let got: Value = serde_json::from_slice(&output.stdout).unwrap();
        let shown = got["stderr"].as_str().unwrap();
        assert!(shown.starts_with("Error: ") && shown.contains(cause), "{shown}");
        assert_eq!(
            (&got["stdout"], &got["return_code"], &got["timed_out"]),
            (&json!(""), &Value::Null, &json!(false))
        );
    }
}

#[test]
fn a_line_in_the_place_of_a_program_gets_the_calls_that_work() {
    let scratch = Scratch::new();
    let told = |line: &str| -> String {
        let got = result(&scratch, "execute_command", &json!({ "command": line }));
        got["stderr"].as_str().unwrap().to_owned()
    };
    let plain = told("ls -la 'a b'");
    assert!(
        plain.contains(r#"{"command": "ls", "args": ["-la","a b"]}, or {"command": "bash""#),
        "{plain}"
    );
    for line in ["ls | wc -l", "ls > x", "ls && true", "echo $HOME", "ls *.rs", "a=1 env"] {
        let told = told(line);
        let only = format!("pass {{\"command\": \"bash\", \"args\": [\"-c\", {}]}}", json!(line));
        assert!(told.contains(&only), "{told}");
    }
}

#[test]
fn any_folder_is_a_cwd_and_the_sandboxed_one_where_it_is_another() {
    let scratch = Scratch::new();
    let beside = tempfile::TempDir::new_in("/tmp").unwrap();
    fs::write(beside.path().join("secret"), "").unwrap();
    let call = |command: &str, cwd: &str| -> Value {
        let input = json!({ "command": command, "cwd": cwd }).to_string();
        let mut call = scratch.guarded("call", "guarded", None);
        let output = call.args(["execute_command", &input]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for folder in
        ["/", "/tmp", "/var/tmp", "/run", "/dev", "/dev/shm", "/proc", "/sys", "/etc", "/usr/bin"]
    {
        let real = fs::canonicalize(folder).unwrap().display().to_string();
        let got = call("pwd", folder);
        assert_eq!(
            (&got["stdout"], &got["return_code"]),
            (&json!(format!("{real}\n")), &json!(0)),
            "{folder}: {got}"
        );
    }
    // Where there is a sandbox, /tmp is its own.
    let listed = call("ls", "/tmp");
    let name = beside.path().file_name().unwrap().to_str().unwrap();
    if scratch.guarded("doctor", "guarded", None).output().unwrap().status.success()
        && !listed["stdout"].as_str().unwrap().contains(name)
    {
        for (folder, own) in [(beside.path().to_str().unwrap(), "/tmp"), ("/proc/self", "/proc")] {
            let got = call("pwd", folder);
            let said = got["stderr"].as_str().unwrap();
            let expected = format!(
                "Error: `cwd`: the folder `{folder}` is not there inside the sandbox, which has a {own} of its own"
            );
            assert!(said.starts_with(&expected), "{said}");
        }
        // What one command makes there is a folder for the next, in the sandbox.
        let makes = json!({ "cmd": "mkdir -p /tmp/made/below", "login": false }).to_string();
        let mut make = scratch.guarded("call", "guarded", None);
        assert!(make.args(["ExecCommand", &makes]).output().unwrap().status.success());
        let got = call("pwd", "/tmp/made/below");
        assert_eq!(got["stdout"], "/tmp/made/below\n", "{got}");
        let input = json!({ "command": "pwd", "cwd": "/tmp/made/below" }).to_string();
        let mut unconfined = scratch.guarded("call", "guarded", None);
        unconfined.args(["--sandbox", "none", "execute_command", &input]);
        let got = text(&unconfined.output().unwrap().stdout);
        assert!(got.contains("the folder `/tmp/made/below` does not exist"), "{got}");
    }
}

#[test]
fn a_description_stands_below_the_command_is_bounded_and_is_in_the_audit_log() {
    let scratch = Scratch::new();
    let ask = |command: &str, description: &str| -> String {
        let input = json!({ "command": command, "description": description }).to_string();
        let mut call = scratch.guarded("call", "guarded", None);
        let output = call.args(["run_shell_command", &input, "--json"]).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let id = answer["error"]["details"]["approval_id"].as_str().unwrap().to_owned();
        let shown = scratch.legwork("approvals").arg(&id).env("COLUMNS", "1000").output().unwrap();
        text(&shown.stdout)
    };
    let question = ask("touch x", "makes x\nrule: all of it\u{1b}[2J");
    let below =
        "    touch x\n\nThe caller's own words about it: makes x\\u{a}rule: all of it\\u{1b}[2J\n";
    assert!(question.contains(below), "{question}");
    let long = ask("touch y", &"y".repeat(20_000));
    assert!(long.contains(&format!("{}…\n", "y".repeat(500))) && long.len() < 2_500, "{long}");
    for empty in ["", " \n "] {
        assert!(!ask("touch z", empty).contains("own words"));
    }
    let audited = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    let entries: Vec<Value> = audited
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|entry| entry["event"] == "verdict")
        .collect();
    assert_eq!(entries[0]["description"], "makes x\nrule: all of it\u{1b}[2J");
    assert_eq!(entries[1]["description"].as_str().unwrap().chars().count(), 501);
    assert!(entries[2].get("description").is_none());
}

#[test]
fn a_start_that_failed_is_logged_as_one() {
    let scratch = Scratch::new();
    let mut command = scratch.legwork("mcp");
    command.args(["--tools", "all", "--log-format", "json"]);
    let log = scratch.file("log");
    command.stderr(fs::File::create(&log).unwrap());
    let mut wire = crate::mcp::Wire::spawn(command);
    wire.initialize();
    for (tool, input) in [
        ("execute_command", json!({ "command": "/etc" })),
        ("execute_command", json!({ "command": "no-such-program" })),
        ("execute_command", json!({ "command": "true", "cwd": "nowhere" })),
        ("execute_command", json!({ "command": "true" })),
    ] {
        wire.tool(tool, &input);
    }
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
    let log = fs::read_to_string(&log).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results: Vec<Value> = lines
        .filter(|line| line["tool"] == "execute_command" && line["result"].is_string())
        .map(|line| line["result"].clone())
        .collect();
    let failed = "command_spawn_failed";
    assert_eq!(results, [failed, failed, "workdir_not_found", "success"]);
    let mut audit = std::process::Command::new(program());
    audit.args(["audit", "show", "--state"]).arg(scratch.state.path()).env("COLUMNS", "400");
    let shown = text(&audit.output().unwrap().stdout);
    assert!(shown.contains("it could not be started: Permission denied"), "{shown}");
}

#[test]
fn a_timeout_stops_the_whole_tree_and_keeps_what_was_printed() {
    let scratch = Scratch::new();
    let script = "echo before; \"$0\" detached-tree \"$1\" & exec \"$0\" ignore-term \"$1/me\"";
    let args = json!(["-c", script, fixture(), scratch.workspace.path()]);
    let input = json!({ "command": "sh", "args": args, "timeout": 1 });
    let start = Instant::now();
    let got = result(&scratch, "execute_command", &input);
    assert_eq!(
        got,
        json!({ "stdout": "before\n", "stderr": "", "return_code": null, "timed_out": true })
    );
    assert!(start.elapsed().as_secs() < 20);
    for name in ["me", "child", "daemon", "self"] {
        assert!(!is_alive(announced(&scratch.file(name))), "{name}");
    }
}

#[test]
fn timeouts_out_of_bounds_are_refused_with_the_bounds() {
    let scratch = Scratch::new();
    for timeout in [json!(0), json!(121), json!("5"), json!(1.5), json!(-1), json!([])] {
        let error =
            refused(&scratch, "execute_command", &json!({ "command": "true", "timeout": timeout }));
        assert_eq!(error["kind"], "invalid_tool_input");
        assert_eq!(error["details"]["field"], "timeout");
        assert!(error["message"].as_str().unwrap().contains("from 1 to 120"), "{error}");
    }
    assert!(scratch.tasks().is_empty());
}

#[test]
fn past_a_mebibyte_head_and_tail_are_shown_and_the_file_has_all() {
    let scratch = Scratch::new();
    let exact = json!({ "command": fixture(), "args": ["flood", "1048576"] });
    let got = result(&scratch, "execute_command", &exact);
    assert_eq!(got["stdout"].as_str().unwrap().len(), 1_048_576);
    assert!(got.get("truncated").is_none() && got.get("artifacts").is_none());
    let more = json!({ "command": fixture(), "args": ["flood", "5000000"] });
    let got = result(&scratch, "execute_command", &more);
    assert_eq!(got["truncated"], true);
    let shown = got["stdout"].as_str().unwrap();
    assert!(shown.len() < 1_048_576 + 300 && shown.contains("bytes left out"));
    let path = got["artifacts"][0]["path"].as_str().unwrap();
    assert_eq!(fs::metadata(here(path)).unwrap().len(), 5_000_000);
}

#[test]
fn a_shell_command_gives_its_keys_and_leaves_out_what_is_not_so() {
    let scratch = Scratch::new();
    let got =
        result(&scratch, "run_shell_command", &json!({ "command": "echo $ASIMI_CLI; exit 3" }));
    let keys: Vec<&String> = got.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["stdout", "stderr", "exitCode", "pid"]);
    assert_eq!((&got["stdout"], &got["exitCode"]), (&json!("1\n"), &json!(3)));
    let got = result(&scratch, "run_shell_command", &json!({ "command": "kill -9 $$" }));
    assert_eq!((&got["exitCode"], &got["signal"]), (&Value::Null, &json!(9)));
    // Text that begins with a dash is no option of bash.
    let got = result(&scratch, "run_shell_command", &json!({ "command": "-c 'echo no'" }));
    assert_eq!(got["exitCode"], 127);
}

#[test]
fn background_processes_are_listed_exactly_and_stopped_as_a_task() {
    let scratch = Scratch::new();
    let start = Instant::now();
    let got = result(
        &scratch,
        "run_shell_command",
        &json!({ "command": "sleep 60 & sleep 61 & echo hi" }),
    );
    assert!(start.elapsed().as_secs() < 20, "it answers at once");
    assert_eq!(got["stdout"], "hi\n");
    let pids: Vec<u32> = serde_json::from_value(got["backgroundPids"].clone()).unwrap();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let stopped = scratch.get("TaskStop", &json!({ "task_id": got["taskId"] }));
    assert_eq!(stopped["stop_requested"], true);
    assert!(!pids.into_iter().any(is_alive));
}

#[test]
fn a_directory_is_relative_and_inside() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.file("sub")).unwrap();
    std::os::unix::fs::symlink("/", scratch.file("out")).unwrap();
    std::os::unix::fs::symlink("sub", scratch.file("in")).unwrap();
    for directory in ["sub", "in", "./sub/../sub"] {
        let input = json!({ "command": "pwd", "directory": directory });
        let got = result(&scratch, "run_shell_command", &input);
        assert!(got["stdout"].as_str().unwrap().ends_with("/sub\n"), "{directory}: {got}");
    }
    let root = scratch.workspace.path().display().to_string();
    for directory in ["/", "/tmp", &root, "..", "sub/../..", "out", "out/tmp"] {
        let input = json!({ "command": "pwd", "directory": directory });
        let error = refused(&scratch, "run_shell_command", &input);
        assert_eq!(error["kind"], "execution_root_violation", "{directory}");
        assert_eq!(error["details"], json!({ "directory": directory }));
        let said = error["message"].as_str().unwrap();
        assert!(said.starts_with(&format!("`directory`: the folder `{directory}` is ")), "{said}");
    }
    let missing =
        refused(&scratch, "run_shell_command", &json!({ "command": "pwd", "directory": "x" }));
    assert_eq!(missing["kind"], "workdir_not_found");
    assert_eq!(missing["message"], "`directory`: the folder `x` does not exist");
}

#[test]
fn without_an_approval_a_shell_command_is_asked_for() {
    let scratch = Scratch::new();
    let input = json!({ "command": "touch started" });
    for (mode, tool, input) in [
        ("guarded", "run_shell_command", input.to_string()),
        ("strict", "run_shell_command", input.to_string()),
        ("strict", "ExecCommand", json!({ "cmd": "touch started" }).to_string()),
    ] {
        let output = scratch.guarded("call", mode, None).args([tool, &input]).output().unwrap();
        assert_eq!(output.status.code(), Some(126));
        assert!(text(&output.stdout).contains("\"approval_unavailable\""), "{output:?}");
    }
    assert!(!fs::exists(scratch.file("started")).unwrap());
    assert!(scratch.tasks().is_empty(), "a refused call registers no task");
}

#[test]
fn substitution_is_refused_before_anything_runs_and_a_quoted_mention_is_not() {
    let scratch = Scratch::new();
    for (command, construct, offset) in [
        ("touch started; echo $(id)", "$(", 20),
        ("touch started; echo `id`", "`", 20),
        ("touch started; cat <(id)", "<(", 19),
        ("touch started; id >(cat)", ">(", 18),
        ("touch started; echo \"a$(id)\"", "$(", 22),
        ("touch started; echo ${x:-$(id)}", "$(", 25),
        ("touch started; echo $\\\n(id)", "$(", 20),
        ("cat <<E\n$(id)\nE", "$(", 8),
        ("echo $((1 + $(id)))", "$(", 12),
        ("echo $((id) | cat)", "$(", 5),
    ] {
        let error = refused(&scratch, "run_shell_command", &json!({ "command": command }));
        assert_eq!(error["kind"], "command_substitution_denied", "{command}: {error}");
        assert_eq!(
            (&error["details"]["construct"], &error["details"]["offset"]),
            (&json!(construct), &json!(offset)),
            "{command}"
        );
    }
    assert!(!fs::exists(scratch.file("started")).unwrap());
    assert!(scratch.tasks().is_empty());
    for (command, printed) in [
        ("echo '$(id)' '`x`'", "$(id) `x`\n"),
        ("echo \"\\$(id)\"", "$(id)\n"),
        ("echo hi # $(id)", "hi\n"),
        ("cat <<'E'\n$(id)\nE", "$(id)\n"),
        ("echo $((6 * 7)) $(( (1+2)*3 ))", "42 9\n"),
        ("x=5; (( x > 3 )) && echo $x ${x:-y}", "5 5\n"),
    ] {
        let got = result(&scratch, "run_shell_command", &json!({ "command": command }));
        assert_eq!(got["stdout"], printed, "{command}: {got}");
    }
    // Refused also where it would be asked for otherwise.
    let output = scratch
        .guarded("call", "guarded", None)
        .args(["run_shell_command", r#"{"command":"echo $(id)"}"#])
        .output()
        .unwrap();
    assert!(text(&output.stdout).contains("\"command_substitution_denied\""), "{output:?}");
}

#[test]
fn only_the_chosen_tools_are_offered() {
    let scratch = Scratch::new();
    let names = |more: &[&str]| {
        let mut command = scratch.legwork("mcp");
        command.args(more);
        let mut wire = crate::mcp::Wire::spawn(command);
        wire.initialize();
        let listed = wire.request("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        let unknown = wire.request(
            "tools/call",
            &json!({ "name": "run_shell_command", "arguments": { "command": "true" } }),
        );
        let names: Vec<String> =
            tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        (names, unknown["error"]["code"].clone())
    };
    let (default, unknown) = names(&[]);
    assert_eq!((default.len(), unknown), (7, json!(-32602)));
    assert!(default.iter().all(|name| name == "ExecCommand" || name.starts_with("Task")));
    assert_eq!(names(&["--tools", "all"]).0.len(), 9);
    assert_eq!(names(&["--tools", "execute_command,TaskStop"]).0, ["TaskStop", "execute_command"]);
    let wrong = scratch.legwork("mcp").args(["--tools", "Nothing"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(125));
    assert!(text(&wrong.stderr).contains("there is no tool `Nothing`; the tools are: ExecCommand"));
}
