//! Our own terminal: its size, raw mode while a task's terminal is shown on it, and the keys that
//! are typed.

use std::{
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

use legwork::WindowSize;
use rustix::{
    fs::{OFlags, fstat},
    process::getpgrp,
    termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr},
};
use tokio::{net::unix::pipe, sync::mpsc};

/// Bytes that are read from our stdin at a time.
const READ_BYTES: usize = 4096;

/// Whether a person sits in front of us: all our streams are one terminal, and we are in its
/// foreground.
pub(crate) fn is_interactive() -> bool {
    let terminal = |stream: BorrowedFd<'_>| {
        isatty(stream).then(|| fstat(stream).ok().map(|status| status.st_rdev)).flatten()
    };
    let stdin = terminal(io::stdin().as_fd());
    stdin.is_some()
        && stdin == terminal(io::stdout().as_fd())
        && stdin == terminal(io::stderr().as_fd())
        // A job in the background that touched the terminal would be stopped.
        && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Whether stdin and stdout are our terminal, and we are in its foreground.
pub(crate) fn is_shown() -> bool {
    isatty(io::stdout()) && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// The size of our terminal.
pub(crate) fn size() -> Option<WindowSize> {
    let window = tcgetwinsize(io::stdout()).ok()?;
    let size = WindowSize { rows: window.ws_row, cols: window.ws_col };
    (size.rows > 0 && size.cols > 0).then_some(size)
}

/// Keeps our terminal raw; dropping it brings back what was.
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// What comes from our stdin, as it comes.
pub(crate) struct Typed(Option<Keyboard>);

/// Where it comes from.
enum Keyboard {
    /// A thread that reads stdin, whatever that is.
    Thread(mpsc::Receiver<Vec<u8>>),
    /// The terminal itself. It is no pipe, but it is read like one.
    Terminal(pipe::Receiver),
}

impl Typed {
    /// Begins to read.
    pub(crate) fn listen() -> Self {
        let (sender, receiver) = mpsc::channel(16);
        // A thread of its own: a read that waits for a person cannot be taken back.
        std::thread::spawn(move || read_into(&sender));
        Self(Some(Keyboard::Thread(receiver)))
    }

    /// Reads our terminal, and only while somebody waits for what is typed: a key that is pressed
    /// later is for whoever reads then.
    pub(crate) fn keyboard() -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let terminal = OpenOptions::new().read(true).custom_flags(flags).open("/dev/tty")?;
        let receiver = pipe::Receiver::from_owned_fd_unchecked(terminal.into())?;
        Ok(Self(Some(Keyboard::Terminal(receiver))))
    }

    /// A stdin on which nothing ever comes.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// The next bytes, then once the end; after that nothing comes any more. Safe to cancel.
    pub(crate) async fn next_or_end(&mut self) -> Option<Vec<u8>> {
        let bytes = match &mut self.0 {
            None => return std::future::pending().await,
            Some(Keyboard::Thread(receiver)) => receiver.recv().await,
            Some(Keyboard::Terminal(terminal)) => read_terminal(terminal).await,
        };
        if bytes.is_none() {
            self.0 = None;
        }
        bytes
    }

    /// The next bytes. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some(bytes) = self.next_or_end().await {
                return bytes;
            }
        }
    }
}

/// What is typed on a terminal; none once it has hung up.
async fn read_terminal(terminal: &pipe::Receiver) -> Option<Vec<u8>> {
    loop {
        terminal.readable().await.ok()?;
        let mut buffer = vec![0; READ_BYTES];
        match terminal.try_read(&mut buffer) {
            Ok(0) => return None,
            Ok(read) => {
                buffer.truncate(read);
                return Some(buffer);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

fn read_into(sender: &mpsc::Sender<Vec<u8>>) {
    loop {
        let mut buffer = vec![0; READ_BYTES];
        match rustix::io::read(io::stdin().as_fd(), &mut buffer) {
            Ok(0) => return,
            Ok(read) => {
                buffer.truncate(read);
                if sender.blocking_send(buffer).is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
