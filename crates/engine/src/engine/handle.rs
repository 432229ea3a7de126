//! `TaskHandle`: a running task in the hands of a host program: wait, read, send input, stop,
//! detach.

use std::time::Duration;

use legwork_warden::{folder::WindowSize, protocol::InputRefusal};

use super::{
    Engine,
    finished::{Finished, Texts},
    stream::OutputStream,
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::Caller,
    platform::Signal,
    task::{
        observe::{InputTaken, Observer},
        run::Run,
        survived,
        wait::{Condition, Until, until},
    },
};

/// As long as it takes: a command may read its input whenever it likes.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A task that is held: waited for, read, typed to, stopped.
///
/// # What dropping it does
///
/// A handle from [`Command::start`](super::Command::start) owns its command: dropped before the
/// end, it stops the command and everything below it, as dropping the future of an awaited command
/// does. [`TaskHandle::detach`] lets the command go on instead. A handle from [`Engine::attach`],
/// and one that joined a command which was running already, owns nothing: dropping it changes
/// nothing.
#[derive(Debug)]
#[must_use = "dropping the handle of a command that was just started stops the command"]
pub struct TaskHandle {
    engine: Engine,
    task_id: TaskId,
    /// The command, if it is this handle's own.
    run: Option<Run>,
    /// Who holds it.
    caller: Caller,
    /// Opened when it is needed.
    observer: Option<Observer>,
    texts: Texts,
}

impl TaskHandle {
    /// A handle that owns its command.
    pub(super) fn own(engine: Engine, run: Run, caller: Caller, texts: Texts) -> Self {
        let task_id = run.task_id().clone();
        Self { engine, task_id, run: Some(run), caller, observer: None, texts }
    }

    /// A handle that owns nothing.
    pub(super) fn of(engine: Engine, observer: Observer, caller: Caller, texts: Texts) -> Self {
        let task_id = observer.task().task_id.clone();
        Self { engine, task_id, run: None, caller, observer: Some(observer), texts }
    }

    /// The id of the task.
    pub fn task_id(&self) -> &TaskId {
        &self.task_id
    }

    /// Whether dropping it stops the command.
    pub fn is_owned(&self) -> bool {
        self.run.is_some()
    }

    /// The same, with secrets masked in the texts of [`TaskHandle::wait`] and in
    /// [`TaskHandle::output`].
    pub fn masked(mut self) -> Self {
        self.texts.masked = true;
        self
    }

    /// Waits until the command has ended. Safe to cancel.
    ///
    /// An error means that it never started, or that its output cannot be read.
    pub async fn wait(&mut self) -> Result<Finished, ToolError> {
        let texts = self.texts;
        if let Some(run) = &mut self.run {
            let ended = run.ended().await?;
            return Finished::of_run(&self.engine, run, &ended, texts);
        }
        let observer = self.observer().await?;
        observer.ended().await;
        let task = observer.task().clone();
        Finished::of_task(&self.engine, &task, texts).await
    }

    /// Waits until one of these conditions holds; none if the command ends and none can hold any
    /// more. Safe to cancel.
    pub async fn until(&mut self, wanted: &Until) -> Result<Option<Condition>, ToolError> {
        until(self.observer().await?, wanted).await
    }

    /// Stops the command and everything below it, and waits for its end: SIGTERM, this grace, then
    /// SIGKILL.
    ///
    /// Of a command that has ended, the processes are stopped that it left running. An error if a
    /// process cannot be ended; the details name it.
    pub async fn stop(&mut self, grace: Duration) -> Result<Finished, ToolError> {
        let caller = self.caller.clone();
        let mut controls = self.observer().await?.controls(&caller).await?;
        let stopped = controls.stop(Signal::TERM.as_raw(), grace).await?;
        match stopped.unwrap_or_default().as_slice() {
            [] => self.wait().await,
            survivors => Err(survived(survivors)),
        }
    }

    /// Writes to the command's stdin or types on its terminal, and waits until all of it was taken.
    ///
    /// The command must have been started with [`Stdin::Open`](crate::Stdin::Open) or with a
    /// terminal; otherwise, and when it has closed its stdin, the error has the kind
    /// [`ErrorKind::InputRefused`]. If the future is dropped before its end, an unknown part has
    /// been taken.
    pub async fn send(&mut self, input: impl AsRef<[u8]>) -> Result<(), ToolError> {
        let input = input.as_ref();
        let caller = self.caller.clone();
        self.observer().await?.controls(&caller).await?;
        // Taken out: a call that is cut off must not leave its answer to the next one.
        let Some(mut observer) = self.observer.take() else { return Ok(()) };
        let InputTaken { bytes, refusal } =
            observer.controls(&caller).await?.input(input, FOREVER).await;
        self.observer = Some(observer);
        if bytes == input.len() as u64 && refusal.is_none() {
            return Ok(());
        }
        Err(self.refused(refusal).detail("bytes_taken", bytes))
    }

    /// Ends the input: closes stdin, or types the end-of-file character on a terminal.
    pub async fn end_input(&mut self) -> Result<(), ToolError> {
        let caller = self.caller.clone();
        self.observer().await?.controls(&caller).await?;
        let Some(mut observer) = self.observer.take() else { return Ok(()) };
        let refusal = observer.controls(&caller).await?.end_input().await;
        self.observer = Some(observer);
        refusal.map_or(Ok(()), |refusal| Err(self.refused(Some(refusal))))
    }

    /// Gives the terminal another size; without a terminal nothing happens.
    pub async fn resize(&mut self, size: WindowSize) -> Result<(), ToolError> {
        let caller = self.caller.clone();
        self.observer().await?.controls(&caller).await?.resize(size).await;
        Ok(())
    }

    /// The output from its beginning and as it comes. It does not need this handle, and can go
    /// elsewhere.
    pub async fn output(&self) -> Result<OutputStream, ToolError> {
        Ok(OutputStream::new(self.observe().await?, self.texts.masked))
    }

    /// Lets the command go on without this handle, as a task that any engine on the state folder
    /// can attach to.
    ///
    /// When this program ends, the command goes on for
    /// [`Options::orphan_ttl`](crate::Options::orphan_ttl).
    pub async fn detach(mut self) -> TaskId {
        if let Some(run) = &mut self.run {
            // One that is over by now needs no promotion.
            let _ = run.promote().await;
        }
        self.task_id
    }

    /// Everything else that can be asked of the task: its row in the ledger, a report of its
    /// warden.
    pub async fn observer(&mut self) -> Result<&mut Observer, ToolError> {
        let observer = match self.observer.take() {
            Some(observer) => observer,
            None => self.observe().await?,
        };
        Ok(self.observer.insert(observer))
    }

    async fn observe(&self) -> Result<Observer, ToolError> {
        let task = self.engine.task(self.task_id.as_str()).await?;
        self.engine.observe(task).await
    }

    fn refused(&self, refusal: Option<InputRefusal>) -> ToolError {
        let (reason, problem) = match refusal {
            Some(InputRefusal::NoInput) => ("no_input", "it was started without an open stdin"),
            Some(InputRefusal::Closed) => ("closed", "its stdin is closed"),
            Some(InputRefusal::Ended) => ("ended", "it has ended"),
            Some(InputRefusal::Full) | None => ("full", "it does not read what it was sent"),
        };
        ToolError::new(
            ErrorKind::InputRefused,
            format!("task {} takes no input: {problem}", self.task_id),
        )
        .detail("task_id", self.task_id.as_str())
        .detail("reason", reason)
    }
}
