//! Spans: what a call spent its time on, for whoever traces it.
//!
//! A face that traces gives its [`Caller`](crate::Caller) a [`Trace`]; the rooms that the call goes
//! through begin spans below it, which go to the face's [`SpanSink`] when they end. Without a trace
//! a span is nothing: it allocates nothing, and no clock is read for it.

use std::{
    borrow::Cow,
    fmt,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Takes spans that have ended. It must not wait: whoever calls is at work on a command.
pub trait SpanSink: Send + Sync + fmt::Debug {
    /// Takes one.
    fn take(&self, span: SpanRecord);
}

/// A place in a trace: the span that others are begun below. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Where spans go.
    pub sink: Arc<dyn SpanSink>,
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span that is the parent of those which are begun here; none at the root.
    pub span_id: Option<[u8; 8]>,
    /// What systems before us have to say of the trace (`tracestate` of W3C).
    pub state: Arc<str>,
}

impl Trace {
    /// Begins a span here.
    pub fn begin(&self, name: impl Into<Cow<'static, str>>) -> TraceSpan {
        let mut span_id = [0; 8];
        // Without random bits nothing could be told apart.
        if getrandom::fill(&mut span_id).is_err() {
            return TraceSpan::default();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let record = SpanRecord {
            trace_id: self.trace_id,
            span_id,
            parent_id: self.span_id,
            state: self.state.clone(),
            name: name.into(),
            is_server: false,
            began_ns,
            ended_ns: began_ns,
            attributes: Vec::new(),
            error: None,
        };
        let live = LiveSpan { sink: self.sink.clone(), record, began: Instant::now() };
        TraceSpan(Some(Box::new(live)))
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanRecord {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
    /// The span that it is below.
    pub parent_id: Option<[u8; 8]>,
    /// What systems before us have to say of the trace.
    pub state: Arc<str>,
    /// What was done.
    pub name: Cow<'static, str>,
    /// Whether it answers a request of somebody else.
    pub is_server: bool,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Particulars, with the names of OpenTelemetry's conventions.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// The kind of the error that it ended with.
    pub error: Option<Cow<'static, str>>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Truth(bool),
}

impl From<&'static str> for SpanValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for SpanValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for SpanValue {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

/// A span under way, which ends when it is dropped; or nothing, where nobody traces.
#[derive(Debug, Default)]
pub struct TraceSpan(Option<Box<LiveSpan>>);

#[derive(Debug)]
struct LiveSpan {
    sink: Arc<dyn SpanSink>,
    record: SpanRecord,
    began: Instant,
}

impl TraceSpan {
    /// The place below it, for spans of its own; none where nobody traces.
    pub fn trace(&self) -> Option<Trace> {
        self.0.as_ref().map(|live| Trace {
            sink: live.sink.clone(),
            trace_id: live.record.trace_id,
            span_id: Some(live.record.span_id),
            state: live.record.state.clone(),
        })
    }

    /// Notes a particular; what it is made of is asked for only where somebody traces.
    pub fn set<V: Into<SpanValue>>(&mut self, name: &'static str, value: impl FnOnce() -> V) {
        if let Some(live) = &mut self.0 {
            live.record.attributes.push((name, value().into()));
        }
    }

    /// Says that it answers a request of somebody else.
    pub fn serve(&mut self) {
        if let Some(live) = &mut self.0 {
            live.record.is_server = true;
        }
    }

    /// Says that it fails, with the kind of the error.
    pub fn fail(&mut self, kind: impl Into<Cow<'static, str>>) {
        if let Some(live) = &mut self.0 {
            live.record.error = Some(kind.into());
        }
    }
}

impl Drop for TraceSpan {
    fn drop(&mut self) {
        let Some(LiveSpan { sink, mut record, began }) = self.0.take().map(|live| *live) else {
            return;
        };
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        record.ended_ns = record.began_ns.saturating_add(took_ns);
        sink.take(record);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Taken(Mutex<Vec<SpanRecord>>);

    impl SpanSink for Taken {
        fn take(&self, span: SpanRecord) {
            self.0.lock().unwrap().push(span);
        }
    }

    #[test]
    fn spans_are_taken_when_they_end_with_their_parents() {
        let sink = Arc::new(Taken::default());
        let root = Trace { sink: sink.clone(), trace_id: [7; 16], span_id: None, state: "".into() };
        let mut call = root.begin("call");
        let mut child = call.trace().unwrap().begin("plan");
        child.set("number", || 3);
        child.fail("command_denied");
        drop(child);
        call.serve();
        drop(call);
        let spans = sink.0.lock().unwrap().clone();
        let [child, call] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((&*child.name, &*call.name), ("plan", "call"));
        assert_eq!((child.parent_id, call.parent_id), (Some(call.span_id), None));
        assert_eq!(child.attributes, [("number", SpanValue::Number(3))]);
        assert_eq!(child.error.as_deref(), Some("command_denied"));
        assert!(call.is_server && !child.is_server);
        assert!(call.began_ns <= call.ended_ns);
    }

    #[test]
    fn without_a_trace_nothing_is_asked_for() {
        let mut span = TraceSpan::default();
        span.set("never", || -> String { unreachable!("nobody traces") });
        assert!(span.trace().is_none());
    }
}
