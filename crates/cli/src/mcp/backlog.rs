//! What a client has asked for and not yet read.
//!
//! A client that does not read must not fill our memory. While much is unread, no call begins; when much waits to begin
//! as well, nothing more is read from it. What has begun goes on, and its outcome is recorded as ever. For a client
//! that reads, all this is a few numbers that are looked at.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rmcp::transport::StdioWriter;
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::unix::pipe,
    sync::{Mutex, Notify, Semaphore, SemaphorePermit},
};
use tokio_util::sync::CancellationToken;

/// Most calls that are worked on at once.
const CALLS_MAX: usize = 256;

/// Above this many bytes of unread answers no call begins.
const UNREAD_BYTES_MAX: usize = 1024 * 1024;

/// Above this many bytes of unread answers nothing is read: some questions are answered without a call.
const ANSWERED_BYTES_MAX: usize = 4 * UNREAD_BYTES_MAX;

/// Above this many bytes of calls that wait to begin nothing is read.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// What a call that waits takes besides its text.
const CALL_BYTES: usize = 4096;

/// The way to a client, and what waits on both sides of it.
pub(super) struct Backlog {
    writer: Mutex<StdioWriter>,
    /// Nothing can be written any more.
    broken: AtomicBool,
    /// Bytes of answers that are not written.
    unread: AtomicUsize,
    /// Calls that wait to begin.
    waiting: AtomicUsize,
    /// Bytes that were read since calls have been waiting.
    waiting_bytes: AtomicUsize,
    places: Semaphore,
    /// Told when any of the numbers has gone down to where something may go on.
    eased: Notify,
    /// Cancelled when nobody is there to read.
    gone: CancellationToken,
}

impl Backlog {
    pub(super) fn new(writer: StdioWriter, gone: CancellationToken) -> Self {
        Self {
            writer: Mutex::new(writer),
            broken: AtomicBool::new(false),
            unread: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            places: Semaphore::new(CALLS_MAX),
            eased: Notify::new(),
            gone,
        }
    }

    /// Counts an answer that is to be written, until it is or never will be.
    pub(super) fn count(&self, bytes: usize) {
        self.unread.fetch_add(bytes, Relaxed);
    }

    /// Writes an answer that was counted. The client has gone if it cannot be.
    pub(super) async fn write(&self, line: &[u8]) -> std::io::Result<()> {
        let _counted = Counted { backlog: self, bytes: line.len() };
        let mut writer = self.writer.lock().await;
        if self.broken.load(Relaxed) {
            // Said once.
            return Ok(());
        }
        let written = async {
            writer.write_all(line).await?;
            writer.flush().await
        };
        written.await.inspect_err(|_| {
            self.broken.store(true, Relaxed);
            self.gone.cancel();
        })
    }

    pub(super) async fn close(&self) -> std::io::Result<()> {
        self.writer.lock().await.shutdown().await
    }

    /// Waits until a call that needs no place may begin.
    pub(super) async fn turn(&self) {
        if !self.may_begin() {
            let _waiting = Waiting::begin(self);
            self.until(Self::may_begin).await;
        }
    }

    /// A place to work on a call, for as long as it is held; in the order of asking.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        match self.places.try_acquire() {
            Ok(place) if self.may_begin() => Some(place),
            taken => self.place_in_turn(taken.ok()).await,
        }
    }

    async fn place_in_turn<'a>(
        &'a self,
        mut place: Option<SemaphorePermit<'a>>,
    ) -> Option<SemaphorePermit<'a>> {
        let _waiting = Waiting::begin(self);
        if place.is_none() {
            // Never closed.
            place = self.places.acquire().await.ok();
        }
        self.until(Self::may_begin).await;
        place
    }

    fn may_begin(&self) -> bool {
        self.unread.load(Relaxed) < UNREAD_BYTES_MAX
    }

    /// Takes note of what was read.
    pub(super) fn note_read(&self, bytes: usize) {
        if self.waiting.load(Relaxed) > 0 {
            self.waiting_bytes.fetch_add(bytes + CALL_BYTES, Relaxed);
        }
    }

    /// Whether more may be read from the client.
    pub(super) fn may_read(&self) -> bool {
        self.unread.load(Relaxed) < ANSWERED_BYTES_MAX
            && self.waiting_bytes.load(Relaxed) < WAITING_BYTES_MAX
    }

    /// Waits until more may be read from the client.
    pub(super) async fn until_more_may_be_read(&self) {
        self.until(Self::may_read).await;
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

/// An answer that is counted as unread until this is dropped.
struct Counted<'a> {
    backlog: &'a Backlog,
    bytes: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let before = self.backlog.unread.fetch_sub(self.bytes, Relaxed);
        if before >= UNREAD_BYTES_MAX {
            self.backlog.eased.notify_waiters();
        }
    }
}

/// A call that waits to begin until this is dropped.
struct Waiting<'a>(&'a Backlog);

impl<'a> Waiting<'a> {
    fn begin(backlog: &'a Backlog) -> Self {
        backlog.waiting.fetch_add(1, Relaxed);
        Self(backlog)
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

/// Tells when the client has closed our stdin, even though nothing is read from it.
pub(super) struct HangUp(Option<pipe::Receiver>);

impl HangUp {
    /// Only a pipe is looked at; of another stdin the end is seen when it is read, or when nothing can be written.
    pub(super) fn of_stdin() -> Self {
        Self(pipe::OpenOptions::new().open_receiver("/proc/self/fd/0").ok())
    }

    pub(super) async fn happened(&self) {
        // Nothing has priority in a pipe: this waits for its end alone, whatever there is to read.
        match &self.0 {
            Some(stdin) if stdin.ready(Interest::PRIORITY).await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }
}
