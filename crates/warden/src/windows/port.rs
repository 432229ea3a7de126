//! The one place where the warden waits: everything that ends is told to a completion port.

use std::{
    io,
    os::windows::io::OwnedHandle,
    ptr,
    time::{Duration, Instant},
};

use windows_sys::Win32::{
    Foundation::{GetLastError, HANDLE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT},
    System::{
        IO::{CreateIoCompletionPort, GetQueuedCompletionStatus, PostQueuedCompletionStatus},
        Threading::INFINITE,
    },
};

use super::api::{own, raw};

/// Most packets that are taken at a time.
const PACKETS_MAX: usize = 64;

/// Something has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    /// Which handle it is of.
    pub key: usize,
    /// Which operation; of a job, a number of its own.
    pub place: usize,
    /// How many bytes were moved; of a job, what happened.
    pub bytes: u32,
    /// Why it failed, if it did.
    pub error: Option<u32>,
}

/// A completion port. Keys are given out once, so that what is told of something that is gone is
/// never taken for something else.
#[derive(Debug)]
pub(super) struct Port {
    handle: OwnedHandle,
    last_key: usize,
}

impl Port {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: makes a new handle.
        let handle =
            unsafe { own(CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 1))? };
        Ok(Self { handle, last_key: 0 })
    }

    /// A key for something whose ends are told here.
    pub(super) fn new_key(&mut self) -> usize {
        self.last_key += 1;
        self.last_key
    }

    /// Has the ends of a handle's operations told here; says under which key.
    pub(super) fn watch(&mut self, handle: &OwnedHandle) -> io::Result<usize> {
        let key = self.new_key();
        // SAFETY: both handles are open.
        let port = unsafe { CreateIoCompletionPort(raw(handle), self.raw(), key, 0) };
        if port.is_null() { Err(io::Error::last_os_error()) } else { Ok(key) }
    }

    pub(super) fn raw(&self) -> HANDLE {
        raw(&self.handle)
    }

    /// Waits until something has ended, or until then; returns all that is known.
    pub(super) fn wait(&self, until: Option<Instant>) -> io::Result<Vec<Packet>> {
        let mut packets = Vec::new();
        let mut patience =
            until.map_or(INFINITE, |at| milliseconds(at.saturating_duration_since(Instant::now())));
        while packets.len() < PACKETS_MAX {
            match self.next(patience)? {
                Some(packet) => packets.push(packet),
                None => break,
            }
            patience = 0;
        }
        Ok(packets)
    }

    fn next(&self, patience_ms: u32) -> io::Result<Option<Packet>> {
        let (mut bytes, mut key, mut place) = (0, 0, ptr::null_mut());
        // SAFETY: the pointers are to locals; nothing is read from what `place` points to.
        let (taken, error) = unsafe {
            let taken = GetQueuedCompletionStatus(
                self.raw(),
                &raw mut bytes,
                &raw mut key,
                &raw mut place,
                patience_ms,
            );
            (taken != 0, GetLastError())
        };
        let place = place.addr();
        match (taken, place) {
            (true, _) => Ok(Some(Packet { key, place, bytes, error: None })),
            (false, 0) if error == WAIT_TIMEOUT => Ok(None),
            (false, 0) => Err(io::Error::from_raw_os_error(error.cast_signed())),
            (false, _) => Ok(Some(Packet { key, place, bytes, error: Some(error) })),
        }
    }
}

/// Tells a port that something is so.
pub(super) fn post(port: HANDLE, key: usize) {
    // SAFETY: the port is open for as long as the process lives; no memory goes along.
    unsafe { PostQueuedCompletionStatus(port, 0, key, ptr::null()) };
}

/// Never shorter than what is left, or the wait would end too early again and again.
fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(INFINITE - 1).min(INFINITE - 1)
}
