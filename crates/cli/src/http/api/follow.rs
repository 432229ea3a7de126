//! A task's output as it comes, for people: lines of JSON with the text of both streams in the
//! order in which it was printed, colours and all, with secrets masked.
//!
//! It begins near the end, and a client that falls behind goes on near the end again: what it is
//! not told is counted. So a task that prints more than anybody can read costs little memory here
//! and little time there, and what is shown is what is new.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{Response, header},
    response::IntoResponse,
};
use http_body_util::channel::{Channel, Sender};
use legwork::{
    Observer, Stream, ToolError,
    output::{Artifact, Cursor, Mask, MaskedStream, Piece, TaskOutput},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::{
    keyring::Holder,
    realms::may_call,
    refusal::{HttpRefusal, failed},
    routes::{Call, Handled},
};

/// Most bytes of a stream that a client is behind.
const BEHIND_BYTES_MAX: u64 = 256 * 1024;

/// Bytes in which the end of a line is looked for, so that a client begins with a whole one.
const LINE_BYTES: u64 = 4096;

/// Lines of JSON that wait for a client.
const LINES_MAX: usize = 4;

/// Output that comes in many small pieces is waited for this long, so that it is sent in fewer.
const GATHER: Duration = Duration::from_millis(30);

/// How often a client hears something when nothing is printed.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(in crate::http) async fn open(call: Call) -> Handled {
    let engine = call.standing.engine();
    if !may_call(&call.holder.token, engine, "TaskOutput") {
        return Err(HttpRefusal::forbidden("the token may not call TaskOutput"));
    }
    let found = async { engine.observe(engine.task_here(&call.id).await?).await };
    let observer = match found.await {
        Ok(observer) => observer,
        Err(error) => return Ok(failed(&error)),
    };
    let (sender, body) = Channel::<Bytes, Infallible>::new(LINES_MAX);
    let follower = OutputFollower {
        reader: OutputReader::new(&observer.mask()),
        observer,
        sender,
        holder: call.holder,
        closing: call.face.closing.clone(),
    };
    tokio::spawn(follower.follow());
    let headers =
        [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    let response: Response<Body> = (headers, Body::new(body)).into_response();
    Ok(response)
}

/// A client that follows a task's output.
struct OutputFollower {
    observer: Observer,
    reader: OutputReader,
    sender: Sender<Bytes, Infallible>,
    holder: Arc<Holder>,
    closing: CancellationToken,
}

/// The client has left.
struct Left;

impl OutputFollower {
    /// Tells what is printed until the task ends, the client leaves, its token ends, or the server
    /// does.
    async fn follow(mut self) {
        let (holder, closing) = (self.holder.clone(), self.closing.clone());
        tokio::select! {
            _ = self.tell_all() => {}
            () = holder.ended() => {}
            () = closing.cancelled() => {}
        }
    }

    async fn tell_all(&mut self) -> Result<(), Left> {
        loop {
            let is_over = self.observer.is_over();
            let lines = match self.read(is_over).await {
                Ok(lines) => lines,
                Err(error) => return self.tell(&json!({ "error": error })).await,
            };
            for line in lines {
                self.tell(&line).await?;
            }
            if is_over {
                let task = self.observer.task();
                let outcome = task.outcome.as_ref();
                let exit_status = outcome.and_then(|outcome| outcome.exit_status);
                let ended = json!({ "ended": task.status, "exit_status": exit_status });
                return self.tell(&ended).await;
            }
            let Cursor { stdout, stderr } = self.reader.seen;
            while timeout(HEARTBEAT, self.observer.changed(stdout, stderr)).await.is_err() {
                self.tell(&json!({})).await?;
            }
            if !self.observer.is_over() {
                sleep(GATHER).await;
            }
        }
    }

    /// Reads what is new, in a thread: the disk may be slow, and so is the search for secrets.
    async fn read(&mut self, is_last: bool) -> Result<Vec<Value>, ToolError> {
        let output = self.observer.output().await?.in_whole_lines();
        let mut reader = std::mem::take(&mut self.reader);
        let read = tokio::task::spawn_blocking(move || {
            let lines = reader.read(output, is_last);
            (reader, lines)
        });
        let (reader, lines) = read.await.map_err(|error| unreadable(&error.into()))?;
        self.reader = reader;
        lines.map_err(|error| unreadable(&error))
    }

    async fn tell(&mut self, what: &Value) -> Result<(), Left> {
        self.sender.send_data(format!("{what}\n").into()).await.map_err(|_| Left)
    }
}

fn unreadable(error: &io::Error) -> ToolError {
    let problem = format!("the output cannot be read: {error}");
    ToolError::new(legwork::ErrorKind::ToolExecutionFailed, problem)
}

/// How far both streams were read.
#[derive(Default)]
struct OutputReader {
    seen: Cursor,
    stdout: StreamReader,
    stderr: StreamReader,
}

/// One of the streams.
#[derive(Default)]
struct StreamReader {
    mask: Option<(Arc<Mask>, MaskedStream)>,
    /// Whether the mask knows already what stands before the next piece.
    is_placed: bool,
    /// The beginning of a character whose rest has not come yet.
    half: Vec<u8>,
}

impl OutputReader {
    fn new(mask: &Arc<Mask>) -> Self {
        let stream = || StreamReader {
            mask: Some((mask.clone(), MaskedStream::new(mask.clone()))),
            ..StreamReader::default()
        };
        Self { seen: Cursor::default(), stdout: stream(), stderr: stream() }
    }

    fn of(&mut self, stream: Stream) -> (&mut StreamReader, &mut u64) {
        match stream {
            Stream::Stdout => (&mut self.stdout, &mut self.seen.stdout),
            Stream::Stderr => (&mut self.stderr, &mut self.seen.stderr),
        }
    }

    /// What is new, as far as a client is to hear of it.
    fn read(&mut self, output: TaskOutput, is_last: bool) -> io::Result<Vec<Value>> {
        let from = Cursor {
            stdout: self.stdout.begin(&output.stdout, self.seen.stdout)?,
            stderr: self.stderr.begin(&output.stderr, self.seen.stderr)?,
        };
        let mut lines = Vec::new();
        let mut reading = output.read_from(from)?;
        while let Some(Piece { stream, offset, bytes }) = reading.next_piece()? {
            let (reader, seen) = self.of(stream);
            let skipped = offset.saturating_sub(*seen);
            *seen = offset + bytes.len() as u64;
            let text = reader.text(&bytes, skipped > 0);
            push(&mut lines, stream, &text, skipped);
        }
        self.seen = reading.end();
        if is_last {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let text = self.of(stream).0.rest();
                push(&mut lines, stream, &text, 0);
            }
        }
        Ok(lines)
    }
}

fn push(lines: &mut Vec<Value>, stream: Stream, text: &str, skipped_bytes: u64) {
    if text.is_empty() && skipped_bytes == 0 {
        return;
    }
    let mut line = json!({ "stream": stream.file_name(), "text": text });
    if let (Value::Object(fields), 1..) = (&mut line, skipped_bytes) {
        fields.insert("skipped_bytes".into(), skipped_bytes.into());
    }
    lines.push(line);
}

impl StreamReader {
    /// Where to read on: where it was, or near the end if that is too far behind.
    fn begin(&mut self, artifact: &Artifact, seen: u64) -> io::Result<u64> {
        let near = artifact.bytes().saturating_sub(BEHIND_BYTES_MAX);
        if near <= seen {
            return Ok(seen);
        }
        let near = artifact.skip(near);
        let ahead = artifact.read(near, LINE_BYTES)?;
        let line = ahead.iter().position(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let place = near + line as u64;
        if let Some((mask, stream)) = &mut self.mask {
            *stream = MaskedStream::at(mask.clone(), artifact, place)?;
        }
        self.is_placed = true;
        self.half.clear();
        Ok(place)
    }

    /// A piece as text, with what was left of the one before.
    fn text(&mut self, bytes: &[u8], behind_gap: bool) -> String {
        let is_placed = std::mem::take(&mut self.is_placed);
        let shown = match &mut self.mask {
            Some((_, mask)) => {
                if behind_gap && !is_placed {
                    mask.skip_gap();
                    self.half.clear();
                }
                mask.feed(bytes)
            }
            None => bytes.to_vec(),
        };
        self.decoded(&shown)
    }

    fn decoded(&mut self, bytes: &[u8]) -> String {
        self.half.extend_from_slice(bytes);
        let whole = self.half.len() - unfinished_bytes(&self.half);
        let rest = self.half.split_off(whole);
        let text = String::from_utf8_lossy(&self.half).into_owned();
        self.half = rest;
        text
    }

    /// What was held back, when nothing follows any more.
    fn rest(&mut self) -> String {
        let shown = self.mask.as_mut().map(|(_, mask)| mask.finish()).unwrap_or_default();
        self.half.extend_from_slice(&shown);
        String::from_utf8_lossy(&std::mem::take(&mut self.half)).into_owned()
    }
}

/// Bytes at the end that are the beginning of a character.
fn unfinished_bytes(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes.get(bytes.len().saturating_sub(3)..).unwrap_or_default()) {
        Ok(_) => 0,
        // The window may begin inside a character; only the end counts.
        Err(_) => (1..=bytes.len().min(3))
            .find(|count| {
                let tail = bytes.get(bytes.len() - count..).unwrap_or_default();
                let begins = tail.first().is_some_and(|byte| *byte >= 0xc0);
                let is_cut =
                    || std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
                begins && is_cut()
            })
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use legwork::output::SmallOutput;

    use super::*;

    fn small(stdout: &[u8], stderr: &[u8]) -> TaskOutput {
        let small =
            SmallOutput { stdout: stdout.to_vec(), stderr: stderr.to_vec(), timeline: Vec::new() };
        TaskOutput::from(&small)
    }

    fn texts(lines: &[Value]) -> Vec<&str> {
        lines.iter().map(|line| line["text"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_character_in_two_pieces_is_one_and_half_a_one_is_marked() {
        let mut reader = OutputReader::new(&Arc::new(Mask::none()));
        let all = "a€".as_bytes();
        for (bytes, expected) in [(&all[..2], &["a"][..]), (&all[..3], &[]), (all, &["€"])] {
            assert_eq!(texts(&reader.read(small(bytes, b""), false).unwrap()), expected);
        }
        let cut = [all, &all[1..3]].concat();
        assert_eq!(texts(&reader.read(small(&cut, b""), true).unwrap()), ["\u{fffd}"]);
    }

    #[test]
    fn whoever_is_far_behind_goes_on_with_a_whole_line_near_the_end_and_hears_how_much_is_left_out()
    {
        let mut reader = OutputReader::new(&Arc::new(Mask::none()));
        let line = "0123456789abcde\n";
        let all = line.repeat(100_000);
        let lines = reader.read(small(all.as_bytes(), b"error\n"), true).unwrap();
        let of = |name: &str| -> (String, u64) {
            let of_stream = lines.iter().filter(|line| line["stream"] == name);
            of_stream.fold(Default::default(), |(text, skipped), line| {
                let more = line["skipped_bytes"].as_u64().unwrap_or(0);
                (text + line["text"].as_str().unwrap(), skipped + more)
            })
        };
        let (text, skipped) = of("stdout");
        assert!(text.starts_with(line) && text.len() <= 256 * 1024, "{}", text.len());
        assert_eq!(skipped + text.len() as u64, all.len() as u64);
        assert_eq!(of("stderr"), ("error\n".to_owned(), 0));
    }
}
