//! How an observer reaches the warden of its task: dialed until it holds the task, or until the
//! task is known to be over.

use std::time::Duration;

use legwork_warden::protocol::{self, FromWarden};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{super::places::out_of_reach, ANSWER, Observer, Said};
use crate::{
    error::{ErrorKind, ToolError},
    events::Interest,
    id::TaskId,
    place::Channel,
    store::ledger::LedgerError,
};

/// A warden that cannot be reached, because a place or a folder is gone for a while, is dialed
/// again after this long, and then after pauses that grow.
const PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether a task has left its queue, where nobody tells.
const LOOK: Duration = Duration::from_secs(1);

/// Who answers for a warden's name.
enum Dialed {
    /// The warden, with the task.
    Holds(Channel),
    /// The warden, without the task or with another one.
    HoldsNot(Channel),
    /// Nobody.
    Nobody,
    /// Nobody can be asked: its place is out of reach.
    OutOfReach(Box<ToolError>),
}

/// Waits until a warden says that it holds a task, or is gone; for ever if there is none.
async fn takes(warden: &mut Option<Channel>, task: &TaskId) -> bool {
    let Some(warden) = warden else { return std::future::pending().await };
    loop {
        match warden.receive_of_warden().await {
            Ok(FromWarden::Hello { task: Some(held), .. }) if held == task.as_str() => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

impl Observer {
    /// Connects to the warden, if the task has one; one that has none is settled.
    pub(super) async fn connect(&mut self) -> Result<(), ToolError> {
        let deadline = Instant::now() + ANSWER;
        let mut pause = PAUSE;
        let mut news = None;
        let mut problem = None;
        loop {
            if self.has_left_nothing() {
                return Ok(());
            }
            if self.is_queued() {
                let seen = Box::pin(self.tasks.seen_in_queue(self.task.clone())).await;
                self.task = seen.map_err(|error: LedgerError| ToolError::from(error))?;
                if self.is_queued() {
                    return Ok(());
                }
            }
            let mut idle = match self.dial(deadline).await? {
                Dialed::Holds(channel) => {
                    self.channel = Some(channel);
                    return Ok(());
                }
                Dialed::HoldsNot(channel) => Some(channel),
                Dialed::Nobody => None,
                Dialed::OutOfReach(error) => {
                    problem = Some(error);
                    None
                }
            };
            // It may have ended, and its warden have another task by now.
            let settled = async {
                let task = self.tasks.read_again(self.task.clone()).await?;
                self.tasks.settle_if_gone(task).await
            };
            // Rare, and long: what is boxed keeps the way of others short.
            let settled = Box::pin(settled).await;
            self.task = settled.map_err(|error: LedgerError| ToolError::from(error))?;
            if self.task.status.is_final() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(problem.map_or_else(|| self.no_answer(), |problem| *problem));
            }
            let Some((events, ended)) = &mut news else {
                // What has happened by then is seen at the next look.
                let events = self.tasks.store.ledger.events(None, Interest::Changes).await?;
                news = Some((events, self.tasks.place.engines_ended()));
                continue;
            };
            // It is just about to start, its end is just being committed, or its engine has ended.
            let task = &self.task.task_id;
            tokio::select! {
                is_held = takes(&mut idle, task) => if is_held {
                    self.channel = idle;
                    return Ok(());
                },
                () = events.of_task(task) => {}
                _ = ended.changed() => {}
                () = sleep_until(deadline.min(Instant::now() + pause)) => pause *= 4,
            }
        }
    }

    /// Waits until it runs or is over.
    pub(super) async fn begins(&mut self) -> Said {
        let Ok(mut events) = self.tasks.store.ledger.events(None, Interest::Changes).await else {
            return Said::Gone;
        };
        loop {
            if let Ok(task) = self.tasks.read_again(self.task.clone()).await {
                self.task = task;
            }
            if Box::pin(self.connect()).await.is_ok() && self.channel.is_some() {
                return Said::Began;
            }
            if self.is_over() {
                return Said::Ended;
            }
            tokio::select! {
                () = events.of_task(&self.task.task_id) => {}
                () = sleep_until(Instant::now() + LOOK) => {}
            }
        }
    }

    /// Dials the warden.
    async fn dial(&mut self, deadline: Instant) -> Result<Dialed, ToolError> {
        let place = self.place();
        let mut channel = match place.dial(&self.task.warden).await {
            Ok(channel) => channel,
            Err(error) if !place.is_connected() => {
                return Ok(Dialed::OutOfReach(Box::new(out_of_reach(&error))));
            }
            Err(_) => return Ok(Dialed::Nobody),
        };
        let mut hello = timeout(ANSWER / 3, channel.receive_of_warden()).await;
        if hello.is_err() {
            channel.resume();
            hello = timeout_at(deadline, channel.receive_of_warden()).await;
        }
        match hello {
            Ok(Ok(FromWarden::Hello { version, task, .. })) if version == protocol::version() => {
                let holds = task.as_deref() == Some(self.task.task_id.as_str());
                Ok(if holds { Dialed::Holds(channel) } else { Dialed::HoldsNot(channel) })
            }
            Ok(Ok(FromWarden::Hello { version, .. })) => Err(ToolError::new(
                ErrorKind::ToolExecutionFailed,
                format!("the task's supervisor speaks version {version} of the protocol"),
            )
            .hint("use the program that started the task")),
            Ok(_) => Ok(Dialed::Nobody),
            Err(_) => Err(self.no_answer()),
        }
    }
}
