//! Catches signals that are sent to this process, and offers them as futures.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The signals by which a person or a client asks a program to end.
pub(crate) const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Resolves with the number of the first signal that asks us to end.
pub(crate) async fn asked_to_end() -> u8 {
    let mut caught = Caught::new(&ENDING);
    u8::try_from(caught.next().await).unwrap_or(0)
}

/// Signals that are caught from now on, in the order in which they come.
pub(crate) struct Caught {
    numbers: tokio::sync::mpsc::UnboundedReceiver<i32>,
}

impl Caught {
    /// Catches these; one that cannot be caught keeps its default effect, and one that we were
    /// started to ignore (by `nohup`, say) stays ignored.
    pub(crate) fn new(signals: &[Signal]) -> Self {
        let (sender, numbers) = tokio::sync::mpsc::unbounded_channel();
        let ignored = ignored();
        let wanted = signals.iter().map(|signal| signal.as_raw());
        for number in wanted.filter(|number| ignored & (1 << (number - 1)) == 0) {
            let Ok(mut stream) = signal(SignalKind::from_raw(number)) else {
                continue;
            };
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(number).is_ok() {}
            });
        }
        Self { numbers }
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> i32 {
        match self.numbers.recv().await {
            Some(number) => number,
            None => std::future::pending().await,
        }
    }
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
