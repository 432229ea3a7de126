//! The proxy: the only way out of a sandbox that may connect by name.
//!
//! The sandbox has a network namespace with nothing but its loopback. A listener that was made *in*
//! there is handed out to the warden, which starts a proxy when somebody first connects. The proxy
//! accepts inside and connects outside; nothing lies in between, and nothing else gets out. There
//! is one for each command that connects, so that every connection is known by its task, and one
//! that dies takes nobody else's along.
//!
//! It is a fork of the warden that lets go of everything but its socket, confines itself, and then
//! has a thread for each connection: names are resolved by the C library, which blocks, and nothing
//! is ever forked from here. It ends with its warden. [`link`] is the warden's side of it.

mod connection;
mod counts;
mod link;
mod opening;
mod outbox;
mod own;
mod relay;
mod resolve;
mod shared;
mod tunnel;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{SocketFlags, accept_with},
    process::Signal,
};
use serde::{Deserialize, Serialize};

pub use self::tunnel::CONNECT_ARGUMENT;
use self::{
    counts::SharedCounts,
    shared::{Proxy, Vacancy},
};
pub(super) use self::{link::Doorway, opening::listen_inside, tunnel::be_connector_if_asked};
use super::{
    sandbox::{confine_proxy, keep_only},
    socket,
};
use crate::{
    network::{ConnectionTotal, HeldName, NameRules},
    protocol::Decoder,
};

/// The stack of a thread; a resolver takes the most of it.
const STACK_BYTES: usize = 512 * 1024;

/// Most names that totals are kept of; what comes beyond is counted together.
const TOTALS_MAX: usize = 64;

/// How long nobody is accepted after that failed, or where there are no descriptors for one.
const REST: Duration = Duration::from_millis(100);

/// Most names that a person is asked about, of one task.
const QUESTIONS_MAX: usize = 64;

/// What a warden tells its proxy.
#[derive(Debug, Serialize, Deserialize)]
enum ToProxy {
    /// First: serve the listener that stands beside this frame.
    Serve(Box<ProxyTask>),
    /// Answers [`FromProxy::Held`].
    Answer { number: u64, allowed: bool },
    /// The command has ended: say when its connections have been counted to their ends.
    Tally,
}

/// What a proxy has to know; a second one goes on where the first was killed.
#[derive(Debug, Serialize, Deserialize)]
struct ProxyTask {
    rules: NameRules,
    /// Names that a person has been asked about, with the answer.
    answered: Vec<(String, bool)>,
    /// Bytes that were sent before.
    bytes_out: u64,
    /// The number of the last question.
    last_number: u64,
}

/// What a proxy tells its warden.
#[derive(Debug, Serialize, Deserialize)]
enum FromProxy {
    /// Connections to a name wait for an answer.
    Held(HeldName),
    /// The next name that connections are counted of; their numbers are in [`SharedCounts`].
    Name(ConnectionTotal),
    /// All that the dead have sent is counted.
    Tallied,
}

/// The whole life of a proxy.
fn live(socket: BorrowedFd<'_>, counts: SharedCounts) -> ! {
    let served = keep_only(socket).and_then(|control| serve(control, counts));
    let code = match served {
        Ok(()) => 0,
        Err(_) => 1,
    };
    // SAFETY: ends this process at once: what the warden had registered for its own end is not ours
    // to run.
    unsafe { libc::_exit(code) }
}

/// Serves until the warden lets go of it.
fn serve(control: OwnedFd, counts: SharedCounts) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"legwork-proxy");
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut orders = Orders { decoder: Decoder::default(), descriptors: VecDeque::new() };
    let (task, listener) = loop {
        wait_for(&mut [PollFd::new(&control, PollFlags::IN)], None)?;
        if !orders.read(control.as_fd())? {
            return Ok(());
        }
        if let Some(ToProxy::Serve(task)) = orders.next()? {
            let listener = orders.descriptors.pop_front().ok_or(io::ErrorKind::InvalidData)?;
            break (*task, listener);
        }
    };
    confine_proxy()?;
    let (woken, wake) = socket::nonblocking_pair()?;
    let proxy = Arc::new(Proxy::new(task, control, wake, counts));
    loop {
        let output = if proxy.has_to_tell() { PollFlags::OUT } else { PollFlags::empty() };
        let mut interests = vec![
            PollFd::new(&proxy.control, PollFlags::IN | output),
            PollFd::new(&woken, PollFlags::IN),
        ];
        let room = proxy.room();
        if room == Vacancy::One {
            interests.push(PollFd::new(&listener, PollFlags::IN));
        }
        wait_for(&mut interests, (room == Vacancy::NoDescriptors).then_some(REST))?;
        let mut ready = interests.iter().map(PollFd::revents);
        let mut next = || ready.next().unwrap_or(PollFlags::empty());
        let (control, ended, knocked) = (next(), next(), next());
        if !control.is_empty() {
            proxy.tell_on();
            if control != PollFlags::OUT && !orders.read(proxy.control.as_fd())? {
                return Ok(());
            }
            while let Some(order) = orders.next()? {
                proxy.obey(&order);
            }
        }
        if !ended.is_empty() {
            let _ = rustix::io::read(&woken, &mut [0; 256][..]);
        }
        if !knocked.is_empty() {
            accept(&proxy, &listener);
        }
    }
}

fn wait_for(interests: &mut [PollFd<'_>], at_most: Option<Duration>) -> io::Result<()> {
    match poll(interests, at_most.map(relay::timespec).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Takes one connection, and gives it to a thread of its own.
fn accept(proxy: &Arc<Proxy>, listener: &OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let client = match accept_with(listener, flags) {
        Ok(client) => client,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
        Err(_) => {
            // Most likely there is no descriptor left, and the next look would find the same.
            thread::sleep(REST);
            return;
        }
    };
    proxy.begin();
    let served = proxy.clone();
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        connection::serve(&served, &client);
        drop(client);
        served.end();
    });
    if thread.is_err() {
        proxy.end();
    }
}

/// Frames of the warden, and what came with them.
struct Orders {
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
}

impl Orders {
    /// Reads what has come; false is the end.
    fn read(&mut self, control: BorrowedFd<'_>) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let received = match socket::receive(control, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            received => received?,
        };
        self.descriptors.extend(received.descriptors);
        self.decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
        Ok(received.bytes > 0)
    }

    fn next(&mut self) -> io::Result<Option<ToProxy>> {
        self.decoder.next_frame().map_err(io::Error::other)
    }
}
