//! Runs a scheduler's programs: for a while, with their words where they fail.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::timeout;

use crate::threads::begin_in_thread;

/// What a program printed.
#[derive(Debug)]
pub(super) struct ClientOutput {
    pub is_success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl ClientOutput {
    /// What it said, in a line.
    pub(super) fn said(&self) -> String {
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Its stdout, or what it said.
    pub(super) fn ok(self) -> io::Result<String> {
        if self.is_success { Ok(self.stdout) } else { Err(io::Error::other(self.said())) }
    }
}

/// Runs a program, and ends it if it takes too long.
pub(super) async fn run<W: AsRef<OsStr>>(
    program: &str,
    words: impl IntoIterator<Item = W>,
    input: String,
    patience: Duration,
) -> io::Result<ClientOutput> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A terminal's Ctrl-C is for the command, which gets it from us.
    command.process_group(0);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{program}: {error}"));
    let child = command.spawn().map_err(named)?;
    let pid = Pid::from_child(&child);
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let done = begin_in_thread(move || finish(child, &input));
    match timeout(patience, done).await {
        Ok(Ok(output)) => output.map(printed).map_err(named),
        Ok(Err(_)) => Err(io::Error::other("it was cut off")),
        Err(_) => {
            let _ = pidfd_send_signal(&handle, Signal::KILL);
            let problem = format!("{program} does not answer");
            Err(io::Error::new(io::ErrorKind::TimedOut, problem))
        }
    }
}

fn finish(mut child: Child, input: &str) -> io::Result<Output> {
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// What a program has printed that has ended.
pub(super) fn printed(output: Output) -> ClientOutput {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    ClientOutput {
        is_success: output.status.success(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
