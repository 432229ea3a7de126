//! Input for a task, typed by an observer: how much of it was taken is always exact.

use std::time::Duration;

use legwork_warden::protocol::{InputRefusal, Order};
use tokio::time::{Instant, timeout, timeout_at};

use super::{ANSWER, Observer, Said};

/// Bytes of input that are handed over at a time.
const INPUT_BYTES: usize = 32 * 1024;

/// What became of input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputTaken {
    /// Bytes that the command's stdin or terminal took.
    pub bytes: u64,
    /// Why the rest was not taken; none also when the time was over.
    pub refusal: Option<InputRefusal>,
}

impl Observer {
    /// Writes to the command's stdin or types on its terminal, for as long as it takes or this
    /// long.
    pub async fn input(&mut self, bytes: &[u8], patience: Duration) -> InputTaken {
        let deadline = Instant::now() + patience;
        let mut taken = InputTaken::default();
        if timeout_at(deadline, self.begun()).await.is_err() {
            return taken;
        }
        for piece in bytes.chunks(INPUT_BYTES) {
            self.order(Order::Input(piece.to_vec())).await;
            let answer = match timeout_at(deadline, self.input_answer()).await {
                Ok(answer) => answer,
                Err(_) => self.withdraw_input(piece.len() as u64).await,
            };
            taken.bytes += answer.bytes;
            taken.refusal = answer.refusal;
            if answer.bytes < piece.len() as u64 {
                break;
            }
        }
        taken
    }

    async fn input_answer(&mut self) -> InputTaken {
        loop {
            match self.receive().await {
                Said::InputTaken(taken) => return taken,
                Said::Gone => {
                    return InputTaken { bytes: 0, refusal: Some(InputRefusal::Ended) };
                }
                // Output that was told of is told of once.
                other => self.events.push_back(other),
            }
        }
    }

    /// Takes back what has not been written; how much was is then exact.
    async fn withdraw_input(&mut self, piece_bytes: u64) -> InputTaken {
        self.order(Order::WithdrawInput).await;
        let answered = async {
            let answer = self.input_answer().await;
            // The input was answered just before it was taken back: that is answered too.
            if answer.bytes == piece_bytes || answer.refusal.is_some() {
                let _ = self.input_answer().await;
            }
            answer
        };
        timeout(ANSWER, answered).await.unwrap_or_default()
    }

    /// Ends the input: closes a pipe, types the end-of-file character on a terminal. Returns why it
    /// could not.
    pub async fn end_input(&mut self) -> Option<InputRefusal> {
        self.order(Order::EndInput).await;
        match timeout(ANSWER, self.input_answer()).await {
            Ok(answer) => answer.refusal,
            Err(_) => Some(InputRefusal::Full),
        }
    }
}
