//! Catches what Windows has for signals: Ctrl-C, Ctrl-Break, a console that is closed.

use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close};

use crate::platform::Signal;

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
    /// Catches those of these that there are.
    pub(crate) fn new(signals: &[Signal]) -> Self {
        let (sender, numbers) = tokio::sync::mpsc::unbounded_channel();
        macro_rules! catch {
            ($signal:expr, $listen:expr) => {
                if signals.contains(&$signal)
                    && let Ok(mut stream) = $listen
                {
                    let sender = sender.clone();
                    tokio::spawn(async move {
                        let number = $signal.as_raw();
                        while stream.recv().await.is_some() && sender.send(number).is_ok() {}
                    });
                }
            };
        }
        catch!(Signal::INT, ctrl_c());
        catch!(Signal::TERM, ctrl_break());
        catch!(Signal::HUP, ctrl_close());
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
