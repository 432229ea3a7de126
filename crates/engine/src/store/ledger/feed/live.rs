//! The open tasks, for those who look at their output live.

use std::{collections::HashMap, sync::Arc};

use tokio::time::Instant;

use super::{super::writer::Writer, LedgerError, watch::Seen};
use crate::{
    clock::now_ms,
    events::{Event, EventKind, growth::Growth},
    id::TaskId,
    inotify::Inotify,
    state::StateFolder,
};

/// The open tasks and what they print.
#[derive(Debug)]
pub(super) struct Live {
    /// With their workspaces; none before they were first asked for.
    open: Option<HashMap<TaskId, Arc<str>>>,
    growth: Growth,
    /// The last event that was taken note of.
    seen: u64,
}

impl Live {
    pub(super) fn new(state: &StateFolder) -> Self {
        Self { open: None, growth: Growth::new(state.path().join("tasks")), seen: 0 }
    }

    /// When somebody is to be looked at again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.growth.due()
    }

    /// Looks at what may have changed, and tells what has grown.
    pub(super) async fn look(
        &mut self,
        writer: &Arc<Writer>,
        inotify: Option<&Inotify>,
        seen: &Seen,
    ) -> Result<(), LedgerError> {
        let now = Instant::now();
        match writer.hub.since(&mut self.seen) {
            Some(events) if self.open.is_some() => {
                for event in events {
                    self.take(&event, inotify);
                }
            }
            // Nothing is known yet, or something was missed.
            _ => {
                let open = writer.note(|page| Ok(page.open_workspaces())).await?;
                let open: HashMap<_, _> = open.into_iter().collect();
                self.growth.retain(|task| open.contains_key(task), inotify);
                self.growth.add(open.keys(), now);
                self.open = Some(open);
            }
        }
        let Some(open) = &self.open else { return Ok(()) };
        if seen.all {
            self.growth.add(open.keys(), now);
            self.growth.all_changed(now);
        }
        self.growth.add(seen.folders.iter().filter(|task| open.contains_key(task)), now);
        self.growth.changed(&seen.grown, now);
        self.growth.look(now, inotify, |task, what| {
            writer.hub.tell(now_ms(), open.get(task).cloned(), what);
        });
        Ok(())
    }

    /// Takes note of tasks that start and end.
    fn take(&mut self, event: &Event, inotify: Option<&Inotify>) {
        let Some(open) = &mut self.open else { return };
        match &event.what {
            EventKind::TaskStarted { task_id, .. } => {
                open.extend(event.workspace.clone().map(|workspace| (task_id.clone(), workspace)));
            }
            EventKind::TaskEnded { task_id, .. } | EventKind::TaskRemoved { task_id } => {
                open.remove(task_id);
                self.growth.remove(task_id, inotify);
            }
            _ => {}
        }
    }
}
