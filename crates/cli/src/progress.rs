//! Progress on a terminal: says on stderr what a verb waits for, once that has taken half a second.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use crate::asking;

/// How long nobody wonders.
const QUIET: Duration = Duration::from_millis(500);

/// Waits, and after half a second says for what: on stderr, if that is a terminal. The line is gone
/// when the wait is over.
pub(crate) async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    if !io::stderr().is_terminal() {
        return work.await;
    }
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(QUIET) => {}
    }
    // A person who is asked something knows what we wait for.
    if asking::is_open() {
        return work.await;
    }
    let mut stderr = io::stderr();
    let _ = write!(stderr, "\r{what} …").and_then(|()| stderr.flush());
    let done = work.await;
    let _ = write!(stderr, "\r\u{1b}[K").and_then(|()| stderr.flush());
    done
}
