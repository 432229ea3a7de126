//! Moves bytes between two sockets, by the kernel alone where it can.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{Shutdown, shutdown},
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};

use super::{counts::NameCounts, shared::Proxy};
use crate::linux::socket::set_receive_least;

/// Most bytes that are moved at a time; also what a large pipe may hold. The more, the fewer
/// wake-ups: of a server on this machine, pieces of 128 KiB came at two thirds of this speed.
const PIECE_BYTES: usize = 1024 * 1024;

/// Whoever has said as much as this has more to say, and gets a large pipe.
const MUCH_BYTES: usize = 256 * 1024;

/// Large pipes at a time. Together a user's pipes have 64 MiB; beyond that every new one, of
/// whichever program, holds next to nothing.
const LARGE_PIPES_MAX: u32 = 8;

/// What is waited for, once somebody has said much, before a piece is taken: each smaller one would
/// be a wake-up of its own, and of a server on this machine they come 16 KiB at a time.
const PIECE_BYTES_MIN: u32 = 256 * 1024;

/// How long that is waited for. Whoever has said less until then may want an answer first.
const GATHERING: Duration = Duration::from_millis(1);

/// Most pieces that are moved one way before the other way is looked at.
const PIECES_MAX: usize = 4;

/// How long one side may be silent after the other has said all.
const SILENCE: Duration = Duration::from_secs(120);

/// How long a server may be silent after the client of one request has closed its side: mostly it
/// has gone, and one that only says that it has said all hears a quick answer.
const LEFT: Duration = Duration::from_secs(2);

/// How long a client may take to read our answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// How a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayEnd {
    /// By one of its sides.
    Done,
    /// By the limit of bytes.
    Limited,
}

/// One of two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() }
}

/// Waits until a socket can be used; past the time is an error.
pub(super) fn wait(socket: &OwnedFd, flags: PollFlags, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(socket, flags)], Some(&timespec(left))) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads what is there; a wait that was for nothing is an error like any other.
pub(super) fn read(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(socket, &mut *buffer) {
            Err(Errno::INTR) => {}
            read => return Ok(read?),
        }
    }
}

/// Writes all of it, waiting where the other side is slow.
pub(super) fn write_all(socket: &OwnedFd, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(socket, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, until)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Ends our side, and waits a moment for the other to have read it: closing a socket that has
/// unread bytes would take the answer back.
pub(super) fn see_off(client: &OwnedFd) {
    let until = Instant::now() + FAREWELL;
    let _ = shutdown(client, Shutdown::Write);
    let mut buffer = [0; 4096];
    while Instant::now() < until && wait(client, PollFlags::IN, until).is_ok() {
        if !matches!(read(client, &mut buffer), Ok(1..)) {
            return;
        }
    }
}

/// Waits until one of the sides says something, or ends.
pub(super) fn first_of(client: &OwnedFd, server: Option<&OwnedFd>) -> Option<Side> {
    let mut interests = vec![PollFd::new(client, PollFlags::IN)];
    interests.extend(server.map(|server| PollFd::new(server, PollFlags::IN)));
    loop {
        match poll(&mut interests, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    let client_speaks = interests.first().is_some_and(|it| !it.revents().is_empty());
    Some(if client_speaks { Side::Client } else { Side::Server })
}

/// One direction: from a socket into a pipe, and from there into the other socket.
struct Direction<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    pipe: (OwnedFd, OwnedFd),
    /// Whether the pipe was made large.
    is_large: bool,
    /// Bytes that are in the pipe.
    held: usize,
    /// Bytes that have been taken since it last gathered.
    moved: usize,
    /// Whether it waits for a piece of some size.
    gathers: bool,
    /// Bytes that may still be taken.
    left: Option<u64>,
    proxy: &'a Proxy,
    /// Whether its bytes count against the task's limit.
    is_limited: bool,
    counter: &'a AtomicU64,
    /// Nothing more comes.
    ended: bool,
    /// The other side knows that.
    closed: bool,
    limited: bool,
}

impl<'a> Direction<'a> {
    fn new(
        proxy: &'a Proxy,
        from: &'a OwnedFd,
        to: &'a OwnedFd,
        counter: &'a AtomicU64,
    ) -> io::Result<Self> {
        Ok(Self {
            from,
            to,
            pipe: pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?,
            is_large: false,
            held: 0,
            moved: 0,
            gathers: false,
            left: None,
            proxy,
            is_limited: false,
            counter,
            ended: false,
            closed: false,
            limited: false,
        })
    }

    /// What it waits for: something to read, or room to write.
    fn waits_for(&self) -> Option<(&'a OwnedFd, PollFlags)> {
        match () {
            () if self.held > 0 => Some((self.to, PollFlags::OUT)),
            () if !self.ended => Some((self.from, PollFlags::IN)),
            () => None,
        }
    }

    /// Takes what has come, and says whether that was anything; an error ends both directions.
    fn take(&mut self) -> io::Result<bool> {
        if self.ended || self.held > 0 {
            return Ok(false);
        }
        let wanted = self.left.map_or(PIECE_BYTES, |left| {
            usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)
        });
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let taken = match wanted {
            0 => Ok(0),
            _ => splice(self.from, None, &self.pipe.1, None, wanted, flags),
        };
        let taken = match taken {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            taken => taken?,
        };
        self.ended = taken == 0;
        let granted = if self.is_limited { self.proxy.reserve(taken) } else { taken };
        self.counter.fetch_add(granted as u64, Relaxed);
        if granted < taken {
            // It has been taken, and goes nowhere.
            self.limited = true;
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.held = taken;
        self.left = self.left.map(|left| left.saturating_sub(taken as u64));
        self.moved = self.moved.saturating_add(taken);
        if self.moved >= MUCH_BYTES && !self.gathers {
            self.enlarge();
            self.gather(true);
        }
        Ok(taken > 0)
    }

    /// Begins to wait for pieces of some size, or ends that.
    fn gather(&mut self, gathers: bool) {
        let least = if gathers { PIECE_BYTES_MIN } else { 1 };
        self.gathers = gathers && set_receive_least(self.from, least).is_ok();
        if !gathers {
            self.moved = 0;
            let _ = set_receive_least(self.from, least);
        }
    }

    /// Whether a piece is waited for that may not come in this size.
    fn is_gathering(&self) -> bool {
        self.gathers && self.held == 0 && !self.ended
    }

    /// Takes what came in the time of gathering, however little. After nothing, everything is taken
    /// at once again.
    fn gathered(&mut self) -> io::Result<()> {
        if !self.is_gathering() {
            return Ok(());
        }
        let before = self.moved;
        self.turn()?;
        if self.moved == before {
            self.gather(false);
        }
        Ok(())
    }

    /// Makes the pipe large, if there are not too many of those; a smaller one does too.
    fn enlarge(&mut self) {
        if self.is_large {
            return;
        }
        let large = &self.proxy.large_pipes;
        let more = |count| (count < LARGE_PIPES_MAX).then_some(count + 1);
        self.is_large = large.fetch_update(Relaxed, Relaxed, more).is_ok();
        if self.is_large {
            let _ = fcntl_setpipe_size(&self.pipe.0, PIECE_BYTES);
        }
    }

    /// Gives what was taken.
    fn give(&mut self) -> io::Result<()> {
        while self.held > 0 {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match splice(&self.pipe.0, None, self.to, None, self.held, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(given) => self.held = self.held.saturating_sub(given),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        if self.left == Some(0) {
            // The one request is out. A server may take a closed side for a client that has gone.
            (self.ended, self.closed) = (true, true);
        }
        if self.ended && !self.closed {
            self.closed = true;
            let _ = shutdown(self.to, Shutdown::Write);
        }
        Ok(())
    }

    /// Moves what there is, for some pieces: the other direction has its turn, too.
    fn turn(&mut self) -> io::Result<()> {
        self.give()?;
        for _ in 0..PIECES_MAX {
            let more = self.take()?;
            self.give()?;
            if !more {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Direction<'_> {
    fn drop(&mut self) {
        self.proxy.large_pipes.fetch_sub(self.is_large.into(), Relaxed);
    }
}

/// How a relay ended whose direction to the server was this.
fn ended(outward: &Direction<'_>) -> RelayEnd {
    if outward.limited { RelayEnd::Limited } else { RelayEnd::Done }
}

/// Moves bytes both ways until both sides are done, at most `body` of them from the client.
pub(super) fn both_ways(
    proxy: &Proxy,
    client: &OwnedFd,
    server: &OwnedFd,
    body: Option<u64>,
    counted: &NameCounts,
) -> RelayEnd {
    let (Ok(mut outward), Ok(mut inward)) = (
        Direction::new(proxy, client, server, &counted.bytes_out),
        Direction::new(proxy, server, client, &counted.bytes_in),
    ) else {
        return RelayEnd::Done;
    };
    (outward.left, outward.is_limited) = (body, true);
    let [mut out_is_ready, mut in_is_ready] = [true, true];
    let mut client_left = false;
    loop {
        let goes_on =
            (!out_is_ready || outward.turn().is_ok()) && (!in_is_ready || inward.turn().is_ok());
        if !goes_on {
            return ended(&outward);
        }
        if inward.closed && outward.closed {
            return RelayEnd::Done;
        }
        let wanted = [outward.waits_for(), inward.waits_for()];
        let mut interests: Vec<PollFd<'_>> = wanted
            .iter()
            .flatten()
            .map(|(socket, flags)| PollFd::from_borrowed_fd(socket.as_fd(), *flags))
            .collect();
        // Of a client whose one request is out nothing is read, not even its end.
        if body.is_some() && outward.closed && !client_left {
            interests.push(PollFd::new(client, PollFlags::RDHUP));
        }
        let gathers = outward.is_gathering() || inward.is_gathering();
        let patience = match () {
            () if gathers => Some(timespec(GATHERING)),
            () if client_left => Some(timespec(LEFT)),
            () => (outward.ended || inward.ended).then(|| timespec(SILENCE)),
        };
        match poll(&mut interests, patience.as_ref()) {
            Ok(0) if gathers => {
                if outward.gathered().and_then(|()| inward.gathered()).is_err() {
                    return ended(&outward);
                }
            }
            Ok(0) => return RelayEnd::Done,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return RelayEnd::Done,
        }
        let mut told = interests.iter().map(|interest| !interest.revents().is_empty());
        [out_is_ready, in_is_ready] =
            wanted.map(|wanted| wanted.is_some() && told.next().unwrap_or(true));
        client_left |= told.next().unwrap_or(false);
    }
}
