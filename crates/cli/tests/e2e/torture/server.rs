//! A client of a server that may be killed at any moment: what cannot be sent is lost, what was
//! answered is kept.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::processes::{Family, Member};
use crate::common::Scratch;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(40);

pub struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Envelopes of calls that nobody waited for.
    answers: Vec<Value>,
    /// How many such calls there were.
    asked: usize,
    next_id: u64,
}

impl Server {
    /// A server that has said hello.
    pub fn start(scratch: &Scratch, family: &Family) -> Self {
        let mut command = scratch.legwork("mcp");
        let mut server = Self::spawn(family.mark(&mut command));
        let id = server.hello();
        server.answer(id).unwrap();
        server.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        server
    }

    /// A server of which nothing is known yet.
    pub fn spawn(command: &mut Command) -> Self {
        command.arg("--structured").stderr(Stdio::null());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            // A line that was cut by a kill was not said.
            let whole = stdout.lines().map_while(Result::ok);
            for line in whole.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, answers: Vec::new(), asked: 0, next_id: 1 }
    }

    /// Says hello and does not wait.
    pub fn hello(&mut self) -> u64 {
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "torture", "version": "1" },
        });
        self.send("initialize", &hello)
    }

    fn write(&mut self, message: &Value) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{message}\n").as_bytes());
        }
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Waits for one answer; others that come before it are kept.
    fn answer(&mut self, id: u64) -> Result<Value, String> {
        loop {
            match self.lines.recv_timeout(ANSWER) {
                Ok(line) if line["id"] == id => return Ok(line),
                Ok(line) => self.keep(&line),
                Err(RecvTimeoutError::Timeout) => return Err(format!("P8: no answer to {id}")),
                Err(RecvTimeoutError::Disconnected) => return Err("the server is gone".into()),
            }
        }
    }

    fn keep(&mut self, line: &Value) {
        let envelope = &line["result"]["structuredContent"];
        if envelope.is_object() {
            self.answers.push(envelope.clone());
        }
    }

    /// Calls a tool and does not wait.
    pub fn ask(&mut self, tool: &str, input: &Value) {
        self.send("tools/call", &json!({ "name": tool, "arguments": input }));
        self.asked += 1;
    }

    /// Waits until all that was asked is answered, or the server is gone: then it registers nothing
    /// more.
    pub fn hear_out(&mut self) {
        while self.answers.len() < self.asked {
            match self.lines.recv_timeout(ANSWER) {
                Ok(line) => self.keep(&line),
                Err(_) => return,
            }
        }
    }

    /// The envelope of a call.
    pub fn call(&mut self, tool: &str, input: &Value) -> Result<Value, String> {
        let id = self.send("tools/call", &json!({ "name": tool, "arguments": input }));
        Ok(self.answer(id)?["result"]["structuredContent"].clone())
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) {
        let _ = self.child.wait();
    }

    pub fn kill(&mut self) -> Member {
        let _ = self.child.kill();
        Member { pid: self.child.id(), name: "legwork".into() }
    }

    /// Goes away as a client does, waits for the server's end, and returns what was answered.
    pub fn close(&mut self) -> Vec<Value> {
        self.stdin = None;
        let _ = self.child.wait();
        while let Ok(line) = self.lines.recv_timeout(ANSWER) {
            self.keep(&line);
        }
        std::mem::take(&mut self.answers)
    }
}
