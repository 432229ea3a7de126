//! Keeps a run's output: in memory while it is small and young, in the task's folder from then on.
//!
//! Most commands end within milliseconds and print little; their output travels with the exit
//! record and touches no file. [`Keep::spill`] makes the folder, moves what there is into it, and
//! everything after that goes to files. Past the limit of the output, or where the disk has little
//! room, the files stop growing: head and tail are kept, the middle is dropped and counted, and the
//! command goes on.

mod room;
mod stored;

use std::{
    fs::File,
    io::{self, Write},
    time::Duration,
};

use self::{
    room::Room,
    stored::{Stored, newlines},
};
use crate::{
    failpoint::Failpoint,
    folder::{EXIT, MEMORY_LINES_MAX, SPEC, Stream, TERMINAL, TIMELINE, TimelineRow, WindowSize},
    gaps::{GAPS_AT, GAPS_BYTES, Gaps},
    protocol::{KeptOutput, Limits},
    record::{ExitRecord, RECORD_BYTES, StreamTotal},
    system::{
        files::{
            FolderOfTask, TasksPlace, create_file, is_full, make_folder, open_folder,
            remove_folder, reserve, write_all_at,
        },
        give_back_memory,
    },
};

/// A stream that goes on gets a new row of the timeline only after this long.
const ROW_EVERY_US: u64 = 10_000;

/// What is written of a record that a test tears.
const TORN_BYTES: usize = 24;

/// Past this size of the timeline, rows come only once a second, whatever the stream.
const TIMELINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// This part of what may be kept is given up at a time.
const TRIMMED: u64 = 16;

/// The output of one run.
#[derive(Debug)]
pub(crate) struct Keep {
    folder: Option<KeptFolder>,
    /// Name of stdout's file: it may be a terminal's.
    stdout_name: &'static str,
    /// Bytes that may be held in memory.
    memory_bytes_max: u64,
    stdout: Stored,
    stderr: Stored,
    timeline: Stored,
    last_row: Option<(Stream, u64)>,
    room: Room,
    /// The error with which output could not be written.
    pub store_errno: Option<i32>,
    /// A gap could not be noted: what was stored until then stays, and nothing is added.
    closed: bool,
}

#[derive(Debug)]
struct KeptFolder {
    folder: FolderOfTask,
    exit: File,
}

impl Keep {
    /// Keeps up to this many bytes in memory, and what the limits allow in files; stdout's will
    /// have this name.
    pub(crate) fn new(memory_bytes_max: u64, limits: &Limits, stdout_name: &'static str) -> Self {
        let room = Room::new(limits);
        Self {
            folder: None,
            stdout_name,
            memory_bytes_max: memory_bytes_max.min(room.output_bytes_max),
            stdout: Stored::default(),
            stderr: Stored::default(),
            timeline: Stored::default(),
            last_row: None,
            room,
            store_errno: None,
            closed: false,
        }
    }

    /// Whether output was dropped because the disk had little room left.
    pub(crate) fn was_low(&self) -> bool {
        self.room.was_low
    }

    /// Whether there is a folder.
    pub(crate) fn is_spilled(&self) -> bool {
        self.folder.is_some()
    }

    /// Whether this much more would be too much for memory.
    pub(crate) fn would_overflow(&self, more: &[u8]) -> bool {
        let lines = || self.stdout.lines() + self.stderr.lines() + newlines(more);
        !self.is_spilled()
            && (self.kept_bytes() + more.len() as u64 > self.memory_bytes_max
                || lines() > MEMORY_LINES_MAX)
    }

    /// Makes the folder, reserves the exit record, and moves what there is into files.
    ///
    /// On failure nothing is left on disk and everything stays in memory.
    pub(crate) fn spill(
        &mut self,
        tasks: TasksPlace<'_>,
        task: &str,
        note: &[u8],
    ) -> io::Result<()> {
        if self.is_spilled() {
            return Ok(());
        }
        make_folder(tasks, task)?;
        Failpoint::WardenMadeFolder.pass();
        self.fill(tasks, task, note).inspect_err(|_| {
            for stored in [&mut self.stdout, &mut self.stderr, &mut self.timeline] {
                stored.file = None;
            }
            let artifacts = [Stream::Stdout.file_name(), Stream::Stderr.file_name(), TERMINAL];
            let names: Vec<&str> = [EXIT, SPEC, TIMELINE].into_iter().chain(artifacts).collect();
            remove_folder(tasks, task, &names);
        })
    }

    fn fill(&mut self, tasks: TasksPlace<'_>, task: &str, note: &[u8]) -> io::Result<()> {
        let folder = open_folder(tasks, task)?;
        let exit = create_file(&folder, EXIT)?;
        reserve(&exit, RECORD_BYTES + GAPS_BYTES)?;
        Failpoint::WardenReservedRecord.pass();
        create_file(&folder, SPEC)?.write_all(note)?;
        let names = [self.stdout_name, Stream::Stderr.file_name(), TIMELINE];
        let mut parts = [&mut self.stdout, &mut self.stderr, &mut self.timeline];
        for (stored, name) in parts.iter_mut().zip(names) {
            if !stored.memory.is_empty() {
                let file = create_file(&folder, name)?;
                write_all_at(&file, &stored.memory, 0)?;
                stored.file = Some(file);
            }
        }
        Failpoint::WardenFilledFolder.pass();
        // Only now is nothing left that could fail.
        for stored in parts {
            stored.memory = Vec::new();
        }
        self.folder = Some(KeptFolder { folder, exit });
        if self.gaps() != Gaps::default() {
            self.note_gaps();
        }
        give_back_memory();
        Ok(())
    }

    /// Appends what was read from a stream; what cannot be stored is counted, never an error.
    pub(crate) fn append(&mut self, stream: Stream, bytes: &[u8], since_start: Duration) {
        let time_us = u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX);
        self.note_growth(stream, time_us);
        let Some(folder) = &self.folder else {
            let room = self.memory_bytes_max.saturating_sub(self.kept_bytes());
            self.stored_mut(stream).append_to_memory(bytes, room);
            return;
        };
        let ceiling = self.room.ceiling(
            &folder.folder,
            self.stdout.kept() + self.stderr.kept(),
            bytes.len() as u64,
            since_start,
        );
        if let Err((rest, error)) = self.write(stream, bytes) {
            self.store_errno = error.raw_os_error().or(self.store_errno);
            // Room can be made by giving up older output: what is printed last says most.
            let made = is_full(&error) && self.trim_to(self.kept_bytes() / 2);
            let left = if made { self.write(stream, rest) } else { Err((rest, error)) };
            if let Err((lost, _)) = left {
                self.stored_mut(stream).lose(lost);
                self.note_gaps();
            }
        }
        if self.kept_bytes() > ceiling && self.trim_to(ceiling - ceiling / TRIMMED) {
            self.room.trimmed();
        }
    }

    /// Writes to the file of a stream, which is made when it is first needed.
    fn write<'b>(&mut self, stream: Stream, bytes: &'b [u8]) -> Result<(), (&'b [u8], io::Error)> {
        if self.closed {
            return Err((bytes, io::ErrorKind::BrokenPipe.into()));
        }
        let name = if stream == Stream::Stdout { self.stdout_name } else { stream.file_name() };
        let made = match &self.folder {
            Some(folder) if self.stored(stream).file.is_none() => {
                create_file(&folder.folder, name).map(Some)
            }
            _ => Ok(None),
        };
        match made {
            Ok(Some(file)) => self.stored_mut(stream).file = Some(file),
            Ok(None) => {}
            Err(error) => return Err((bytes, error)),
        }
        self.stored_mut(stream).append_to_file(bytes)
    }

    /// Drops from the middle of the streams until this much is kept of both; the bigger one gives
    /// first.
    fn trim_to(&mut self, kept: u64) -> bool {
        let smaller = self.stdout.kept().min(self.stderr.kept()).min(kept / 2);
        let before = self.gaps();
        for stored in [&mut self.stdout, &mut self.stderr] {
            if stored.kept() > kept - smaller {
                stored.gap = Some(stored.gap_for(kept - smaller));
            }
        }
        let noted = self.gaps();
        if noted == before || !self.note_gaps() {
            (self.stdout.gap, self.stderr.gap) = (before.stdout, before.stderr);
            return false;
        }
        self.stdout.punch();
        self.stderr.punch();
        self.gaps() == noted || self.note_gaps()
    }

    fn gaps(&self) -> Gaps {
        Gaps { stdout: self.stdout.gap, stderr: self.stderr.gap }
    }

    /// Notes what is not kept, before it is removed.
    fn note_gaps(&mut self) -> bool {
        let noted = match &self.folder {
            Some(folder) => write_all_at(&folder.exit, &self.gaps().to_bytes(), GAPS_AT),
            None => Ok(()),
        };
        // Without the note, bytes behind the gap would be taken for those that belong into it.
        self.closed |= noted.is_err();
        noted.is_ok()
    }

    fn kept_bytes(&self) -> u64 {
        self.stdout.kept() + self.stderr.kept()
    }

    fn stored(&self, stream: Stream) -> &Stored {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    fn stored_mut(&mut self, stream: Stream) -> &mut Stored {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// What has been stored of a stream so far.
    pub(crate) fn total(&self, stream: Stream) -> StreamTotal {
        self.stored(stream).total()
    }

    /// How far a stream can be read.
    pub(crate) fn reach(&self, stream: Stream) -> u64 {
        let stored = self.stored(stream);
        if self.is_spilled() { stored.came } else { stored.memory.len() as u64 }
    }

    /// What is held in memory of a stream beyond an offset.
    pub(crate) fn fresh(&self, stream: Stream, offset: u64) -> Vec<u8> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.stored(stream).memory.get(offset..).unwrap_or_default().to_vec()
    }

    /// Where everything is, with the bytes themselves if they are in memory.
    pub(crate) fn kept(&self) -> KeptOutput {
        if self.is_spilled() {
            return KeptOutput::Folder;
        }
        KeptOutput::Memory {
            stdout: self.stdout.memory.clone(),
            stderr: self.stderr.memory.clone(),
            timeline: self.timeline.memory.clone(),
        }
    }

    /// Writes the exit record into its reserved space and syncs it, if there is a folder.
    ///
    /// The artifacts are left to the kernel's own time.
    pub(crate) fn record_exit(&self, record: &ExitRecord) -> io::Result<()> {
        if let Some(folder) = &self.folder {
            let bytes = record.to_bytes();
            if Failpoint::WardenInRecord.is_chosen() {
                write_all_at(&folder.exit, bytes.get(..TORN_BYTES).unwrap_or_default(), 0)?;
                Failpoint::WardenInRecord.pass();
            }
            write_all_at(&folder.exit, &bytes, 0)?;
            Failpoint::WardenWroteRecord.pass();
            folder.exit.sync_data()?;
        }
        Ok(())
    }

    fn note_growth(&mut self, stream: Stream, time_us: u64) {
        let full = self.timeline.came >= TIMELINE_BYTES_MAX;
        let every = if full { 1_000_000 } else { ROW_EVERY_US };
        if let Some((last, last_us)) = self.last_row
            && (last == stream || full)
            && time_us.saturating_sub(last_us) < every
        {
            return;
        }
        self.last_row = Some((stream, time_us));
        self.add_row(TimelineRow::Grew { stream, offset: self.stored(stream).came, time_us });
    }

    /// Notes the size of the terminal from here on.
    pub(crate) fn note_size(&mut self, size: WindowSize) {
        self.add_row(TimelineRow::Resized { offset: self.stdout.came, size });
    }

    fn add_row(&mut self, row: TimelineRow) {
        // The timeline only orders what the artifacts hold: losing a row loses no output.
        let bytes = row.to_bytes();
        let Some(folder) = &self.folder else {
            self.timeline.memory.extend_from_slice(&bytes);
            self.timeline.came += bytes.len() as u64;
            return;
        };
        if self.timeline.file.is_none() {
            self.timeline.file = create_file(&folder.folder, TIMELINE).ok();
        }
        let at = self.timeline.came;
        let file = self.timeline.file.as_ref();
        // A row that is not written whole is written over by the next one.
        if file.is_some_and(|file| write_all_at(file, &bytes, at).is_ok()) {
            self.timeline.came += bytes.len() as u64;
        }
    }
}
