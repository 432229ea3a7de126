//! `changes` and `discard` where the ledger cannot be opened, or had no room for a task: a disk may
//! be full because of what was tried. The folders of the trials are enough for both.

use std::{process::ExitCode, time::Duration};

use legwork::{
    Discarded, Engine, ErrorKind, Relief, ToolError, TrialRecord, gate::units::shown_bytes,
};
use serde_json::json;

use super::{BY, OUTSIDE, age, as_json, as_text, tell_running, this_folder, wanted};
use crate::{
    arguments::{ChangesOptions, DiscardOptions, StateChoice, tell_of_repair},
    render::{complain_of, print, print_json, say},
};

/// How often room is looked for that a discard has made, and how long apart.
const ROOM_LOOKS: usize = 20;
const ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Whether an error can be that of a full disk.
fn may_be_full(error: &ToolError) -> bool {
    [ErrorKind::StateUnavailable, ErrorKind::UnknownTask].contains(&error.kind)
}

/// Shows the trials, or what one of them changed; without any, the first error is told.
///
/// What commands changed outside their workspace needs room to be shown: what was shown is noted.
pub(super) fn changes(options: &ChangesOptions, error: &ToolError) -> ExitCode {
    if !may_be_full(error) || options.outside {
        return complain_of(error);
    }
    match shown(options) {
        Ok(Some(code)) => code,
        Ok(None) => complain_of(error),
        Err(other) if other.kind == ErrorKind::UnknownTask => complain_of(error),
        Err(other) => complain_of(&other),
    }
}

/// What was shown came to; none without a trial.
fn shown(options: &ChangesOptions) -> Result<Option<ExitCode>, ToolError> {
    let relief = Relief::open(&options.state.path()?, tell_of_repair)?;
    if options.list {
        let trials = relief.trials();
        return Ok((!trials.is_empty()).then(|| list(&relief, &trials, options.json)));
    }
    let Some(trial) = meant(&relief, options.trial.as_deref())?.into_iter().next() else {
        return Ok(None);
    };
    let (paths, shown) = wanted(options);
    let changes = relief.trial_changes(&trial, &paths, shown)?;
    Ok(Some(if options.json { as_json(&changes) } else { as_text(None, &changes) }))
}

/// The trials, as far as their folders tell: neither their commands nor how those ended.
fn list(relief: &Relief, trials: &[TrialRecord], json: bool) -> ExitCode {
    if json {
        let trial = |it: &TrialRecord| {
            json!({
                "task_id": it.task_id,
                "workspace": it.workspace,
                "created_at_ms": it.created_at_ms,
                "applied": it.applied,
                "bytes": relief.trial_bytes(it),
            })
        };
        return print_json(&json!({ "trials": trials.iter().map(trial).collect::<Vec<_>>() }));
    }
    let line = |it: &TrialRecord| {
        let (age, bytes) = (age(it.created_at_ms), shown_bytes(relief.trial_bytes(it)));
        format!("{}  {age:>8}  {bytes:>9}\n", it.task_id)
    };
    print(&trials.iter().map(line).collect::<String>())
}

/// The trials that were named, or those of the workspace that we are in, newest first.
fn meant(relief: &Relief, prefix: Option<&str>) -> Result<Vec<TrialRecord>, ToolError> {
    let (folder, mut trials) = (this_folder(), relief.trials());
    match prefix {
        Some(prefix) => trials.retain(|trial| trial.task_id.as_str().starts_with(prefix)),
        None => trials.retain(|trial| folder.starts_with(&trial.workspace)),
    }
    if prefix.is_some() && trials.len() > 1 {
        return Err(ToolError::new(ErrorKind::InvalidToolInput, "several trials begin like that"));
    }
    Ok(trials)
}

/// Discards what was meant; without anything to discard, the first error is told.
pub(super) async fn discard(options: &DiscardOptions, error: &ToolError) -> ExitCode {
    if !may_be_full(error) || !options.path.is_empty() {
        return complain_of(error);
    }
    let discarded = match relieved(options) {
        Ok(discarded) if discarded.is_empty() => return complain_of(error),
        Ok(discarded) => discarded,
        Err(other) if other.kind == ErrorKind::UnknownTask => return complain_of(error),
        Err(other) => return complain_of(&other),
    };
    match with_room(&options.state).await {
        Ok(engine) => {
            for one in &discarded {
                engine.note_discarded(one, BY).await;
            }
        }
        Err(error) => say(&format!("legwork: not noted in the audit log: {}", error.message)),
    }
    let name = |one: &Discarded| match one {
        Discarded::Trial(id) => id.to_string(),
        Discarded::Outside(_) => OUTSIDE.to_owned(),
    };
    print(&discarded.iter().map(|one| format!("{}: discarded\n", name(one))).collect::<String>())
}

/// The engine, as soon as there is room for it. What was removed is the disk's again when the
/// kernel has let go of the last view of it, which takes a moment.
async fn with_room(state: &StateChoice) -> Result<Engine, ToolError> {
    for _ in 0..ROOM_LOOKS {
        if let Ok(engine) = state.with_tasks() {
            return Ok(engine);
        }
        tokio::time::sleep(ROOM_PAUSE).await;
    }
    state.with_tasks()
}

/// What was meant, discarded without the ledger.
fn relieved(options: &DiscardOptions) -> Result<Vec<Discarded>, ToolError> {
    let relief = Relief::open(&options.state.path()?, tell_of_repair)?;
    if options.outside {
        let (discarded, running) = relief.discard_outside(&this_folder())?;
        tell_running(running);
        return Ok(vec![discarded]);
    }
    let mut trials = meant(&relief, options.trial.as_deref())?;
    if !options.all {
        trials.truncate(1);
    }
    trials.iter().map(|trial| relief.discard_trial(trial)).collect()
}
