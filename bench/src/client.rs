//! A small MCP client over pipes: what an agent has, and nothing that would blur the figures.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A server and the pipes to it.
pub struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
    state: TempDir,
}

impl Client {
    /// Starts a server without gate and sandbox, on a state folder of its own, and says hello.
    pub fn start(legwork: &Path) -> Self {
        Self::start_on(legwork, TempDir::new().unwrap())
    }

    /// The same on this state folder.
    pub fn start_on(legwork: &Path, state: TempDir) -> Self {
        Self::launch(legwork, &["--mode", "open", "--workspace", "/tmp"], state)
    }

    /// The same with these arguments.
    pub fn start_with(legwork: &Path, arguments: &[&str]) -> Self {
        Self::launch(legwork, arguments, TempDir::new().unwrap())
    }

    /// The same for a user whose folder this is.
    pub fn start_at_home(legwork: &Path, home: &Path) -> Self {
        let mut command = Command::new(legwork);
        command.env("HOME", home);
        let arguments = ["--mode", "open", "--workspace", "/tmp"];
        Self::launch_as(command, &arguments, TempDir::new().unwrap())
    }

    /// The same with a program that was prepared.
    pub fn start_as(command: Command, arguments: &[&str]) -> Self {
        Self::launch_as(command, arguments, TempDir::new().unwrap())
    }

    fn launch(legwork: &Path, arguments: &[&str], state: TempDir) -> Self {
        Self::launch_as(Command::new(legwork), arguments, state)
    }

    fn launch_as(mut command: Command, arguments: &[&str], state: TempDir) -> Self {
        let mut child = command
            .args(["mcp", "--state"])
            .arg(state.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, stdin, stdout, next_id: 0, state };
        client.send(
            "initialize",
            &json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} },
                     "clientInfo": { "name": "bench", "version": "1" } }),
        );
        client.receive();
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's state folder.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    fn write(&mut self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        self.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Closes the server's stdin, as a client does that goes away.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Receives one answer.
    pub fn receive(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the server is gone");
        serde_json::from_str(&line).unwrap()
    }

    /// A round trip that starts nothing.
    pub fn ping(&mut self) {
        self.send("ping", &json!({}));
        self.receive();
    }

    /// Asks for a command without waiting for its answer, and returns the number that this will
    /// have.
    pub fn ask(&mut self, cmd: &str) -> u64 {
        let arguments = json!({ "cmd": cmd, "login": false, "shell": "/bin/sh",
                                "duplicate_policy": "start_new", "yield_time_ms": 120_000 });
        self.send("tools/call", &json!({ "name": "ExecCommand", "arguments": arguments }))
    }

    /// Calls a tool that must succeed, and returns its text.
    pub fn tool(&mut self, name: &str, input: &Value) -> String {
        self.send("tools/call", &json!({ "name": name, "arguments": input }));
        let answer = self.receive();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }

    /// Runs a command that must end with code 0, and returns its receipt.
    pub fn run(&mut self, cmd: &str) -> String {
        self.ask(cmd);
        self.expect_success()
    }

    /// Has a command tried that a rule wants to be, and refuses it then; says how long it took
    /// until the person was shown what it did, in microseconds.
    pub fn tried(&mut self, cmd: &str) -> f64 {
        let begin = Instant::now();
        self.ask(cmd);
        let question = self.receive();
        let took = begin.elapsed().as_secs_f64() * 1e6;
        let shown = question["params"]["message"].as_str().unwrap_or_default();
        assert!(shown.contains("was tried on a copy"), "{question}");
        let result = json!({ "action": "accept", "content": { "decision": "deny" } });
        self.write(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        let answer = self.receive();
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        took
    }

    /// Receives one answer, which must be of a command that ended with code 0.
    pub fn expect_success(&mut self) -> String {
        self.expect_any_success().1
    }

    /// The same, with the number of the question.
    pub fn expect_any_success(&mut self) -> (u64, String) {
        let answer = self.receive();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with("Process exited with code 0"), "{answer}");
        (answer["id"].as_u64().unwrap(), text.to_owned())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.hang_up();
        let _ = self.child.wait();
    }
}
