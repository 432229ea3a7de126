//! `legwork changes`, `apply` and `discard`: what trials changed, and what becomes of it.

use std::{
    path::{Component, Path, PathBuf},
    process::ExitCode,
};

use legwork::{
    Engine, ErrorKind, LentReserve, ShownChanges, Task, ToolError, TrialChanges, TrialState,
    gate::units::shown_bytes,
};
use serde_json::json;

use super::listed::age;
use crate::{
    arguments::{ApplyOptions, ChangesOptions, DiscardOptions, StateChoice},
    render::{change_json, complain_of, one_line, print, print_json, say},
};

/// Lines of the list after a trial.
const TOLD_MAX: usize = 40;

/// Most of a diff.
const DIFF_MAX: (usize, usize) = (100_000, 16 << 20);

/// Most columns of a command.
const COMMAND_MAX: usize = 60;

/// Who applies and discards, for the audit log.
const BY: &str = "the user at the command line";

/// Tells on stderr what a trial that has just ended would change. One that changed nothing is
/// forgotten.
pub(super) async fn tell(engine: &Engine, task_id: &str, state: &StateChoice) {
    if let Err(error) = try_tell(engine, task_id, state).await {
        say(&format!("legwork: {}", error.message));
    }
}

async fn try_tell(engine: &Engine, task_id: &str, state: &StateChoice) -> Result<(), ToolError> {
    let task = engine.trial(task_id).await?;
    let shown = ShownChanges { lines_max: TOLD_MAX, diff: None };
    let changes = engine.trial_changes(&task, Vec::new(), shown).await?;
    if changes.changes.all.is_empty() {
        engine.discard_trial(&task, BY).await?;
        say("legwork: only tried: nothing would change");
        return Ok(());
    }
    let (counted, list) = (&changes.counted, changes.list.trim_end());
    say(&format!("legwork: only tried: {counted}; the workspace is as it was\n{list}"));
    let option = state.as_option();
    say(&format!(
        "hint: `legwork changes{option} --diff` shows it, `legwork apply{option} [PATH]...` brings it over, \
         `legwork discard{option}` forgets it"
    ));
    Ok(())
}

pub(crate) async fn changes(options: ChangesOptions) -> ExitCode {
    let shown = async {
        let engine = options.state.with_tasks()?;
        if options.list {
            return Ok(list(&engine.trials().await?, options.json));
        }
        let (paths, shown) = wanted(&options);
        let task = meant(&engine, options.trial.as_deref()).await?;
        let changes = engine.trial_changes(&task, paths, shown).await?;
        Ok(if options.json { as_json(&changes) } else { as_text(&task, &changes) })
    };
    shown.await.unwrap_or_else(|error: ToolError| complain_of(&error))
}

/// The paths whose changes are to be shown, and how much of them.
fn wanted(options: &ChangesOptions) -> (Vec<PathBuf>, ShownChanges) {
    let diff = options.diff.then_some(DIFF_MAX);
    let paths = options.path.iter().map(|path| absolute(path)).collect();
    (paths, ShownChanges { lines_max: usize::MAX, diff })
}

fn as_json(changes: &TrialChanges) -> ExitCode {
    print_json(&json!({
        "task_id": changes.task_id,
        "summary": changes.counted,
        "changes": changes.changes.all.iter().map(change_json).collect::<Vec<_>>(),
        "diff": changes.diff,
    }))
}

/// Prints the changes of a trial, below its command.
fn as_text(task: &Task, changes: &TrialChanges) -> ExitCode {
    if let Some(diff) = &changes.diff {
        return print(diff);
    }
    let command = one_line(&task.command, COMMAND_MAX);
    print(&format!("{}  {command}\n{}\n{}", changes.task_id, changes.counted, changes.list))
}

fn list(trials: &[TrialState], json: bool) -> ExitCode {
    if json {
        return print_json(&json!({ "trials": trials }));
    }
    if trials.is_empty() {
        return print("no trials\n");
    }
    let lines = trials.iter().map(|trial| {
        let part = if trial.applied.is_empty() { "" } else { ", applied in part" };
        format!(
            "{}  {:>8}  {:>9}  {}{part}  {}\n",
            trial.task_id,
            age(trial.created_at_ms),
            shown_bytes(trial.bytes),
            trial.status.as_str(),
            one_line(&trial.command, COMMAND_MAX)
        )
    });
    print(&lines.collect::<String>())
}

pub(crate) async fn apply(options: ApplyOptions) -> ExitCode {
    let applied = async {
        let engine = options.state.with_tasks()?;
        let paths = options.path.iter().map(|path| absolute(path)).collect();
        let task = meant(&engine, options.trial.as_deref()).await?;
        let applied = engine.apply_trial(&task, paths, BY).await?;
        Ok((task.task_id, applied))
    };
    match applied.await {
        Ok((_, applied)) if options.json => print_json(&applied),
        Ok((id, applied)) => {
            let rest = if applied.whole { "" } else { "; the rest of the trial is kept" };
            print(&format!(
                "{id}: {} made, {} changed, {} removed{rest}\n",
                applied.made, applied.changed, applied.removed
            ))
        }
        Err(error) => refused(&error),
    }
}

/// An error, with the paths that were changed underneath.
fn refused(error: &ToolError) -> ExitCode {
    let code = complain_of(error);
    let paths = error.details.as_ref().and_then(|details| details.get("paths"));
    let paths = paths.and_then(|paths| paths.as_array()).into_iter().flatten();
    let named: Vec<&str> = paths.filter_map(|path| path.as_str()).collect();
    for path in named.iter().take(TOLD_MAX) {
        say(&format!("  {}", crate::render::escaped(path)));
    }
    code
}

pub(crate) async fn discard(options: DiscardOptions) -> ExitCode {
    let discarded = async {
        // What makes room must not need any.
        let _room = LentReserve::of(&options.state.path()?);
        let engine = options.state.with_tasks()?;
        let tasks = if options.all {
            let mut tasks = Vec::new();
            for trial in here(&engine).await? {
                tasks.push(engine.trial(trial.task_id.as_str()).await?);
            }
            tasks
        } else {
            vec![meant(&engine, options.trial.as_deref()).await?]
        };
        for task in &tasks {
            engine.discard_trial(task, BY).await?;
        }
        Ok(tasks)
    };
    match discarded.await {
        Ok(tasks) => {
            let lines = tasks.iter().map(|task| format!("{}: discarded\n", task.task_id));
            print(&lines.collect::<String>())
        }
        Err(error) => complain_of(&error),
    }
}

/// The folder that we are in.
fn this_folder() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

/// The trials of the workspace that we are in, newest first.
async fn here(engine: &Engine) -> Result<Vec<TrialState>, ToolError> {
    let folder = this_folder();
    let mut trials = engine.trials().await?;
    trials.retain(|trial| folder.starts_with(&trial.workspace));
    Ok(trials)
}

/// The trial that was named, or the newest of this workspace.
async fn meant(engine: &Engine, prefix: Option<&str>) -> Result<Task, ToolError> {
    if let Some(prefix) = prefix {
        return engine.trial(prefix).await;
    }
    match here(engine).await?.first() {
        Some(trial) => engine.trial(trial.task_id.as_str()).await,
        None => Err(ToolError::new(ErrorKind::UnknownTask, "there is no trial of this workspace")
            .hint(
                "`legwork try -- CMD` makes one, `legwork changes --list` lists those of others",
            )),
    }
}

/// A path from the folder that we are in, without `.` and `..`, and with no link followed.
fn absolute(path: &Path) -> PathBuf {
    let whole = std::env::current_dir().unwrap_or_default().join(path);
    let mut plain = PathBuf::new();
    for component in whole.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}
