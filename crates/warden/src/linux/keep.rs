//! Keeps a run's output in the task's folder: artifacts, timeline, exit record.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::Duration,
};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fdatasync, mkdirat, openat};

use crate::{
    folder::{EXIT, SPEC, Stream, TIMELINE, TimelineRow},
    record::{ExitRecord, RECORD_BYTES, StreamTotal},
};

/// A stream that goes on gets a new row of the timeline only after this long.
const ROW_EVERY_US: u64 = 10_000;

/// Past this size of the timeline, rows come only once a second.
const TIMELINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The folder of one task.
#[derive(Debug)]
pub(super) struct Keep {
    folder: OwnedFd,
    exit: File,
    timeline: Option<File>,
    timeline_bytes: u64,
    last_row: Option<(Stream, u64)>,
    stdout: Artifact,
    stderr: Artifact,
}

/// One artifact, made when its first byte comes.
#[derive(Debug, Default)]
struct Artifact {
    file: Option<File>,
    total: StreamTotal,
}

impl Keep {
    /// Makes the folder and reserves the exit record; on failure nothing is left.
    pub(super) fn create(tasks: BorrowedFd<'_>, task: &str, note: &[u8]) -> io::Result<Self> {
        mkdirat(tasks, task, Mode::RWXU)?;
        Self::fill(tasks, task, note).inspect_err(|_| remove(tasks, task))
    }

    fn fill(tasks: BorrowedFd<'_>, task: &str, note: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = openat(tasks, task, flags, Mode::empty())?;
        let exit = create_file(&folder, EXIT)?;
        reserve(&exit)?;
        create_file(&folder, SPEC)?.write_all(note)?;
        Ok(Self {
            folder,
            exit,
            timeline: None,
            timeline_bytes: 0,
            last_row: None,
            stdout: Artifact::default(),
            stderr: Artifact::default(),
        })
    }

    /// Appends what was read from a stream; what cannot be stored is counted, never an error.
    pub(super) fn append(&mut self, stream: Stream, bytes: &[u8], since_start: Duration) {
        let offset = self.total(stream).bytes;
        let artifact = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        artifact.append(&self.folder, stream, bytes);
        let time_us = u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX);
        self.note_growth(TimelineRow {
            stream,
            offset,
            time_us,
        });
    }

    /// What has been stored of a stream so far.
    pub(super) fn total(&self, stream: Stream) -> StreamTotal {
        match stream {
            Stream::Stdout => self.stdout.total,
            Stream::Stderr => self.stderr.total,
        }
    }

    /// Writes the exit record and syncs it (the artifacts are left to the kernel's own time).
    pub(super) fn finish(&self, record: &ExitRecord) -> io::Result<()> {
        self.exit.write_all_at(&record.to_bytes(), 0)?;
        fdatasync(&self.exit)?;
        Ok(())
    }

    fn note_growth(&mut self, row: TimelineRow) {
        let every = if self.timeline_bytes < TIMELINE_BYTES_MAX {
            ROW_EVERY_US
        } else {
            1_000_000
        };
        let full = self.timeline_bytes >= TIMELINE_BYTES_MAX;
        if let Some((stream, time_us)) = self.last_row
            && (stream == row.stream || full)
            && row.time_us.saturating_sub(time_us) < every
        {
            return;
        }
        if self.timeline.is_none() {
            self.timeline = create_file(&self.folder, TIMELINE).ok();
        }
        // The timeline only orders what the artifacts hold: losing a row loses no output.
        if let Some(file) = &mut self.timeline
            && file
                .write_all_at(&row.to_bytes(), self.timeline_bytes)
                .is_ok()
        {
            self.timeline_bytes += TimelineRow::BYTES as u64;
            self.last_row = Some((row.stream, row.time_us));
        }
    }
}

impl Artifact {
    fn append(&mut self, folder: &OwnedFd, stream: Stream, bytes: &[u8]) {
        if self.file.is_none() {
            self.file = create_file(folder, stream.file_name()).ok();
        }
        let mut rest = bytes;
        while let Some(file) = &self.file
            && !rest.is_empty()
        {
            match file.write_at(rest, self.total.bytes) {
                Ok(written) if written > 0 => {
                    let (stored, left) = rest.split_at(written);
                    self.total.bytes += stored.len() as u64;
                    self.total.lines += newlines(stored);
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        self.total.dropped_bytes += rest.len() as u64;
    }
}

/// Counts newlines; a plain loop over bytes is what the compiler turns into vector code.
fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

fn create_file(folder: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Takes the disk space of the exit record now; a filesystem that cannot reserve gets zeros written.
fn reserve(exit: &File) -> io::Result<()> {
    match fallocate(
        exit.as_fd(),
        FallocateFlags::empty(),
        0,
        RECORD_BYTES as u64,
    ) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            exit.write_all_at(&[0; RECORD_BYTES], 0)
        }
        result => Ok(result?),
    }
}

/// Removes the folder of a task that never started.
pub(super) fn remove(tasks: BorrowedFd<'_>, task: &str) {
    use rustix::fs::{AtFlags, unlinkat};
    for name in [EXIT, SPEC] {
        let _ = unlinkat(tasks, format!("{task}/{name}"), AtFlags::empty());
    }
    let _ = unlinkat(tasks, task, AtFlags::REMOVEDIR);
}
