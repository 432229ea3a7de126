//! Runs a program of the user's and gives it one line on its standard input.

use std::{
    io::{self, Write},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The name of what is no program: the system's log, which is not written here.
const SYSLOG: &str = "syslog";

/// How long a program may take for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives a line to a program with its arguments, and waits until it is taken.
pub(super) fn tell(program: &[String], line: &str) -> io::Result<()> {
    let (name, arguments) = match program {
        [] => return Ok(()),
        [name] if name == SYSLOG => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "there is no syslog on Windows",
            ));
        }
        [name, arguments @ ..] => (name, arguments),
    };
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read it is its own affair. A line fits into the pipe.
        let _ = stdin.write_all(format!("{line}\n").as_bytes());
    }
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(io::Error::other(status.to_string())),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
