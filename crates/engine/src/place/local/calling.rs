//! Calls a warden by its socket, to ask what it holds.

use std::{io, os::unix::net::UnixStream};

use legwork_warden::connect;

use super::roll_call::{ANSWER, ask};
use crate::state::StateFolder;

/// The task that a warden holds, once it is in its folder.
pub(super) fn held_by(state: &StateFolder, warden: &str) -> io::Result<Option<String>> {
    let socket = connect(&state.wardens, warden)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    let mut stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(ANSWER))?;
    ask(&mut stream)
}
