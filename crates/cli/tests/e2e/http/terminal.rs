//! The terminal of a task over a WebSocket.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Serving, Wire, bearer, token, token_verb};
use crate::{
    common::{Scratch, eventually},
    python_client::{environment, python_is_here},
    rights::{CONFINED, INTEGRATION, begin_with},
};

/// A Python with a WebSocket client.
fn python() -> &'static PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("websockets", &["websockets==15.0.1"]))
}

struct Stage {
    // Before the scratch place, which must be left empty.
    serving: Serving,
    scratch: Scratch,
    tokens: Value,
    tasks: Value,
}

impl Stage {
    fn new(mode: &str) -> Self {
        Self::with(mode, &[])
    }

    fn with(mode: &str, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.file("elsewhere")).unwrap();
        let elsewhere = scratch.file("elsewhere");
        let elsewhere = elsewhere.as_str();
        let tokens = json!({
            "operator": token(&scratch, "me", &["--role", "operator"]),
            "agent": token(&scratch, "agent", &["--role", "agent"]),
            "viewer": token(&scratch, "viewer", &["--role", "viewer"]),
            "goes": token(&scratch, "goes", &["--role", "operator"]),
            "elsewhere": token(
                &scratch, "elsewhere", &["--role", "agent", "--workspace", elsewhere],
            ),
            "operator elsewhere": token(
                &scratch, "operator-elsewhere", &["--role", "operator", "--workspace", elsewhere],
            ),
        });
        let mut tasks = json!({});
        for (name, cmd, tty) in [
            ("cat", "cat", true),
            ("quiet", "stty -echo; echo ready; cat", true),
            ("sh", "sh", true),
            ("pipes", "sleep 600", false),
        ] {
            // By another program: strict mode would ask about it.
            tasks[name] = scratch.promote(cmd, &json!({ "tty": tty })).into();
        }
        tasks["agent's"] = of_an_agent(&scratch, mode).into();
        let mut command = scratch.guarded("serve", mode, None);
        command.args(["--listen", "127.0.0.1:0"]).args(options);
        let serving = Serving::spawn(command);
        Self { serving, scratch, tokens, tasks }
    }

    fn client(&self, scenario: &str) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/http/terminal.py");
        let mut command = Command::new(python());
        command.arg(script).args([scenario, &self.serving.address]);
        command.args([self.tasks.to_string(), self.tokens.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
    }

    fn play(&self, scenario: &str) {
        let output = self.client(scenario).wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", self.serving.said());
    }

    /// Opens one by hand, and reads nothing of it.
    fn open(&self, task: &str) -> Wire {
        let mut wire = self.serving.connect();
        let path = format!("/api/v1/tasks/{task}/terminal");
        let headers = [
            bearer(self.tokens["operator"].as_str().unwrap()),
            ("Connection", "Upgrade".into()),
            ("Upgrade", "websocket".into()),
            ("Sec-WebSocket-Version", "13".into()),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==".into()),
        ];
        wire.request("GET", &path, &headers, "");
        assert_eq!(wire.head().unwrap().status, 101);
        wire
    }
}

/// A shell of a caller that is trusted as an agent's token is, with the sandbox of this mode.
fn of_an_agent(scratch: &Scratch, mode: &str) -> String {
    let rules = if mode == "open" { ["--mode", "open"].as_slice() } else { &CONFINED };
    begin_with(scratch, INTEGRATION, rules, &json!({ "cmd": "sh", "tty": true }))
}

/// Waits for a line of a client.
fn said(client: &mut Child) -> BufReader<ChildStdout> {
    let mut reader = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "attached\n");
    reader
}

/// Waits for a client to be content.
fn content(mut client: Child, mut reader: BufReader<ChildStdout>) {
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(client.wait().unwrap().success() && rest == "all well\n", "{rest}");
}

/// A frame that says no more than that somebody is there.
const PONG: &[u8] = &[0x8a, 0x80, 0, 0, 0, 0];

/// The code and the reason of the close frame at the end.
#[track_caller]
fn last_words(bytes: &[u8]) -> (u16, String) {
    let begin = bytes.iter().rposition(|byte| *byte == 0x88).unwrap();
    let frame = &bytes[begin + 2..];
    assert_eq!(usize::from(bytes[begin + 1]), frame.len());
    (u16::from_be_bytes([frame[0], frame[1]]), String::from_utf8(frame[2..].to_vec()).unwrap())
}

#[test]
fn keys_go_in_and_the_screen_comes_out() {
    if python_is_here() {
        let stage = Stage::new("open");
        stage.play("keys");
        stage.play("resize");
    }
}

#[test]
fn the_end_of_a_task_is_told_with_a_reason() {
    if python_is_here() {
        Stage::new("open").play("end");
    }
}

#[test]
fn only_who_may_types_and_nobody_looks_into_another_workspace() {
    if python_is_here() {
        let stage = Stage::new("open");
        stage.play("roles");
        stage.play("secrets");
    }
}

#[test]
fn in_strict_mode_an_agent_does_not_type_into_a_shell() {
    if python_is_here() {
        let stage = Stage::new("strict");
        stage.play("strict");
        assert!(stage.scratch.workspace.path().join("by-person").exists());
        assert!(!stage.scratch.workspace.path().join("by-agent").exists());
        let operator = stage.tokens["operator"].as_str().unwrap();
        let noted = stage.serving.get("/api/v1/audit?event=typing", operator).good();
        assert_eq!(noted["entries"].as_array().unwrap().len(), 1);
        assert_eq!(noted["entries"][0]["asked_by"], "token me");
    }
}

#[test]
fn a_token_and_a_server_that_end_say_so_and_the_task_goes_on() {
    if !python_is_here() {
        return;
    }
    let stage = Stage::new("open");
    let mut client = stage.client("revoked");
    let reader = said(&mut client);
    assert!(token_verb(&stage.scratch, &["revoke", "goes"]).status.success());
    content(client, reader);
    let mut client = stage.client("farewell");
    let reader = said(&mut client);
    let Stage { serving, scratch, tasks, .. } = stage;
    assert!(serving.end(Signal::TERM).success());
    content(client, reader);
    assert_eq!(scratch.status(tasks["cat"].as_str().unwrap())["status"], "running");
}

#[test]
fn a_client_that_does_not_read_is_closed_with_a_reason() {
    let stage = Stage::with("open", &["--idle-timeout", "1s"]);
    let input = json!({ "cmd": "yes", "login": false, "tty": true, "yield_time_ms": 0 });
    let operator = stage.tokens["operator"].as_str().unwrap();
    let started = stage.serving.post("/api/v1/tasks", operator, &input).good();
    let task = started["task_handle"]["task_id"].as_str().unwrap();
    let mut wire = stage.open(task);
    eventually("it is given up", || {
        // It lives, and answers pings that it has not read.
        wire.write(PONG);
        stage.serving.said().contains("does not read").then_some(())
    });
    let (code, reason) = last_words(&wire.rest());
    assert_eq!(code, 4002, "{reason}");
    stage.serving.post(&format!("/api/v1/tasks/{task}/stop"), operator, &json!({})).good();
}

#[test]
fn a_client_that_answers_no_ping_is_closed_with_a_reason() {
    let stage = Stage::with("open", &["--idle-timeout", "1s"]);
    let mut wire = stage.open(stage.tasks["cat"].as_str().unwrap());
    assert_eq!(last_words(&wire.rest()), (4003, "the client does not answer pings".into()));
}
