//! What is done to a task by one who may act on it: typing, the size of its terminal, its end.

use std::time::Duration;

use legwork_warden::{
    folder::WindowSize,
    protocol::{EndCause, InputRefusal, Order},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{ANSWER, Observer, Said};
use crate::{error::ToolError, task::DEATH};

/// Bytes of input that are handed over at a time.
const INPUT_BYTES: usize = 32 * 1024;

/// The bytes of input that were taken, and why the rest was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputTaken {
    /// Bytes that the command's stdin or terminal took.
    pub bytes: u64,
    /// Why the rest was not taken; none also when the time was over.
    pub refusal: Option<InputRefusal>,
}

/// The hands of a caller on a task: there is no other way to act on one.
#[derive(Debug)]
pub struct Controls<'a>(pub(super) &'a mut Observer);

impl Controls<'_> {
    /// Writes to the command's stdin or types on its terminal, for as long as it takes or this
    /// long.
    pub async fn input(&mut self, bytes: &[u8], patience: Duration) -> InputTaken {
        let deadline = Instant::now() + patience;
        let mut taken = InputTaken::default();
        if timeout_at(deadline, self.0.begun()).await.is_err() {
            return taken;
        }
        for piece in bytes.chunks(INPUT_BYTES) {
            self.0.order(Order::Input(piece.to_vec())).await;
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
            match self.0.receive().await {
                Said::InputTaken(taken) => return taken,
                Said::Gone => {
                    return InputTaken { bytes: 0, refusal: Some(InputRefusal::Ended) };
                }
                // Output that was told of is told of once.
                other => self.0.events.push_back(other),
            }
        }
    }

    /// Takes back what has not been written; how much was is then exact.
    async fn withdraw_input(&mut self, piece_bytes: u64) -> InputTaken {
        self.0.order(Order::WithdrawInput).await;
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
        self.0.order(Order::EndInput).await;
        match timeout(ANSWER, self.input_answer()).await {
            Ok(answer) => answer.refusal,
            Err(_) => Some(InputRefusal::Full),
        }
    }

    /// Gives the terminal another size.
    pub async fn resize(&mut self, size: WindowSize) {
        self.0.order(Order::Resize(size)).await;
    }

    /// Stops the command and everything below it; returns the processes that could not be ended, or
    /// nothing if there was nothing left to stop.
    pub async fn stop(
        &mut self,
        signal: i32,
        grace: Duration,
    ) -> Result<Option<Vec<u32>>, ToolError> {
        if self.0.is_queued() {
            if self.0.tasks.stop_queued(&self.0.task).await? {
                self.0.task = self.0.tasks.read_again(self.0.task.clone()).await?;
                return Ok(Some(Vec::new()));
            }
            // It has just begun.
            let _ = timeout(ANSWER, self.0.begun()).await;
        }
        if self.0.channel.is_none() {
            return Ok(None);
        }
        if !self.0.is_over()
            && let Err(error) = self.0.tasks.store.ledger.cancelling(&self.0.task.task_id).await
        {
            // What cannot be noted has to be stopped all the same.
            tracing::warn!(%error, "the ledger does not say that the task is being stopped");
        }
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.0.order(Order::Stop { signal, grace_ms, because: EndCause::Stopped }).await;
        let stopped = async {
            loop {
                match self.0.receive().await {
                    Said::Stopped(survivors) => return survivors,
                    Said::Gone => return Vec::new(),
                    _ => {}
                }
            }
        };
        let Ok(survivors) = timeout(grace + DEATH + ANSWER, stopped).await else {
            return Err(self.0.no_answer());
        };
        // Another observer or the owner may have recorded the end first.
        self.0.task = self.0.tasks.read_again(self.0.task.clone()).await?;
        if self.0.is_over() {
            self.0.tasks.forget_there(&self.0.task.warden, &self.0.task.task_id, true);
        }
        Ok(Some(survivors))
    }
}
