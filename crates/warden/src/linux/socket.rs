//! Unix sockets: pairs, frames with descriptors beside them, and the wardens' adoption sockets.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind,
    connect as dial, listen, recvmsg, sendmsg, socket_with, socketpair,
};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Most descriptors beside one frame.
const DESCRIPTORS_MAX: usize = 12;

/// A folder's descriptor is turned into a path with this prefix, so that a socket below a path
/// longer than a socket address (108 bytes) can still be bound and reached.
const ADOPTION_PATH_PREFIX: &str = "/proc/self/fd";

/// What one read brought.
#[derive(Debug)]
pub(super) struct Received {
    /// Bytes read; 0 is the end of the stream.
    pub bytes: usize,
    /// Descriptors that came along, in order.
    pub descriptors: Vec<OwnedFd>,
}

/// Lets a wait for something to read end only when there is this much, or an end.
pub(super) fn set_receive_least(socket: &OwnedFd, bytes: u32) -> io::Result<()> {
    // SAFETY: the option is a number of this size, which lives for the whole call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            4,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a connected pair of stream sockets, closed on exec.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok(pair)
}

/// The same, and neither end is ever waited for.
pub(super) fn nonblocking_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Sends bytes, with descriptors beside the first of them, and says how many bytes went.
///
/// A vanished peer is an error, never a `SIGPIPE`.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Receives bytes and the descriptors that came with them.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            message => break message?,
        }
    };
    let mut descriptors = Vec::new();
    for item in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = item {
            descriptors.extend(received);
        }
    }
    Ok(Received { bytes: message.bytes, descriptors })
}

fn adoption_address(wardens: BorrowedFd<'_>, warden: &str) -> io::Result<SocketAddrUnix> {
    let folder = wardens.as_raw_fd();
    Ok(SocketAddrUnix::new(format!("{ADOPTION_PATH_PREFIX}/{folder}/{warden}.sock"))?)
}

/// Binds the adoption socket of a warden.
pub(super) fn listen_for_adoption(wardens: BorrowedFd<'_>, warden: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &adoption_address(wardens, warden)?)?;
    listen(&socket, 16)?;
    Ok(socket)
}

/// Connects to a warden through its adoption socket, without waiting.
pub fn connect(wardens: impl AsFd, warden: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    dial(&socket, &adoption_address(wardens.as_fd(), warden)?)?;
    Ok(socket)
}

/// Lets a warden go on that somebody has stopped by a signal: whoever listens at the other end.
pub fn resume(socket: impl AsFd) {
    // The pidfd is opened while the connection shows that the process lives.
    if let Ok(peer) = rustix::net::sockopt::socket_peercred(socket)
        && let Ok(warden) = pidfd_open(peer.pid, PidfdFlags::empty())
    {
        let _ = pidfd_send_signal(&warden, Signal::CONT);
    }
}

/// Whether the warden of this name lives.
///
/// The kernel answers: only a live process holds the listening end. A pid would not do, since it
/// may belong to a stranger by now. A warden too busy to accept is alive.
pub fn is_alive(wardens: impl AsFd, warden: &str) -> io::Result<bool> {
    match connect(wardens, warden) {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
            io::ErrorKind::WouldBlock => Ok(true),
            _ => Err(error),
        },
    }
}
