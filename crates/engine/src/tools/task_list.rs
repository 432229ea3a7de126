//! `TaskList`: the tasks of this workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, schema,
    task_view::{Lines, TaskBrief, held_tasks},
};
use crate::{engine::Engine, error::ToolError, store::ledger::Task};

const NAME: &str = "TaskList";
const LIMIT_DEFAULT: u64 = 20;
const LIMIT_MAX: u64 = 100;

/// Input of `TaskList`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Whether to list finished tasks too.
    #[schemars(extend("default" = false))]
    include_finished: Option<bool>,
    /// Most tasks to list, from 1 to 100.
    #[schemars(range(min = 1, max = 100), extend("default" = LIMIT_DEFAULT))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct List {
    total: u64,
    returned: usize,
    tasks: Vec<TaskBrief>,
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "core_agent",
            category: "Tasks",
            tags: &["task", "list", "background"],
            description: "Lists the commands of this workspace that run as tasks, newest first.",
            input_schema: schema::of::<Input>(),
            instructions: "Use TaskList to find the ids of background tasks, also of those that were \
                           started earlier or by somebody else in this workspace, and of those that have ended and left \
                           processes running.",
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
        render: super::render::<List>,
    }
}

async fn call(engine: &Engine, input: Value) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    let limit = input.limit.unwrap_or(LIMIT_DEFAULT);
    let limit =
        u32::try_from(limit).ok().filter(|limit| (1..=LIMIT_MAX).contains(&u64::from(*limit)));
    let Some(limit) = limit else {
        let problem = format!("must be from 1 to {LIMIT_MAX}");
        return Err(ToolError::invalid_field(NAME, "limit", problem));
    };
    let finished_too = input.include_finished.unwrap_or(false);
    let (tasks, total) = engine.tasks_here(finished_too, limit).await?;
    let (mask, held) = (engine.mask(), held_tasks(engine).await);
    let brief = |task: &Task| {
        let mut brief = TaskBrief::new(task, &mask).held_by(&held);
        if !finished_too && task.status.is_final() {
            brief.summary.push_str("; it left processes that still run");
        }
        brief
    };
    let tasks: Vec<TaskBrief> = tasks.iter().map(brief).collect();
    let list = List { total, returned: tasks.len(), tasks };
    Ok(super::success(list, format!("{total} tasks")))
}

impl Receipt for List {
    fn receipt(&self) -> String {
        let counted = match self.total {
            0 => return "No tasks".into(),
            1 => "1 task".to_owned(),
            total => format!("{total} tasks"),
        };
        let shown = self.returned;
        let mut lines = Lines::new(&match u64::try_from(shown) {
            Ok(all) if all == self.total => counted,
            _ => format!("{counted}, the newest {shown} are listed"),
        });
        for task in &self.tasks {
            lines.line(&format!("\nTask: {}", task.task_id));
            lines.line(&format!("Status: {} ({})", task.status.as_str(), task.summary));
            lines.line(&format!("Command: {}", task.command));
            lines.held(task);
        }
        lines.into_text()
    }
}
