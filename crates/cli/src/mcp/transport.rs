//! The MCP transport: JSON lines over stdin and stdout. Every line is answered, also a wrong one.
//!
//! rmcp's own line transport drops what it cannot parse, drops lines that are too long, and ends
//! the server when the first message is no request. A client that made a mistake should be told
//! instead.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use rmcp::{
    RoleServer,
    model::{
        CallToolRequest, CallToolRequestMethod, CallToolRequestParams, ClientNotification,
        ClientRequest, ErrorCode, ErrorData, JsonObject, JsonRpcMessage, JsonRpcVersion2_0,
        RequestId, RequestMetaObject,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{StdioReader, Transport},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use super::{backlog::Backlog, hang_up::HangUp};

/// Longest line that is read.
const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A line buffer that grew past this is given back after use.
const LINE_BYTES_KEPT: usize = 64 * 1024;

/// Most characters of a complaint.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// The transport between rmcp and our stdin and stdout.
pub(super) struct StdioTransport {
    reader: BufReader<StdioReader>,
    backlog: Arc<Backlog>,
    line: Vec<u8>,
    /// The rest of a line that is too long is being skipped.
    skipping: bool,
    /// A request has been handed on; before that, nothing else may be.
    opened: bool,
    /// There while nothing may be read.
    hang_up: Option<HangUp>,
    /// Cancelled when stdin ends.
    gone: CancellationToken,
    ids: Ids,
}

/// The ids of requests that are not answered yet.
///
/// rmcp knows a request by its id: of two with the same one it would answer one. So the second gets
/// another id for as long as it takes, and its answer the first one's again.
#[derive(Debug, Default)]
struct Ids {
    open: HashSet<RequestId>,
    /// What stands for an id that was used again.
    stand_ins: HashMap<RequestId, RequestId>,
    made: u64,
}

impl Ids {
    /// The id that a request goes by here.
    fn enter(&mut self, id: RequestId) -> RequestId {
        if self.open.insert(id.clone()) {
            return id;
        }
        loop {
            self.made += 1;
            let stand_in = RequestId::String(format!("{id} again {}", self.made).into());
            if self.open.insert(stand_in.clone()) {
                self.stand_ins.insert(stand_in.clone(), id);
                return stand_in;
            }
        }
    }

    /// The id that its answer goes by.
    fn leave(&mut self, id: &RequestId) -> Option<RequestId> {
        self.open.remove(id);
        self.stand_ins.remove(id)
    }
}

/// What a line turned out to be.
enum Line {
    Whole,
    TooLong,
    End,
}

impl StdioTransport {
    pub(super) fn new(reader: StdioReader, backlog: Arc<Backlog>, gone: CancellationToken) -> Self {
        Self {
            reader: BufReader::new(reader),
            backlog,
            line: Vec::new(),
            skipping: false,
            opened: false,
            hang_up: None,
            gone,
            ids: Ids::default(),
        }
    }

    /// Waits until the client has read some of its answers; the end of stdin if it leaves instead.
    async fn wait_for_client(&mut self) -> Option<Line> {
        let hang_up = self.hang_up.get_or_insert_with(HangUp::of_stdin);
        tokio::select! {
            () = self.backlog.client.until_more_may_be_read() => None,
            () = hang_up.happened() => Some(Line::End),
        }
    }

    /// Reads into `self.line`. Safe to cancel: what was read stays there.
    async fn read_line(&mut self) -> Line {
        loop {
            let available = match self.reader.fill_buf().await {
                Ok(available) if !available.is_empty() => available,
                _ => return Line::End,
            };
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |place| place + 1);
            let fits = self.line.len() + taken <= LINE_BYTES_MAX;
            if !self.skipping && fits {
                self.line.extend_from_slice(available.get(..taken).unwrap_or_default());
            }
            self.reader.consume(taken);
            let was_skipping = self.skipping;
            self.skipping = (was_skipping || !fits) && newline.is_none();
            if !was_skipping && !fits {
                return Line::TooLong;
            }
            if newline.is_some() && !was_skipping {
                return Line::Whole;
            }
        }
    }

    /// Takes the message out of a whole line, or says what is wrong with it.
    fn take_message(&mut self) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Complaint> {
        let line = std::mem::take(&mut self.line);
        self.backlog.client.note_read(line.len());
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        let parsed = if text.trim_ascii().is_empty() { Ok(None) } else { parse(text).map(Some) };
        if line.capacity() <= LINE_BYTES_KEPT {
            self.line = line;
            self.line.clear();
        }
        parsed.map(|message| message.filter(|message| self.is_due(message)))
    }

    /// Notifications and responses before the first request would end the server.
    fn is_due(&mut self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
        self.opened |= matches!(message, JsonRpcMessage::Request(_));
        self.opened
    }

    /// Writes a message; what waits to be written is its text alone.
    fn write<M: Serialize>(
        &self,
        message: &M,
    ) -> impl Future<Output = std::io::Result<()>> + Send + use<M> {
        let backlog = self.backlog.clone();
        let line = serde_json::to_vec(message).map(|mut line| {
            line.push(b'\n');
            let unread = backlog.client.unread(line.len());
            (line, unread)
        });
        async move {
            let (line, unread) = line?;
            backlog.write(&line, unread).await
        }
    }

    /// Answers in a task of its own: this one may be dropped while it waits for the client to read.
    fn complain(&self, complaint: Complaint) {
        if let Some((error, id)) = complaint.0 {
            // An id that could not be read is null, not absent.
            let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            tokio::spawn(self.write(&answer));
        }
    }
}

/// What to answer to a message that is none; nothing if it wants no answer.
struct Complaint(Option<(ErrorData, Option<RequestId>)>);

/// A call of a tool, which most messages are. rmcp reads every message into a tree of its own, and
/// tries one kind after the other on it, which takes longer than most of what follows; so this one
/// is read straight. What has anything more to it is left to rmcp.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    #[serde(rename = "jsonrpc")]
    _version: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(rename = "method")]
    _method: CallToolRequestMethod,
    params: CallParams,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallParams {
    name: String,
    arguments: Option<JsonObject>,
    #[serde(rename = "_meta")]
    meta: Option<RequestMetaObject>,
}

/// The message, if it is a plain call.
fn parse_call(text: &[u8]) -> Option<RxJsonRpcMessage<RoleServer>> {
    let Call { id, params, .. } = serde_json::from_slice(text).ok()?;
    let mut wanted = CallToolRequestParams::new(params.name);
    wanted.arguments = params.arguments;
    let mut call = CallToolRequest::new(wanted);
    if let Some(meta) = params.meta {
        call.extensions.insert(meta);
    }
    Some(JsonRpcMessage::request(ClientRequest::CallToolRequest(call), id))
}

fn parse(text: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Complaint> {
    if let Some(call) = parse_call(text) {
        return Ok(call);
    }
    match serde_json::from_slice(text) {
        // A request whose id is no id reads as a notification, which would never be answered.
        Ok(JsonRpcMessage::Notification(_)) if has_id(text) => {
            Err(refuse("the id of a request must be a string or an integer", None))
        }
        Ok(message) => Ok(message),
        Err(problem) => Err(diagnose(text, &problem)),
    }
}

fn has_id(text: &[u8]) -> bool {
    let named = text.windows(4).any(|window| window == b"\"id\"");
    named && serde_json::from_slice::<Value>(text).is_ok_and(|value| value.get("id").is_some())
}

/// What is wrong with a text that is no message.
fn diagnose(text: &[u8], problem: &serde_json::Error) -> Complaint {
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(problem) => {
            let message = format!("not JSON: {problem}");
            let error = ErrorData::new(ErrorCode::PARSE_ERROR, message, None);
            return Complaint(Some((error, id_in(text))));
        }
    };
    // Responses are never answered, and notifications neither.
    let is_response = value.get("result").is_some() || value.get("error").is_some();
    let is_notification = value.get("method").is_some() && value.get("id").is_none();
    if is_response || is_notification {
        return Complaint(None);
    }
    let id = value.get("id").cloned().and_then(|id| serde_json::from_value(id).ok());
    refuse(&format!("not a JSON-RPC request: {problem}"), id)
}

fn refuse(message: &str, id: Option<RequestId>) -> Complaint {
    // It may quote what was sent.
    let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    let error = ErrorData::new(ErrorCode::INVALID_REQUEST, message, None);
    Complaint(Some((error, id)))
}

fn too_long(beginning: &[u8]) -> Complaint {
    let message = format!("the message is over the limit of {LINE_BYTES_MAX} bytes");
    refuse(&message, id_in(beginning))
}

/// The id of a request that cannot be read as a whole, so that its caller does not wait for ever.
///
/// Only where it stands at the beginning, before anything that a caller could have put there
/// instead.
fn id_in(text: &[u8]) -> Option<RequestId> {
    const LOOKED_AT: usize = 200;
    let text = String::from_utf8_lossy(text.get(..LOOKED_AT.min(text.len()))?).into_owned();
    let beginning = text.split("\"params\"").next()?;
    let (_, rest) = beginning.split_once("\"id\"")?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = match value.strip_prefix('"') {
        Some(inner) => inner.find('"')? + 2,
        None => value.find([',', '}'])?,
    };
    serde_json::from_str(value.get(..end)?.trim()).ok()
}

impl Transport<RoleServer> for StdioTransport {
    type Error = std::io::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &mut item {
            JsonRpcMessage::Response(response) => Some(&mut response.id),
            JsonRpcMessage::Error(error) => error.id.as_mut(),
            _ => None,
        };
        if let Some(id) = answered
            && let Some(own) = self.ids.leave(id)
        {
            *id = own;
        }
        let is_answer = matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        let (written, client) = (self.write(&item), self.backlog.client.clone());
        async move {
            let written = written.await;
            if is_answer {
                client.pay();
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // However much there is to be read, what was read is answered in between.
            tokio::task::coop::consume_budget().await;
            let line = if self.backlog.client.may_read() {
                self.hang_up = None;
                self.read_line().await
            } else if let Some(end) = self.wait_for_client().await {
                end
            } else {
                continue;
            };
            let taken = match line {
                Line::Whole => self.take_message(),
                Line::TooLong => Err(too_long(&std::mem::take(&mut self.line))),
                // The last line may lack its newline.
                Line::End if !self.line.is_empty() => self.take_message(),
                Line::End => {
                    self.gone.cancel();
                    return None;
                }
            };
            match taken {
                Ok(Some(mut message)) => {
                    if let JsonRpcMessage::Request(request) = &mut message {
                        self.backlog.client.owe();
                        request.id = self.ids.enter(request.id.clone());
                    } else if let JsonRpcMessage::Notification(told) = &message
                        && let ClientNotification::CancelledNotification(cancelled) =
                            &told.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        // It may never be answered.
                        self.ids.leave(id);
                    }
                    return Some(message);
                }
                Ok(None) => {}
                Err(complaint) => self.complain(complaint),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.backlog.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reads_as_rmcp_would_read_it() {
        let calls = [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"params":{"arguments":{"a":[1,{"b":null}]},"name":"x"},"id":"s","method":"tools/call","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":7},"name":"x","arguments":{}}}"#,
        ];
        for text in calls {
            let straight = parse_call(text.as_bytes()).expect(text);
            let theirs: RxJsonRpcMessage<RoleServer> = serde_json::from_str(text).unwrap();
            assert_eq!(format!("{straight:?}"), format!("{theirs:?}"));
            // With what the debug form leaves out.
            let json = |message| serde_json::to_value(message).unwrap();
            assert_eq!(json(&straight), json(&theirs));
        }
    }

    #[test]
    fn what_is_no_plain_call_is_left_to_rmcp() {
        let others = [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","requestState":"y"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"},"result":{}}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}]"#,
        ];
        for text in others {
            assert!(parse_call(text.as_bytes()).is_none(), "{text}");
        }
    }
}
