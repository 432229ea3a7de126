//! A line of the log, and how it is written.

use std::fmt::{self, Debug};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use super::{LogFormat, masked};
use crate::render::escaped;

/// An event on its way to a line.
#[derive(Debug)]
pub(super) struct LogLine {
    level: Level,
    target: String,
    pub message: String,
    fields: Map<String, Value>,
}

impl LogLine {
    pub(super) fn new(level: Level, target: &str) -> Self {
        Self { level, target: target.to_owned(), message: String::new(), fields: Map::new() }
    }

    /// The line with its end, without secrets; without a time where no format was chosen.
    pub(super) fn render(self, format: Option<LogFormat>) -> String {
        match format {
            Some(LogFormat::Json) => self.json(),
            Some(LogFormat::Text) => format!("{:.3} {}", Timestamp::now(), self.text()),
            None => self.text(),
        }
    }

    fn json(self) -> String {
        let mut line = Map::new();
        line.insert("time".into(), format!("{:.3}", Timestamp::now()).into());
        line.insert("level".into(), self.level.as_str().to_lowercase().into());
        line.insert("target".into(), self.target.into());
        line.insert("message".into(), masked(&self.message).into());
        for (name, value) in self.fields {
            // No field takes the place of those above.
            let name = if line.contains_key(&name) { format!("field_{name}") } else { name };
            line.insert(name, without_secrets(value));
        }
        format!("{}\n", Value::Object(line))
    }

    fn text(self) -> String {
        let message = escaped(&masked(&self.message));
        let mut line = format!("{:5} {}: {message}", self.level.as_str(), self.target);
        for (name, value) in self.fields {
            let value = match without_secrets(value) {
                Value::String(text) if is_plain(&text) => text,
                other => other.to_string(),
            };
            line.push_str(&format!(" {name}={value}"));
        }
        line.push('\n');
        line
    }
}

fn without_secrets(value: Value) -> Value {
    match value {
        Value::String(text) => masked(&text).into(),
        other => other,
    }
}

/// Whether a value can stand without quotes.
fn is_plain(text: &str) -> bool {
    let fits = |it: char| it.is_ascii_graphic() && !matches!(it, '"' | '=' | '\\');
    !text.is_empty() && text.chars().all(fits)
}

/// Takes up the fields of an event.
impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.fields.insert(field.name().to_owned(), value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

/// Makes lines of events.
#[derive(Debug)]
pub(super) struct LineFormat(pub Option<LogFormat>);

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut line = LogLine::new(*metadata.level(), metadata.target());
        event.record(&mut line);
        writer.write_str(&line.render(self.0))
    }
}
