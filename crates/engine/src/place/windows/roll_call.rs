//! Asks every warden of the state folder which task it holds, and has it put into its folder.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use legwork_warden::{
    protocol::{Decoder, FromWarden, Order, ToWarden, WardenFrame, encode, is_understood},
    warden_pipe,
};

use crate::state::{Holders, StateFolder};

/// How long one warden may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// How long all of them together may take.
const ALL: Duration = Duration::from_secs(10);

/// The names of the wardens that hold a task, by its id; the tasks are in their folders from then
/// on.
pub(super) fn roll_call(state: &StateFolder) -> Holders {
    let deadline = Instant::now() + ALL;
    let mut holders = Holders::new();
    let Ok(entries) = fs::read_dir(&state.wardens) else { return holders };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(warden) = name.to_str().and_then(|name| name.strip_suffix(".sock")) else {
            continue;
        };
        if Instant::now() >= deadline {
            tracing::warn!("not every supervisor was asked what it holds");
            break;
        }
        // A read of a pipe cannot be given a time here, so one that does not answer keeps a thread.
        let (sender, receiver) = mpsc::channel();
        let asked = warden.to_owned();
        thread::spawn(move || sender.send(held_by(&asked)));
        if let Ok(Ok(Some(task))) = receiver.recv_timeout(ANSWER) {
            holders.insert(task, warden.to_owned());
        }
    }
    holders
}

/// The task that a warden holds, once it is in its folder.
fn held_by(warden: &str) -> io::Result<Option<String>> {
    let mut pipe = File::options().read(true).write(true).open(warden_pipe(warden))?;
    let mut decoder = Decoder::default();
    let hello = receive(&mut pipe, &mut decoder)?.of_warden();
    let Some(FromWarden::Hello { version, task: Some(task), .. }) = hello else { return Ok(None) };
    if !is_understood(version) {
        return Ok(None);
    }
    let order = ToWarden::Order { task: task.clone(), order: Order::Spill };
    pipe.write_all(&encode(&order).map_err(io::Error::other)?)?;
    while !matches!(
        receive(&mut pipe, &mut decoder)?.of_run(&task),
        Some(FromWarden::Spilled(_) | FromWarden::NotHeld)
    ) {}
    Ok(Some(task))
}

fn receive(pipe: &mut File, decoder: &mut Decoder) -> io::Result<WardenFrame> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            return Ok(frame);
        }
        match pipe.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => decoder.feed(buffer.get(..read).unwrap_or_default()),
        }
    }
}
