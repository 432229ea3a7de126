//! `legwork serve`: the built program, spoken to in real HTTP.

mod client;
mod clients;
pub mod events;
mod faults;
mod listening;
pub mod log;
mod mcp;
mod metrics;
mod openapi;
mod page;
mod prometheus;
mod roles;
mod signin;
mod tasks;
mod terminal;
mod tls;
mod tokens;
mod trials;

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustix::process::Signal;
use serde_json::Value;

use self::client::{Reply, Wire};
use crate::common::{Scratch, program, signal, text};

/// A server that ends with the test.
pub struct Serving {
    child: Child,
    /// What it printed: `http://127.0.0.1:PORT` or `unix:PATH`.
    pub address: String,
    said: Arc<Mutex<String>>,
}

impl Serving {
    /// A server on a free port.
    pub fn start(scratch: &Scratch, more: &[&str]) -> Self {
        let mut command = scratch.legwork("serve");
        command.args(["--listen", "127.0.0.1:0"]).args(more);
        Self::spawn(command)
    }

    /// One whose stderr goes to a file.
    pub fn spawn_with_stderr(mut command: Command, stderr: File) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned(), said: Arc::default() }
    }

    pub fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let saying = said.clone();
        thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut block) {
                saying.lock().unwrap().push_str(&String::from_utf8_lossy(&block[..count]));
            }
        });
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(!address.is_empty(), "it did not start: {}", said.lock().unwrap());
        Self { child, address: address.trim().to_owned(), said }
    }

    /// What it said on stderr.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// A connection of one's own.
    pub fn connect(&self) -> Wire {
        Wire::connect(&self.address)
    }

    pub fn get(&self, path: &str, token: &str) -> Reply {
        self.connect().send("GET", path, &[bearer(token)], "")
    }

    pub fn post(&self, path: &str, token: &str, body: &Value) -> Reply {
        self.connect().send("POST", path, &[bearer(token)], &body.to_string())
    }

    /// Asks it to end, and waits for that.
    pub fn end(mut self, with: Signal) -> ExitStatus {
        signal(self.child.id(), with);
        self.child.wait().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            signal(self.child.id(), Signal::TERM);
            self.child.wait().unwrap();
        }
    }
}

/// A link that signs in to the page of a server on this state folder, as `serve link` prints it.
pub fn link(scratch: &Scratch) -> String {
    let printed = serve_link(scratch);
    assert!(printed.status.success(), "{printed:?}");
    let links = text(&printed.stdout);
    assert_eq!(links.lines().count(), 1, "{links}");
    links.trim().to_owned()
}

/// `legwork serve link`.
pub fn serve_link(scratch: &Scratch) -> Output {
    let mut command = Command::new(program());
    command.args(["serve", "link", "--state"]).arg(scratch.state.path());
    command.stdin(Stdio::null()).output().unwrap()
}

/// The header that has a token.
pub fn bearer(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}

/// Makes a token, and returns it.
pub fn token(scratch: &Scratch, name: &str, more: &[&str]) -> String {
    let output = token_verb(scratch, &[&["add", name], more].concat());
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).trim().to_owned()
}

/// `legwork token VERB`.
pub fn token_verb(scratch: &Scratch, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("token").args(arguments).arg("--state").arg(scratch.state.path());
    command.current_dir(scratch.workspace.path()).stdin(Stdio::null()).output().unwrap()
}
