//! The terminal of a person who is asked: what is written there, and the lines that are typed.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
};

use rustix::{
    fs::OFlags,
    termios::{QueueSelector, tcflush},
};
use tokio::net::unix::pipe::Receiver;

/// Where the person is.
const TERMINAL: &str = "/dev/tty";

/// Whether a person sits at a terminal that has us in its foreground.
pub(super) fn is_there() -> bool {
    let terminal = File::options().read(true).write(true).open(TERMINAL);
    let group = terminal.and_then(|terminal| Ok(rustix::termios::tcgetpgrp(&terminal)?));
    group.is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Tells the person something.
pub(super) fn tell(text: &str) -> io::Result<()> {
    let mut terminal = File::options().write(true).open(TERMINAL)?;
    writeln!(terminal, "{text}")
}

/// Our terminal, whatever our streams are.
pub(super) struct AskingTerminal {
    screen: File,
    /// It is no pipe, but it is read like one.
    keyboard: Receiver,
}

impl AskingTerminal {
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let keyboard = OpenOptions::new().read(true).custom_flags(flags).open(TERMINAL)?;
        let screen = File::options().read(true).write(true).open(TERMINAL)?;
        Ok(Self { screen, keyboard: Receiver::from_owned_fd_unchecked(keyboard.into())? })
    }

    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        self.screen.write_all(text.as_bytes())
    }

    /// Forgets what was typed so far.
    pub(super) fn forget_typed(&self) {
        let _ = tcflush(&self.screen, QueueSelector::IFlush);
    }

    /// The next line; none at the end of the input.
    pub(super) async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            self.keyboard.readable().await?;
            let mut buffer = [0; 1024];
            match self.keyboard.try_read(&mut buffer) {
                Ok(0) if line.is_empty() => return Ok(None),
                Ok(read) => line.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if line.ends_with(b"\n") || line.len() > buffer.len() {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
        }
    }
}
