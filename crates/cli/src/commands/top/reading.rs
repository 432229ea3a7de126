//! Reads for `top`: tasks and questions when the event stream tells of a change, the output of the
//! selected task when its warden does. By the clock is read only what no event tells: what the
//! selected task uses.

use std::{collections::HashSet, time::Duration};

use futures_util::FutureExt;
use legwork::{
    Engine, ErrorKind, EventKind, Events, Interest, Observer, ShownChanges, TaskFilter, TaskId,
    ToolError, TrialState,
    gate::units::shown_bytes,
    output::{Mask, OutputTail, Screen, TaskOutput},
};
use tokio::{
    sync::mpsc::Sender,
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};

use super::{
    lines::{TextRow, safe},
    list::TaskRow,
    output::PaneText,
    questions::OpenedQuestion,
    state::{Message, TASKS_MAX},
    trials::{TrialRow, TrialText},
};
use crate::{
    commands::{
        listed,
        resources::{used_briefly, uses_briefly},
    },
    render::one_line,
    style::{Tone, from_home},
};

/// Characters of a trial's command and folder that are shown.
const TRIAL_CHARS_MAX: usize = 512;

/// Changes within this time are read together.
const PAUSE: Duration = Duration::from_millis(50);

/// Of more changed tasks than these, all are read.
const FEW: usize = 32;

/// How long a task must be selected before its output is read: whoever moves through the list looks
/// at none of them.
const REST: Duration = Duration::from_millis(40);

/// How long after output was read it is read again at the earliest.
const OUTPUT_PAUSE: Duration = Duration::from_millis(100);

/// Reading may take a fifth of the time.
const OUTPUT_SHARE: u32 = 4;

/// How often the processor time and the memory of the task that is looked at are read.
const LIVE: Duration = Duration::from_secs(2);

/// Bytes of the end of the output that are read.
const TAIL_BYTES: u64 = 128 * 1024;

/// What has to be read.
#[derive(Debug, Default)]
struct Changes {
    tasks: HashSet<TaskId>,
    all_tasks: bool,
    questions: bool,
    /// Tasks that have begun to wait for input, or no longer do.
    waiting: Vec<(TaskId, bool)>,
    /// All that were told to wait.
    told_waiting: HashSet<TaskId>,
}

impl Changes {
    fn everything() -> Self {
        Self { all_tasks: true, questions: true, ..Self::default() }
    }

    fn note(&mut self, event: Option<&EventKind>) {
        match event {
            // Some were missed.
            None => (self.all_tasks, self.questions) = (true, true),
            Some(EventKind::OutputGrew { task_id, .. }) => {
                if self.told_waiting.remove(task_id) {
                    self.waiting.push((task_id.clone(), false));
                }
            }
            Some(EventKind::WaitingForInput { task_id }) => {
                if self.told_waiting.insert(task_id.clone()) {
                    self.waiting.push((task_id.clone(), true));
                }
            }
            Some(event) => {
                if let EventKind::TaskEnded { task_id, .. } = event {
                    self.told_waiting.remove(task_id);
                }
                self.tasks.extend(event.task_id().cloned());
                // A question about a program is over when its task is.
                self.questions |= event.approval_id().is_some() || event.task_id().is_some();
            }
        }
        self.all_tasks |= self.tasks.len() > FEW;
    }

    fn is_empty(&self) -> bool {
        let nothing_read = self.tasks.is_empty() && !self.all_tasks && !self.questions;
        nothing_read && self.waiting.is_empty()
    }

    /// What there is to read, which then is no more.
    fn take(&mut self) -> Self {
        let told_waiting = std::mem::take(&mut self.told_waiting);
        std::mem::replace(self, Self { told_waiting, ..Self::default() })
    }
}

/// Reads tasks and questions, now and whenever they change, until nobody listens.
pub(super) async fn read_changes(engine: Engine, sender: Sender<Message>) {
    // Before the first look, so that nothing falls between.
    match engine.events(None, Interest::Live).await {
        Ok(events) => keep_reading(&engine, events, &sender).await,
        Err(error) => drop(sender.send(Message::Failed(error)).await),
    }
}

async fn keep_reading(engine: &Engine, mut events: Events, sender: &Sender<Message>) {
    let mut changes = Changes::everything();
    loop {
        for message in read(engine, changes.take()).await {
            if sender.send(message).await.is_err() {
                return;
            }
        }
        while changes.is_empty() {
            let event = events.next().await;
            changes.note(event.as_deref().ok().map(|event| &event.what));
        }
        sleep(PAUSE).await;
        while let Some(event) = events.next().now_or_never() {
            changes.note(event.as_deref().ok().map(|event| &event.what));
        }
    }
}

/// Reads what has changed; a problem becomes something that is told.
async fn read(engine: &Engine, changes: Changes) -> Vec<Message> {
    let told = |error: ToolError| Message::Told(error.message);
    let mut messages: Vec<Message> = Vec::new();
    if changes.all_tasks {
        messages.push(all_tasks(engine).await.unwrap_or_else(told));
    } else if !changes.tasks.is_empty() {
        messages.push(some_tasks(engine, changes.tasks).await.unwrap_or_else(told));
    }
    if changes.questions {
        messages.push(questions(engine).await.unwrap_or_else(told));
    }
    messages.extend(changes.waiting.into_iter().map(|(id, waits)| Message::Waiting(id, waits)));
    messages
}

/// The newest tasks, and all that run.
async fn all_tasks(engine: &Engine) -> Result<Message, ToolError> {
    let (mut tasks, total) = engine.tasks_matching(TaskFilter::default(), TASKS_MAX).await?;
    if total > tasks.len() as u64 {
        let held: HashSet<TaskId> = tasks.iter().map(|task| task.task_id.clone()).collect();
        let (open, _) = engine.tasks_matching(TaskFilter::open(), TASKS_MAX).await?;
        tasks.extend(open.into_iter().filter(|task| !held.contains(&task.task_id)));
    }
    let mask = engine.mask();
    let rows = tasks.into_iter().map(|task| TaskRow::of(&task.masked(&mask))).collect();
    Ok(Message::Tasks(rows, total))
}

async fn some_tasks(engine: &Engine, ids: HashSet<TaskId>) -> Result<Message, ToolError> {
    let mask = engine.mask();
    let (mut rows, mut removed) = (Vec::new(), Vec::new());
    for id in ids {
        match engine.task(id.as_str()).await {
            Ok(task) => rows.push(TaskRow::of(&task.masked(&mask))),
            Err(error) if error.kind == ErrorKind::UnknownTask => removed.push(id),
            Err(error) => return Err(error),
        }
    }
    Ok(Message::Changed(rows, removed))
}

/// All open questions.
pub(super) async fn questions(engine: &Engine) -> Result<Message, ToolError> {
    let known = |approval| {
        let (is_live, replies) = (engine.is_asking(&approval), engine.replies(&approval));
        OpenedQuestion { approval, is_live, replies }
    };
    Ok(Message::Questions(engine.approvals().await?.into_iter().map(known).collect()))
}

/// Lines of a trial's list of files, and lines and bytes of its difference.
const TRIAL_SHOWN: ShownChanges = ShownChanges { lines_max: 1000, diff: Some((3000, 256 << 10)) };

/// All trials; a problem becomes something that is told.
pub(super) async fn trials(engine: &Engine) -> Message {
    let mask = engine.mask();
    let row = |trial: TrialState| {
        let part = if trial.applied.is_empty() { "" } else { ", applied in part" };
        let (when, bytes) = (listed::age(trial.created_at_ms), shown_bytes(trial.bytes));
        let runs = !trial.status.is_final();
        TrialRow {
            status: (if runs { Tone::Good } else { Tone::Plain }, trial.status.as_str().into()),
            runs,
            command: one_line(&mask.text(&trial.command), TRIAL_CHARS_MAX),
            folder: one_line(&from_home(&trial.workspace.to_string_lossy()), TRIAL_CHARS_MAX),
            facts: format!("{when} ago, {bytes}{part}"),
            id: trial.task_id,
        }
    };
    match engine.trials().await {
        Ok(trials) => Message::Trials(trials.into_iter().map(row).collect()),
        Err(error) => Message::Told(error.message),
    }
}

/// Reads the changes of a trial.
pub(super) async fn trial_text(engine: &Engine, id: TaskId) -> Message {
    let read = async {
        let task = engine.trial(id.as_str()).await?;
        engine.trial_changes(&task, Vec::new(), TRIAL_SHOWN).await
    };
    let text = match read.await {
        Ok(changes) => {
            let diff = changes.diff.as_deref().unwrap_or_default();
            let can_apply = !changes.changes.all.is_empty();
            TrialText::of(&changes.counted, &changes.list, diff, can_apply)
        }
        Err(error) => TrialText::problem(&error.message),
    };
    Message::TrialText(id, text)
}

/// What is to be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Followed {
    pub task: TaskId,
    /// Since when it is looked at.
    pub turn: u64,
    /// Whether as text, also if it has a screen.
    pub as_text: bool,
}

/// Follows the output of the task that is looked at, and of no other.
#[derive(Debug, Default)]
pub(super) struct Follower {
    followed: Option<Followed>,
    following: Option<JoinHandle<()>>,
}

impl Follower {
    /// Follows this one.
    pub(super) fn follow(
        &mut self,
        wanted: Option<Followed>,
        engine: &Engine,
        sender: &Sender<Message>,
    ) {
        if self.followed == wanted {
            return;
        }
        if let Some(following) = self.following.take() {
            following.abort();
        }
        if let Some(Followed { task: id, as_text, .. }) = wanted.clone() {
            let (engine, sender) = (engine.clone(), sender.clone());
            self.following = Some(tokio::spawn(async move {
                sleep(REST).await;
                if let Err(error) = follow(&engine, &id, as_text, &sender).await {
                    let printed = PaneText { problem: Some(error.message), ..PaneText::default() };
                    let _ = sender.send(Message::PaneText(id, printed)).await;
                }
            }));
        }
        self.followed = wanted;
    }
}

/// Reads the end of a task's output whenever there is more, until the task is over.
async fn follow(
    engine: &Engine,
    id: &TaskId,
    as_text: bool,
    sender: &Sender<Message>,
) -> Result<(), ToolError> {
    let task = engine.task(id.as_str()).await?;
    let as_screen = task.tty && !as_text;
    let mut observer = engine.observe(task).await?;
    loop {
        let is_over = observer.is_over();
        let output = observer.output().await?;
        let resources = resources_of(&mut observer).await?;
        let (stdout, stderr) = (output.stdout.bytes(), output.stderr.bytes());
        let (mask, began) = (observer.mask(), Instant::now());
        // In a thread of its own: keys do not wait for the disk or for an emulator.
        let read = spawn_blocking(move || printed(&output, &mask, as_screen && !is_over, is_over));
        let printed = read.await.map_err(|error| unreadable(&error))?;
        let printed = printed.map_err(|error| unreadable(&error))?;
        let printed = PaneText { resources, ..printed };
        let took = began.elapsed();
        if sender.send(Message::PaneText(id.clone(), printed)).await.is_err() || is_over {
            return Ok(());
        }
        sleep(OUTPUT_PAUSE.max(took * OUTPUT_SHARE)).await;
        // No event tells what a silent task uses: it is measured again while somebody looks.
        while timeout(LIVE, observer.changed(stdout, stderr)).await.is_err() {
            let uses = Message::Uses(id.clone(), resources_of(&mut observer).await?);
            if sender.send(uses).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// What a task has used, or uses now, in a few words.
async fn resources_of(observer: &mut Observer) -> Result<Option<String>, ToolError> {
    if let Some(outcome) = &observer.task().outcome {
        return Ok(outcome.resources.as_deref().map(used_briefly));
    }
    Ok(observer.resources().await?.as_ref().map(uses_briefly))
}

fn unreadable(problem: &dyn std::fmt::Display) -> ToolError {
    let problem = format!("cannot read the output: {problem}");
    ToolError::new(ErrorKind::ToolExecutionFailed, problem)
}

/// The end of an output, or its screen, as it is shown.
fn printed(
    output: &TaskOutput,
    mask: &Mask,
    as_screen: bool,
    is_over: bool,
) -> std::io::Result<PaneText> {
    let bytes = output.stdout.bytes() + output.stderr.bytes();
    let (lines, is_cut) = if as_screen {
        let screen = Screen::of(output)?;
        let lines = screen.coloured(mask).into_iter().map(|(line, looks)| safe(&line, looks));
        (lines.collect(), false)
    } else {
        let tail = output.tail(mask, TAIL_BYTES, is_over)?;
        (lines_of(&tail), tail.is_cut)
    };
    Ok(PaneText { lines, is_cut, is_screen: as_screen, bytes, problem: None, resources: None })
}

/// The lines of a tail, each with its looks.
fn lines_of(tail: &OutputTail) -> Vec<TextRow> {
    let mut at = 0;
    let lines = tail.text.split_inclusive('\n').map(|line| {
        let looks = tail.looks.get(at..).unwrap_or_default();
        at += line.chars().count();
        safe(line.strip_suffix('\n').unwrap_or(line), looks)
    });
    lines.collect()
}
