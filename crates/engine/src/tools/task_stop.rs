//! `TaskStop`: ends a task and everything that it started.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, schema,
    task_view::{Lines, ProcessEntry, TaskBrief, numbers, processes},
};
use crate::{
    engine::Engine,
    error::ToolError,
    model::{Caller, Outcome},
    platform::{SIGNALS, Signal, signal_of},
};

const NAME: &str = "TaskStop";
const SIGNAL_DEFAULT: &str = "TERM";
const GRACE_MS_DEFAULT: u64 = 3_000;
const GRACE_MS_MAX: u64 = 600_000;

/// Input of `TaskStop`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The id of the task.
    task_id: String,
    /// The signal that asks it to end: TERM, INT, HUP, QUIT, USR1, USR2 or KILL.
    #[schemars(extend("default" = SIGNAL_DEFAULT))]
    signal: Option<String>,
    /// How long it may take to end by itself before it is killed, in milliseconds, up to 600000.
    #[schemars(range(max = 600_000), extend("default" = GRACE_MS_DEFAULT))]
    grace_ms: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stopped {
    stop_requested: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    outcome: Option<Outcome>,
    survivors: Vec<u32>,
    /// What was running and has been ended, as far as it was known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    ended: Vec<ProcessEntry>,
    task: TaskBrief,
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "core_agent",
            category: "Tasks",
            tags: &["task", "stop", "kill", "background"],
            description: "Stops a task and every process that it started: asks them to end, waits, and \
                          kills what is left. Also ends what a finished task left running.",
            input_schema: schema::of::<Input>(),
            instructions: "Use TaskStop when a background task is not needed any more: a server, a watcher, a \
                           command that hangs. Nothing of it is left running afterwards. \
                           It also ends, by the id of their task, processes that a finished command left running.",
            read_only: false,
            by_default: true,
            turn: Turn::Stops,
            manners: Manners::default(),
            takes_argv: false,
            shell: None,
            text_is_json: false,
            takes_place: false,
        },
        call: |engine, input, caller| Box::pin(call(engine, input, caller)),
        render: super::render::<Stopped>,
    }
}

async fn call(engine: &Engine, input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    let name = input.signal.as_deref().unwrap_or(SIGNAL_DEFAULT);
    let Some(signal) = signal_number(name) else {
        let problem = format!("`{name}` is not known");
        return Err(
            ToolError::invalid_field(NAME, "signal", problem).hint(format!("use {SIGNALS}"))
        );
    };
    let grace_ms = input.grace_ms.unwrap_or(GRACE_MS_DEFAULT);
    if grace_ms > GRACE_MS_MAX {
        let problem = format!("is over the limit of {GRACE_MS_MAX}");
        return Err(ToolError::invalid_field(NAME, "grace_ms", problem));
    }
    let mut observer = engine.observe(engine.task_here(&input.task_id).await?).await?;
    let report = observer.report().await.ok().flatten();
    let pids: Vec<u32> = match &report {
        Some(report) if !observer.is_over() => vec![report.pid],
        Some(report) => report.background_pids.clone(),
        None => Vec::new(),
    };
    let mut ended = processes(&engine.mask(), observer.processes(&pids).await);
    let survivors =
        observer.controls(caller).await?.stop(signal, Duration::from_millis(grace_ms)).await?;
    let (stop_requested, survivors) = (survivors.is_some(), survivors.unwrap_or_default());
    ended.retain(|process| stop_requested && !survivors.contains(&process.pid));
    let stopped = Stopped {
        stop_requested,
        outcome: observer.task().outcome.clone(),
        survivors,
        ended,
        task: TaskBrief::new(observer.task(), &engine.mask()),
    };
    let summary = stopped.first_line().to_lowercase();
    Ok(super::success(stopped, summary))
}

/// The number of a signal, by its name with or without `SIG`.
fn signal_number(name: &str) -> Option<i32> {
    let name = name.to_ascii_uppercase();
    signal_of(name.strip_prefix("SIG").unwrap_or(&name)).map(Signal::as_raw)
}

impl Stopped {
    fn first_line(&self) -> &'static str {
        match (self.stop_requested, self.survivors.is_empty()) {
            (false, _) => "Nothing to stop",
            (true, true) => "Task stopped",
            (true, false) => "Task not stopped completely",
        }
    }
}

impl Receipt for Stopped {
    fn receipt(&self) -> String {
        let mut lines = Lines::new(self.first_line());
        lines.task(&self.task);
        if !self.survivors.is_empty() {
            lines.line(&format!("Survivors: {}", numbers(&self.survivors)));
        }
        let ended: Vec<String> = self.ended.iter().map(ToString::to_string).collect();
        lines.block("Ended", &ended.join("\n"));
        lines.warnings(&self.task);
        lines.into_text()
    }
}
