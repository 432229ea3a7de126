//! Sends spans to a collector, from a thread of its own.
//!
//! Spans wait in a queue that has an end: what does not fit is dropped, and counted. So a collector
//! that is slow or dead costs a call nothing. The client is of a few lines on a blocking socket:
//! one request each few seconds, of which only the status of the answer is looked at.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use legwork::{SpanRecord, SpanSink};

use super::{otlp, settings::OtlpSettings};

/// How often a request is made that may succeed later.
const TRIES: u32 = 3;

/// How long after a try comes the next; twice as long after that.
const PAUSE: Duration = Duration::from_secs(1);

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// How often a failure is told.
const TOLD_EVERY: Duration = Duration::from_secs(600);

/// Takes spans for a collector.
#[derive(Debug)]
pub(super) struct Exporter {
    spans: SyncSender<Piece>,
    counts: Arc<SpanCounts>,
}

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    /// The collector has them.
    pub sent: AtomicU64,
    /// They did not fit into the queue.
    pub dropped: AtomicU64,
    /// The collector did not take them.
    pub failed: AtomicU64,
}

#[derive(Debug)]
enum Piece {
    Span(Box<SpanRecord>),
    /// Answered when all before it was sent, or could not be.
    Flush(SyncSender<()>),
}

impl SpanSink for Exporter {
    fn take(&self, span: SpanRecord) {
        if self.spans.try_send(Piece::Span(Box::new(span))).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl Exporter {
    /// Starts the thread.
    pub(super) fn start(settings: OtlpSettings) -> io::Result<Self> {
        let (spans, pieces) = sync_channel(settings.queue_max);
        let counts = Arc::<SpanCounts>::default();
        let sending = Sending { settings, counts: counts.clone(), told: None };
        thread::Builder::new().name("traces".into()).spawn(move || sending.run(&pieces))?;
        Ok(Self { spans, counts })
    }

    /// Sends what waits, as far as that is done in this time.
    pub(super) fn flush(&self, patience: Duration) {
        let (sender, flushed) = sync_channel(1);
        if self.spans.try_send(Piece::Flush(sender)).is_ok() {
            let _ = flushed.recv_timeout(patience);
        }
    }

    /// What became of the spans so far.
    pub(super) fn counts(&self) -> &SpanCounts {
        &self.counts
    }
}

/// The thread's own.
struct Sending {
    settings: OtlpSettings,
    counts: Arc<SpanCounts>,
    /// When a failure was last told.
    told: Option<Instant>,
}

/// Why spans did not arrive.
enum NotSent {
    /// It may go better later.
    ForNow(String),
    Refused(String),
}

impl Sending {
    fn run(mut self, pieces: &Receiver<Piece>) {
        let mut batch = Vec::new();
        let mut due = None;
        loop {
            let next = match due {
                None => pieces.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => {
                    pieces.recv_timeout(Instant::saturating_duration_since(&due, Instant::now()))
                }
            };
            match next {
                Ok(Piece::Span(span)) => {
                    batch.push(*span);
                    due.get_or_insert_with(|| Instant::now() + self.settings.delay);
                    if batch.len() < self.settings.batch_max {
                        continue;
                    }
                    self.send(&batch, TRIES);
                }
                Ok(Piece::Flush(sender)) => {
                    self.send(&batch, 1);
                    let _ = sender.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.send(&batch, TRIES),
                Err(RecvTimeoutError::Disconnected) => return self.send(&batch, 1),
            }
            batch.clear();
            due = None;
        }
    }

    /// Sends a batch, or drops it after so many tries.
    fn send(&mut self, batch: &[SpanRecord], tries: u32) {
        if batch.is_empty() {
            return;
        }
        let body = otlp::request(&self.settings.resource, batch);
        for number in 1..=tries {
            match self.post(&body) {
                Ok(()) => return add(&self.counts.sent, batch.len()),
                Err(NotSent::ForNow(_)) if number < tries => thread::sleep(PAUSE * number),
                Err(NotSent::ForNow(problem) | NotSent::Refused(problem)) => {
                    add(&self.counts.failed, batch.len());
                    return self.tell(batch.len(), &problem);
                }
            }
        }
    }

    fn tell(&mut self, spans: usize, problem: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            self.told = Some(Instant::now());
            let (host, port) = (self.settings.host.as_str(), self.settings.port);
            tracing::warn!(spans, host, port, "traces cannot be sent: {problem}");
        }
    }

    fn post(&self, body: &[u8]) -> Result<(), NotSent> {
        let status = self.exchange(body).map_err(|error| NotSent::ForNow(error.to_string()))?;
        match status {
            200..=299 => Ok(()),
            429 | 502..=504 => Err(NotSent::ForNow(format!("the collector answered {status}"))),
            _ => Err(NotSent::Refused(format!("the collector answered {status}"))),
        }
    }

    /// Makes a request; the status of its answer.
    fn exchange(&self, body: &[u8]) -> io::Result<u16> {
        let OtlpSettings { host, port, path, headers, timeout, .. } = &self.settings;
        let until = Instant::now() + *timeout;
        let left = || match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok::<_, io::Error>(left),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let mut stream = Err(io::Error::other("it has no address"));
        for address in (bare, *port).to_socket_addrs()? {
            stream = TcpStream::connect_timeout(&address, left()?);
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream?;
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: legwork/{}\r\n\
             Content-Type: application/x-protobuf\r\nContent-Length: {}\r\nConnection: close\r\n",
            env!("CARGO_PKG_VERSION"),
            body.len(),
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.set_write_timeout(Some(left()?))?;
        stream.write_all(&[head.as_bytes(), body].concat())?;
        stream.set_read_timeout(Some(left()?))?;
        let mut answer = Vec::new();
        let mut reader = stream.take(ANSWER_BYTES_MAX);
        let mut block = [0; 512];
        // The status line is enough; the answer's end may never come.
        while !answer.contains(&b'\n') {
            match reader.read(&mut block)? {
                0 => break,
                count => answer.extend(block.iter().take(count)),
            }
            left()?;
        }
        let line = String::from_utf8_lossy(&answer);
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.filter(|_| line.starts_with("HTTP/1.")).ok_or_else(|| io::Error::other("no HTTP"))
    }
}

fn add(count: &AtomicU64, spans: usize) {
    count.fetch_add(spans as u64, Relaxed);
}
