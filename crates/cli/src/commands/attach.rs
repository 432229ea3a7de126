//! `legwork attach`: connects this terminal, or these streams, to a running task. Detaching never
//! stops the task.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use legwork::{Caller, Change, ErrorKind, Observer, ToolError, output::Screen};

use super::{copy::Copier, run::code_of_task};
use crate::{
    arguments::AttachOptions,
    asking,
    platform::{Signal, window_changes},
    render::{complain, complain_of, say},
    signals::Caught,
    terminal::{self, Raw, Typed},
};

/// The key that leaves a terminal: Ctrl-].
const DETACH: u8 = 0x1d;

/// Undoes what a program may have asked of its terminal: inserting, letters as lines, a region that
/// scrolls, keys, wrapping, cursor, mouse, focus, pasting, the other screen, colours.
const CALM: &[u8] =
    b"\x1b[!p\x1b(B\x0f\x1b[r\x1b[?1l\x1b>\x1b[?7h\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\
      \x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b[m\r\n";

/// How long a task may take to read what is typed before it is dropped.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn attach(options: AttachOptions) -> ExitCode {
    let attached = async {
        let engine = options.state.with_tasks()?;
        let task = engine.task(&options.task).await?;
        engine.observe(task).await
    };
    let mut observer = match attached.await {
        Ok(observer) => observer,
        Err(error) => return complain_of(&error),
    };
    let person = Caller::person("attach");
    let left = if observer.task().tty && terminal::is_interactive() && !observer.is_over() {
        join_terminal(&mut observer, &person).await
    } else {
        stream(&mut observer, &person).await
    };
    let left = match left {
        Ok(left) => left,
        Err(error) => return complain_of(&error),
    };
    match left {
        Left::Ended => code_of_task(observer.task()),
        Left::Detached => {
            say(&format!("legwork: detached; task {} goes on", observer.task().task_id));
            ExitCode::SUCCESS
        }
        Left::Signal(number) => ExitCode::from(128 + number),
    }
}

/// Why nobody takes part any more.
pub(super) enum Left {
    /// The command has ended.
    Ended,
    /// The detach key was pressed.
    Detached,
    /// We were asked to end.
    Signal(u8),
}

/// Gives our terminal to a task that has one, until Ctrl-], its end or a signal; then the terminal
/// is as it was.
pub(super) async fn join_terminal(
    observer: &mut Observer,
    caller: &Caller,
) -> Result<Left, ToolError> {
    observer.controls(caller).await?;
    say("legwork: attached; Ctrl-] detaches, and the task goes on\r");
    let left = take_part(observer, caller, true).await;
    // The program goes on and will not tidy up on this terminal.
    if !matches!(left, Ok(Left::Ended)) {
        let _ = std::io::stdout().write_all(CALM);
        let _ = std::io::stdout().flush();
    }
    left
}

/// Joins our terminal with the task's: keys go there, its bytes come here, its size follows ours.
pub(super) async fn take_part(
    observer: &mut Observer,
    caller: &Caller,
    can_leave: bool,
) -> Result<Left, ToolError> {
    let mut signals = Caught::new(&[Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT]);
    // A question has the terminal to itself, also one about a program that the command executes.
    asking::no_question().await;
    let Ok(_raw) = Raw::enter() else {
        let problem = "this terminal cannot be set to raw mode";
        return Err(ToolError::new(ErrorKind::ToolExecutionFailed, problem));
    };
    let mut keys = Typed::keyboard().unwrap_or_else(|_| Typed::listen());
    let mut resized = window_changes().ok();
    if let Some(size) = terminal::size() {
        observer.controls(caller).await?.resize(size).await;
    }
    let mut copier = Copier::new();
    let output = observer.output().await?;
    if can_leave {
        // What is on the screen now, instead of everything that ever was.
        copier.stdout.written = output.stdout.bytes();
        if let Ok(screen) = Screen::of(&output) {
            let _ = std::io::stdout().write_all(screen.formatted());
            let _ = std::io::stdout().flush();
        }
    }
    loop {
        let next_size = async {
            match &mut resized {
                Some(resized) => resized.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = asking::takes_terminal() => asking::no_question().await,
            number = signals.next() => return Ok(Left::Signal(u8::try_from(number).unwrap_or(0))),
            typed = keys.next() => {
                if can_leave && typed.contains(&DETACH) {
                    return Ok(Left::Detached);
                }
                observer.controls(caller).await?.input(&typed, PATIENCE).await;
            }
            _ = next_size => {
                if let Some(size) = terminal::size() {
                    observer.controls(caller).await?.resize(size).await;
                }
            }
            change = observer.changed(copier.stdout.written, 0) => {
                let output = observer.output().await?;
                let failed = !copier.copy(&output).await.is_empty();
                if failed || change == Change::Ended {
                    return Ok(if failed { Left::Detached } else { Left::Ended });
                }
            }
        }
    }
}

/// Copies the task's streams to ours, and our stdin to its.
async fn stream(observer: &mut Observer, caller: &Caller) -> Result<Left, ToolError> {
    let takes_input = observer.report().await?.is_some_and(|report| report.takes_input);
    let mut typed = if takes_input { Typed::listen() } else { Typed::nothing() };
    // A file or a pipe has an end that means something; a person may just have had enough.
    let passes_end = takes_input && !std::io::stdin().is_terminal();
    let mut signals = Caught::new(&[Signal::INT, Signal::TERM, Signal::HUP]);
    let mut copier = Copier::new();
    loop {
        let output = observer.output().await?;
        let failures = copier.copy(&output).await;
        if let Some(failure) = failures.first() {
            failure.problem().map(|problem| complain(&problem));
            return Ok(Left::Detached);
        }
        if observer.is_over() {
            return Ok(Left::Ended);
        }
        tokio::select! {
            _ = observer.changed(copier.stdout.written, copier.stderr.written) => {}
            line = typed.next_or_end() => match line {
                Some(line) => drop(observer.controls(caller).await?.input(&line, PATIENCE).await),
                None if passes_end => drop(observer.controls(caller).await?.end_input().await),
                None => {}
            },
            number = signals.next() => return Ok(Left::Signal(u8::try_from(number).unwrap_or(0))),
        }
    }
}
