//! Keeps a run's output: in memory while it is small and young, in the task's folder from then on.
//!
//! Most commands end within milliseconds and print little; their output travels with the exit record and
//! touches no file. [`Keep::spill`] makes the folder, moves what there is into it, and everything after
//! that goes to files.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::Duration,
};

use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, fallocate, fdatasync, mkdirat, openat, unlinkat,
};

use crate::{
    folder::{EXIT, SPEC, Stream, TERMINAL, TIMELINE, TimelineRow, WindowSize},
    protocol::Kept,
    record::{ExitRecord, RECORD_BYTES, StreamTotal},
};

/// A stream that goes on gets a new row of the timeline only after this long.
const ROW_EVERY_US: u64 = 10_000;

/// Past this size of the timeline, rows come only once a second, whatever the stream.
const TIMELINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The output of one run.
#[derive(Debug)]
pub(super) struct Keep {
    folder: Option<Folder>,
    /// Name of stdout's file: it may be a terminal's.
    stdout_name: &'static str,
    /// Bytes that may be held in memory.
    memory_bytes_max: u64,
    stdout: Stored,
    stderr: Stored,
    timeline: Stored,
    last_row: Option<(Stream, u64)>,
}

#[derive(Debug)]
struct Folder {
    descriptor: OwnedFd,
    exit: File,
}

/// The bytes of one file, or of the file that they would be in.
#[derive(Debug, Default)]
struct Stored {
    memory: Vec<u8>,
    file: Option<File>,
    total: StreamTotal,
}

impl Keep {
    /// Keeps up to this many bytes in memory; stdout's file will have this name.
    pub(super) fn new(memory_bytes_max: u64, stdout_name: &'static str) -> Self {
        Self {
            folder: None,
            stdout_name,
            memory_bytes_max,
            stdout: Stored::default(),
            stderr: Stored::default(),
            timeline: Stored::default(),
            last_row: None,
        }
    }

    /// Whether there is a folder.
    pub(super) fn is_spilled(&self) -> bool {
        self.folder.is_some()
    }

    /// Whether this many more bytes would be too many for memory.
    pub(super) fn would_overflow(&self, more: usize) -> bool {
        let held = self.stdout.total.bytes + self.stderr.total.bytes;
        !self.is_spilled() && held + more as u64 > self.memory_bytes_max
    }

    /// Makes the folder, reserves the exit record, and moves what there is into files.
    ///
    /// On failure nothing is left on disk and everything stays in memory.
    pub(super) fn spill(
        &mut self,
        tasks: BorrowedFd<'_>,
        task: &str,
        note: &[u8],
    ) -> io::Result<()> {
        if self.is_spilled() {
            return Ok(());
        }
        mkdirat(tasks, task, Mode::RWXU)?;
        self.fill(tasks, task, note).inspect_err(|_| {
            for stored in [&mut self.stdout, &mut self.stderr, &mut self.timeline] {
                stored.file = None;
            }
            remove(tasks, task);
        })
    }

    fn fill(&mut self, tasks: BorrowedFd<'_>, task: &str, note: &[u8]) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = openat(tasks, task, flags, Mode::empty())?;
        let exit = create_file(&descriptor, EXIT)?;
        reserve(&exit)?;
        create_file(&descriptor, SPEC)?.write_all(note)?;
        let names = [self.stdout_name, Stream::Stderr.file_name(), TIMELINE];
        let mut parts = [&mut self.stdout, &mut self.stderr, &mut self.timeline];
        for (stored, name) in parts.iter_mut().zip(names) {
            if !stored.memory.is_empty() {
                let file = create_file(&descriptor, name)?;
                file.write_all_at(&stored.memory, 0)?;
                stored.file = Some(file);
            }
        }
        // Only now is nothing left that could fail.
        for stored in parts {
            stored.memory = Vec::new();
        }
        self.folder = Some(Folder { descriptor, exit });
        give_back_memory();
        Ok(())
    }

    /// Appends what was read from a stream; what cannot be stored is counted, never an error.
    pub(super) fn append(&mut self, stream: Stream, bytes: &[u8], since_start: Duration) {
        let time_us = u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX);
        self.note_growth(stream, time_us);
        let room =
            self.memory_bytes_max.saturating_sub(self.stdout.total.bytes + self.stderr.total.bytes);
        let folder = self.folder.as_ref().map(|folder| &folder.descriptor);
        let (stored, name) = match stream {
            Stream::Stdout => (&mut self.stdout, self.stdout_name),
            Stream::Stderr => (&mut self.stderr, stream.file_name()),
        };
        match folder {
            Some(folder) => stored.append_to_file(folder, name, bytes),
            None => stored.append_to_memory(bytes, room),
        }
    }

    /// What has been stored of a stream so far.
    pub(super) fn total(&self, stream: Stream) -> StreamTotal {
        match stream {
            Stream::Stdout => self.stdout.total,
            Stream::Stderr => self.stderr.total,
        }
    }

    /// What is held in memory of a stream beyond an offset.
    pub(super) fn fresh(&self, stream: Stream, offset: u64) -> Vec<u8> {
        let stored = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        stored.memory.get(offset..).unwrap_or_default().to_vec()
    }

    /// Where everything is, with the bytes themselves if they are in memory.
    pub(super) fn kept(&self) -> Kept {
        if self.is_spilled() {
            return Kept::Folder;
        }
        Kept::Memory {
            stdout: self.stdout.memory.clone(),
            stderr: self.stderr.memory.clone(),
            timeline: self.timeline.memory.clone(),
        }
    }

    /// Writes the exit record into its reserved space and syncs it, if there is a folder.
    ///
    /// The artifacts are left to the kernel's own time.
    pub(super) fn record_exit(&self, record: &ExitRecord) -> io::Result<()> {
        if let Some(folder) = &self.folder {
            folder.exit.write_all_at(&record.to_bytes(), 0)?;
            fdatasync(&folder.exit)?;
        }
        Ok(())
    }

    fn note_growth(&mut self, stream: Stream, time_us: u64) {
        let full = self.timeline.total.bytes >= TIMELINE_BYTES_MAX;
        let every = if full { 1_000_000 } else { ROW_EVERY_US };
        if let Some((last, last_us)) = self.last_row
            && (last == stream || full)
            && time_us.saturating_sub(last_us) < every
        {
            return;
        }
        self.last_row = Some((stream, time_us));
        self.add_row(TimelineRow::Grew { stream, offset: self.total(stream).bytes, time_us });
    }

    /// Notes the size of the terminal from here on.
    pub(super) fn note_size(&mut self, size: WindowSize) {
        self.add_row(TimelineRow::Resized { offset: self.stdout.total.bytes, size });
    }

    fn add_row(&mut self, row: TimelineRow) {
        // The timeline only orders what the artifacts hold: losing a row loses no output.
        match &self.folder {
            Some(folder) => {
                self.timeline.append_to_file(&folder.descriptor, TIMELINE, &row.to_bytes());
            }
            None => self.timeline.append_to_memory(&row.to_bytes(), self.memory_bytes_max),
        }
    }
}

impl Stored {
    fn append_to_memory(&mut self, bytes: &[u8], room: u64) {
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let (stored, dropped) = bytes.split_at(fits);
        self.memory.extend_from_slice(stored);
        self.count(stored);
        self.total.dropped_bytes += dropped.len() as u64;
    }

    fn append_to_file(&mut self, folder: &OwnedFd, name: &str, bytes: &[u8]) {
        if self.file.is_none() {
            self.file = create_file(folder, name).ok();
        }
        let mut rest = bytes;
        while let Some(file) = &self.file
            && !rest.is_empty()
        {
            match file.write_at(rest, self.total.bytes) {
                Ok(written) if written > 0 => {
                    let (stored, left) = rest.split_at(written);
                    self.count(stored);
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        self.total.dropped_bytes += rest.len() as u64;
    }

    fn count(&mut self, stored: &[u8]) {
        self.total.bytes += stored.len() as u64;
        self.total.lines += newlines(stored);
    }
}

/// Counts newlines; a plain loop over bytes is what the compiler turns into vector code.
fn newlines(bytes: &[u8]) -> u64 {
    // Blocks short enough for a byte-wide counter keep the vectors full.
    bytes
        .chunks(255)
        .map(|block| u64::from(block.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>()))
        .sum()
}

fn create_file(folder: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Gives unused heap back: a run that spills is long, and there may be thousands of them.
fn give_back_memory() {
    // SAFETY: it only releases what the allocator itself knows to be free.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Takes the disk space of the exit record now; a filesystem that cannot reserve gets zeros written.
fn reserve(exit: &File) -> io::Result<()> {
    match fallocate(exit.as_fd(), FallocateFlags::empty(), 0, RECORD_BYTES as u64) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            exit.write_all_at(&[0; RECORD_BYTES], 0)
        }
        result => Ok(result?),
    }
}

/// Removes a folder that could not be filled.
fn remove(tasks: BorrowedFd<'_>, task: &str) {
    let artifacts = [Stream::Stdout.file_name(), Stream::Stderr.file_name(), TERMINAL];
    for name in [EXIT, SPEC, TIMELINE].into_iter().chain(artifacts) {
        let _ = unlinkat(tasks, format!("{task}/{name}"), AtFlags::empty());
    }
    let _ = unlinkat(tasks, task, AtFlags::REMOVEDIR);
}
