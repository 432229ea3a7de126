//! Opens the sockets of a proxy: its listener inside a sandbox, and its connections outside.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    time::Instant,
};

use rustix::{
    event::PollFlags,
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, bind, connect as dial, listen, socket_with, sockopt,
    },
};

use super::relay;
use crate::network::PROXY_PORT;

/// How many connections may wait until they are accepted.
const BACKLOG: i32 = 128;

/// The way to send that every kernel has, and that does not pace.
const UNPACED: &str = "reno";

fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Listens on the loopback of the network namespace that the calling process is in.
pub(in crate::linux) fn listen_inside() -> io::Result<OwnedFd> {
    let socket = open(AddressFamily::INET)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT)))?;
    // Connections inherit both. Many machines pace what they send, as is good on the way through a
    // network (`bbr`); from one process of this machine to another that halves the speed.
    let _ = sockopt::set_tcp_congestion(&socket, UNPACED);
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects, in the network namespace that the calling process is in.
pub(super) fn connect(address: SocketAddr, until: Instant) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = open(family)?;
    match dial(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    relay::wait(&socket, PollFlags::OUT, until)?;
    sockopt::socket_error(&socket)??;
    // Neither is more than a convenience.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let _ = sockopt::set_socket_keepalive(&socket, true);
    Ok(socket)
}
