//! The warden: one thread around one completion port, for one command.
//!
//! It waits until something happens, [hears](hearing) its engine and observers, starts the command,
//! sees to it that it [ends](ending), and ends itself when there is nothing left to do. What it
//! starts is in its job, which ends with it.

mod ending;
mod hearing;

use std::{
    fs::File,
    io,
    os::windows::io::OwnedHandle,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    console,
    facts::given,
    launch::Setup,
    operation::Operation,
    peer::Peer,
    pipe,
    port::{Packet, Port},
    process::PROCESS_KEY,
    run::{CommandRun, listing},
    stop::Stop,
};
use crate::deadline::Deadline;

/// The grace of a stop that no caller chose.
const OWN_GRACE: Duration = Duration::from_secs(3);

/// How often what a command has left behind is looked at: that the last one is gone is told, but
/// not in every case.
const LEFT_LOOK: Duration = Duration::from_millis(250);

/// How long what was said last may take to be read.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs a warden until there is nothing left for it to do.
pub(super) fn run(setup: &Setup) -> io::Result<()> {
    console::prepare();
    // SAFETY: the engine has let us inherit it, and says so by this number.
    let owner = unsafe { given(setup.owner as u64) }.ok_or(io::ErrorKind::InvalidInput)?;
    let owner = pipe::met(owner)?;
    let mut port = Port::new()?;
    let key = port.watch(&owner)?;
    let owner = Peer::new(owner, key)?;
    let listener = Listener::new(&setup.name, &mut port)?;
    File::create(listing(&setup.wardens, &setup.name))?;
    let warden = WardenProcess {
        setup,
        port,
        listener,
        run: None,
        stop: None,
        stopped: None,
        childless: true,
        was_empty: false,
        committed: false,
        alone_since: None,
        given_up: false,
        peers: Vec::new(),
        has_owner: true,
        farewell: None,
    };
    let served = warden.serve(owner);
    let _ = std::fs::remove_file(listing(&setup.wardens, &setup.name));
    served
}

/// The end of the pipe that waits for the next observer.
#[derive(Debug)]
struct Listener {
    key: usize,
    pipe: Arc<OwnedHandle>,
    connecting: Operation,
    /// Whether somebody was there before it was waited for.
    is_met: bool,
}

impl Listener {
    fn new(name: &str, port: &mut Port) -> io::Result<Self> {
        let pipe = pipe::listen(name, false)?;
        let key = port.watch(&pipe)?;
        let pipe = Arc::new(pipe);
        let mut connecting = Operation::new(pipe.clone())?;
        let is_met = connecting.connect()?;
        Ok(Self { key, pipe, connecting, is_met })
    }

    /// The connection that was made.
    fn into_peer(self) -> io::Result<Peer> {
        let Self { key, pipe, connecting, .. } = self;
        drop(connecting);
        let pipe = Arc::into_inner(pipe).ok_or(io::ErrorKind::ResourceBusy)?;
        Peer::new(pipe, key)
    }
}

struct WardenProcess<'a> {
    setup: &'a Setup,
    // The run goes first: what its pipes still do is told to the port.
    run: Option<CommandRun>,
    stop: Option<Stop>,
    /// A stop is through with these survivors, which is told once the outcome is known.
    stopped: Option<Vec<u32>>,
    /// Nothing of the command is left.
    childless: bool,
    /// Its job was empty at the last look.
    was_empty: bool,
    /// The engine has the outcome in the ledger.
    committed: bool,
    /// Since when there is no engine.
    alone_since: Option<Instant>,
    /// It was alone for too long: whatever could not be saved by now is lost.
    given_up: bool,
    /// Connections; the first is the owner for as long as it lives.
    peers: Vec<Peer>,
    has_owner: bool,
    /// Everything is done: until when what was said last is waited for.
    farewell: Option<Instant>,
    listener: Listener,
    port: Port,
}

impl WardenProcess<'_> {
    fn serve(mut self, owner: Peer) -> io::Result<()> {
        self.greet(owner);
        // An owner that is gone already is told of by nothing that could be waited for.
        self.turn(&[]);
        while !(self.is_done() && self.has_said_all()) {
            let packets = self.port.wait(self.wake_at())?;
            self.turn(&packets);
        }
        Ok(())
    }

    /// Handles everything that has happened.
    fn turn(&mut self, packets: &[Packet]) {
        for packet in packets {
            self.take(packet);
        }
        if self.listener.is_met {
            self.accept();
        }
        self.hear_peers();
        self.look_at_job();
        self.check_clock();
        self.settle();
        self.tell_stopped();
        self.notify_followers();
    }

    fn take(&mut self, packet: &Packet) {
        if packet.key == PROCESS_KEY {
            self.run.iter_mut().for_each(CommandRun::process_ended);
        } else if packet.key == self.listener.key {
            if self.listener.connecting.is_meant(packet) {
                self.listener.connecting.ended(0);
                self.listener.is_met = true;
            }
        } else if let Some(peer) = self.peers.iter_mut().find(|peer| peer.key == packet.key) {
            peer.hear(packet);
        } else if let Some(run) = &mut self.run {
            run.came(packet, &self.setup.tasks);
            self.input_written(packet);
        }
    }

    /// The next moment at which something is due without an event.
    fn wake_at(&self) -> Option<Instant> {
        let run = self.run.as_ref();
        let left = run.filter(|run| run.has_ended() && !self.childless);
        [
            run.and_then(|run| run.deadline).filter(|_| self.stop.is_none()).map(Deadline::look_at),
            run.and_then(CommandRun::drain_until).filter(|_| self.stop.is_none()),
            self.stop.as_ref().map(Stop::wake_at),
            self.abandoned_at().filter(|_| self.stop.is_none()),
            run.and_then(|run| run.spill_at),
            self.peers.iter().filter_map(|peer| peer.watching.as_ref()).map(|it| it.look_at).min(),
            left.map(|_| Instant::now() + LEFT_LOOK),
            self.farewell,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn abandoned_at(&self) -> Option<Instant> {
        let alone = self.alone_since.filter(|_| self.peers.is_empty());
        self.run.as_ref().zip(alone).map(|(run, since)| since + run.orphan_ttl)
    }

    /// Whether there is nothing left to run, to keep or to tell.
    fn is_done(&self) -> bool {
        let ended = match &self.run {
            None => !self.has_owner,
            Some(run) if !run.is_over() || !self.childless => false,
            Some(_) if self.has_owner => self.committed,
            Some(run) => self.committed || run.spill_at.is_none() || self.given_up,
        };
        ended && self.stop.is_none() && self.stopped.is_none()
    }

    /// Whether everybody has got what was said, or has taken too long.
    fn has_said_all(&mut self) -> bool {
        if !self.peers.iter().any(Peer::has_output) {
            return true;
        }
        let until = *self.farewell.get_or_insert_with(|| Instant::now() + FAREWELL);
        Instant::now() >= until
    }
}
