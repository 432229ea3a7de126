//! Trials: commands that ran on a copy, what they would change, and whether that is applied.

use std::path::{Component, Path, PathBuf};

use axum::http::StatusCode;
use legwork::{ErrorKind, ShownChanges, Task, ToolError, TrialChanges, TrialState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{
    refusal::{HttpRefusal, answer as respond, failed},
    routes::{Call, Handled},
};
use crate::render::change_json;

/// Files in a list, if nothing is said.
const FILES: usize = 1000;

/// Most files in a list.
const FILES_MAX: usize = 10_000;

/// Most lines and bytes of a diff.
const DIFF_MAX: (usize, usize) = (5000, 512 * 1024);

/// The fields of the query about changes.
pub(in crate::http) const CHANGES: &[(&str, &str, &str)] = &[
    ("diff", "boolean", "Also a unified diff, of 5,000 lines at most; false by default"),
    ("limit", "integer", "Files in the list: 1 to 10,000, 1,000 by default"),
];

pub(in crate::http) async fn list(call: Call) -> Handled {
    let engine = call.standing.engine();
    Ok(match engine.trials().await {
        Ok(mut trials) => {
            if let Some(own) = &call.standing.workspace {
                trials.retain(|trial| trial.workspace == Path::new(own));
            }
            let mask = engine.mask();
            let masked = |trial: TrialState| {
                let command = mask.text(&trial.command).into_owned();
                TrialState { command, ..trial }
            };
            let trials: Vec<TrialState> = trials.into_iter().map(masked).collect();
            respond(StatusCode::OK, &json!({ "trials": trials }))
        }
        Err(error) => failed(&error),
    })
}

/// What is asked about changes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    diff: bool,
    limit: Option<usize>,
}

/// How much of some changes a call wants to see.
fn read_limits(call: &Call) -> Result<ShownChanges, HttpRefusal> {
    let Asked { diff, limit } = call.query()?;
    let lines_max = limit.unwrap_or(FILES);
    if !(1..=FILES_MAX).contains(&lines_max) {
        return Err(HttpRefusal::invalid(format!("`limit` must be 1 to {FILES_MAX}")));
    }
    Ok(ShownChanges { lines_max, diff: diff.then_some(DIFF_MAX) })
}

pub(in crate::http) async fn changes(call: Call) -> Handled {
    let shown = read_limits(&call)?;
    let task = match ended(&call).await? {
        Ok(task) => task,
        Err(error) => return Ok(failed(&error)),
    };
    let engine = call.standing.engine();
    Ok(match engine.trial_changes(&task, Vec::new(), shown).await {
        Ok(changes) => respond(StatusCode::OK, &shown_changes(&changes, &task, shown.lines_max)),
        Err(error) => failed(&error),
    })
}

/// Changes as they are told: how many, so many files of them, and the difference.
fn shown_changes(changes: &TrialChanges, task: &Task, files_max: usize) -> Value {
    let listed = changes.changes.listed_from(Path::new(&task.workspace));
    let total = listed.len();
    let files: Vec<Value> = listed.into_iter().take(files_max).map(change_json).collect();
    json!({
        "task_id": changes.task_id,
        "workspace": task.workspace,
        "summary": changes.counted,
        "total": total,
        "changes": files,
        "diff": changes.diff,
    })
}

pub(in crate::http) fn apply_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "paths": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Only what is at and below these paths, absolute or from the \
                                workspace on; everything if there are none",
            },
        },
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    #[serde(default)]
    paths: Vec<String>,
}

impl Meant {
    /// The paths as the engine takes them: absolute, and with no step up.
    fn within(&self, top: &Path) -> Result<Vec<PathBuf>, HttpRefusal> {
        self.paths.iter().map(|path| within(top, path)).collect()
    }
}

pub(in crate::http) async fn apply(call: Call) -> Handled {
    let meant: Meant = call.body()?;
    let task = match ended(&call).await? {
        Ok(task) => task,
        Err(error) => return Ok(failed(&error)),
    };
    let paths = meant.within(Path::new(&task.workspace))?;
    Ok(match call.standing.engine().apply_trial(&task, paths, &by(&call)).await {
        Ok(applied) => respond(StatusCode::OK, &applied),
        Err(error) => failed(&error),
    })
}

pub(in crate::http) async fn discard(call: Call) -> Handled {
    let _: serde_json::Map<String, Value> = call.body()?;
    let task = match ended(&call).await? {
        Ok(task) => task,
        Err(error) => return Ok(failed(&error)),
    };
    Ok(match call.standing.engine().discard_trial(&task, &by(&call)).await {
        Ok(()) => respond(StatusCode::OK, &json!({ "task_id": task.task_id })),
        Err(error) => failed(&error),
    })
}

/// Who says so, for the audit log.
fn by(call: &Call) -> String {
    format!("token {}", call.holder.token.name)
}

/// The task of the trial that the path names, once nothing of it runs any more.
async fn ended(call: &Call) -> Result<Result<Task, ToolError>, HttpRefusal> {
    let engine = call.standing.engine();
    let found = async {
        let task = engine.task_here(&call.id).await?;
        engine.trial(task.task_id.as_str()).await
    };
    let task = match found.await {
        Ok(task) => task,
        // What the error calls a task is none to whoever looks for a trial.
        Err(error) if error.kind == ErrorKind::UnknownTask => {
            let message = format!("there is no trial of the id `{}`", call.id);
            return Ok(Err(ToolError::new(ErrorKind::UnknownTask, message)
                .hint("it may have been applied or discarded; list the trials")));
        }
        Err(error) => return Ok(Err(error)),
    };
    if engine.is_trial_over(&task).await {
        return Ok(Ok(task));
    }
    let message = format!("the trial `{}` still runs", task.task_id);
    let refusal = HttpRefusal::new(StatusCode::CONFLICT, "still_running", message);
    Err(refusal.hint("wait for its end, or stop its task"))
}

fn within(top: &Path, path: &str) -> Result<PathBuf, HttpRefusal> {
    let path = Path::new(path);
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if path.as_os_str().is_empty() || !path.components().all(is_plain) {
        return Err(HttpRefusal::invalid("a path has no `.` and no `..`, and is not empty"));
    }
    Ok(top.join(path))
}
