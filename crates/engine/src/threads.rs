//! Work that would hold up the event loop, in a thread; where none can be had, right here.
//!
//! Tokio's own threads end the program's task with a panic when the system gives no more of them. A ledger that is
//! slow for a moment is better than a call that is never answered.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

#[cfg(test)]
thread_local! {
    /// Whether everything is done right here: a test whose clock stands still cannot wait for a thread.
    pub(crate) static INLINE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Does something in a thread of its own; none if it panicked there.
pub(crate) async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    #[cfg(test)]
    if INLINE.get() {
        return Some(work());
    }
    let (sender, done) = oneshot::channel();
    // Shared, because a thread that cannot be made keeps what it was given.
    let work = Arc::new(Mutex::new(Some(work)));
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = work.clone();
    let run = move || {
        if let Some(work) = take(&theirs) {
            // Whoever asked may have left.
            let _ = sender.send(work());
        }
    };
    match std::thread::Builder::new().spawn(run) {
        Ok(_) => done.await.ok(),
        Err(_) => take(&work).map(|work| work()),
    }
}
