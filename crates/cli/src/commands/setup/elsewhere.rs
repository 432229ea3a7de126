//! Tasks at other places: no process here is theirs, so that the records name them, and the place
//! stops them.

use std::{fmt, time::Duration};

use legwork::{Caller, Engine, TaskFilter, TaskId, ToolError};
use serde_json::json;
use tokio::time::timeout;

use crate::{arguments::StateChoice, progress::waiting};

/// The time that a place may take to stop a task; a place that does not answer takes all of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A task that has not ended at another place.
#[derive(Debug)]
pub(super) struct FarTask {
    id: TaskId,
    place: String,
}

impl fmt::Display for FarTask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the task {} at {}", self.id, self.place)
    }
}

/// The tasks of a state folder that have not ended at other places.
pub(super) async fn tasks(state: &StateChoice) -> Result<Vec<FarTask>, ToolError> {
    tasks_of(&state.open()?).await
}

async fn tasks_of(engine: &Engine) -> Result<Vec<FarTask>, ToolError> {
    let (tasks, _) = engine.tasks_matching(TaskFilter::open(), u32::MAX).await?;
    let far = tasks.into_iter().filter_map(|task| {
        let place = task.place()?.to_owned();
        Some(FarTask { id: task.task_id, place })
    });
    Ok(far.collect())
}

/// Stops them all. The error names the first that cannot be stopped: others at its place would
/// take as long.
pub(super) async fn stop(state: &StateChoice) -> Result<(), String> {
    let engine = state.open().map_err(|error| error.to_string())?;
    for task in tasks_of(&engine).await.map_err(|error| error.to_string())? {
        let input = json!({ "task_id": task.id });
        let caller = Caller::person("cli");
        let stopping = timeout(PATIENCE, engine.call("TaskStop", input, &caller));
        let problem = match waiting(&format!("legwork: stopping {task}"), stopping).await {
            Err(_) => "its place does not answer".to_owned(),
            Ok(answer) => match (answer.error(), &answer.envelope().result) {
                (Some(error), _) => error.message.clone(),
                (None, Some(stopped)) if stopped.get("survivors") == Some(&json!([])) => continue,
                (None, _) => "some of its processes do not end".to_owned(),
            },
        };
        return Err(format!("{task} cannot be stopped: {problem}"));
    }
    Ok(())
}
