//! The ledger's part in the stream of events: what this process and others do to tasks and
//! questions.
//!
//! Entries of the daybook tell themselves when they are read or written (`daybook/telling`); here
//! is who reads them: a task that lives for as long as anybody reads the stream, and a moment
//! longer.

mod live;
mod questions;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::{OwnedMutexGuard, oneshot, watch::Receiver},
    time::{Instant, sleep, sleep_until},
};

use self::{
    live::Live,
    questions::{Happened, Questions},
    watch::{LedgerWatch, Seen, ring},
};
use super::{Ledger, LedgerError, Task, daybook::Page, rebuild::DAYBOOK, writer::Writer};
use crate::{
    clock::now_ms,
    events::{EventCursor, EventKind, Events, Hub, Interest},
};

/// How long a stream goes on without readers who look live, so that one who was cut off comes back
/// and has missed nothing.
const LINGER: Duration = Duration::from_secs(30);

/// The least time between two looks, so that a crowd of changes is one look.
const PACE: Duration = Duration::from_millis(5);

impl Ledger {
    /// The stream of what happens, after an event or from now on.
    pub async fn events(
        &self,
        after: Option<EventCursor>,
        interest: Interest,
    ) -> Result<Events, LedgerError> {
        let writer = &self.writer;
        // Counts from here on, so that a stream which goes on does not end just now.
        let reader = writer.hub.join(interest, writer.clone());
        let alone = writer.feeding.clone().lock_owned().await;
        if writer.hub.is_fed() {
            drop(alone);
        } else {
            // In a task of its own, so that it goes on if whoever asked does not.
            let (sender, begun) = oneshot::channel();
            tokio::spawn(feed(writer.clone(), alone, sender));
            begun.await.unwrap_or(Err(LedgerError::Cut))?;
        }
        let mut reader = reader.begin(after);
        if let Some(after) = after.filter(|_| reader.is_lost()) {
            self.resume(&mut reader, after).await?;
        }
        Ok(reader)
    }

    /// Finds the place that a cursor of another process stands for, if everything that happened
    /// since is known.
    async fn resume(&self, reader: &mut Events, after: EventCursor) -> Result<(), LedgerError> {
        let Some(place) = after.lasting() else { return Ok(()) };
        let hub = self.writer.hub.clone();
        // Under the lock all entries have been told, and no other one comes between.
        let found = self.writer.note(move |page| Ok((page.book().since(place), hub.told())));
        let (Some(earlier), told) = found.await? else { return Ok(()) };
        let questions = told.lasting().map(|told| told.questions);
        reader.resume(after, earlier, told, questions != Some(place.questions));
        Ok(())
    }

    /// How many readers of the stream look at tasks live.
    pub(crate) fn live_readers(&self) -> Receiver<usize> {
        self.writer.hub.live_readers()
    }

    /// Tells the readers of the stream that a task waits for input.
    pub(crate) fn waits_for_input(&self, task: &Task) {
        let what = EventKind::WaitingForInput { task_id: task.task_id.clone() };
        self.writer.hub.tell(now_ms(), Some(task.workspace.as_str().into()), what);
    }
}

impl Writer {
    /// Tells all processes that look that a question was opened or answered.
    pub(super) fn ring(&self) {
        ring(&self.state.beside_ledger(DAYBOOK));
        self.hub.nudge();
    }
}

/// Feeds the stream; says when that has begun, or why not.
async fn feed(
    writer: Arc<Writer>,
    alone: OwnedMutexGuard<()>,
    begun: oneshot::Sender<Result<(), LedgerError>>,
) {
    let feed = Feed::begin(&writer).await;
    drop((writer, alone));
    match feed {
        Ok(feed) => {
            // Whoever asked may have left.
            let _ = begun.send(Ok(()));
            feed.run().await;
        }
        Err(error) => drop(begun.send(Err(error))),
    }
}

/// Who feeds the stream.
#[derive(Debug)]
struct Feed {
    hub: Arc<Hub>,
    /// It is kept by those who read, and by whoever uses the ledger.
    writer: Weak<Writer>,
    watch: LedgerWatch,
    questions: Questions,
    /// The tasks whose output is looked at, while anybody wants that.
    live: Option<Live>,
    /// When nobody looked at tasks live any more.
    dull_since: Option<Instant>,
    /// Whether all know that it has ended.
    ended: bool,
}

impl Feed {
    /// Begins: from here on everything is told that happens.
    async fn begin(writer: &Arc<Writer>) -> Result<Self, LedgerError> {
        let mut stream = [0; 8];
        getrandom::fill(&mut stream).map_err(io::Error::other)?;
        let stream = u64::from_le_bytes(stream);
        // First, so that nothing comes between what is read now and what is told later.
        let watch = LedgerWatch::new(&writer.state);
        let mut feed = Self {
            watch,
            questions: Questions::default(),
            live: None,
            dull_since: None,
            ended: false,
            hub: writer.hub.clone(),
            writer: Arc::downgrade(writer),
        };
        // What is asked already is no news.
        feed.compare_questions(writer).await?;
        let (hub, questions) = (writer.hub.clone(), feed.questions.mark);
        let begin = move |page: &mut Page<'_>| {
            hub.begin(stream, page.book().place(questions));
            page.book().tell_to(hub.clone());
            Ok(())
        };
        writer.note(begin).await?;
        Ok(feed)
    }

    /// Feeds until nobody has read for a while.
    async fn run(mut self) {
        loop {
            let due = self.due();
            let seen = tokio::select! {
                seen = self.watch.changed() => seen,
                () = self.hub.nudged() => Seen { questions: true, ..Seen::default() },
                () = until(due) => Seen::default(),
            };
            let Some(writer) = self.writer.upgrade().filter(|_| !self.is_over()) else { return };
            self.look(&writer, seen).await;
            drop(writer);
            sleep(PACE).await;
        }
    }

    /// When to look, whether or not anything changes.
    fn due(&self) -> Option<Instant> {
        let expiry = self.questions.next_end_ms().map(|end_ms| {
            let left_ms = u64::try_from(end_ms.saturating_sub(now_ms())).unwrap_or(0);
            Instant::now() + Duration::from_millis(left_ms)
        });
        let growth = self.live.as_ref().and_then(Live::due);
        let dull = self.dull_since.map(|since| since + LINGER);
        [expiry, growth, dull].into_iter().flatten().min()
    }

    /// Whether nobody reads any more, and nobody will come back.
    fn is_over(&mut self) -> bool {
        let is_dull = |since: Instant| Instant::now() >= since + LINGER;
        let lingers = self.live.is_some() && !self.dull_since.is_some_and(is_dull);
        self.ended = !lingers && self.hub.end_if_unread();
        self.ended
    }

    /// Looks at what may have changed, and tells what has.
    async fn look(&mut self, writer: &Arc<Writer>, seen: Seen) {
        let looked = async {
            if seen.all || seen.entries {
                writer.look().await?;
            }
            let expired = self.questions.next_end_ms().is_some_and(|end_ms| end_ms <= now_ms());
            if seen.all || seen.questions || expired {
                self.questions_changed(writer).await?;
            }
            self.look_live(writer, &seen).await
        };
        if let Err(error) = looked.await {
            tracing::warn!(%error, "events were missed");
            self.hub.lose();
        }
    }

    async fn questions_changed(&mut self, writer: &Arc<Writer>) -> Result<(), LedgerError> {
        let mut happened = self.compare_questions(writer).await?;
        let last = happened.pop();
        let tell = |(workspace, what)| self.hub.tell(now_ms(), Some(workspace), what);
        happened.into_iter().for_each(tell);
        // Whoever has heard of the last one knows all of them.
        self.hub.mark_questions(self.questions.mark);
        last.into_iter().for_each(tell);
        Ok(())
    }

    /// What became of the questions since they were last compared with the ledger.
    async fn compare_questions(
        &mut self,
        writer: &Arc<Writer>,
    ) -> Result<Vec<Happened>, LedgerError> {
        let known = self.questions.clone();
        let compared = writer.read_unposted(move |connection| {
            let mut questions = known.clone();
            let happened = questions.look(connection, now_ms())?;
            Ok((questions, happened))
        });
        let (questions, happened) = compared.await?;
        self.questions = questions;
        Ok(happened)
    }

    /// Looks at the output of tasks, if anybody wants that.
    async fn look_live(&mut self, writer: &Arc<Writer>, seen: &Seen) -> Result<(), LedgerError> {
        let (now, is_wanted) = (Instant::now(), self.hub.is_read_live());
        self.dull_since = match &self.live {
            Some(_) if !is_wanted => Some(self.dull_since.unwrap_or(now)),
            _ => None,
        };
        if self.dull_since.take_if(|since| now >= *since + LINGER).is_some() {
            self.hub.set_live(false);
            self.live = None;
        }
        if self.live.is_none() && is_wanted {
            self.live = Some(Live::new(&writer.state));
            self.hub.set_live(true);
        }
        self.watch.watch_tasks(self.live.is_some());
        match &mut self.live {
            Some(live) => live.look(writer, self.watch.inotify(), seen).await,
            None => Ok(()),
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Its runtime has ended before its readers: whoever comes next begins another one.
        if !self.ended {
            self.hub.end();
        }
    }
}

/// Waits until then; for ever if there is no such time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
