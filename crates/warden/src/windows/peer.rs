//! One connection of the warden: its engine, or an observer.

use std::{collections::VecDeque, io, os::windows::io::OwnedHandle, sync::Arc};

use super::{operation::Operation, port::Packet, watching::Watching};
use crate::protocol::{Decoder, FromWarden, InputRefusal, ToWarden, WardenFrame, encode};

/// Most bytes waiting for a peer that does not read; past it the peer is dropped.
const OUTBOX_BYTES_MAX: usize = 1024 * 1024;

/// One read of a channel.
const READ_BYTES: u32 = 4 * 1024;

/// A connection, with what is on its way in both directions.
#[derive(Debug)]
pub(super) struct Peer {
    /// Under which its packets come.
    pub key: usize,
    reading: Operation,
    writing: Operation,
    decoder: Decoder,
    /// Handles that it has given us.
    pub handles: VecDeque<OwnedHandle>,
    outbox: Vec<u8>,
    /// Set while the peer waits for output beyond these offsets.
    pub follows: Option<(u64, u64)>,
    /// Input that it waits to be written: how much is, and how much is not.
    pub input: Option<PendingInput>,
    /// Set while the peer waits for something that has to be looked for.
    pub watching: Option<Watching>,
    /// Whether it has asked for anything.
    pub spoke: bool,
    /// Set once the peer is gone, or did not speak the protocol.
    pub closed: bool,
}

/// Input of a peer that has not been written yet.
#[derive(Debug)]
pub(super) struct PendingInput {
    pub rest: Vec<u8>,
    /// Bytes that were written before.
    pub taken: u64,
}

impl Peer {
    /// A connection whose packets come under this key.
    pub(super) fn new(pipe: OwnedHandle, key: usize) -> io::Result<Self> {
        let pipe = Arc::new(pipe);
        let mut peer = Self {
            key,
            reading: Operation::new(pipe.clone())?,
            writing: Operation::new(pipe)?,
            decoder: Decoder::default(),
            handles: VecDeque::new(),
            outbox: Vec::new(),
            follows: None,
            input: None,
            watching: None,
            spoke: false,
            closed: false,
        };
        peer.read();
        Ok(peer)
    }

    fn read(&mut self) {
        self.closed |= self.reading.read(READ_BYTES).is_err();
    }

    /// Takes note of what a packet of its key says.
    pub(super) fn hear(&mut self, packet: &Packet) {
        if self.reading.is_meant(packet) {
            let bytes = self.reading.ended(packet.bytes);
            if packet.error.is_some() || bytes.is_empty() {
                self.closed = true;
            } else {
                self.decoder.feed(bytes);
                self.read();
            }
        } else if self.writing.is_meant(packet) {
            self.writing.ended(0);
            self.closed |= packet.error.is_some();
            self.flush();
        }
    }

    /// Sends a frame now, or as soon as the peer reads.
    pub(super) fn send(&mut self, frame: &WardenFrame) {
        match encode(frame) {
            Ok(frame) if self.outbox.len() + frame.len() <= OUTBOX_BYTES_MAX => {
                self.outbox.extend_from_slice(&frame);
                self.flush();
            }
            _ => self.closed = true,
        }
    }

    /// Tells something about the run of a task.
    pub(super) fn tell(&mut self, task: &str, message: FromWarden) {
        self.send(&WardenFrame::about_run(task, message));
    }

    /// Answers the input of the peer.
    pub(super) fn answer_input(&mut self, task: &str, bytes: u64, refusal: Option<InputRefusal>) {
        self.input = None;
        self.tell(task, FromWarden::InputTaken { bytes, refusal });
    }

    fn flush(&mut self) {
        if !self.closed && !self.outbox.is_empty() && !self.writing.is_pending() {
            let bytes = std::mem::take(&mut self.outbox);
            self.closed |= self.writing.write(bytes).is_err();
        }
    }

    /// Whether something is on its way to it.
    pub(super) fn has_output(&self) -> bool {
        !self.closed && (!self.outbox.is_empty() || self.writing.is_pending())
    }

    /// The next whole message of those that have come.
    pub(super) fn next(&mut self) -> Option<ToWarden> {
        let message = self.decoder.next_frame();
        self.closed |= message.is_err();
        message.ok().flatten()
    }
}
