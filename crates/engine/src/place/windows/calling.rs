//! Calls a warden by its pipe, to ask what it holds.

use std::{fs::File, io, sync::mpsc, thread};

use legwork_warden::warden_pipe;

use super::roll_call::{ANSWER, ask};
use crate::state::StateFolder;

/// The task that a warden holds, once it is in its folder. A read of a pipe cannot be given a time
/// here, so one that does not answer keeps a thread.
pub(super) fn held_by(_state: &StateFolder, warden: &str) -> io::Result<Option<String>> {
    let (sender, receiver) = mpsc::channel();
    let pipe = warden_pipe(warden);
    thread::spawn(move || {
        let opened = File::options().read(true).write(true).open(pipe);
        sender.send(opened.and_then(|mut pipe| ask(&mut pipe)))
    });
    receiver.recv_timeout(ANSWER).map_err(io::Error::other)?
}
