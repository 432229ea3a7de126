//! Asks every warden of the state folder which task it holds.
//!
//! For when the ledger does not know: a short run is in its warden's memory only, so whoever holds
//! one is asked to put it into its folder, where everything that is known of it is.

use std::{
    fs,
    io::{self, Read, Write},
    time::{Duration, Instant},
};

use legwork_warden::protocol::{self, Decoder, FromWarden, Order, ToWarden, WardenFrame, encode};

use super::calling::held_by;
use crate::state::{Holders, StateFolder};

/// How long one warden may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(1);

/// How long all of them together may take.
const ALL: Duration = Duration::from_secs(10);

/// The names of the wardens that hold a task, by its id; the tasks are in their folders from then
/// on.
pub(super) fn roll_call(state: &StateFolder) -> Holders {
    let deadline = Instant::now() + ALL;
    let mut holders = Holders::new();
    let Ok(entries) = fs::read_dir(state.path().join("wardens")) else { return holders };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(warden) = name.to_str().and_then(|name| name.strip_suffix(".sock")) else {
            continue;
        };
        if Instant::now() >= deadline {
            tracing::warn!("not every supervisor was asked what it holds");
            break;
        }
        // One that is gone holds nothing; one that does not answer will be found by its socket
        // later.
        if let Ok(Some(task)) = held_by(state, warden) {
            holders.insert(task, warden.to_owned());
        }
    }
    holders
}

/// The task that the warden at the other end holds, once it is in its folder.
pub(super) fn ask(stream: &mut (impl Read + Write)) -> io::Result<Option<String>> {
    let mut decoder = Decoder::default();
    let hello = receive(stream, &mut decoder)?.of_warden();
    let Some(FromWarden::Hello { version, task: Some(task), .. }) = hello else { return Ok(None) };
    if version != protocol::version() {
        return Ok(None);
    }
    let order = ToWarden::Order { task: task.clone(), order: Order::Spill };
    stream.write_all(&encode(&order).map_err(io::Error::other)?)?;
    while !matches!(
        receive(stream, &mut decoder)?.of_run(&task),
        Some(FromWarden::Spilled(_) | FromWarden::NotHeld)
    ) {}
    Ok(Some(task))
}

fn receive(stream: &mut impl Read, decoder: &mut Decoder) -> io::Result<WardenFrame> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            return Ok(frame);
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => decoder.feed(buffer.get(..read).unwrap_or_default()),
        }
    }
}
