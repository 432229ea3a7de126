//! `TaskStatus`: what is known of a task, but never its output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, schema,
    task_view::{Lines, TaskView, held_tasks, numbers},
};
use crate::{engine::Engine, error::ToolError};

const NAME: &str = "TaskStatus";

/// Input of `TaskStatus`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The id of the task.
    task_id: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Known {
    task: TaskView,
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "core_agent",
            category: "Tasks",
            tags: &["task", "status", "background"],
            description: "Says how a task is doing: its status, exit code or signal, processes, whether it \
                          waits for input, and the files that hold its output.",
            input_schema: schema::of::<Input>(),
            instructions: "Use TaskStatus for a quick look. To wait for something, use TaskWait instead of \
                           asking again and again.",
            read_only: true,
            by_default: true,
            turn: Turn::Looks,
            manners: Manners::default(),
            takes_argv: false,
            shell: None,
            text_is_json: false,
            takes_place: false,
        },
        call: |engine, input, _| Box::pin(call(engine, input)),
        render: super::render::<Known>,
    }
}

async fn call(engine: &Engine, input: Value) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    let mut observer = engine.observe(engine.task_here(&input.task_id).await?).await?;
    // Before the report, so that the artifacts are there: looking at a task keeps its output in
    // files.
    let output = observer.output().await.unwrap_or_default();
    let report = observer.report().await?;
    let mut task = TaskView::new(observer.task(), &engine.mask(), report.as_ref(), &output);
    if !task.brief.status.is_final() {
        task.brief = task.brief.held_by(&held_tasks(engine).await);
    }
    let summary = task.brief.summary.clone();
    Ok(super::success(Known { task }, summary))
}

impl Receipt for Known {
    fn receipt(&self) -> String {
        let task = &self.task;
        let mut lines = Lines::new(&format!("Command: {}", task.brief.command));
        lines.task(&task.brief);
        if let Some(pid) = task.pid {
            lines.line(&format!("Pid: {pid}"));
        }
        lines.line(&format!("Duration: {} ms", task.duration_ms));
        if !task.flags.is_empty() {
            let flags: Vec<&str> = task.flags.iter().map(|flag| flag.as_str()).collect();
            lines.line(&format!("Flags: {}", flags.join(", ")));
        }
        if !task.brief.status.is_final() {
            let waits = match task.waiting_for_input {
                Some(true) => "yes",
                Some(false) => "no",
                None => "unknown",
            };
            lines.line(&format!("Waiting for input: {waits}"));
        }
        if !task.background_pids.is_empty() {
            lines.line(&format!("Background processes: {}", numbers(&task.background_pids)));
        }
        lines.warnings(&task.brief);
        lines.artifacts(&task.artifacts);
        lines.into_text()
    }
}
