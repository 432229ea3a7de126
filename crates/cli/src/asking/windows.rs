//! The terminal of a person who is asked: nobody is asked at a console here yet.

use std::{convert::Infallible, io};

/// Whether a person sits at a terminal that we may use: questions are answered elsewhere.
pub(super) fn is_there() -> bool {
    false
}

/// Tells the person something.
pub(super) fn tell(_text: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Our terminal: there is none.
pub(super) struct AskingTerminal(Infallible);

impl AskingTerminal {
    pub(super) fn open() -> io::Result<Self> {
        let problem = "questions are not asked at a console on Windows yet";
        Err(io::Error::new(io::ErrorKind::Unsupported, problem))
    }

    pub(super) fn write(&mut self, _text: &str) -> io::Result<()> {
        match self.0 {}
    }

    /// Takes what was typed so far, and says whether there was something.
    pub(super) fn typed_before(&self) -> bool {
        match self.0 {}
    }

    /// What is typed next; none at the end of the input.
    #[expect(clippy::unused_async, reason = "the signature is that of Unix")]
    pub(super) async fn bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.0 {}
    }
}
