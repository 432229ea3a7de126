//! One entry of the audit log, as it is built and as it is written down.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::digest;
use crate::{
    clock::now_ms,
    error::ToolError,
    model::Caller,
    output::Mask,
    state::{Repair, SetAside},
};

/// Most characters of a text that a line holds; a command's digest is of all of it.
const TEXT_CHARS: usize = 4096;

/// What is noted.
#[derive(Debug, Clone)]
pub(crate) struct AuditEntry {
    /// The line from its time on, as far as it is in words of our own, in which there are no
    /// secrets.
    own: String,
    /// What others have said.
    foreign: Vec<(&'static str, Value)>,
}

impl AuditEntry {
    /// Something that happens now.
    pub(crate) fn new(event: &'static str) -> Self {
        let at_ms = now_ms();
        let own = format!(",\"at_ms\":{at_ms},\"event\":\"{event}\"");
        Self { own, foreign: Vec::new() }
    }

    /// A call that was refused, or a command that could not be started.
    pub(crate) fn refused(error: &ToolError) -> Self {
        Self::new("refused").own("kind", &error.kind).with("message", error.message.as_str())
    }

    /// A repair, as `legwork doctor` finds it.
    pub(super) fn of_repair(repair: &Repair) -> Self {
        let rebuilt = match repair {
            Repair::Rebuilt(rebuilt) => rebuilt,
            Repair::SetAside(moved) => return Self::of_moved(moved),
        };
        Self::new("rebuilt")
            .with("why", rebuilt.why.as_str())
            .with("from_daybook", rebuilt.from_daybook)
            .with("from_folders", rebuilt.from_folders)
            .with("set_aside", rebuilt.set_aside.clone())
    }

    pub(super) fn of_moved(moved: &SetAside) -> Self {
        Self::new("set_aside")
            .with("name", moved.name.as_str())
            .with("why", moved.why.as_str())
            .with("set_aside", moved.now.as_str())
    }

    /// The same with one more thing that is known of it, by whomever it was said.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.foreign.push((name, value.into()));
        self
    }

    /// The same with something in our own words.
    #[must_use]
    pub(crate) fn own(mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        // Nothing that is noted here can fail to be written as JSON.
        let value = serde_json::to_string(value).unwrap_or_default();
        self.own.extend([",\"", name, "\":", &value]);
        self
    }

    /// The line without its hash and what closes it.
    pub(super) fn body(&self, previous: &str) -> String {
        let mut body = String::with_capacity(LINE_BYTES);
        body.extend(["{\"prev\":\"", previous, "\"", &self.own]);
        for (name, value) in &self.foreign {
            // Writing to a string cannot fail.
            let _ = write!(body, ",\"{name}\":{value}");
        }
        body
    }

    /// The same with who asked.
    #[must_use]
    pub(crate) fn by(self, caller: &Caller) -> Self {
        self.own("trust", caller.trust.as_str()).with("asked_by", caller.name.as_str())
    }

    /// The same with a command.
    #[must_use]
    pub(crate) fn command(self, text: &str) -> Self {
        self.own("command_digest", &digest(text)).with("command", text)
    }

    /// The same as it is written down: secrets masked, and only then what is very long cut.
    pub(super) fn shown(mut self, mask: &Mask) -> Self {
        for (_, value) in &mut self.foreign {
            mask.json(value);
            if let Value::String(text) = value
                && let Some((end, _)) = text.char_indices().nth(TEXT_CHARS)
            {
                text.truncate(end);
            }
        }
        self
    }
}

/// Bytes of a usual line.
const LINE_BYTES: usize = 1024;
