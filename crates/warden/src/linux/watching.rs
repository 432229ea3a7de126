//! Polls, with growing pauses, for what the kernel has no event for: an open port, a wait for
//! input.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::{input::InputSource, tree};
use crate::protocol::{Met, WatchFor};

/// The first pause between two looks; each one after it is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// The watch of one peer.
#[derive(Debug)]
pub(super) struct Watching {
    watch: WatchFor,
    /// Whether somebody listened on the port when the watch began.
    was_open: bool,
    /// Whether the command waited for input when it was last looked at: between two reads it only
    /// seems to.
    waited: bool,
    pause: Duration,
    pub look_at: Instant,
}

impl Watching {
    /// Begins; `pid` is the command, in whose network the port is.
    pub(super) fn begin(watch: WatchFor, pid: u32) -> Self {
        let was_open = watch.port.is_some_and(|port| !listeners(pid, port).is_empty());
        Self { watch, was_open, waited: false, pause: PAUSE_MIN, look_at: Instant::now() }
    }

    /// Looks once, and says what is so; the next look is due after a longer pause.
    pub(super) fn look(&mut self, pid: u32, source: Option<InputSource>) -> Option<Met> {
        self.look_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        if self.watch.port.is_some_and(|port| self.is_open(pid, port)) {
            return Some(Met::Port);
        }
        if self.watch.waiting_for_input {
            let waits = source.is_some_and(|source| source.is_waited_for() == Some(true));
            if waits && self.waited {
                return Some(Met::WaitingForInput);
            }
            if waits {
                self.pause = PAUSE_MIN;
                self.look_at = Instant::now() + PAUSE_MIN;
            }
            self.waited = waits;
        }
        None
    }

    fn is_open(&mut self, pid: u32, port: u16) -> bool {
        let listeners = listeners(pid, port);
        self.was_open &= !listeners.is_empty();
        !listeners.is_empty() && (!self.was_open || tree::holds_socket(&listeners))
    }
}

/// The sockets that listen on a TCP port, in the network of a process, by inode.
fn listeners(pid: u32, port: u16) -> Vec<u64> {
    let tables = ["tcp", "tcp6"].map(|table| {
        // The command may have ended and left a server behind: then our own network is its.
        fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .or_else(|_| fs::read_to_string(format!("/proc/self/net/{table}")))
            .unwrap_or_default()
    });
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    rows.filter_map(|row| listener(row, port)).collect()
}

/// The inode of a row such as `0: 0100007F:1F90 00000000:0000 0A ...`, if it listens on the port.
fn listener(row: &str, port: u16) -> Option<u64> {
    const LISTENING: &str = "0A";
    let mut fields = row.split_whitespace();
    let (_, local) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    (state == LISTENING && u16::from_str_radix(local, 16) == Ok(port)).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let row = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 \
                   0 4711 1 0000000000000000 100 0 0 10 0";
        assert_eq!(listener(row, 8080), Some(4711));
        assert_eq!(listener(row, 8081), None);
        assert_eq!(listener(&row.replace(" 0A ", " 01 "), 8080), None);
        assert_eq!(listener("nonsense", 8080), None);
    }

    #[test]
    fn a_real_listener_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(listeners(std::process::id(), port).len(), 1);
    }
}
