//! Writes lines to stderr on a thread of its own, so that nobody waits for who reads them.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing::Level;

use super::{LINES, LogFormat, line::LogLine};

/// Most lines that wait to be written; what comes on top of these is lost, and counted.
const LINES_MAX: usize = 4096;

/// Takes lines. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct LogWriter {
    lines: SyncSender<Piece>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Piece {
    Line(String),
    /// Answered when all before it is written.
    End(SyncSender<()>),
}

impl LogWriter {
    /// Starts the thread; without one every line is lost.
    pub(super) fn start() -> Self {
        let (lines, taken) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Self { lines, lost: lost.clone() };
        let named = thread::Builder::new().name("log".into());
        let _ = named.spawn(move || write_all(&taken, &lost));
        writer
    }

    /// Writes a line, some time.
    pub(super) fn write(&self, line: &str) {
        if self.lines.try_send(Piece::Line(line.to_owned())).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Waits until all lines are written, for so long.
    pub(super) fn finish(&self, patience: Duration) {
        let (sender, written) = sync_channel(1);
        if self.lines.try_send(Piece::End(sender)).is_ok() {
            let _ = written.recv_timeout(patience);
        }
    }
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::write(self, &String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(pieces: &Receiver<Piece>, lost: &AtomicU64) {
    let mut stderr = io::stderr();
    for piece in pieces {
        match piece {
            Piece::End(sender) => drop(sender.send(())),
            Piece::Line(line) => {
                // A stderr that is gone is no reason to fail.
                let _ = stderr.write_all(line.as_bytes());
                let lost = lost.swap(0, Relaxed);
                if lost > 0 {
                    let _ = stderr.write_all(tell_of(lost).as_bytes());
                }
            }
        }
    }
}

fn tell_of(lost: u64) -> String {
    let format = LINES.get().map_or(LogFormat::Text, |(format, _)| *format);
    let mut line = LogLine::new(Level::WARN, "legwork");
    line.message = format!("{lost} lines of the log were lost: nobody read them in time");
    line.render(Some(format))
}
