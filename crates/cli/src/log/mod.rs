//! The log on stderr: one line for each event, as text or as JSON, without secrets.
//!
//! Without `--log-format` only errors are logged, and people are told things in plain words
//! ([`say`](crate::render::say)). With it every request, call and task has a line, and whatever is
//! said becomes one, too. Lines are written by a thread of their own: whoever does not read our
//! stderr keeps nobody waiting, and loses lines.

mod line;
mod writer;

use std::{
    borrow::Cow,
    sync::{OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use clap::ValueEnum;
use legwork::{
    Answer, Engine, ErrorKind, Event, EventKind,
    output::{Mask, SharedMask},
};
use tracing::Level;
use tracing_subscriber::EnvFilter;

use self::{
    line::{LineFormat, LogLine},
    writer::LogWriter,
};

/// The variable that says what is logged.
const VARIABLE: &str = "LEGWORK_LOG";

/// What is logged where a format is chosen and nothing else is said.
const USUAL: &str = "warn,legwork=info";

/// How long the last lines may take to be written.
const LAST_LINES: Duration = Duration::from_millis(20);

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Where lines go, if a format was chosen.
static LINES: OnceLock<(LogFormat, LogWriter)> = OnceLock::new();

/// What the engines of this process know to be secrets.
static MASKS: RwLock<Vec<SharedMask>> = RwLock::new(Vec::new());

/// Begins to log.
pub(crate) fn start(format: Option<LogFormat>) {
    let usual = if format.is_some() { USUAL } else { "error" };
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(usual));
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    let log = log.event_format(LineFormat(format));
    let Some(format) = format else {
        let _ = log.with_writer(std::io::stderr).try_init();
        return;
    };
    let writer = LogWriter::start();
    let _ = LINES.set((format, writer.clone()));
    let _ = log.with_writer(move || writer.clone()).try_init();
    // A panic is no line of JSON by itself.
    std::panic::set_hook(Box::new(|panic| _ = take(Level::ERROR, &panic.to_string())));
}

/// Whether stderr is a log.
pub(crate) fn is_kept() -> bool {
    LINES.get().is_some()
}

/// Logs what would be said to people; says whether it did.
pub(crate) fn take(level: Level, said: &str) -> bool {
    let Some((format, writer)) = LINES.get() else { return false };
    let mut line = LogLine::new(level, "legwork");
    said.strip_prefix("legwork: ").unwrap_or(said).clone_into(&mut line.message);
    writer.write(&line.render(Some(*format)));
    true
}

/// Writes the last lines, as far as that is done soon.
pub(crate) fn finish() {
    if let Some((_, writer)) = LINES.get() {
        writer.finish(LAST_LINES);
    }
}

/// From now on what this engine knows to be a secret is not logged.
pub(crate) fn keep_secrets_of(engine: &Engine) {
    if LINES.get().is_some() {
        MASKS.write().unwrap_or_else(PoisonError::into_inner).push(engine.shared_mask());
    }
}

/// A text as it may be logged.
fn masked(text: &str) -> String {
    let masks = MASKS.read().unwrap_or_else(PoisonError::into_inner);
    let mut text = Cow::Borrowed(text);
    for mask in &*masks {
        text = Cow::Owned(mask.get().text(&text).into_owned());
    }
    if masks.is_empty() {
        static OWN: OnceLock<Mask> = OnceLock::new();
        text = Cow::Owned(OWN.get_or_init(Mask::of_environment).text(&text).into_owned());
    }
    text.into_owned()
}

/// Logs the answer to a call of a tool.
pub(crate) fn called(request: &str, caller: &str, tool: &str, answer: &Answer, began: Instant) {
    if !tracing::enabled!(Level::INFO) {
        return;
    }
    let result = answer.failure().map_or("success", ErrorKind::as_str);
    let task = answer.envelope().result.as_ref().and_then(|result| {
        let handle = result.get("task_handle").unwrap_or(result);
        handle.get("task_id")?.as_str()
    });
    let duration_ms = milliseconds(began);
    tracing::info!(request_id = request, caller, tool, result, task_id = task, duration_ms, "call");
}

/// Milliseconds since then.
pub(crate) fn milliseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Logs what happened on the state folder.
pub(crate) fn happened(event: &Event) {
    let workspace = event.workspace.as_deref();
    match &event.what {
        EventKind::TaskStarted { task_id, tty } => {
            tracing::info!(%task_id, tty, workspace, "task started");
        }
        EventKind::TaskStanding { task_id, status, reason } => {
            let (status, reason) = (status.as_str(), reason.as_deref());
            tracing::info!(%task_id, status, reason, workspace, "task stands in a queue, or runs");
        }
        EventKind::TaskCancelling { task_id } => {
            tracing::info!(%task_id, workspace, "task is being stopped");
        }
        EventKind::TaskEnded { task_id, status, reason, stdout_bytes, stderr_bytes } => {
            let (status, reason) = (status.as_str(), reason.as_deref());
            tracing::info!(
                %task_id, status, reason, stdout_bytes, stderr_bytes, workspace, "task ended"
            );
        }
        EventKind::TaskRemoved { task_id } => {
            tracing::info!(%task_id, workspace, "task removed");
        }
        EventKind::QuestionOpened { approval_id } => {
            tracing::info!(approval_id, workspace, "question opened");
        }
        EventKind::QuestionAnswered { approval_id, decision, .. } => {
            let decision = decision.as_str();
            tracing::info!(approval_id, decision, workspace, "question answered");
        }
        EventKind::QuestionExpired { approval_id, .. } => {
            tracing::info!(approval_id, workspace, "question expired");
        }
        EventKind::ConnectionRefused { task_id, host, port, rule } => {
            tracing::info!(%task_id, host, port, rule, workspace, "connection refused");
        }
        EventKind::LimitReached { limit } => tracing::warn!(limit, "limit reached"),
        EventKind::OutputGrew { .. } | EventKind::WaitingForInput { .. } => {}
    }
}
