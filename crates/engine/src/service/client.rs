//! One client of a service, with limits on the answers that it has not read.
//!
//! A client that does not read must not fill our memory. While much is unread, no call of it
//! begins; when much waits to begin as well, nothing more should be read from it. What has begun
//! goes on, and its outcome is recorded as ever. For a client that reads, all this is a few numbers
//! that are looked at.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use serde_json::Value;
use tokio::sync::{Notify, SemaphorePermit};

use super::Shared;
use crate::{
    engine::{Answer, Turn},
    meters::Meters,
    model::Caller,
};

/// Above this many bytes of unread answers no call begins.
const UNREAD_BYTES_MAX: usize = 1024 * 1024;

/// Above this many bytes of unread answers nothing is read: some questions are answered without a
/// call.
const ANSWERED_BYTES_MAX: usize = 4 * UNREAD_BYTES_MAX;

/// Above this many bytes of calls that wait to begin nothing is read.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// What a call that waits takes besides its text.
const CALL_BYTES: usize = 4096;

/// One connection of a face.
pub struct Client {
    service: Arc<Shared>,
    /// Requests that were read and not answered.
    owed: AtomicUsize,
    /// Bytes of answers that are not written.
    unread: AtomicUsize,
    /// Calls that wait to begin.
    waiting: AtomicUsize,
    /// Bytes that were read since calls have been waiting.
    waiting_bytes: AtomicUsize,
    /// Told when any of the numbers has gone down to where something may go on.
    eased: Notify,
}

impl Client {
    pub(super) fn new(service: Arc<Shared>) -> Self {
        Self {
            service,
            owed: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            eased: Notify::new(),
        }
    }

    /// Calls a tool when it is the call's turn. A tool that only looks, types or stops is called
    /// also while every place is taken by calls that wait.
    pub async fn call(&self, tool: &str, input: Value, caller: &Caller) -> Answer {
        let registry = self.service.engine.registry();
        let turn = registry.get(tool).map_or(Turn::Looks, |tool| tool.definition().turn);
        let _place = self.turn(turn).await;
        self.service.engine.call(tool, input, caller).await
    }

    /// Takes note of a request that was read and has to be answered.
    pub fn owe(&self) {
        self.owed.fetch_add(1, Relaxed);
    }

    /// Takes note of an answer that has left, or never will.
    pub fn pay(&self) {
        let less = |owed: usize| owed.checked_sub(1);
        if self.owed.fetch_update(Relaxed, Relaxed, less) == Ok(1) {
            self.eased.notify_waiters();
        }
    }

    /// Waits until every request is answered, and every answer written.
    pub async fn owes_nothing(&self) {
        self.until(|client| client.owed.load(Relaxed) == 0 && client.unread.load(Relaxed) == 0)
            .await;
    }

    /// Counts an answer that is to be written, for as long as the returned guard lives.
    pub fn unread(self: &Arc<Self>, bytes: usize) -> Unread {
        self.unread.fetch_add(bytes, Relaxed);
        Unread { client: self.clone(), bytes }
    }

    /// Takes note of what was read.
    pub fn note_read(&self, bytes: usize) {
        if self.waiting.load(Relaxed) > 0 {
            self.waiting_bytes.fetch_add(bytes + CALL_BYTES, Relaxed);
        }
    }

    /// Whether more may be read from the client.
    pub fn may_read(&self) -> bool {
        self.unread.load(Relaxed) < ANSWERED_BYTES_MAX
            && self.waiting_bytes.load(Relaxed) < WAITING_BYTES_MAX
    }

    /// Waits until more may be read from the client.
    pub async fn until_more_may_be_read(&self) {
        self.until(Self::may_read).await;
    }

    /// Waits for the turn of a call; a place to work on it, if it needs one.
    async fn turn(&self, turn: Turn) -> Option<SemaphorePermit<'_>> {
        match turn {
            Turn::Stops => None,
            Turn::Looks => {
                if !self.may_begin() {
                    self.meters().waits_for_reader.fetch_add(1, Relaxed);
                    let _waiting = Waiting::begin(self);
                    self.until(Self::may_begin).await;
                }
                None
            }
            Turn::Waits => match self.service.places.try_acquire() {
                Ok(place) if self.may_begin() => Some(place),
                taken => self.place_in_turn(taken.ok()).await,
            },
        }
    }

    /// A place, in the order of asking.
    async fn place_in_turn<'a>(
        &'a self,
        mut place: Option<SemaphorePermit<'a>>,
    ) -> Option<SemaphorePermit<'a>> {
        let _waiting = Waiting::begin(self);
        if place.is_none() {
            self.meters().waits_for_place.fetch_add(1, Relaxed);
            // Never closed.
            place = self.service.places.acquire().await.ok();
        }
        if !self.may_begin() {
            self.meters().waits_for_reader.fetch_add(1, Relaxed);
            // Who does not read keeps no place from others.
            drop(place.take());
            self.until(Self::may_begin).await;
            place = self.service.places.acquire().await.ok();
        }
        place
    }

    fn meters(&self) -> &Meters {
        self.service.engine.meters()
    }

    fn may_begin(&self) -> bool {
        self.unread.load(Relaxed) < UNREAD_BYTES_MAX
    }

    async fn until(&self, eased: impl Fn(&Self) -> bool) {
        loop {
            let told = self.eased.notified();
            tokio::pin!(told);
            // From here on nothing is missed.
            told.as_mut().enable();
            if eased(self) {
                return;
            }
            told.await;
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owed, unread) = (self.owed.load(Relaxed), self.unread.load(Relaxed));
        write!(formatter, "Client(owed: {owed}, unread: {unread})")
    }
}

/// An answer that is counted as unread until this is dropped.
#[derive(Debug)]
pub struct Unread {
    client: Arc<Client>,
    bytes: usize,
}

impl Drop for Unread {
    fn drop(&mut self) {
        let before = self.client.unread.fetch_sub(self.bytes, Relaxed);
        if before >= UNREAD_BYTES_MAX || before == self.bytes {
            self.client.eased.notify_waiters();
        }
    }
}

/// A call that waits to begin until this is dropped.
struct Waiting<'a>(&'a Client);

impl<'a> Waiting<'a> {
    fn begin(client: &'a Client) -> Self {
        client.waiting.fetch_add(1, Relaxed);
        Self(client)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Relaxed) == 1 {
            self.0.waiting_bytes.store(0, Relaxed);
            self.0.eased.notify_waiters();
        }
    }
}
