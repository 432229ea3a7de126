//! `TaskInput`: writes to a task's stdin, or types on its terminal.

use std::time::Duration;

use legwork_warden::{
    folder::WindowSize,
    protocol::{InputRefusal, Report},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, schema,
    task_output::{ScreenView, ShownAs, played},
    task_view::{Lines, TaskBrief},
};
use crate::{
    engine::Engine,
    error::ToolError,
    model::Caller,
    output::{Cursor, Preview, Selection, TaskOutput, keys},
    store::ledger::Task,
    task::{
        input::TypedText,
        observe::{Change, InputTaken, Observer},
    },
};

const NAME: &str = "TaskInput";
const INPUT_BYTES_MAX: usize = 1024 * 1024;
const WINDOW_MAX: u16 = 1000;

/// How long a response is waited for by default, and at most.
const WAIT_MS_DEFAULT: u64 = 300;
const WAIT_MS_MAX: u64 = 60_000;

/// A command that has printed nothing for this long has said what it had to say.
const QUIET: Duration = Duration::from_millis(100);

/// How long a command may take to read its input.
const PATIENCE: Duration = Duration::from_secs(5);

/// Input of `TaskInput`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names are the contract's")]
struct Input {
    /// The id of the task.
    task_id: String,
    /// Text to send, exactly as it is: end it with a newline to finish a line.
    input: Option<String>,
    /// A key to press after the text: enter, tab, escape, backspace, up, down, left, right, home,
    /// end, page-up, page-down, delete, insert, f1 to f12, ctrl-a to ctrl-z, alt- and a character,
    /// and others.
    key: Option<String>,
    /// Whether to end the input after that.
    #[schemars(extend("default" = false))]
    eof: Option<bool>,
    /// New height of the terminal in lines, together with `cols`.
    #[schemars(range(min = 1, max = 1000))]
    rows: Option<u16>,
    /// New width of the terminal in characters, together with `rows`.
    #[schemars(range(min = 1, max = 1000))]
    cols: Option<u16>,
    /// How long to wait for what the command prints in response, in milliseconds, up to 60000; it
    /// ends sooner when the command falls silent or waits for input again.
    #[schemars(range(max = 60_000), extend("default" = WAIT_MS_DEFAULT))]
    wait_ms: Option<u64>,
    /// `log` for the response as text, `screen` for what the terminal shows then.
    #[schemars(extend("default" = ShownAs::default()))]
    view: Option<ShownAs>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    accepted_input: bool,
    /// `terminal`, `stdin` or `none`.
    input_target: String,
    bytes_written: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reason: Option<String>,
    task: TaskBrief,
    /// What was printed in response, and since this caller's last look.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    output_preview: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    output_truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    screen: Option<ScreenView>,
    /// Whether the command is blocked reading its input again; absent if that cannot be known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    waiting_for_input: Option<bool>,
    /// Where the output goes on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    next_cursor: Option<String>,
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "core_agent",
            category: "Tasks",
            tags: &["task", "input", "stdin", "terminal", "keys"],
            description: "Sends text to a task's stdin or types it on its terminal, presses a named key, \
                          ends the input, or changes the terminal's size.",
            input_schema: schema::of::<Input>(),
            instructions: "\
Use TaskInput to answer a task that waits for input. It takes what you send only if it was started with
`accepts_input` or `tty`.
- `input` is sent as it is: add `\\n` for Enter, or press `key: enter` on a terminal.
- `key: ctrl-c` interrupts a program on a terminal; without one, use TaskStop with `signal: INT`.
- `eof: true` ends the input, as Ctrl-D does.
- The answer has what was printed in response, until the command falls silent or waits for input again; give
  `wait_ms` to a slow one. `view: screen` shows what the terminal shows then.",
            read_only: false,
            by_default: true,
            turn: Turn::Looks,
            manners: Manners::default(),
            takes_argv: false,
            shell: None,
            text_is_json: false,
            takes_place: false,
        },
        call: |engine, input, caller| Box::pin(call(engine, input, caller)),
        render: super::render::<Sent>,
    }
}

async fn call(engine: &Engine, input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    let size = input.check()?;
    let task = engine.task_here(&input.task_id).await?;
    if !task.status.is_final() {
        input.admit(engine, &task, caller).await?;
    }
    let mut observer = engine.observe(task).await?;
    let report = observer.report().await?.filter(|_| !observer.is_over());
    let before = size_of(&observer.output().await.unwrap_or_default());
    let (target, taken) = match &report {
        None => ("none", Taken { refusal: Some(InputRefusal::Ended), ..Taken::default() }),
        Some(report) => {
            // Nothing at all is refused like anything else.
            observer.controls(caller).await?;
            let target = match report {
                Report { takes_input: false, .. } => "none",
                Report { terminal: Some(_), .. } => "terminal",
                _ => "stdin",
            };
            if let (Some(size), Some(_)) = (size, report.terminal) {
                observer.controls(caller).await?.resize(size).await;
            }
            (target, send(&mut observer, report, &input, caller).await?)
        }
    };
    let terminal = report.as_ref().is_some_and(|report| report.terminal.is_some());
    if input.view == Some(ShownAs::Screen) && report.is_some() && !terminal {
        let problem = "must be `log`: the task has no terminal";
        return Err(ToolError::invalid_field(NAME, "view", problem));
    }
    let resize_refused = size.is_some() && report.is_some_and(|report| report.terminal.is_none());
    let reason = match taken.refusal {
        Some(refusal) => Some(refusal_text(refusal)),
        None if resize_refused => Some("the task has no terminal to resize".to_owned()),
        None if taken.complete => None,
        None => Some(format!(
            "the command does not read its input: {} bytes were taken in {} s, so send only the rest",
            taken.bytes,
            PATIENCE.as_secs()
        )),
    };
    let wait = Duration::from_millis(input.wait_ms.unwrap_or(WAIT_MS_DEFAULT));
    let waiting_for_input = match reason {
        None => respond(&mut observer, before, wait).await,
        Some(_) => None,
    };
    let from = super::seen_by(caller, &observer.task().task_id).unwrap_or(before);
    let response = Response::since(&mut observer, from, engine, input.view).await;
    super::note_seen(caller, &observer.task().task_id, response.next);
    let sent = Sent {
        accepted_input: reason.is_none(),
        input_target: target.into(),
        bytes_written: taken.bytes,
        reason,
        task: TaskBrief::new(observer.task(), &engine.mask()),
        output_preview: response.text,
        output_truncated: response.truncated,
        screen: response.screen,
        waiting_for_input,
        next_cursor: Some(response.next.to_text(&observer.task().task_id)),
    };
    let summary = if sent.accepted_input { "input accepted" } else { "input not accepted" };
    Ok(super::success(sent, summary))
}

fn size_of(output: &TaskOutput) -> Cursor {
    Cursor { stdout: output.stdout.bytes(), stderr: output.stderr.bytes() }
}

/// Waits until the command has responded: it printed and fell silent, waits for input again, or has
/// ended. Says whether it waits for input, where that was asked and can be known.
async fn respond(observer: &mut Observer, before: Cursor, wait: Duration) -> Option<bool> {
    let deadline = Instant::now() + wait;
    let mut seen = before;
    loop {
        let quiet = deadline.min(Instant::now() + QUIET);
        match timeout_at(quiet, observer.changed(seen.stdout, seen.stderr)).await {
            Ok(Change::Ended) => return None,
            Ok(Change::Grown) => {
                let output = observer.output().await.unwrap_or_default();
                seen = size_of(&output);
            }
            Err(_) => {
                let report = observer.report().await.ok().flatten();
                let waits = report.and_then(|report| report.waiting_for_input);
                let responded = seen != before || waits == Some(true);
                if responded || Instant::now() >= deadline {
                    return waits;
                }
            }
        }
    }
}

/// What a command printed in response.
#[derive(Default)]
struct Response {
    text: Option<String>,
    truncated: bool,
    screen: Option<ScreenView>,
    next: Cursor,
}

impl Response {
    async fn since(
        observer: &mut Observer,
        from: Cursor,
        engine: &Engine,
        view: Option<ShownAs>,
    ) -> Self {
        let output = observer.output().await.unwrap_or_default();
        let (over, mask) = (observer.is_over(), observer.mask());
        let budget_tokens = super::effective_tokens(engine, None);
        let look = output.overview_since(&mask, from, Selection::Both, budget_tokens, over);
        let (Preview { text, truncated, .. }, next) = look.unwrap_or_default();
        if !over && output.is_terminal() && view != Some(ShownAs::Log) {
            let screen = played(output).await.ok();
            // Of the log of a program that has taken the whole terminal nobody can make sense.
            let shown = screen.filter(|screen| view.is_some() || screen.full_screen);
            if let Some(screen) = shown {
                let (text, screen) = (screen.text(&mask), ScreenView::of(&screen));
                return Self { text: Some(text), truncated: false, screen: Some(screen), next };
            }
        }
        Self { text, truncated, screen: None, next }
    }
}

impl Input {
    /// Asks whether the task may be sent this.
    async fn admit(&self, engine: &Engine, task: &Task, caller: &Caller) -> Result<(), ToolError> {
        let key = self.key.as_ref().map(|key| key.to_ascii_lowercase());
        let text = self.input.as_deref().unwrap_or_default();
        if text.is_empty() && key.is_none() {
            return Ok(());
        }
        let ends_line = key.as_deref() == Some("enter") || self.eof == Some(true);
        let typed = TypedText { tool: NAME, text, key: key.as_deref(), ends_line };
        engine.admit_input(task, typed, caller).await
    }

    /// Checks what the types do not say; returns the new size, if there is one.
    fn check(&self) -> Result<Option<WindowSize>, ToolError> {
        let invalid = |field, problem: String| Err(ToolError::invalid_field(NAME, field, problem));
        if self.input.as_ref().is_some_and(|text| text.len() > INPUT_BYTES_MAX) {
            return invalid("input", format!("is over the limit of {INPUT_BYTES_MAX} bytes"));
        }
        if let Some(key) = &self.key
            && keys::bytes_of(key, false).is_none()
        {
            let problem = format!("`{key}` is not known; the keys are: {}", keys::known());
            let hint = "name one of these keys, or send a text with `input`";
            return Err(ToolError::invalid_field(NAME, "key", problem).hint(hint));
        }
        if self.wait_ms.is_some_and(|wait| wait > WAIT_MS_MAX) {
            return invalid("wait_ms", format!("is over the limit of {WAIT_MS_MAX}"));
        }
        let size = match (self.rows, self.cols) {
            (None, None) => None,
            (Some(rows), Some(cols)) => Some(WindowSize { rows, cols }),
            (None, _) => return invalid("rows", "is missing: it goes together with `cols`".into()),
            (_, None) => return invalid("cols", "is missing: it goes together with `rows`".into()),
        };
        let allowed = |number: u16| (1..=WINDOW_MAX).contains(&number);
        if size.is_some_and(|size| !allowed(size.rows) || !allowed(size.cols)) {
            return invalid("rows", format!("and `cols` must be from 1 to {WINDOW_MAX}"));
        }
        let nothing = self.input.is_none() && self.key.is_none() && self.eof != Some(true);
        if nothing && size.is_none() {
            return invalid("input", "is missing: give `input`, `key`, `eof` or a size".into());
        }
        Ok(size)
    }
}

/// What became of the input.
#[derive(Debug, Default)]
struct Taken {
    /// Bytes of text and key.
    bytes: u64,
    /// Whether everything was taken: text, key and end.
    complete: bool,
    refusal: Option<InputRefusal>,
}

/// Sends text, key and end, in this order, for as long as each is taken.
async fn send(
    observer: &mut Observer,
    report: &Report,
    input: &Input,
    caller: &Caller,
) -> Result<Taken, ToolError> {
    let mut bytes = input.input.clone().unwrap_or_default().into_bytes();
    let mut ends = input.eof == Some(true);
    if let Some(key) = &input.key {
        match (report.terminal.is_some(), key.to_ascii_lowercase().as_str()) {
            (false, "enter") => bytes.push(b'\n'),
            (false, "ctrl-d") => ends = true,
            (false, name) if name.starts_with("ctrl-") => {
                let problem = "needs a terminal, and the task has none";
                return Err(ToolError::invalid_field(NAME, "key", problem)
                    .hint("use TaskStop with `signal` `INT` to interrupt it"));
            }
            _ => bytes.extend(bytes_of_key(observer, report, key).await?),
        }
    }
    let mut taken = InputTaken::default();
    if !bytes.is_empty() {
        taken = observer.controls(caller).await?.input(&bytes, PATIENCE).await;
    }
    let complete = taken.bytes == bytes.len() as u64;
    if ends && complete && taken.refusal.is_none() {
        taken.refusal = observer.controls(caller).await?.end_input().await;
    }
    Ok(Taken { bytes: taken.bytes, complete, refusal: taken.refusal })
}

/// What a key sends: some depend on what the program has told its terminal, which its log has to be
/// played for.
async fn bytes_of_key(
    observer: &mut Observer,
    report: &Report,
    key: &str,
) -> Result<Vec<u8>, ToolError> {
    let depends = keys::bytes_of(key, true) != keys::bytes_of(key, false);
    let application = depends && applies_cursor_mode(observer, report).await?;
    Ok(keys::bytes_of(key, application).unwrap_or_default())
}

/// Whether the program has told its terminal that it wants other codes for the arrow keys.
async fn applies_cursor_mode(observer: &mut Observer, report: &Report) -> Result<bool, ToolError> {
    if report.terminal.is_none() {
        return Ok(false);
    }
    let output = observer.output().await?;
    let screen = played(output).await.map_err(|error| observer.unreadable(&error))?;
    Ok(screen.application_cursor)
}

fn refusal_text(refusal: InputRefusal) -> String {
    match refusal {
        InputRefusal::NoInput => {
            "the task takes no input: it was started without `accepts_input` and without `tty`"
        }
        InputRefusal::Closed => "stdin_closed: the command has closed its input, or it was ended",
        InputRefusal::Ended => "the task has ended",
        InputRefusal::Full => "the terminal takes no more now: the command does not read its input",
    }
    .to_owned()
}

impl Receipt for Sent {
    fn receipt(&self) -> String {
        let first = if self.accepted_input { "Input accepted" } else { "Input not accepted" };
        let mut lines = Lines::new(first);
        lines.task(&self.task);
        lines.line(&format!("Target: {}", self.input_target));
        lines.line(&format!("Bytes written: {}", self.bytes_written));
        if let Some(reason) = &self.reason {
            lines.line(&format!("Reason: {reason}"));
        }
        if self.waiting_for_input == Some(true) {
            lines.line("Waiting for input: yes");
        }
        if let Some(cursor) = &self.next_cursor {
            lines.line(&format!("Cursor: {cursor}"));
        }
        if let Some(screen) = &self.screen {
            lines.line(&screen.line());
        }
        match &self.output_preview {
            Some(text) if self.screen.is_some() => lines.block("Screen", text),
            Some(text) => lines.block("Output", text),
            None if self.accepted_input && self.task.status.is_final() => {
                lines.block("Output", "(nothing more)");
            }
            None if self.accepted_input => lines.block("Output", "(nothing yet)"),
            None => {}
        }
        lines.into_text()
    }
}
