//! Secrets of the environment, and what looks like one, leave by no door.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, fixture, here, open, text},
    mcp::Wire,
};

const NAME: &str = "E2E_API_TOKEN";
const SECRET: &str = "kT7-unguessable/Zq9+xW41";
const MARKER: &str = "[masked:E2E_API_TOKEN]";

/// `legwork VERB` with the secret in its environment.
fn legwork(scratch: &Scratch, verb: &str) -> Command {
    let mut command = scratch.legwork(verb);
    command.env(NAME, SECRET);
    command
}

/// Half of it from its beginning on is as bad as all of it.
fn assert_hidden(text: &str) {
    let half = &SECRET[..SECRET.len() / 2];
    assert!(!text.contains(half), "{text}");
}

/// A client that looks at everything that it is sent.
struct Suspicious(Wire);

impl Suspicious {
    fn new(scratch: &Scratch) -> Self {
        let mut command = legwork(scratch, "mcp");
        command.args(["--structured", "--tools", "all"]);
        let mut wire = Wire::spawn(command);
        wire.initialize();
        Self(wire)
    }

    /// Calls a tool; returns its envelope. Neither that, nor the receipt, nor any event on the way
    /// has the secret.
    fn call(&mut self, tool: &str, input: &Value) -> Value {
        let params = json!({ "name": tool, "arguments": input, "_meta": { "progressToken": 1 } });
        let id = self.0.send("tools/call", &params);
        loop {
            let line = self.0.read();
            assert_hidden(&line.to_string());
            if line["id"] == id {
                return line["result"]["structuredContent"].clone();
            }
        }
    }

    fn result(&mut self, tool: &str, input: &Value) -> Value {
        let envelope = self.call(tool, input);
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope["result"].clone()
    }

    fn exec(&mut self, cmd: &str, more: &Value) -> Value {
        let mut input = json!({ "cmd": cmd, "login": false });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.result("ExecCommand", &input)
    }
}

/// Neither does anything show it that stays behind, but for the artifacts and the ledger.
fn assert_hidden_afterwards(scratch: &Scratch) {
    assert_hidden(&fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap());
    for (verb, more) in [
        ("ps", &[][..]),
        ("ps", &["--json"]),
        ("show", &["@"]),
        ("logs", &["-n", "5"]),
        ("logs", &["--since", "1h"]),
        ("show", &["@", "--json"]),
        ("logs", &["@"]),
        ("logs", &["@", "--json"]),
        ("logs", &["@", "--follow"]),
    ] {
        let output = legwork(scratch, verb).args(more).output().unwrap();
        assert_hidden(&String::from_utf8_lossy(&output.stdout));
        assert_hidden(&String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_secret_is_masked_however_it_is_printed() {
    let scratch = Scratch::new();
    let mut client = Suspicious::new(&scratch);
    let fixture = fixture();
    for (cmd, more) in [
        (format!("printf %s \"${NAME}\""), json!({})),
        (format!("echo \"${NAME}\" >&2"), json!({})),
        ("env; export -p".to_owned(), json!({})),
        (format!("{fixture} pieces {NAME} 1"), json!({})),
        (format!("{fixture} pieces {NAME} 5"), json!({})),
        (format!("printf '%.6s\\033[31m' \"${NAME}\"; echo \"${NAME}\" | cut -c7-"), json!({})),
        (format!("printf '\\033[1mx\\r%s\\033[0m\\n' \"${NAME}\""), json!({})),
        (format!("echo \"${NAME}\""), json!({ "tty": true })),
        (format!("printf '%70s%s\\n' '' \"${NAME}\""), json!({ "tty": true })),
        (format!("echo {SECRET}"), json!({})),
    ] {
        let result = client.exec(&cmd, &more);
        let shown = [&result["stdout_preview"], &result["stderr_preview"]].map(Value::to_string);
        assert!(shown.concat().contains(MARKER), "{cmd}: {result:#}");
        assert_eq!(result["flags"], json!(["masked"]), "{cmd}: {result:#}");
    }
    let result = client.exec("echo plain", &json!({}));
    assert_eq!(result.get("flags"), None, "{result:#}");
    assert_hidden_afterwards(&scratch);
}

#[test]
fn a_secret_at_the_cut_of_a_preview_is_masked_whole() {
    let scratch = Scratch::new();
    let mut client = Suspicious::new(&scratch);
    for shift in [1980, 1990, 1996, 2000, 2004, 2010] {
        let cmd = format!(
            "printf '%{shift}s%s' '' \"${NAME}\"; printf '%{shift}s' ''; printf '%s%{shift}s.' \"${NAME}\" ''"
        );
        let result = client.exec(&cmd, &json!({ "max_output_tokens": 250 }));
        assert_eq!(result["exit_status"], 0);
    }
}

#[test]
fn no_tool_and_no_error_tells_a_secret() {
    let scratch = Scratch::new();
    let mut client = Suspicious::new(&scratch);
    let executed =
        client.result("execute_command", &json!({ "command": "echo", "args": [SECRET] }));
    assert_eq!(executed["stdout"], format!("{MARKER}\n"));
    let command =
        format!("printf '\\033[1m%.9s\\033[0m' \"${NAME}\"; echo \"${NAME}\" | cut -c10-");
    let ran = client.result("run_shell_command", &json!({ "command": command }));
    assert!(ran["stdout"].as_str().unwrap().contains(MARKER), "{ran:#}");
    let missing = client.result("execute_command", &json!({ "command": SECRET }));
    assert!(missing["stderr"].as_str().unwrap().contains(MARKER), "{missing:#}");
    for (tool, input) in [
        ("ExecCommand", json!({ "cmd": "true", "workdir": format!("no/{SECRET}") })),
        ("ExecCommand", json!({ "cmd": "true", "shell": SECRET })),
        ("ExecCommand", json!({ "cmd": "true", SECRET: 1 })),
        ("TaskStatus", json!({ "task_id": SECRET })),
        ("TaskInput", json!({ "task_id": "x", "key": SECRET })),
    ] {
        let envelope = client.call(tool, &input);
        assert!(envelope["error"].to_string().contains(MARKER), "{envelope:#}");
    }
    // A command that names it, in everything that is said of commands, cut in its middle: here at
    // 240 characters,
    client.exec(&format!(": {}; echo {SECRET}", "x".repeat(212)), &json!({}));
    // and here at 200.
    let cmd = format!(": {}; echo {SECRET}; sleep 1000", "x".repeat(170));
    let told = client.exec(&cmd, &json!({ "yield_time_ms": 0 }));
    assert!(told["command_diagnostics"]["cmd_preview"].as_str().unwrap().contains(MARKER));
    let running = client.exec(&cmd, &json!({}));
    assert_eq!(running["disposition"], "already_running");
    assert!(running["command"]["cmd"].as_str().unwrap().contains(MARKER), "{running:#}");
    let task = told["task_handle"]["task_id"].clone();
    client.result(
        "TaskWait",
        &json!({ "task_ids": [task], "until": { "output_matches": "masked" } }),
    );
    let guess = json!({ "output_matches": &SECRET[..4] });
    let guess = json!({ "task_ids": [task], "until": guess, "timeout_ms": 50 });
    assert_eq!(client.result("TaskWait", &guess)["met"], false, "nor can it be guessed at");
    client.result("TaskList", &json!({}));
    client.result("TaskStatus", &json!({ "task_id": task }));
    client.result("TaskStop", &json!({ "task_id": task }));
    assert_hidden_afterwards(&scratch);
}

#[test]
fn a_secret_that_comes_byte_by_byte_is_never_shown_in_part() {
    let scratch = Scratch::new();
    let mut client = Suspicious::new(&scratch);
    let cmd = format!("exec {} drip {NAME}", fixture());
    let told = client.exec(&cmd, &json!({ "yield_time_ms": 0, "accepts_input": true }));
    let task = told["task_handle"]["task_id"].clone();
    let (mut cursor, mut pages) = (told["next_cursor"].clone(), String::new());
    for place in 0..SECRET.len() {
        let sent = client.result("TaskInput", &json!({ "task_id": task, "input": "." }));
        assert_eq!(sent["accepted_input"], true, "{sent:#}");
        // The byte is there before it is looked for.
        let path = scratch.folder(&task).join("stdout");
        crate::common::eventually("a byte", || {
            (fs::metadata(&path).ok()?.len() > place as u64).then_some(())
        });
        let input =
            json!({ "task_id": task, "after": cursor, "block": false, "max_output_tokens": 1 });
        let page = client.result("TaskOutput", &input);
        pages.push_str(page["output_preview"].as_str().unwrap_or_default());
        cursor = page["next_cursor"].clone();
        // From where the input was sent, which is inside the secret.
        let input = json!({ "task_id": task, "after": sent["next_cursor"], "block": false });
        let page = client.result("TaskOutput", &input);
        let shown = page["output_preview"].as_str().unwrap_or_default();
        assert!(place < 4 || shown.is_empty() || shown.starts_with(MARKER), "{place}: {shown}");
        client.result("TaskOutput", &json!({ "task_id": task, "block": false }));
    }
    client.result("TaskWait", &json!({ "task_ids": [task] }));
    let page = client.result("TaskOutput", &json!({ "task_id": task, "after": cursor }));
    pages.push_str(page["output_preview"].as_str().unwrap_or_default());
    assert_eq!(pages, format!("{}{MARKER}", &SECRET[..3]));
    assert_hidden_afterwards(&scratch);
}

#[test]
fn events_on_the_way_show_no_part_of_a_secret() {
    let scratch = Scratch::new();
    let mut client = Suspicious::new(&scratch);
    let (gate, end) = (scratch.file("gate"), scratch.file("end"));
    let fixture = fixture();
    let cmd = format!(
        "echo one; printf %.15s \"${NAME}\"; {fixture} wait-for {gate}; \
         echo \"${NAME}\" | cut -c16-; {fixture} wait-for {end}"
    );
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 60_000 });
    let params =
        json!({ "name": "ExecCommand", "arguments": input, "_meta": { "progressToken": 1 } });
    client.0.send("tools/call", &params);
    for (wanted, then) in [("one", &gate), (MARKER, &end)] {
        loop {
            let line = client.0.read();
            assert!(!line.to_string().contains(&SECRET[16..]), "{line}");
            assert_hidden(&line.to_string());
            if line["params"]["message"] == wanted {
                break;
            }
        }
        open(then);
    }
    let answer = client.0.read();
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains(MARKER), "{answer}");
}

#[test]
fn a_screen_shows_no_secret() {
    let scratch = Scratch::new();
    let mut client = Suspicious::new(&scratch);
    let cmd = format!("printf '\\033[2J\\033[5;70H%s\\033[10;1Hready' \"${NAME}\"; cat");
    let told = client.exec(&cmd, &json!({ "yield_time_ms": 0, "tty": true }));
    let task = told["task_handle"]["task_id"].clone();
    client
        .result("TaskWait", &json!({ "task_ids": [task], "until": { "output_matches": "ready" } }));
    let shown = client.result("TaskOutput", &json!({ "task_id": task, "view": "screen" }));
    let screen = shown["output_preview"].as_str().unwrap();
    assert!(screen.contains(MARKER) && !screen.contains(&SECRET[11..]), "{screen}");
    // Typed by somebody, it is echoed.
    client.result("TaskInput", &json!({ "task_id": task, "input": &SECRET[..14] }));
    client.result("TaskInput", &json!({ "task_id": task, "input": &SECRET[14..] }));
    client.result("TaskOutput", &json!({ "task_id": task, "view": "screen" }));
    client.result("TaskStop", &json!({ "task_id": task }));
    assert_hidden_afterwards(&scratch);
}

#[test]
fn tokens_are_known_by_their_looks() {
    let scratch = Scratch::new();
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let result = scratch.result(&format!("echo {token}"));
    assert_eq!(result["stdout_preview"], "[masked:github_token]");
    assert_eq!(result["command_diagnostics"]["cmd_preview"], "echo [masked:github_token]");
    let audit = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("echo [masked:github_token]"), "{audit}");
}

#[test]
fn the_person_at_the_terminal_can_have_the_exact_bytes() {
    let scratch = Scratch::new();
    let script = format!("printf 'a\\033[1m%s\\377\\n' \"${NAME}\"");
    let exact = [b"a\x1b[1m", SECRET.as_bytes(), b"\xff\n"].concat();
    let ran = legwork(&scratch, "sh").arg(&script).output().unwrap();
    assert_eq!(ran.stdout, exact, "a command that is run is the command itself");
    for follow in [&[][..], &["--follow"]] {
        let raw = legwork(&scratch, "logs").args(["@", "--raw"]).args(follow).output().unwrap();
        assert_eq!(raw.stdout, exact);
        let masked = legwork(&scratch, "logs").arg("@").args(follow).output().unwrap();
        assert_eq!(masked.stdout, [b"a\x1b[1m", MARKER.as_bytes(), b"\xff\n"].concat());
    }
    let lines = text(&legwork(&scratch, "logs").args(["@", "--json"]).output().unwrap().stdout);
    assert!(lines.contains(MARKER), "{lines}");
    // So can whoever opens the artifact, which what is longer than its marker has.
    let script = format!("{script}; seq 1000");
    let told = legwork(&scratch, "call")
        .args(["ExecCommand", "--json"])
        .arg(json!({ "cmd": script, "login": false, "max_output_tokens": 1 }).to_string())
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let path = told["result"]["artifacts"][0]["path"].as_str().unwrap();
    assert!(fs::read(here(path)).unwrap().starts_with(&exact));
}

#[test]
fn the_question_to_a_person_is_exact() {
    let scratch = Scratch::new();
    let cmd = format!("sudo echo {SECRET}");
    let mut call = scratch.guarded("call", "guarded", None);
    call.env(NAME, SECRET).args(["ExecCommand", &json!({ "cmd": cmd }).to_string()]);
    let refused = call.output().unwrap();
    assert_hidden(&text(&refused.stdout));
    let asked = text(&legwork(&scratch, "approvals").output().unwrap().stdout);
    assert!(asked.contains(&cmd), "whoever allows it has to know what runs: {asked}");
}

#[test]
fn a_secret_is_hidden_however_a_shell_or_a_language_spells_it() {
    let scratch = Scratch::new();
    let secrets = [
        "hunter two 'and' \"more\" $HOME `x` \\ !#~,",
        "hunter's pass word",
        "'hunter' ''twice''",
        "hunter\ttab and\nhunter line",
        "hunter gr\u{fc}\u{df}e \u{1f511} 'key'",
        "#hunter: ~/x = {a,b} [c] ^*?",
    ];
    let python = crate::common::has_program("python3", &["-c", ""]);
    let mut commands = vec![
        "bash -c 'printf %q \"$E2E_API_TOKEN\"'",
        "LC_ALL=C bash -c 'printf %q \"$E2E_API_TOKEN\"'",
        "bash -c 'declare -p E2E_API_TOKEN'",
        "bash -c 'export -p'",
        "bash -c 'set -x; : \"$E2E_API_TOKEN\"'",
        "sh -c 'export -p'",
        "sh -c 'set -x; : \"$E2E_API_TOKEN\"'",
        "bash -c 'set'",
        "bash -c 'echo \"${E2E_API_TOKEN@Q}\" \"${E2E_API_TOKEN@A}\"'",
    ];
    if python {
        commands.extend([
            "python3 -c 'import os; print(repr(os.environ[\"E2E_API_TOKEN\"]))'",
            "python3 -c 'import os; print(ascii(os.environ[\"E2E_API_TOKEN\"]))'",
            "python3 -c 'import os, json; print(json.dumps(os.environ[\"E2E_API_TOKEN\"]))'",
            "python3 -c 'import os; raise ValueError([os.environ[\"E2E_API_TOKEN\"]])'",
        ]);
    }
    for secret in secrets {
        for command in &commands {
            let input = json!({ "cmd": command, "login": false }).to_string();
            let mut call = scratch.legwork("call");
            call.env(NAME, secret).args(["ExecCommand", "--json", &input]);
            let envelope: Value = serde_json::from_slice(&call.output().unwrap().stdout).unwrap();
            let result = &envelope["result"];
            let shown = format!("{}{}", result["stdout_preview"], result["stderr_preview"]);
            assert!(shown.contains(MARKER), "{command}: {shown}");
            assert!(!shown.contains("hunter"), "{command}: {shown}");
        }
    }
}

#[test]
fn what_a_client_has_set_for_itself_does_not_reach_commands() {
    let scratch = Scratch::new();
    let prints = |policy: &str| {
        let mut call = scratch.guarded("call", "open", Some(policy));
        call.envs([("CLAUDE_CODE_MESSAGING_TOKEN", "token-of-its-own"), ("MINE", "mine")]);
        let cmd = "echo \"${CLAUDE_CODE_MESSAGING_TOKEN+set} ${MINE+set}\"";
        let input = json!({ "cmd": cmd, "login": false }).to_string();
        let output = call.args(["ExecCommand", &input, "--json"]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        envelope["result"]["stdout_preview"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(prints(""), " set");
    assert_eq!(prints("[environment]\nkeep = [\"CLAUDE_CODE_MESSAGING_TOKEN\"]\n"), "set set");
    assert_eq!(prints("[environment]\ndrop = [\"MINE\"]\n"), "");
}
