//! Traces for OpenTelemetry: a span for each call, with what it spends its time on below it.
//!
//! They are on where the standard variables name a collector ([`settings`]); otherwise nothing is
//! started, and a call asks one atomic. The text of a command is in no span.

mod exporter;
mod otlp;
mod parent;
mod sampling;
mod settings;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::http::HeaderMap;
use legwork::{Answer, Trace, TraceSpan};

use self::{exporter::Exporter, sampling::Sampler, settings::OtlpSettings};
pub(crate) use self::{exporter::SpanCounts, parent::TraceParent};
use crate::render::say;

/// Most time that the last spans take at the end.
const LAST_SPANS: Duration = Duration::from_millis(100);

/// What makes spans, where traces are on.
static TRACES: OnceLock<Traces> = OnceLock::new();

#[derive(Debug)]
struct Traces {
    exporter: Arc<Exporter>,
    sampler: Sampler,
}

/// Begins to trace, if the environment says so. What is wrong with that is said, and is no reason
/// not to serve.
pub(crate) fn start() {
    let begun = OtlpSettings::read(|name| std::env::var(name).ok()).and_then(|settings| {
        let Some(settings) = settings else { return Ok(None) };
        let sampler = settings.sampler;
        let exporter = Exporter::start(settings).map_err(|error| error.to_string())?;
        Ok(Some(Traces { exporter: Arc::new(exporter), sampler }))
    });
    match begun {
        Ok(None) => {}
        Ok(Some(traces)) => _ = TRACES.set(traces),
        Err(problem) => say(&format!("legwork: nothing is traced: {problem}")),
    }
}

/// Begins the span of a call; nothing if it is not traced.
pub(crate) fn begin(
    parent: impl FnOnce() -> Option<TraceParent>,
    name: impl FnOnce() -> String,
) -> TraceSpan {
    let Some(traces) = TRACES.get() else { return TraceSpan::default() };
    let parent = parent();
    let mut trace_id = [0; 16];
    match &parent {
        Some(parent) => trace_id = parent.trace_id,
        // Without random bits nothing could be told apart.
        None if getrandom::fill(&mut trace_id).is_err() => return TraceSpan::default(),
        None => {}
    }
    if !traces.sampler.takes(trace_id, parent.as_ref()) {
        return TraceSpan::default();
    }
    let span_id = parent.as_ref().map(|parent| parent.span_id);
    let state = parent.map(|parent| parent.state).unwrap_or_default().into();
    let mut span = Trace { sink: traces.exporter.clone(), trace_id, span_id, state }.begin(name());
    span.serve();
    span
}

/// Where a request of HTTP comes from.
pub(crate) fn parent_in(headers: &HeaderMap) -> Option<TraceParent> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    TraceParent::read(text("traceparent")?, text("tracestate"))
}

/// Notes which tool a span is of.
pub(crate) fn of_tool(span: &mut TraceSpan, tool: &str) {
    span.set("gen_ai.operation.name", || "execute_tool");
    span.set("gen_ai.tool.name", || tool.to_owned());
    span.set("gen_ai.tool.type", || "function");
}

/// Notes how a call was answered.
pub(crate) fn answered(span: &mut TraceSpan, answer: &Answer) {
    if let Some(error) = answer.error() {
        span.fail("tool_error");
        span.set("legwork.error.kind", || error.kind.as_str());
    }
}

/// What became of the spans, where traces are on.
pub(crate) fn counts() -> Option<&'static SpanCounts> {
    TRACES.get().map(|traces| traces.exporter.counts())
}

/// Sends the last spans, within this time.
pub(crate) fn flush(left: Duration) {
    if let Some(traces) = TRACES.get() {
        traces.exporter.flush(left.min(LAST_SPANS));
    }
}
