//! Sends frames over a pipe: at once where there is room, else in order as room comes.
//!
//! What is sent last, by a program that ends, is in the pipe when the call returns: nothing runs
//! afterwards that could send it.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{net::unix::pipe, sync::watch, task::AbortHandle};

/// Most bytes that wait for room: more says that nobody reads.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The way to the other side. Cheap to clone; closed with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    drain: AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.drain.abort();
    }
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Whether something waits for room, or why nothing does any more.
    state: watch::Sender<OutboxState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutboxState {
    Empty,
    Waiting,
    Closed,
}

#[derive(Debug)]
struct Queue {
    /// None once the other side is gone.
    pipe: Option<Arc<pipe::Sender>>,
    waiting: Vec<u8>,
}

impl Outbox {
    /// Sends over this pipe.
    pub(crate) fn new(pipe: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        // Also a socket, which is written in the same way.
        let pipe = Arc::new(pipe::Sender::from_owned_fd_unchecked(pipe)?);
        let queue = Mutex::new(Queue { pipe: Some(pipe), waiting: Vec::new() });
        let shared = Arc::new(Shared { queue, state: watch::Sender::new(OutboxState::Empty) });
        let drain = tokio::spawn(drain(shared.clone())).abort_handle();
        Ok(Self(Arc::new(Handle { shared, drain })))
    }

    /// Sends a frame, or keeps it until there is room.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let shared = &self.0.shared;
        let mut queue = shared.queue();
        let sent = if queue.waiting.is_empty() { queue.write(frame)? } else { 0 };
        let rest = frame.get(sent..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        if queue.pipe.is_none() || queue.waiting.len() + rest.len() > WAITING_BYTES_MAX {
            queue.close();
            drop(queue);
            shared.state.send_replace(OutboxState::Closed);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        queue.waiting.extend_from_slice(rest);
        shared.state.send_replace(OutboxState::Waiting);
        Ok(())
    }

    /// Says to the other side that nothing more comes.
    pub(crate) fn close(&self) {
        self.0.shared.queue().close();
        self.0.shared.state.send_replace(OutboxState::Closed);
    }

    /// Waits until everything is sent, or cannot be.
    pub(crate) async fn flushed(&self) {
        let mut state = self.0.shared.state.subscribe();
        let _ = state.wait_for(|state| *state != OutboxState::Waiting).await;
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Writes what there is room for, and says how much that was.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(pipe) = self.pipe.clone() else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match pipe.try_write(rest) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.close();
                    return Err(error);
                }
            }
        }
        Ok(sent)
    }

    /// Writes all that waits; `WouldBlock` where there was no room for it.
    fn write_waiting(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let sent = self.write(&waiting)?;
        self.waiting = waiting.get(sent..).unwrap_or_default().to_vec();
        if self.waiting.is_empty() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn close(&mut self) {
        self.pipe = None;
        self.waiting = Vec::new();
    }
}

/// Sends what waits, as room comes.
async fn drain(shared: Arc<Shared>) {
    let mut state = shared.state.subscribe();
    loop {
        let waits = state.wait_for(|state| *state != OutboxState::Empty).await;
        if waits.map_or(true, |state| *state == OutboxState::Closed) {
            return;
        }
        let Some(pipe) = shared.queue().pipe.clone() else { return };
        if pipe.writable().await.is_err() {
            return;
        }
        let mut queue = shared.queue();
        match queue.write_waiting() {
            // Under the lock: what comes next is told after this.
            Ok(()) => drop(shared.state.send_replace(OutboxState::Empty)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => drop(shared.state.send_replace(OutboxState::Closed)),
        }
    }
}
