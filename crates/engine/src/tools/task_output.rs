//! `TaskOutput`: what a task has printed: head and tail, only what is new, or its screen.

use std::{io, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, effective_tokens, schema,
    task_view::{ArtifactEntry, Lines, TaskBrief, artifacts},
};
use crate::{
    engine::Engine,
    error::ToolError,
    id::TaskId,
    model::Caller,
    output::{Cursor, Mask, Screen, Selection, TaskOutput},
    task::observe::{Change, Observer},
};

const NAME: &str = "TaskOutput";
const TIMEOUT_MS_DEFAULT: u64 = 30_000;

/// Output that comes in many small pieces is waited for this long, so that it is read in fewer.
const GATHER: Duration = Duration::from_millis(20);

/// Input of `TaskOutput`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The id of the task.
    task_id: String,
    /// Whether to wait: without `after` until the task has ended, with it until there is something
    /// new. Default: true (with `view` `screen`: false).
    block: Option<bool>,
    /// How long to wait at most, in milliseconds, up to 3600000.
    #[schemars(range(max = 3_600_000), extend("default" = TIMEOUT_MS_DEFAULT))]
    timeout_ms: Option<u64>,
    /// Which stream to show; `both` in the order in which they were written.
    #[schemars(extend("default" = Selection::default()))]
    stream: Option<Selection>,
    /// A cursor from an earlier answer: show only what was printed after it. `start` shows the
    /// output from its beginning. Default: go on from what you have been shown of this task, with
    /// head and tail where that is too much.
    after: Option<String>,
    /// How many tokens of output to show at most, up to 64000.
    #[schemars(extend("default" = super::default_tokens()))]
    max_output_tokens: Option<u64>,
    /// `log` for the output as text, `screen` for what a terminal shows now.
    #[schemars(extend("default" = ShownAs::default()))]
    view: Option<ShownAs>,
}

/// How output is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShownAs {
    #[default]
    Log,
    Screen,
}

#[derive(Debug, Serialize, Deserialize)]
struct Shown {
    retrieval_status: Retrieval,
    task: TaskBrief,
    output_preview: Option<String>,
    output_truncated: bool,
    /// Whether it goes on from what this caller was shown before.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    continued: bool,
    /// With a cursor: whether there is more already than was shown.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    more: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    screen: Option<ScreenView>,
    artifacts: Vec<ArtifactEntry>,
}

/// What a terminal shows, besides its text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ScreenView {
    rows: u16,
    cols: u16,
    /// Counted from 0; null when the cursor is hidden.
    cursor_row: Option<u16>,
    cursor_col: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Retrieval {
    Success,
    Timeout,
    NotReady,
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "core_agent",
            category: "Tasks",
            tags: &["task", "output", "log", "screen", "background"],
            description: "Shows what a task has printed so far: head and tail, or only what is new after a \
                          cursor, or the screen of its terminal. Waits for the task to end unless told not \
                          to.",
            input_schema: schema::of::<Input>(),
            instructions: "\
Use TaskOutput to read what a task printed.
- It goes on from what you have been shown of the task: nothing is repeated, and where something in between
  is left out a line says so. `after` goes on from the cursor of any earlier answer; `after: start` from the
  beginning.
- `block: false` answers at once. To wait for a certain line, use TaskWait with `output_matches`.
- `view: screen` shows what a terminal program shows right now.",
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
        render: super::render::<Shown>,
    }
}

async fn call(engine: &Engine, input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    let wait = super::bounded_wait(NAME, input.timeout_ms, TIMEOUT_MS_DEFAULT)?;
    let wait = caller.bounded(wait);
    let task = engine.task_here(&input.task_id).await?;
    let after = input.after.as_deref().map(|text| cursor(NAME, text, &task.task_id)).transpose()?;
    if input.view == Some(ShownAs::Screen) && !task.tty {
        let problem =
            "must be `log`: the task has no terminal, since it was not started with `tty`";
        return Err(ToolError::invalid_field(NAME, "view", problem));
    }
    let mut observer = engine.observe(task).await?;
    let block = input.block.unwrap_or(input.view != Some(ShownAs::Screen));
    let selection = input.stream.unwrap_or_default();
    let waited =
        if block { await_news(&mut observer, after, selection, wait).await? } else { true };
    let output = observer.output().await?;
    let mut shown = if input.view == Some(ShownAs::Screen) {
        screen(&observer, output).await?
    } else {
        let budget = effective_tokens(engine, input.max_output_tokens);
        let from = match after {
            Some(cursor) => ShowFrom::Cursor(cursor),
            None => ShowFrom::Shown(super::seen_by(caller, &observer.task().task_id)),
        };
        let (shown, next) = log(&observer, &output, budget, from, selection)?;
        super::note_seen(caller, &observer.task().task_id, next);
        shown
    };
    let has_news = after.is_some() && shown.output_preview.is_some();
    shown.retrieval_status = match (observer.is_over() || has_news, waited) {
        (true, _) => Retrieval::Success,
        (false, false) => Retrieval::Timeout,
        (false, true) if shown.output_preview.is_some() => Retrieval::Success,
        (false, true) => Retrieval::NotReady,
    };
    let summary = shown.retrieval_status.line().to_lowercase();
    Ok(super::success(shown, summary))
}

/// From where output is shown.
#[derive(Clone, Copy)]
enum ShowFrom {
    /// Behind a cursor, in order.
    Cursor(Cursor),
    /// Behind what this caller has been shown, if anything: head and tail where that is much.
    Shown(Option<Cursor>),
}

/// The word for a cursor before everything.
const START: &str = "start";

/// Reads a cursor, which must be one of this task.
pub(super) fn cursor(tool: &str, text: &str, task: &TaskId) -> Result<Cursor, ToolError> {
    if text == START {
        return Ok(Cursor::default());
    }
    Cursor::parse(text, task).ok_or_else(|| {
        ToolError::invalid_field(
            tool,
            "after",
            "is no cursor of this task: pass the one from an answer about it, as it was",
        )
        .hint("leave `after` out to go on from what you were shown, or pass `start`")
    })
}

/// Waits for the end, or for anything new after a cursor; says whether it came in time.
async fn await_news(
    observer: &mut Observer,
    after: Option<Cursor>,
    selection: Selection,
    wait: Duration,
) -> Result<bool, ToolError> {
    let deadline = Instant::now() + wait;
    let Some(after) = after else {
        return Ok(timeout_at(deadline, observer.ended()).await.is_ok());
    };
    let mut seen = after;
    loop {
        if observer.is_over() {
            return Ok(true);
        }
        let changed = observer.changed(seen.stdout, seen.stderr);
        match timeout_at(deadline, changed).await {
            Err(_) => return Ok(false),
            Ok(Change::Ended) => return Ok(true),
            Ok(Change::Grown) => {
                tokio::time::sleep_until(deadline.min(Instant::now() + GATHER)).await;
                let output = observer.output().await?;
                let fresh = output.since(&observer.mask(), after, selection, 1, observer.is_over());
                if !fresh.map_err(|error| observer.unreadable(&error))?.text.is_empty() {
                    return Ok(true);
                }
                // Half a character, or the other stream: wait for what comes beyond that.
                seen = Cursor { stdout: output.stdout.bytes(), stderr: output.stderr.bytes() };
            }
        }
    }
}

fn log(
    observer: &Observer,
    output: &TaskOutput,
    budget: u64,
    from: ShowFrom,
    selection: Selection,
) -> Result<(Shown, Cursor), ToolError> {
    let (over, mask) = (observer.is_over(), observer.mask());
    let (text, truncated, next) = match from {
        ShowFrom::Cursor(after) => {
            output.since(&mask, after, selection, budget, over).map(|fresh| {
                (Some(fresh.text).filter(|text| !text.is_empty()), fresh.more, fresh.next)
            })
        }
        ShowFrom::Shown(seen) => output
            .overview_since(&mask, seen.unwrap_or_default(), selection, budget, over)
            .map(|(preview, next)| (preview.text, preview.truncated, next)),
    }
    .map_err(|error| observer.unreadable(&error))?;
    let shown = Shown {
        retrieval_status: Retrieval::Success,
        task: TaskBrief::new(observer.task(), &mask),
        output_preview: text,
        output_truncated: truncated,
        continued: matches!(from, ShowFrom::Shown(Some(_))),
        more: truncated && matches!(from, ShowFrom::Cursor(_)),
        next_cursor: Some(next.to_text(&observer.task().task_id)),
        screen: None,
        artifacts: artifacts(output),
    };
    Ok((shown, next))
}

async fn screen(observer: &Observer, output: TaskOutput) -> Result<Shown, ToolError> {
    let artifacts = artifacts(&output);
    let screen = played(output).await.map_err(|error| observer.unreadable(&error))?;
    let mask = observer.mask();
    Ok(Shown {
        retrieval_status: Retrieval::Success,
        task: TaskBrief::new(observer.task(), &mask),
        output_preview: Some(screen.text(&mask)),
        output_truncated: false,
        continued: false,
        more: false,
        next_cursor: None,
        screen: Some(ScreenView::of(&screen)),
        artifacts,
    })
}

/// The screen of a terminal; in a thread, since a long log takes its time.
pub(super) async fn played(output: TaskOutput) -> io::Result<Screen> {
    let played = tokio::task::spawn_blocking(move || Screen::of(&output)).await;
    played.map_err(io::Error::other).and_then(|screen| screen)
}

/// What a program shows that has taken the whole terminal for itself: of its log nobody can make
/// sense.
pub(super) async fn full_screen(output: TaskOutput, mask: &Mask) -> Option<String> {
    if !output.is_terminal() {
        return None;
    }
    let screen = played(output).await.ok()?;
    screen.full_screen.then(|| screen.text(mask))
}

impl ScreenView {
    pub(super) fn of(screen: &Screen) -> Self {
        Self {
            rows: screen.rows,
            cols: screen.cols,
            cursor_row: screen.cursor.map(|(row, _)| row),
            cursor_col: screen.cursor.map(|(_, col)| col),
        }
    }

    /// The line of a receipt.
    pub(super) fn line(&self) -> String {
        let cursor = match (self.cursor_row, self.cursor_col) {
            (Some(row), Some(col)) => format!("cursor at row {row}, column {col} (from 0)"),
            _ => "cursor hidden".into(),
        };
        format!("Terminal: {} x {}, {cursor}", self.rows, self.cols)
    }
}

impl Retrieval {
    fn line(self) -> &'static str {
        match self {
            Self::Success => "Task output retrieved",
            Self::Timeout => "Task output wait timed out",
            Self::NotReady => "Task output is not ready",
        }
    }
}

impl Receipt for Shown {
    fn receipt(&self) -> String {
        let mut lines = Lines::new(self.retrieval_status.line());
        lines.task(&self.task);
        if let Some(cursor) = &self.next_cursor {
            lines.line(&format!("Cursor: {cursor}"));
        }
        if let Some(screen) = &self.screen {
            lines.line(&screen.line());
        }
        match &self.output_preview {
            Some(text) if self.screen.is_some() => lines.block("Screen", text),
            Some(text) if self.continued => {
                lines.block("Output since your last look", text.trim_end_matches('\n'));
            }
            Some(text) => lines.block("Output", text.trim_end_matches('\n')),
            None if self.continued => lines.block(
                "Output",
                "(nothing since your last look; `after`: `start` shows all of it again)",
            ),
            None => lines.block("Output", "(none)"),
        }
        lines.warnings(&self.task);
        if self.more {
            lines.block("More", "there is more already: ask again with the cursor above");
        } else if self.output_truncated {
            lines.artifacts(&self.artifacts);
        }
        lines.into_text()
    }
}
