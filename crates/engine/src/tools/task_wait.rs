//! `TaskWait`: waits for a task to end or for another condition, in one call instead of polling.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, effective_tokens, note_seen, schema,
    seen_by,
    task_output::{cursor, full_screen},
    task_view::{ArtifactEntry, Lines, TaskBrief, artifacts, held_tasks, lasted},
};
use crate::{
    engine::Engine,
    error::ToolError,
    id::TaskId,
    model::Caller,
    output::{Cursor, Preview, Selection},
    store::ledger::Task,
    task::observe::Observer,
    task::wait::{Condition, Until, until},
};

const NAME: &str = "TaskWait";
const TIMEOUT_MS_DEFAULT: u64 = 30_000;
const TASKS_MAX: usize = 64;

/// Longest regular expression, and the size that it may have when compiled.
const REGEX_BYTES_MAX: usize = 10_000;
const REGEX_COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Input of `TaskWait`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The ids of the tasks to wait for, 1 to 64: the first for which a condition holds ends the
    /// wait.
    #[schemars(length(min = 1, max = 64))]
    task_ids: Vec<String>,
    /// What to wait for: one or more conditions, of which the first that holds ends the wait.
    /// Default: exit.
    until: Option<Conditions>,
    /// A cursor from an earlier answer: `output_matches` looks only at what was printed after it,
    /// and the answer shows it. For a single task only. Default: it looks at everything that the
    /// task has printed, and the answer goes on from what you have been shown of the task.
    after: Option<String>,
    /// How long to wait at most, in milliseconds, up to 3600000.
    #[schemars(range(max = 3_600_000), extend("default" = TIMEOUT_MS_DEFAULT))]
    timeout_ms: Option<u64>,
    /// How many tokens of output to show at most, up to 64000.
    #[schemars(extend("default" = super::default_tokens()))]
    max_output_tokens: Option<u64>,
}

/// What to wait for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Conditions {
    /// The command has ended.
    exit: Option<bool>,
    /// Its output matches this regular expression.
    output_matches: Option<String>,
    /// It has printed nothing for this many milliseconds.
    #[schemars(range(min = 1, max = 3_600_000))]
    silence_ms: Option<u64>,
    /// This TCP port is open: its processes listen on it, or somebody does since the call.
    #[schemars(range(min = 1, max = 65535))]
    port: Option<u16>,
    /// This path exists (relative to the workspace, or absolute; no `~` and no wildcards).
    path_exists: Option<String>,
    /// The command is blocked reading its stdin or terminal.
    waiting_for_input: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Waited {
    met: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    condition: Option<Condition>,
    /// What was waited for, in words.
    #[serde(default)]
    sought: String,
    /// How long was waited.
    #[serde(default)]
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    task_id: Option<TaskId>,
    /// Whether the wait ended because nothing that was waited for can come any more.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    ended: bool,
    tasks: Vec<TaskBrief>,
    output_preview: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    output_truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    artifacts: Vec<ArtifactEntry>,
    next_cursor: String,
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "core_agent",
            category: "Tasks",
            tags: &["task", "wait", "port", "background"],
            description: "Waits until a task has ended, or its output matches a regular expression, or a port \
                          is open, a path exists, it is silent, or it waits for input: one call instead of \
                          asking again and again.",
            input_schema: schema::of::<Input>(),
            instructions: "\
Use TaskWait instead of sleeping or polling.
- After starting a server: `until: {\"port\": 3000}`. After a build: no `until`, it waits for the end.
- Several conditions may be given; the answer says which one held first.
- If the task ends before its condition holds, the answer comes at once, with what it printed.",
            read_only: true,
            by_default: true,
            turn: Turn::Waits,
            manners: Manners::default(),
            takes_argv: false,
            shell: None,
            text_is_json: false,
            takes_place: false,
        },
        call: |engine, input, caller| Box::pin(call(engine, input, caller)),
        render: super::render::<Waited>,
    }
}

async fn call(engine: &Engine, input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    if input.task_ids.is_empty() || input.task_ids.len() > TASKS_MAX {
        let problem = format!("must name from 1 to {TASKS_MAX} tasks");
        return Err(ToolError::invalid_field(NAME, "task_ids", problem));
    }
    let wait = super::bounded_wait(NAME, input.timeout_ms, TIMEOUT_MS_DEFAULT)?;
    let wait = caller.bounded(wait);
    let mut ids: Vec<&String> = Vec::new();
    for id in &input.task_ids {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let mut tasks = Vec::new();
    for id in &ids {
        tasks.push(engine.task_here(id).await?);
    }
    let after = match (&input.after, tasks.as_slice()) {
        (None, _) => None,
        (Some(text), [task]) => Some(cursor(NAME, text, &task.task_id)?),
        (Some(_), _) => {
            let problem = "goes with a single task only";
            return Err(ToolError::invalid_field(NAME, "after", problem));
        }
    };
    let conditions = input.until.unwrap_or_default().checked(engine, after.unwrap_or_default())?;
    let started = Instant::now();
    let seen: Vec<Option<Cursor>> =
        tasks.iter().map(|task| after.or_else(|| seen_by(caller, &task.task_id))).collect();
    let ended = first(engine, tasks, &conditions, wait).await?;
    let budget_tokens = effective_tokens(engine, input.max_output_tokens);
    let mut waited = describe(engine, &ids, ended, &seen, budget_tokens, caller).await?;
    waited.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    waited.sought = conditions.describe();
    let summary = waited.first_line();
    Ok(super::success(waited, summary))
}

impl Conditions {
    /// Turns what was asked for into what is waited for.
    fn checked(self, engine: &Engine, after: Cursor) -> Result<Until, ToolError> {
        let invalid = |field: &str, problem: String| ToolError::invalid_field(NAME, field, problem);
        for (name, given) in [("exit", self.exit), ("waiting_for_input", self.waiting_for_input)] {
            if given == Some(false) {
                return Err(invalid(&format!("until.{name}"), "can only be true".into()));
            }
        }
        let no_path = |path: &String| path.trim().is_empty() || path.contains('\0');
        if self.path_exists.as_ref().is_some_and(no_path) {
            return Err(invalid("until.path_exists", "is no path".into()));
        }
        let output_matches = match self.output_matches {
            Some(text) if text.is_empty() => {
                let problem = "is empty: it would match anything";
                return Err(invalid("until.output_matches", problem.into()));
            }
            Some(text) if text.len() > REGEX_BYTES_MAX => {
                let problem = format!("is over the limit of {REGEX_BYTES_MAX} bytes");
                return Err(invalid("until.output_matches", problem));
            }
            Some(text) => Some(
                regex::RegexBuilder::new(&text)
                    .multi_line(true)
                    .size_limit(REGEX_COMPILED_BYTES_MAX)
                    .build()
                    .map_err(|error| {
                        let problem = format!("is no regular expression: {error}");
                        invalid("until.output_matches", problem).hint(regex_hint(&error))
                    })?,
            ),
            None => None,
        };
        if self.port == Some(0) {
            return Err(invalid("until.port", "must be from 1 to 65535".into()));
        }
        if self.silence_ms.is_some_and(|silence| !(1..=super::WAIT_MS_MAX).contains(&silence)) {
            let problem = format!("must be from 1 to {}", super::WAIT_MS_MAX);
            return Err(invalid("until.silence_ms", problem));
        }
        let mut until = Until {
            exit: self.exit.unwrap_or(false),
            output_matches: output_matches.map(|regex: Regex| (regex, after)),
            silence: self.silence_ms.map(Duration::from_millis),
            port: self.port,
            path_exists: self.path_exists.map(|path| engine.workspace().join(path)),
            waiting_for_input: self.waiting_for_input.unwrap_or(false),
        };
        until.exit |= until.is_empty();
        Ok(until)
    }
}

/// What to write instead of a regular expression that cannot be used.
fn regex_hint(error: &regex::Error) -> &'static str {
    let text = error.to_string();
    if text.contains("look-around") || text.contains("backreference") {
        "wait for a simpler text, and look closer at the output afterwards"
    } else {
        "put `\\` before each of . * + ? ( ) [ ] { } | ^ $ that means itself"
    }
}

/// How a wait ended.
struct Ended {
    /// The first condition that held, with the place of its task.
    met: Option<(usize, Condition)>,
    /// Whether nothing could come any more.
    hopeless: bool,
}

/// Waits for the first condition of any task.
async fn first(
    engine: &Engine,
    tasks: Vec<Task>,
    conditions: &Until,
    wait: Duration,
) -> Result<Ended, ToolError> {
    let mut waits = JoinSet::new();
    for (place, task) in tasks.into_iter().enumerate() {
        let mut observer = engine.observe(task).await?;
        let conditions = conditions.clone();
        waits.spawn(async move { (place, until(&mut observer, &conditions).await) });
    }
    let met = tokio::time::timeout(wait, async {
        while let Some(ended) = waits.join_next().await {
            if let Ok((place, met)) = ended
                && let Some(condition) = met?
            {
                return Ok(Some((place, condition)));
            }
        }
        Ok(None)
    });
    match met.await {
        Ok(met) => met.map(|met: Option<_>| Ended { hopeless: met.is_none(), met }),
        Err(_) => Ok(Ended { met: None, hopeless: false }),
    }
}

/// Builds the result: how the tasks are now, and what the one that matters has printed since.
async fn describe(
    engine: &Engine,
    ids: &[&String],
    ended: Ended,
    seen: &[Option<Cursor>],
    budget_tokens: u64,
    caller: &Caller,
) -> Result<Waited, ToolError> {
    let mut tasks = Vec::new();
    let held = if ended.met.is_none() { held_tasks(engine).await } else { HashMap::new() };
    let mut printed = Printed::default();
    let shown = ended.met.as_ref().map_or(0, |(place, _)| *place);
    for (place, id) in ids.iter().enumerate() {
        let mut task = engine.task_here(id).await?;
        // What cannot be asked (any more) is told as it is in the ledger.
        if place == shown
            && let Ok(mut observer) = engine.observe(task.clone()).await
        {
            // Whoever has seen nothing of it begins at the beginning.
            let from = seen.get(place).copied().flatten().unwrap_or_default();
            let next;
            (printed, next) = Printed::since(&mut observer, from, budget_tokens).await;
            note_seen(caller, &task.task_id, next);
            task = observer.task().clone();
        }
        tasks.push(TaskBrief::new(&task, &engine.mask()).held_by(&held));
    }
    let task_id = ended
        .met
        .as_ref()
        .and_then(|(place, _)| tasks.get(*place))
        .map(|task: &TaskBrief| task.task_id.clone());
    let met = ended.met.is_some();
    let condition = ended.met.map(|(_, condition)| condition);
    Ok(Waited {
        met,
        condition,
        sought: String::new(),
        duration_ms: 0,
        task_id,
        ended: ended.hopeless,
        tasks,
        output_preview: printed.text,
        output_truncated: printed.truncated,
        artifacts: printed.artifacts,
        next_cursor: printed.next_cursor,
    })
}

/// What a task has printed, as far as it is shown.
#[derive(Debug, Default)]
struct Printed {
    text: Option<String>,
    truncated: bool,
    artifacts: Vec<ArtifactEntry>,
    next_cursor: String,
}

impl Printed {
    /// Since a cursor; and where the next look goes on.
    async fn since(observer: &mut Observer, from: Cursor, budget_tokens: u64) -> (Self, Cursor) {
        let output = observer.output().await.unwrap_or_default();
        let (over, mask) = (observer.is_over(), observer.mask());
        let look = output.overview_since(&mask, from, Selection::Both, budget_tokens, over);
        let (preview, next) = look.unwrap_or_default();
        let next_cursor = next.to_text(&observer.task().task_id);
        let artifacts = if preview.truncated { artifacts(&output) } else { Vec::new() };
        if let Some(screen) = full_screen(output, &mask).await.filter(|_| !over) {
            return (Self { text: Some(screen), next_cursor, ..Self::default() }, next);
        }
        let Preview { text, truncated, .. } = preview;
        (Self { text, truncated, artifacts, next_cursor }, next)
    }
}

impl Waited {
    fn first_line(&self) -> String {
        let (waited, sought) = (lasted(self.duration_ms), &self.sought);
        match &self.condition {
            Some(condition) => format!("Condition met: {}, after {waited}", condition.describe()),
            None if self.ended => {
                format!("The task ended before the condition was met, after {waited}: {sought}")
            }
            None => format!("Wait timed out after {waited}: {sought}"),
        }
    }
}

impl Receipt for Waited {
    fn receipt(&self) -> String {
        let mut lines = Lines::new(&self.first_line());
        let several = self.tasks.len() > 1;
        if let Some(task_id) = self.task_id.as_ref().filter(|_| several) {
            lines.line(&format!("Met by: {task_id}"));
        }
        for task in &self.tasks {
            if several {
                lines.line("");
            }
            lines.task(task);
        }
        if several {
            let shown = self.task_id.as_ref().or(self.tasks.first().map(|task| &task.task_id));
            let shown = shown.map(|task| format!("\nOutput of {task}")).unwrap_or_default();
            lines.line(&shown);
        }
        lines.line(&format!("Cursor: {}", self.next_cursor));
        if let Some(text) = &self.output_preview {
            lines.block("Output", text);
        }
        for task in &self.tasks {
            lines.warnings(task);
        }
        lines.artifacts(&self.artifacts);
        lines.into_text()
    }
}
