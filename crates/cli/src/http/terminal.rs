//! The terminal of a task over a WebSocket: its bytes to the client, the client's keys to it.
//!
//! The bytes are read from where the task's warden keeps them, a piece at a time and as the client
//! takes them: one that reads slowly costs a piece of memory, and one that does not read is closed.
//! What an operator sees is exact, as with `legwork attach`; others see it with secrets masked, as
//! everywhere else.

use std::{io, sync::Arc, time::Duration};

use axum::{
    extract::{
        FromRequestParts,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    },
    http::{Request, StatusCode},
};
use legwork::{
    Change, Engine, ErrorKind, InputRefusal, Observer, Task, ToolError, WindowSize,
    output::{Mask, MaskedStream, Screen, TaskOutput},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};

use super::{
    connection::ConnectionPlace,
    keyring::Holder,
    realms::{caller, may_call},
    refusal::{HttpRefusal, failed},
    routes::{Call, Handled},
    signin::SUBPROTOCOL,
    tokens::TokenRole,
};
use crate::render::say;

/// Most bytes of a message of a client; a longer text is sent in several.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of output in a message.
const PIECE_BYTES: u64 = 32 * 1024;

/// Bytes that wait for the kernel to take them: a piece, and a few words.
const UNSENT_BYTES_MAX: usize = 4 * 32 * 1024;

/// Bytes that are read from a client at a time.
const READ_BYTES: usize = 4096;

/// How long the program may take to read what is typed before it is dropped.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the last words may take to leave.
const FAREWELL: Duration = Duration::from_secs(5);

/// Most lines of a terminal, and most characters in one.
const SIDE_MAX: u16 = 1000;

/// Most bytes of the reason of a close (RFC 6455).
const REASON_BYTES_MAX: usize = 123;

/// Why a connection is closed, as a code of RFC 6455 or of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Farewell(u16, String);

impl Farewell {
    fn ended() -> Self {
        Self(1000, "the task has ended".into())
    }

    fn server_ends() -> Self {
        Self(1001, "the server ends; the task goes on".into())
    }

    fn failed(error: &ToolError) -> Self {
        let mut reason = error.message.clone();
        while reason.len() > REASON_BYTES_MAX {
            reason.pop();
        }
        Self(1011, reason)
    }

    fn unreadable(error: &io::Error) -> Self {
        let problem = format!("the output cannot be read: {error}");
        Self::failed(&ToolError::new(ErrorKind::ToolExecutionFailed, problem))
    }

    fn token_ended() -> Self {
        Self(4001, "the token was revoked or has expired".into())
    }

    fn too_slow() -> Self {
        Self(4002, "the client does not read; connect again for the screen as it is then".into())
    }

    fn silent() -> Self {
        Self(4003, "the client does not answer pings".into())
    }
}

/// How it went on: the connection goes on, or has an end with words or without.
type Going = Result<(), Option<Farewell>>;

/// Opens the connection, if the task has a terminal and still runs.
pub(super) async fn open(call: Call) -> Handled {
    let engine = call.standing.engine().clone();
    if !may_call(&call.holder.token, &engine, "TaskOutput") {
        return Err(HttpRefusal::forbidden("the token may not call TaskOutput"));
    }
    let found = async { engine.observe(engine.task_here(&call.id).await?).await };
    let observer = match found.await {
        Ok(observer) => observer,
        Err(error) => return Ok(failed(&error)),
    };
    if let Some(problem) = unfit(&observer) {
        return Err(HttpRefusal::new(StatusCode::CONFLICT, "no_terminal", problem)
            .hint("read the task's output instead"));
    }
    let Ok(place) = call.holder.places.clone().try_acquire_owned() else {
        let message = "too many requests of this token are under way";
        return Err(HttpRefusal::new(StatusCode::TOO_MANY_REQUESTS, "limit_exceeded", message));
    };
    let mut request = Request::new(());
    (*request.method_mut(), *request.uri_mut()) = (call.method, call.uri);
    (*request.headers_mut(), *request.extensions_mut()) = (call.headers, call.extensions);
    let (mut parts, ()) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|problem| {
        let message = format!("this is a WebSocket: {}", problem.body_text());
        HttpRefusal::new(StatusCode::UPGRADE_REQUIRED, "no_websocket", message)
    })?;
    let role = call.holder.token.role;
    let attached = Attached {
        idle: call.face.idle,
        may_type: role != TokenRole::Viewer && may_call(&call.holder.token, &engine, "TaskInput"),
        mask: (role != TokenRole::Operator).then(|| observer.mask()),
        observer,
        engine,
        holder: call.holder,
        has_typed: false,
        output: TaskOutput::default(),
        at: 0,
        masked: None,
        _places: (place, parts.extensions.get::<ConnectionPlace>().cloned()),
    };
    let closing = call.face.closing.clone();
    Ok(upgrade
        .protocols([SUBPROTOCOL])
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(UNSENT_BYTES_MAX)
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .on_upgrade(async move |socket| attached.serve(socket, closing.cancelled_owned()).await))
}

/// Why there is nothing to attach to.
fn unfit(observer: &Observer) -> Option<&'static str> {
    match (observer.task().tty, observer.is_over()) {
        (false, _) => Some("the task has no terminal"),
        (true, true) => Some("the task has ended"),
        (true, false) => None,
    }
}

/// A client on a terminal.
struct Attached {
    engine: Engine,
    observer: Observer,
    holder: Arc<Holder>,
    /// How long a client may be silent, or not read.
    idle: Duration,
    may_type: bool,
    /// Whether it was let type: that is noted once.
    has_typed: bool,
    /// What hides secrets from it.
    mask: Option<Arc<Mask>>,
    masked: Option<MaskedStream>,
    /// What was printed when we last looked, and how far that was sent.
    output: TaskOutput,
    at: u64,
    /// Its places among the token's requests and the server's connections.
    _places: (OwnedSemaphorePermit, Option<ConnectionPlace>),
}

/// What a client says in words; keys are bytes.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum FromClient {
    Resize { rows: u16, cols: u16 },
}

impl Attached {
    /// Serves until one of both ends, the token ends, or the server does.
    async fn serve(mut self, mut socket: WebSocket, closing: impl Future<Output = ()>) {
        let ended = self.holder.ended();
        let farewell = tokio::select! {
            going = self.take_part(&mut socket) => going.err().flatten(),
            () = ended => Some(Farewell::token_ended()),
            () = closing => Some(Farewell::server_ends()),
        };
        let Some(Farewell(code, reason)) = farewell else { return };
        if code >= 4000 {
            let (task, name) = (&self.observer.task().task_id, &self.holder.token.name);
            say(&format!("legwork: closed the terminal of {task} to token {name}: {reason}"));
        }
        let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        let last_words = async {
            // What waits before it has to leave first; then the client says that it has read it.
            if socket.send(close).await.is_ok() {
                while let Some(Ok(_)) = socket.recv().await {}
            }
        };
        let _ = timeout(FAREWELL, last_words).await;
    }

    async fn take_part(&mut self, socket: &mut WebSocket) -> Going {
        self.begin(socket).await?;
        let mut heard = Instant::now();
        let mut pinged = false;
        loop {
            let due = heard + if pinged { self.idle } else { self.idle / 2 };
            tokio::select! {
                change = grown(&mut self.observer, self.at, self.output.stdout.bytes()) => {
                    self.pass_on(socket, change).await?;
                }
                message = socket.recv() => {
                    (heard, pinged) = (Instant::now(), false);
                    match message {
                        Some(Ok(message)) => self.hear(socket, message).await?,
                        Some(Err(_)) | None => return Err(None),
                    }
                }
                () = sleep_until(due) => {
                    if pinged {
                        return Err(Some(Farewell::silent()));
                    }
                    pinged = true;
                    self.send(socket, Message::Ping(Vec::new().into())).await?;
                }
            }
        }
    }

    /// Sends what is on the screen now, instead of everything that ever was.
    async fn begin(&mut self, socket: &mut WebSocket) -> Going {
        let output = self.look().await?;
        let mask = self.mask.clone();
        let drawn = tokio::task::spawn_blocking(move || Drawn::of(output, mask)).await;
        let drawn = drawn.map_err(io::Error::other).and_then(|drawn| drawn);
        let Drawn { output, masked, at, size, screen } =
            drawn.map_err(|error| Some(Farewell::unreadable(&error)))?;
        (self.output, self.masked, self.at) = (output, masked, at);
        // Whether the token may, and whether its caller may type into this task.
        let may_type = self.may_type && self.observer.controls(&caller(&self.holder)).await.is_ok();
        let attached = json!({
            "type": "attached",
            "task_id": self.observer.task().task_id,
            "rows": size.rows,
            "cols": size.cols,
            "may_type": may_type,
        });
        self.tell(socket, &attached).await?;
        self.send(socket, Message::Binary(screen.into())).await
    }

    /// What has been printed so far.
    async fn look(&mut self) -> Result<TaskOutput, Option<Farewell>> {
        let output = self.observer.output().await;
        let output = output.map_err(|error| Some(Farewell::failed(&error)))?;
        Ok(if self.mask.is_some() { output.in_whole_lines() } else { output })
    }

    /// Sends the next piece; at the end, the end.
    async fn pass_on(&mut self, socket: &mut WebSocket, change: Change) -> Going {
        if self.at >= self.output.stdout.bytes() {
            self.output = self.look().await?;
            if self.at >= self.output.stdout.bytes() && change == Change::Ended {
                return self.end(socket).await;
            }
        }
        let next = self.output.stdout.skip(self.at);
        if next > self.at {
            if let Some(masked) = &mut self.masked {
                masked.skip_gap();
            }
            let skipped = json!({ "type": "skipped", "bytes": next - self.at });
            self.at = next;
            self.tell(socket, &skipped).await?;
        }
        let (output, at) = (std::mem::take(&mut self.output), self.at);
        let mut masked = self.masked.take();
        // In a thread: the disk may be slow, and so is the search for secrets.
        let read = tokio::task::spawn_blocking(move || {
            let piece = output.stdout.read(at, PIECE_BYTES).map(|piece| {
                let bytes = piece.len() as u64;
                let shown = match &mut masked {
                    Some(masked) => masked.feed(&piece),
                    None => piece,
                };
                (bytes, shown)
            });
            (output, masked, piece)
        });
        let read = read.await.map_err(|error| Some(Farewell::unreadable(&error.into())))?;
        let (output, masked, piece) = read;
        (self.output, self.masked) = (output, masked);
        let (bytes, shown) = piece.map_err(|error| Some(Farewell::unreadable(&error)))?;
        self.at += bytes;
        self.send_bytes(socket, shown).await
    }

    /// Tells how the task has ended.
    async fn end(&mut self, socket: &mut WebSocket) -> Going {
        let rest = self.masked.as_mut().map(MaskedStream::finish).unwrap_or_default();
        self.send_bytes(socket, rest).await?;
        let task = self.observer.task();
        let ended = json!({
            "type": "ended",
            "status": task.status,
            "exit_status": task.outcome.as_ref().and_then(|outcome| outcome.exit_status),
        });
        self.tell(socket, &ended).await?;
        Err(Some(Farewell::ended()))
    }

    /// Does what a client wants.
    async fn hear(&mut self, socket: &mut WebSocket, message: Message) -> Going {
        let done = match message {
            Message::Binary(keys) => self.type_keys(&keys).await,
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(FromClient::Resize { rows, cols }) => self.resize(rows, cols).await,
                Err(error) => {
                    let problem = format!("the message is not known: {error}");
                    Err(ToolError::new(ErrorKind::InvalidToolInput, problem))
                }
            },
            Message::Close(_) => return Err(None),
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        let Err(error) = done else { return Ok(()) };
        let refused = json!({ "type": "refused", "error": error });
        self.tell(socket, &refused).await
    }

    async fn type_keys(&mut self, keys: &[u8]) -> Result<(), ToolError> {
        self.check_may_type()?;
        let task: &Task = self.observer.task();
        self.engine.admit_typing(task, &caller(&self.holder), !self.has_typed).await?;
        self.has_typed = true;
        let taken =
            self.observer.controls(&caller(&self.holder)).await?.input(keys, PATIENCE).await;
        let problem = match taken.refusal {
            // The client hears of that next.
            Some(InputRefusal::Ended) => return Ok(()),
            Some(refusal) => format!("the terminal takes no input: {refusal:?}"),
            None if taken.bytes < keys.len() as u64 => {
                let rest = keys.len() as u64 - taken.bytes;
                format!("the program does not read its input: {rest} bytes were dropped")
            }
            None => return Ok(()),
        };
        Err(ToolError::new(ErrorKind::ToolExecutionFailed, problem))
    }

    async fn resize(&mut self, rows: u16, cols: u16) -> Result<(), ToolError> {
        self.check_may_type()?;
        let allowed = 1..=SIDE_MAX;
        if !allowed.contains(&rows) || !allowed.contains(&cols) {
            let problem = format!("`rows` and `cols` must be from 1 to {SIDE_MAX}");
            return Err(ToolError::new(ErrorKind::InvalidToolInput, problem));
        }
        let mut controls = self.observer.controls(&caller(&self.holder)).await?;
        controls.resize(WindowSize { rows, cols }).await;
        Ok(())
    }

    fn check_may_type(&self) -> Result<(), ToolError> {
        if self.may_type {
            return Ok(());
        }
        Err(ToolError::new(ErrorKind::CommandDenied, "this token may look, but not type"))
    }

    async fn tell(&self, socket: &mut WebSocket, what: &Value) -> Going {
        self.send(socket, Message::Text(what.to_string().into())).await
    }

    async fn send_bytes(&self, socket: &mut WebSocket, bytes: Vec<u8>) -> Going {
        if bytes.is_empty() {
            return Ok(());
        }
        self.send(socket, Message::Binary(bytes.into())).await
    }

    async fn send(&self, socket: &mut WebSocket, message: Message) -> Going {
        match timeout(self.idle, socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(None),
            Err(_) => Err(Some(Farewell::too_slow())),
        }
    }
}

/// Waits until there is more than was sent; at once where that is known. Safe to cancel.
async fn grown(observer: &mut Observer, at: u64, known: u64) -> Change {
    if at < known { Change::Grown } else { observer.changed(at, 0).await }
}

/// A screen, and where the stream goes on behind it.
struct Drawn {
    output: TaskOutput,
    masked: Option<MaskedStream>,
    at: u64,
    size: WindowSize,
    /// What a terminal has to be sent to show it.
    screen: Vec<u8>,
}

impl Drawn {
    fn of(mut output: TaskOutput, mask: Option<Arc<Mask>>) -> io::Result<Self> {
        let at = output.stdout.bytes();
        let masked = match &mask {
            Some(mask) => Some(MaskedStream::behind(mask.clone(), &output.stdout)?),
            None => None,
        };
        if let Some(masked) = &masked {
            // What may be the beginning of a secret is not on the screen yet.
            let shown = at.saturating_sub(masked.held_bytes());
            output.stdout = output.stdout.with_totals(shown, 0);
        }
        let drawn = Screen::of(&output)?;
        let mut screen = if drawn.full_screen { b"\x1b[?1049h".to_vec() } else { Vec::new() };
        match mask {
            None => screen.extend_from_slice(drawn.formatted()),
            Some(mask) => {
                let text = drawn.text(&mask).replace('\n', "\r\n");
                let (row, col) = drawn.cursor.unwrap_or_default();
                let place = format!("\x1b[{};{}H", row + 1, col + 1);
                screen.extend_from_slice(format!("\x1b[2J\x1b[H{text}{place}").as_bytes());
            }
        }
        let size = WindowSize { rows: drawn.rows, cols: drawn.cols };
        Ok(Self { output, masked, at, size, screen })
    }
}
