//! Polls, with growing pauses, for what the system has no event for: an open port.

use std::{
    ptr,
    time::{Duration, Instant},
};

use windows_sys::Win32::{
    NetworkManagement::IpHelper::{
        GetExtendedTcpTable, MIB_TCP6ROW_OWNER_PID, MIB_TCPROW_OWNER_PID,
        TCP_TABLE_OWNER_PID_LISTENER,
    },
    Networking::WinSock::{AF_INET, AF_INET6},
};

use crate::protocol::{Met, WatchFor};

/// The first pause between two looks; each one after it is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// Most bytes of a table that are looked at.
const TABLE_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// The watch of one peer. That a command waits for input cannot be known here, so it is never met.
#[derive(Debug)]
pub(super) struct Watching {
    watch: WatchFor,
    /// Whether somebody listened on the port when the watch began.
    was_open: bool,
    pause: Duration,
    pub look_at: Instant,
}

impl Watching {
    pub(super) fn begin(watch: WatchFor) -> Self {
        let was_open = watch.port.is_some_and(|port| !listeners(port).is_empty());
        Self { watch, was_open, pause: PAUSE_MIN, look_at: Instant::now() }
    }

    /// Looks once, and says what is so; the next look is due after a longer pause.
    pub(super) fn look(&mut self, living: impl FnOnce() -> Vec<u32>) -> Option<Met> {
        self.look_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let listeners = listeners(self.watch.port?);
        self.was_open &= !listeners.is_empty();
        let is_open = !listeners.is_empty()
            && (!self.was_open || living().iter().any(|pid| listeners.contains(pid)));
        is_open.then_some(Met::Port)
    }
}

/// The processes that listen on a TCP port.
fn listeners(port: u16) -> Vec<u32> {
    let old = rows::<MIB_TCPROW_OWNER_PID>(AF_INET.into());
    let new = rows::<MIB_TCP6ROW_OWNER_PID>(AF_INET6.into());
    let old = old.iter().map(|row| (row.dwLocalPort, row.dwOwningPid));
    let new = new.iter().map(|row| (row.dwLocalPort, row.dwOwningPid));
    let on_port = |(local, pid): (u32, u32)| (in_host_order(local) == port).then_some(pid);
    old.chain(new).filter_map(on_port).collect()
}

/// Ports stand in the low half, high byte first.
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn in_host_order(port: u32) -> u16 {
    u16::from_be(port as u16)
}

/// The rows of a table of the system: a count, then so many rows.
fn rows<Row: Copy>(family: u32) -> Vec<Row> {
    let mut bytes = 0;
    // SAFETY: asked without room, it only says how much it needs.
    unsafe {
        GetExtendedTcpTable(
            ptr::null_mut(),
            &raw mut bytes,
            0,
            family,
            TCP_TABLE_OWNER_PID_LISTENER,
            0,
        );
    }
    // Some may come between the two questions.
    bytes = bytes.saturating_mul(2).clamp(4096, TABLE_BYTES_MAX);
    let mut room = vec![0_u32; bytes as usize / size_of::<u32>()];
    // SAFETY: the room is as long as it is said to be, and aligned for rows, which are words.
    unsafe {
        let table = room.as_mut_ptr();
        let asked = GetExtendedTcpTable(
            table.cast(),
            &raw mut bytes,
            0,
            family,
            TCP_TABLE_OWNER_PID_LISTENER,
            0,
        );
        if asked != 0 {
            return Vec::new();
        }
        let fits = (room.len() - 1) * size_of::<u32>() / size_of::<Row>();
        let count = (*table as usize).min(fits);
        std::slice::from_raw_parts(table.add(1).cast::<Row>(), count).to_vec()
    }
}
