//! The terminal of a person who is asked: what is written there, and the keys that are pressed.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
};

use rustix::{
    fs::OFlags,
    process::Signal,
    termios::{
        LocalModes, OptionalActions, OutputModes, QueueSelector, SpecialCodeIndex, Termios,
        tcflush, tcgetattr, tcsetattr,
    },
};
use tokio::net::unix::pipe::Receiver;

use crate::signals::Caught;

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

/// Has the terminal tell a pasted text from keys, and no longer.
const PASTES: (&str, &str) = ("\x1b[?2004h", "\x1b[?2004l");

/// Our terminal, whatever our streams are. While this lives, each key comes as it is pressed and is
/// not shown by the terminal itself.
pub(super) struct AskingTerminal {
    screen: File,
    /// It is no pipe, but it is read like one.
    keyboard: Receiver,
    before: Termios,
    continued: Caught,
}

impl AskingTerminal {
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let keyboard = OpenOptions::new().read(true).custom_flags(flags).open(TERMINAL)?;
        let screen = File::options().read(true).write(true).open(TERMINAL)?;
        let before = tcgetattr(&screen)?;
        let keyboard = Receiver::from_owned_fd_unchecked(keyboard.into())?;
        let continued = Caught::new(&[Signal::CONT]);
        let mut terminal = Self { screen, keyboard, before, continued };
        terminal.enter()?;
        Ok(terminal)
    }

    /// Sets the modes of a question; another program may have changed them while we were stopped.
    fn enter(&mut self) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // A command may have the terminal, which is raw then.
        modes.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&self.screen, OptionalActions::Now, &modes)?;
        self.write(PASTES.0)
    }

    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        self.screen.write_all(text.as_bytes())
    }

    /// Takes what was typed so far, and says whether there was something.
    pub(super) fn typed_before(&self) -> bool {
        let mut buffer = [0; 1024];
        let mut was_typed = false;
        while self.keyboard.try_read(&mut buffer).is_ok_and(|read| read > 0) {
            was_typed = true;
        }
        let _ = tcflush(&self.screen, QueueSelector::IFlush);
        was_typed
    }

    /// Reads the next keys; nothing where another program had the terminal meanwhile, none at its
    /// end. Safe to cancel.
    pub(super) async fn bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            tokio::select! {
                readable = self.keyboard.readable() => readable?,
                _ = self.continued.next() => {
                    self.enter()?;
                    return Ok(Some(Vec::new()));
                }
            }
            let mut buffer = [0; 1024];
            match self.keyboard.try_read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(read) => return Ok(buffer.get(..read).map(<[u8]>::to_vec)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for AskingTerminal {
    fn drop(&mut self) {
        let _ = self.write(PASTES.1);
        let _ = tcsetattr(&self.screen, OptionalActions::Now, &self.before);
    }
}
