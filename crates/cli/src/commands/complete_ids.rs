//! `legwork complete-ids`: prints task ids or question ids for shell completions, each with its
//! command.

use std::process::ExitCode;

use legwork::{TaskFilter, ToolError};

use crate::{
    arguments::{CompleteIdsOptions, IdKind, StateChoice},
    render::{one_line, print},
};

/// Most ids that are offered; more would not be read.
const IDS_MAX: u32 = 50;

/// Characters of a description.
const DESCRIPTION_CHARS: usize = 60;

pub(crate) async fn complete_ids(options: CompleteIdsOptions) -> ExitCode {
    // A shell has no use for a complaint in the middle of a line.
    let lines = lines(&options.state, options.kind).await.unwrap_or_default();
    let lines =
        lines.iter().map(|(id, said)| format!("{id}\t{}\n", one_line(said, DESCRIPTION_CHARS)));
    print(&lines.collect::<String>())
}

async fn lines(state: &StateChoice, kind: IdKind) -> Result<Vec<(String, String)>, ToolError> {
    let Some(engine) = state.existing()? else { return Ok(Vec::new()) };
    let filter = match kind {
        IdKind::Tasks => TaskFilter::default(),
        IdKind::Running => TaskFilter::open(),
        IdKind::Approvals => {
            let open = engine.approvals().await?.into_iter();
            return Ok(open.map(|it| (it.approval_id, it.command)).collect());
        }
    };
    let (tasks, _) = engine.tasks_matching(filter, IDS_MAX).await?;
    let mask = engine.mask();
    let tasks = tasks.into_iter().map(|task| task.masked(&mask));
    Ok(tasks.map(|task| (task.task_id.to_string(), task.command)).collect())
}
