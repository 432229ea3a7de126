//! Our own console: it is read and written like a file, and never set to raw mode.

use std::io::{self, Read};

use legwork::WindowSize;
use tokio::sync::mpsc;

/// Bytes that are read from our stdin at a time.
const READ_BYTES: usize = 4096;

/// Commands get no terminal here, whoever sits in front of us.
pub(crate) fn is_interactive() -> bool {
    false
}

/// The size of our console is not asked for.
pub(crate) fn size() -> Option<WindowSize> {
    None
}

/// A raw terminal: there is none.
pub(crate) enum Raw {}

impl Raw {
    pub(crate) fn enter() -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "no terminal here: not on Windows yet"))
    }
}

/// What comes from our stdin, as it comes.
pub(crate) struct Typed(Option<mpsc::Receiver<Vec<u8>>>);

impl Typed {
    /// Begins to read.
    pub(crate) fn listen() -> Self {
        let (sender, receiver) = mpsc::channel(16);
        // A thread of its own: a read that waits for a person cannot be taken back.
        std::thread::spawn(move || read_into(&sender));
        Self(Some(receiver))
    }

    /// There is no terminal to be read.
    pub(crate) fn keyboard() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A stdin on which nothing ever comes.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// The next bytes, then once the end; after that nothing comes any more. Safe to cancel.
    pub(crate) async fn next_or_end(&mut self) -> Option<Vec<u8>> {
        let Some(receiver) = &mut self.0 else { return std::future::pending().await };
        let bytes = receiver.recv().await;
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

fn read_into(sender: &mpsc::Sender<Vec<u8>>) {
    loop {
        let mut buffer = vec![0; READ_BYTES];
        match io::stdin().lock().read(&mut buffer) {
            Ok(read) if read > 0 => {
                buffer.truncate(read);
                if sender.blocking_send(buffer).is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}
