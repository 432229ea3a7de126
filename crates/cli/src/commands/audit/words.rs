//! Describes one entry of the audit log in a sentence.

use legwork::{gate::units::shown_ms, signal_name};
use serde_json::Value;

use crate::render::{one_line, reason, time};

/// Most characters of a text of others in a line.
const TEXT_CHARS: usize = 200;

/// Characters of an id that tell it from others, mostly.
const ID_CHARS: usize = 8;

/// An entry in one line: when, what, of which task, in a sentence.
pub(in crate::commands) fn describe(entry: &Value) -> String {
    let entry = Entry(entry);
    let (word, sentence) = entry.told();
    let task = entry.text("task_id");
    let task = task.get(..ID_CHARS).unwrap_or(&task);
    format!("{}  {word:<9} {task:<ID_CHARS$}  {sentence}", time(entry.number("at_ms")))
}

/// What an entry tells, in a word and in a sentence.
pub(crate) fn told(entry: &Value) -> (&'static str, String) {
    Entry(entry).told()
}

struct Entry<'e>(&'e Value);

impl Entry<'_> {
    fn text(&self, name: &str) -> String {
        match self.0.get(name) {
            Some(Value::String(text)) => one_line(text, TEXT_CHARS),
            Some(Value::Null) | None => String::new(),
            Some(other) => one_line(&other.to_string(), TEXT_CHARS),
        }
    }

    fn number(&self, name: &str) -> i64 {
        self.0.get(name).and_then(Value::as_i64).unwrap_or(0)
    }

    /// A text with something before it; nothing if there is none.
    fn after(&self, before: &str, name: &str) -> String {
        let text = self.text(name);
        if text.is_empty() { text } else { format!("{before}{text}") }
    }

    /// What happened, in a word and in a sentence.
    fn told(&self) -> (&'static str, String) {
        let (by, command) = (self.text("asked_by"), self.text("command"));
        match self.text("event").as_str() {
            "verdict" => self.verdict(),
            "outcome" => ("ended", self.outcome()),
            "refused" => {
                let (tool, message) = (self.text("tool"), self.text("message"));
                ("refused", format!("{by} called {tool}: {message}"))
            }
            "program_refused" => ("refused", self.text("what")),
            "connection" => {
                let (host, port) = (self.text("host"), self.number("port"));
                let (verdict, rule) = (self.text("verdict"), self.text("rule"));
                let (out, back) = (self.number("bytes_out"), self.number("bytes_in"));
                let what =
                    format!("{host}:{port}, {verdict} by {rule}: {out} bytes out, {back} in");
                ("connected", what)
            }
            "approval" => ("answered", self.answer()),
            "approval_used" => ("allowed", format!("{by} runs, by an earlier answer: {command}")),
            "configuration" if self.text("verdict") == "broken" => {
                ("broken", format!("no command may start: {}", self.text("reason")))
            }
            "configuration" => ("read", format!("the configuration: {}", self.text("files"))),
            "input" => {
                let (bytes, reader) = (self.number("input_bytes"), self.text("reader"));
                ("typed", format!("{by} sent {bytes} bytes to a {reader}: {}", self.text("input")))
            }
            "typing" => {
                ("typed", format!("{by} types on the terminal of a {}", self.text("reader")))
            }
            "request" => (
                "called",
                format!("{by} called {}{}", self.text("tool"), self.after(": ", "summary")),
            ),
            "repaired" => {
                let bytes = self.number("torn_bytes");
                (
                    "repaired",
                    format!("{bytes} bytes of an incomplete line of this log were cut off"),
                )
            }
            "trial_apply" => ("applied", self.settled("applies")),
            "trial_discard" => ("discarded", self.settled("discards")),
            "rebuilt" => ("rebuilt", self.rebuilt()),
            "cleaned_up" => {
                let (tasks, old, big) =
                    (self.number("tasks"), self.number("by_age"), self.number("by_size"));
                ("deleted", format!("{tasks} tasks: {old} expired, {big} to make room"))
            }
            "set_aside" => {
                let (name, why) = (self.text("name"), self.text("why"));
                (
                    "set aside",
                    format!("`{name}`, which {why}; it is now {}", self.text("set_aside")),
                )
            }
            event => (
                "noted",
                format!("{event}{}{}", self.after(" ", "tool"), self.after(": ", "summary")),
            ),
        }
    }

    fn verdict(&self) -> (&'static str, String) {
        let (by, tool) = (self.text("asked_by"), self.text("tool"));
        let (command, reason) = (self.text("command"), self.text("reason"));
        match self.text("verdict").as_str() {
            "allow" => ("allowed", format!("{by} runs with {tool}: {command}")),
            "ask" if by.is_empty() => {
                ("asked", format!("a person is asked, while it runs: {command} ({reason})"))
            }
            "ask" if by == "try" => {
                ("tried", format!("nobody is asked, it runs on a copy: {command} ({reason})"))
            }
            "ask" => ("asked", format!("{by} needs an answer for: {command} ({reason})")),
            "deny" => ("denied", format!("{by} may not run: {command} ({reason})")),
            other => ("judged", format!("{other}: {command}")),
        }
    }

    fn outcome(&self) -> String {
        if let Some(message) = self.0.get("message").and_then(Value::as_str) {
            return format!("{}: {message}", reason(&self.text("reason")));
        }
        let took = shown_ms(self.number("duration_ms").max(0).cast_unsigned());
        let why = match self.text("reason").as_str() {
            "" => String::new(),
            name => format!("{}, ", reason(name)),
        };
        let exit = self.0.get("exit_status").and_then(Value::as_i64);
        let signal = self.0.get("signal").and_then(Value::as_i64);
        match (exit, signal.and_then(|signal| i32::try_from(signal).ok())) {
            (Some(code), _) => format!("{why}exit code {code}, after {took}"),
            (None, Some(signal)) => {
                format!("{why}killed by {}, after {took}", signal_name(signal))
            }
            (None, None) => format!("{why}the outcome is unknown"),
        }
    }

    fn answer(&self) -> String {
        let (by, command) = (self.text("answered_by"), self.text("command"));
        let what = match self.text("decision").as_str() {
            "try_first" => "has it tried on a copy first",
            "apply" => "applies what it did when it was tried",
            "allow_once" => "allowed once",
            "allow_once_unconfined" => "allowed once, outside the sandbox",
            "allow_session" => "allowed for the session",
            "allow_rule" => "allowed from now on",
            _ => "refused",
        };
        let (file, note) =
            (self.after("; rule saved in ", "rule_file"), self.after("; note: ", "note"));
        format!("{by} {what}: {command} (asked by {}){file}{note}", self.text("asked_by"))
    }

    /// Says who applied or discarded a trial.
    fn settled(&self, does: &str) -> String {
        format!("{} {does} what was tried: {}", self.text("answered_by"), self.text("command"))
    }

    fn rebuilt(&self) -> String {
        let set_aside = self.after("; the old one is ", "set_aside");
        format!(
            "the ledger {}: {} tasks from its daybook, {} from their folders{set_aside}",
            self.text("why"),
            self.number("from_daybook"),
            self.number("from_folders"),
        )
    }
}
