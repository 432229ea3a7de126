//! `legwork top`: the tasks, their output and the open questions on one screen.
//!
//! [`state`] is plain data that keys and messages change, and [`view`] draws it; [`reading`] sends
//! the messages; here is the loop between them. Whatever is drawn is drawn because a key, an event
//! or a signal came. Quitting stops nothing.

mod deciding;
mod lines;
mod list;
mod output;
mod questions;
mod reading;
mod screen;
mod state;
mod trials;
mod view;
mod view_question;
mod view_trials;

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use legwork::{Answered, Caller, Engine, TaskId, ToolError};
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, Receiver, Sender},
};

use self::{
    reading::{Followed, Follower, questions, read_changes, trial_text, trials},
    screen::{TopScreen, give_back_on_panic},
    state::{Effect, Message, State, TopMode, TrialVerb},
    trials::TrialWanted,
    view::{Theme, view},
};
use super::attach::{Left, join_terminal};
use crate::{
    arguments::TopOptions,
    keys::Keys,
    render::{complain, complain_of, one_line, say},
    signals::Caught,
    style::Style,
    terminal::{self, Typed},
};

/// Exit code where there is no terminal to draw on.
const NO_TERMINAL: u8 = 2;

/// Changes within this time are drawn together.
const FRAME: Duration = Duration::from_millis(25);

/// Messages that wait to be taken.
const MESSAGES_MAX: usize = 64;

/// Who answers, applies and discards, for the audit log.
const BY: &str = "legwork top";

/// How long a task may take to end by itself before it is killed.
const GRACE_MS: u64 = 3000;

pub(crate) async fn top(options: TopOptions) -> ExitCode {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !terminal::is_shown() || is_dumb {
        say("legwork: top needs a terminal on stdin and stdout");
        say("hint: `legwork ps` lists the tasks, `legwork approvals` the questions");
        return ExitCode::from(NO_TERMINAL);
    }
    let engine = match options.state.open() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    give_back_on_panic();
    match Top::new(engine).run().await {
        Ok(code) => code,
        Err(error) => complain(&format!("the terminal is gone: {error}")),
    }
}

/// The loop and what it needs.
struct Top {
    engine: Engine,
    state: State,
    theme: Theme,
    follower: Follower,
    sender: Sender<Message>,
    messages: Receiver<Message>,
    began: Instant,
}

/// What the loop goes on with.
enum Next {
    Message(Message),
    Typed(Option<Vec<u8>>),
    Resized,
    /// It was stopped, and goes on: whoever had the terminal meanwhile has left something on it.
    Continued,
    Due,
    Signal(i32),
}

impl Top {
    fn new(engine: Engine) -> Self {
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let theme = Theme { colours: Style::of_stdout().colours };
        let (state, follower) = (State::default(), Follower::default());
        Self { engine, state, theme, follower, sender, messages, began: Instant::now() }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn run(mut self) -> io::Result<ExitCode> {
        // For as long as this lives, callers know that somebody is here who answers.
        let _here = match self.engine.watch_approvals(None) {
            Ok(here) => Some(here),
            Err(error) => {
                self.state.told = Some(error.message);
                None
            }
        };
        let mut keyboard = Typed::keyboard()?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let mut signals = Caught::new(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]);
        let reading = tokio::spawn(read_changes(self.engine.clone(), self.sender.clone()));
        let mut screen = Some(TopScreen::enter()?);
        let mut keys = Keys::default();
        // When to draw; none while nothing has changed.
        let mut due = Some(Instant::now());
        let code = loop {
            if due.is_some_and(|due| due <= Instant::now()) {
                self.draw(screen.as_mut())?;
                due = self.next_due();
            }
            let next = tokio::select! {
                typed = keyboard.next_or_end() => Next::Typed(typed),
                Some(message) = self.messages.recv() => Next::Message(message),
                _ = resized.recv() => Next::Resized,
                _ = continued.recv() => Next::Continued,
                number = signals.next() => Next::Signal(number),
                () = until(due) => Next::Due,
            };
            match next {
                Next::Due => continue,
                Next::Message(Message::Failed(error)) => {
                    drop(screen.take());
                    break complain_of(&error);
                }
                Next::Message(message) => self.state.take(message),
                Next::Resized => {}
                Next::Continued => {
                    if let Some(screen) = &mut screen {
                        screen.take_again()?;
                    }
                }
                // The terminal is gone.
                Next::Typed(None) => break ExitCode::SUCCESS,
                Next::Signal(number) => break ended_by(number),
                Next::Typed(Some(bytes)) => {
                    for input in keys.feed(&bytes) {
                        let effect = self.state.press(input, self.now_ms());
                        if let Some(code) = self.act(effect, &mut screen).await? {
                            reading.abort();
                            return Ok(code);
                        }
                    }
                    // At once: whoever presses a key looks.
                    due = Some(Instant::now());
                    continue;
                }
            }
            let soon = Instant::now() + FRAME;
            due = Some(due.map_or(soon, |due| due.min(soon)));
        };
        reading.abort();
        Ok(code)
    }

    fn draw(&mut self, screen: Option<&mut TopScreen>) -> io::Result<()> {
        let now_ms = self.now_ms();
        if let Some(screen) = screen {
            screen.draw(|frame| view(frame, &mut self.state, self.theme, now_ms))?;
        }
        let as_text = self.state.as_text;
        let wanted = self.state.output.task();
        let wanted = wanted.map(|(task, turn)| Followed { task: task.clone(), turn, as_text });
        self.follower.follow(wanted, &self.engine, &self.sender);
        if self.state.mode == TopMode::Trials {
            self.read_trials();
        }
        Ok(())
    }

    /// Has what the view of trials lacks read, beside the loop.
    fn read_trials(&mut self) {
        for wanted in self.state.trials.wanted() {
            let (engine, sender) = (self.engine.clone(), self.sender.clone());
            tokio::spawn(async move {
                let message = match wanted {
                    TrialWanted::List => trials(&engine).await,
                    TrialWanted::Changes(id) => trial_text(&engine, id).await,
                };
                let _ = sender.send(message).await;
            });
        }
    }

    /// When to draw without anything having happened: keys begin to answer a question, or a letter
    /// has waited for Enter long enough.
    fn next_due(&self) -> Option<Instant> {
        let at_ms = self.state.answering.due(self.now_ms())?;
        Some(self.began + Duration::from_millis(at_ms))
    }

    /// Does what a key asks for; an exit code if that is to end.
    async fn act(
        &mut self,
        effect: Option<Effect>,
        screen: &mut Option<TopScreen>,
    ) -> io::Result<Option<ExitCode>> {
        match effect {
            None => {}
            Some(Effect::Quit) => return Ok(Some(ExitCode::SUCCESS)),
            Some(Effect::Attach(id)) => {
                *screen = None;
                let left = attach(&self.engine, &id).await;
                *screen = Some(TopScreen::enter()?);
                match left {
                    Ok(Left::Signal(number)) => return Ok(Some(ended_by(number.into()))),
                    Ok(Left::Detached) => {
                        self.state.told = Some("detached: the task goes on".into());
                    }
                    Ok(Left::Ended) => self.state.told = Some("the task has ended".into()),
                    Err(error) => self.state.told = Some(error.message),
                }
            }
            Some(Effect::Stop(id)) => {
                self.state.told = Some("stopping…".into());
                self.begin(|engine| stop(engine, id));
            }
            Some(Effect::Answer { approval_id, reply: decision, note, told }) => {
                let answered = Answered { decision, note, by: BY.into() };
                let sender = self.sender.clone();
                self.begin(|engine| async move {
                    let answered = engine.answer(&approval_id, answered).await;
                    let told = answered.map_or_else(|error| error.message, |_| told);
                    // One that could not be answered is open still.
                    if let Ok(open) = questions(&engine).await {
                        let _ = sender.send(open).await;
                    }
                    told
                });
            }
            Some(Effect::Send(id, line)) => self.begin(|engine| send(engine, id, line)),
            Some(Effect::Settle(id, verb)) => {
                let sender = self.sender.clone();
                self.begin(|engine| async move {
                    let told = settle(&engine, &id, verb).await;
                    let _ = sender.send(trials(&engine).await).await;
                    if told.is_err() {
                        // It may not be what was shown any more.
                        let _ = sender.send(trial_text(&engine, id).await).await;
                    }
                    told.unwrap_or_else(|error| shown_error(&error))
                });
            }
        }
        Ok(None)
    }

    /// Does something beside the loop, and tells its outcome.
    fn begin<F>(&self, work: impl FnOnce(Engine) -> F)
    where
        F: Future<Output = String> + Send + 'static,
    {
        let (work, sender) = (work(self.engine.clone()), self.sender.clone());
        tokio::spawn(async move {
            let told = work.await;
            if !told.is_empty() {
                let _ = sender.send(Message::Told(told)).await;
            }
        });
    }
}

/// The exit code after a signal, as a shell gives it.
fn ended_by(number: i32) -> ExitCode {
    ExitCode::from(128 + u8::try_from(number).unwrap_or(0))
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Gives our terminal to a task until Ctrl-], its end or a signal.
async fn attach(engine: &Engine, id: &TaskId) -> Result<Left, ToolError> {
    let mut observer = engine.observe(engine.task(id.as_str()).await?).await?;
    if observer.is_over() {
        return Ok(Left::Ended);
    }
    join_terminal(&mut observer, &Caller::person("top")).await
}

async fn stop(engine: Engine, id: TaskId) -> String {
    let input = json!({ "task_id": id, "signal": "TERM", "grace_ms": GRACE_MS });
    let answer = engine.call("TaskStop", input, &Caller::person("cli")).await;
    match answer.error() {
        Some(error) => error.message.clone(),
        None => one_line(answer.receipt().lines().next().unwrap_or("stopped"), 200),
    }
}

/// Applies or discards a trial; says what was done.
async fn settle(engine: &Engine, id: &TaskId, verb: TrialVerb) -> Result<String, ToolError> {
    let task = engine.trial(id.as_str()).await?;
    match verb {
        TrialVerb::Apply => {
            let done = engine.apply_trial(&task, Vec::new(), BY).await?;
            let (made, changed, removed) = (done.made, done.changed, done.removed);
            Ok(format!("applied: {made} made, {changed} changed, {removed} removed"))
        }
        TrialVerb::Discard => {
            engine.discard_trial(&task, BY).await?;
            Ok("discarded: the workspace is as it was".into())
        }
    }
}

/// An error, with the first of the paths that it names.
fn shown_error(error: &ToolError) -> String {
    let paths = error.details.as_ref().and_then(|details| details.get("paths"));
    let first = paths.and_then(|paths| paths.get(0)).and_then(|path| path.as_str());
    let first = first.map_or_else(String::new, |path| format!(" ({path})"));
    one_line(&format!("{}{first}", error.message), 300)
}

/// Sends a line to a task's input; nothing is told where it was taken.
async fn send(engine: Engine, id: TaskId, line: String) -> String {
    // A line ends as it does when it is typed: a terminal has its own idea of that.
    let mut input = json!({ "task_id": id, "key": "enter", "wait_ms": 0 });
    if let (false, Some(fields)) = (line.is_empty(), input.as_object_mut()) {
        fields.insert("input".into(), line.into());
    }
    let answer = engine.call("TaskInput", input, &Caller::person("cli")).await;
    match answer.error() {
        Some(error) => error.message.clone(),
        None if answer
            .envelope()
            .result
            .as_ref()
            .is_some_and(|it| it["accepted_input"] == true) =>
        {
            String::new()
        }
        None => one_line(&answer.receipt().replace('\n', ": "), 200),
    }
}
