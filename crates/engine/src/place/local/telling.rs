//! Runs a program of the user's and gives it one line on its standard input.

use std::{
    io::{self, Write},
    os::unix::{net::UnixDatagram, process::CommandExt},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The name of what is no program: the system's log.
const SYSLOG: &str = "syslog";

/// Where the system's log listens.
const LOG_SOCKET: &str = "/dev/log";

/// Messages of a user's program, of ordinary importance.
const LOG_PRIORITY: u32 = (1 << 3) + 5;

/// How long a program may take for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often its end is looked for.
const TURN: Duration = Duration::from_millis(20);

/// Gives a line to a program with its arguments, or to the system's log, and waits until it is
/// taken.
pub(super) fn tell(program: &[String], line: &str) -> io::Result<()> {
    match program {
        [] => Ok(()),
        [name] if name == SYSLOG => log(line),
        [name, arguments @ ..] => run(name, arguments, line),
    }
}

fn log(line: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let message = format!("<{LOG_PRIORITY}>legwork[{}]: {line}", std::process::id());
    socket.send_to(message.as_bytes(), LOG_SOCKET).map(drop)
}

fn run(name: &str, arguments: &[String], line: &str) -> io::Result<()> {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // What a terminal sends to us is not meant for it.
    let mut child = command.process_group(0).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read it is its own affair. A line fits into the pipe.
        let _ = stdin.write_all(format!("{line}\n").as_bytes());
    }
    wait(&mut child)
}

fn wait(child: &mut Child) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(status.to_string())),
            None if begin.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(io::ErrorKind::TimedOut.into());
            }
            None => thread::sleep(TURN),
        }
    }
}
