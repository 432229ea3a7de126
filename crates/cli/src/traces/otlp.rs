//! Spans as OTLP: the messages of `opentelemetry.proto.collector.trace.v1`, in protobuf.
//!
//! Written by hand: of protobuf three kinds of fields are needed, and only to write them. The
//! crates that know OTLP bring an HTTP client, or the whole of gRPC, or another runtime of
//! protobuf. The tests read what is written here with OpenTelemetry's own classes.

use legwork::{SpanRecord, SpanValue};

/// Kinds of spans.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;

/// The status of a span that failed.
const ERROR: u64 = 2;

/// A request to take spans.
pub(super) fn request(resource: &[(String, String)], spans: &[SpanRecord]) -> Vec<u8> {
    let mut of_us = ProtoMessage::default();
    for (name, value) in resource {
        of_us.message(1, &attribute(name, &SpanValue::Text(value.clone().into())));
    }
    let mut scope = ProtoMessage::default();
    scope.bytes(1, b"legwork");
    scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut of_scope = ProtoMessage::default();
    of_scope.message(1, &scope);
    for record in spans {
        of_scope.message(2, &span(record));
    }
    let mut all = ProtoMessage::default();
    all.message(1, &of_us);
    all.message(2, &of_scope);
    let mut request = ProtoMessage::default();
    request.message(1, &all);
    request.0
}

fn span(record: &SpanRecord) -> ProtoMessage {
    let mut span = ProtoMessage::default();
    span.bytes(1, &record.trace_id);
    span.bytes(2, &record.span_id);
    span.bytes(3, record.state.as_bytes());
    span.bytes(4, record.parent_id.as_ref().map_or(&[], |id| id.as_slice()));
    span.bytes(5, record.name.as_bytes());
    span.number(6, if record.is_server { SERVER } else { INTERNAL });
    span.fixed(7, record.began_ns);
    span.fixed(8, record.ended_ns);
    for (name, value) in &record.attributes {
        span.message(9, &attribute(name, value));
    }
    if let Some(kind) = &record.error {
        span.message(9, &attribute("error.type", &SpanValue::Text(kind.clone())));
        let mut status = ProtoMessage::default();
        status.number(3, ERROR);
        span.message(15, &status);
    }
    span
}

fn attribute(name: &str, value: &SpanValue) -> ProtoMessage {
    let mut any = ProtoMessage::default();
    match value {
        SpanValue::Text(text) => any.present_bytes(1, text.as_bytes()),
        SpanValue::Truth(truth) => any.present_number(2, u64::from(*truth)),
        SpanValue::Number(number) => any.present_number(3, number.cast_unsigned()),
    }
    let mut pair = ProtoMessage::default();
    pair.bytes(1, name.as_bytes());
    pair.message(2, &any);
    pair
}

/// A message of protobuf that is being written. What has its default value is left out, as that
/// means the same.
#[derive(Debug, Default)]
struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.present_number(field, number);
        }
    }

    /// One of several, where being there says which.
    fn present_number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn fixed(&mut self, field: u64, number: u64) {
        self.varint(field << 3 | 1);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.present_bytes(field, bytes);
        }
    }

    fn present_bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.present_bytes(field, &message.0);
    }
}
