//! Runs blocking work in a thread, so that it does not hold up the event loop; without a thread it
//! runs in place.
//!
//! Tokio's own threads end the program's task with a panic when the system gives no more of them. A
//! ledger that is slow for a moment is better than a call that is never answered. A few threads
//! that are through wait a while for more: making one takes several times as long as handing
//! something over.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use tokio::sync::oneshot;

/// How many threads wait for more.
const IDLE_MAX: usize = 4;

/// How long.
const IDLE_TIME: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads that wait, each with the way to give it something.
static IDLE: Mutex<Vec<(ThreadId, Sender<Job>)>> = Mutex::new(Vec::new());

#[cfg(test)]
thread_local! {
    /// Whether everything is done right here: a test whose clock stands still cannot wait for a
    /// thread.
    pub(crate) static INLINE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Does something in a thread; none if it panicked there.
pub(crate) async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    begin_in_thread(work).await.ok()
}

/// The same, begun before anybody waits for it.
pub(crate) fn begin_in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (sender, done) = oneshot::channel();
    // Whoever asked may have left.
    hand_over(Box::new(move || drop(sender.send(work()))));
    done
}

fn idle() -> MutexGuard<'static, Vec<(ThreadId, Sender<Job>)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a job to a thread that waits, or to a new one, or does it here.
fn hand_over(mut job: Job) {
    #[cfg(test)]
    if INLINE.get() {
        return job();
    }
    loop {
        let Some((_, waiting)) = idle().pop() else { break };
        match waiting.send(job) {
            Ok(()) => return,
            Err(returned) => job = returned.0,
        }
    }
    // Shared, because a thread that cannot be made keeps what it was given.
    let job = Arc::new(Mutex::new(Some(job)));
    let take = |job: &Mutex<Option<Job>>| job.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = job.clone();
    let made = thread::Builder::new().spawn(move || take(&theirs).map(serve));
    if made.is_err()
        && let Some(job) = take(&job)
    {
        job();
    }
}

/// Does a job, and others that come soon after.
fn serve(mut job: Job) {
    loop {
        job();
        let (sender, jobs) = mpsc::channel();
        let me = thread::current().id();
        {
            let mut idle = idle();
            if idle.len() >= IDLE_MAX {
                return;
            }
            idle.push((me, sender));
        }
        let next = jobs.recv_timeout(IDLE_TIME).or_else(|_| {
            idle().retain(|(other, _)| *other != me);
            // Whoever has taken us off the list before brings something.
            jobs.recv()
        });
        job = match next {
            Ok(job) => job,
            Err(_) => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[tokio::test]
    async fn threads_are_used_again_and_one_that_panics_answers_nothing() {
        // Other tests use the same threads: any of them may come again.
        let mut used = HashSet::new();
        let mut again = false;
        for _ in 0..100 {
            again |= !used.insert(in_thread(|| thread::current().id()).await.unwrap());
        }
        assert!(again);
        assert_eq!(in_thread(|| -> u8 { panic!("as it should") }).await, None);
        let all: Vec<_> = (0..50).map(|number| begin_in_thread(move || number)).collect();
        for (number, done) in all.into_iter().enumerate() {
            assert_eq!(done.await.unwrap(), number);
        }
    }
}
