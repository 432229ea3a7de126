//! Prints for people: data on stdout, errors and hints on stderr, times, commands in one line.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use jiff::{Timestamp, tz::TimeZone};
use legwork::{ErrorKind, ToolError, TriedChange};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::Level;

use crate::{OUR_FAILURE, hints, log};

/// Exit code for a command that may not run.
pub(crate) const DENIED: u8 = 126;

/// Exit code after Ctrl-C at a question, as a shell gives it.
pub(crate) const CANCELLED: u8 = 130;

/// Exit code for a program that does not exist.
pub(crate) const NOT_FOUND: u8 = 127;

/// Says something on stderr, or in the log of a server; a stderr that is gone is no reason to fail.
pub(crate) fn say(text: &str) {
    say_at(Level::WARN, text);
}

/// Says something to the person at the terminal alone, on stderr, or on stdout where stderr is a
/// log: whether there is such a person. Files and pipes keep what they get.
pub(crate) fn tell_person(text: &str) -> bool {
    if log::is_kept() {
        io::stdout().is_terminal() && writeln!(io::stdout(), "{text}").is_ok()
    } else {
        io::stderr().is_terminal() && writeln!(io::stderr(), "{text}").is_ok()
    }
}

fn say_at(level: Level, text: &str) {
    if !log::take(level, text) {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Says what went wrong, and fails.
pub(crate) fn complain(problem: &str) -> ExitCode {
    say_at(Level::ERROR, &format!("legwork: {problem}"));
    ExitCode::from(OUR_FAILURE)
}

/// Says what a call met, with its hint, and fails with the code of that kind.
pub(crate) fn complain_of(error: &ToolError) -> ExitCode {
    say_at(Level::ERROR, &format!("legwork: {}", error.message));
    // Whoever refused a command needs no advice to ask whoever refused it.
    let is_own = error.kind == ErrorKind::ApprovalRefused && io::stderr().is_terminal();
    let hint = hints::of(error).or_else(|| error.recovery_hint.clone());
    if let Some(hint) = hint.filter(|_| !is_own) {
        say(&format!("hint: {hint}"));
    }
    ExitCode::from(error_code(error.kind))
}

/// A change of a trial, as JSON has it. Modes are written as `chmod` takes them.
pub(crate) fn change_json(change: &TriedChange) -> Value {
    let octal = |mode: u32| format!("{mode:o}");
    json!({
        "path": change.path.display().to_string(),
        "kind": change.kind,
        "file": change.file,
        "bytes": change.bytes,
        "mode_before": change.mode_before().map(octal),
        "mode": change.mode().map(octal),
        "details": change.details(),
    })
}

/// The exit code of `call` for an error.
pub(crate) fn error_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::CommandDenied
        | ErrorKind::CommandSubstitutionDenied
        | ErrorKind::ApprovalRefused
        | ErrorKind::ApprovalUnavailable
        | ErrorKind::ApprovalExpired => DENIED,
        _ => OUR_FAILURE,
    }
}

/// Prints data; a reader that went away is no failure of ours.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("stdout: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints data as JSON.
pub(crate) fn print_json(data: &impl Serialize) -> ExitCode {
    match serde_json::to_string_pretty(data) {
        Ok(text) => print(&format!("{text}\n")),
        Err(error) => complain(&format!("JSON: {error}")),
    }
}

/// A time as the user's clock shows it.
pub(crate) fn time(milliseconds: i64) -> String {
    match Timestamp::from_millisecond(milliseconds) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => "?".into(),
    }
}

/// Why a task has its status, in words.
pub(crate) fn reason(name: &str) -> String {
    match name {
        "stopped" => "stopped on request".into(),
        "abandoned" => "stopped: no client was connected (orphan_ttl_ms)".into(),
        "timeout" => "stopped by its time limit".into(),
        "warden_lost" => "its supervisor was killed".into(),
        "reboot" => "the machine was restarted".into(),
        "spawn_failed" => "it could not be started".into(),
        other => other.replace('_', " "),
    }
}

/// The time now, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Whether a character changes the order in which a terminal shows others, or shows nothing.
fn reorders(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text in one line, with everything that is not printable escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars() {
        if character.is_control() || reorders(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// The same, of bounded width.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let line = escaped(text);
    if line.chars().count() <= width {
        return line;
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}
