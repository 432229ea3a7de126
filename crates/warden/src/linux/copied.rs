//! Measures what a run has written into its copies, a little at a time.
//!
//! The kernel has no limit for that which an ordinary user could set. So the layers are walked
//! through again and again: a step between everything else that a warden does, and seldom enough to
//! cost a small part of the processor. A short command is never looked at.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat},
    io::Errno,
};

use super::sandbox::{ClosedReader, path_of};
use crate::protocol::RunCopies;

/// A command is first looked at after this time, and this long after the last look is through.
const EVERY: Duration = Duration::from_millis(500);

/// Files in one step.
const STEP: usize = 500;

/// What it costs to send somebody into a folder that is closed, in such files.
const SENT: usize = 50;

/// The time between steps, and between looks, as a multiple of what they take.
const PAUSE_STEPS: u32 = 4;
const PAUSE_LOOKS: u32 = 20;

/// Most folders that wait to be looked at, and most bytes of their paths. Who makes more has those
/// counted that fit.
const WAITING_MAX: usize = 100_000;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Says when the layers of a run have got too large.
#[derive(Debug)]
pub(super) struct CopyMeter {
    /// The layers, as far as they can be opened.
    tops: Vec<OwnedFd>,
    bytes_max: u64,
    /// What this look has found so far.
    bytes: u64,
    /// How long this look took so far.
    spent: Duration,
    /// The folders that it has not been in yet.
    waiting: WaitingFolders,
    /// The folder that it is in.
    current: Option<(LayerFolder, Entries)>,
    /// Reads folders that the command has closed to their owner.
    closed: Option<ClosedReader>,
    next_at: Instant,
}

/// A folder of a layer: which layer, and the path in it.
#[derive(Debug)]
struct LayerFolder {
    layer: usize,
    path: PathBuf,
}

/// What of a folder is still to be counted.
#[derive(Debug)]
enum Entries {
    /// It can be read, and whether something in it was counted.
    Open(Dir, bool),
    /// It is closed: the place to go on from.
    Closed(u64),
}

/// Folders that are to be looked at.
#[derive(Debug, Default)]
struct WaitingFolders {
    all: Vec<LayerFolder>,
    bytes: usize,
}

impl WaitingFolders {
    fn push(&mut self, layer: usize, path: PathBuf) {
        let bytes = self.bytes + path.as_os_str().len();
        if self.all.len() < WAITING_MAX && bytes <= WAITING_BYTES_MAX {
            self.bytes = bytes;
            self.all.push(LayerFolder { layer, path });
        }
    }

    fn pop(&mut self) -> Option<LayerFolder> {
        let folder = self.all.pop()?;
        self.bytes -= folder.path.as_os_str().len();
        Some(folder)
    }
}

impl CopyMeter {
    /// For a run that begins now; none where it may write as much as it likes.
    pub(super) fn of(copies: &RunCopies, closed: Option<ClosedReader>) -> Option<Self> {
        let bytes_max = copies.bytes_max?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |upper: &Path| openat(CWD, upper, flags, Mode::empty()).ok();
        let tops = copies.places.iter().filter_map(|copy| open(path_of(&copy.upper))).collect();
        let mut meter = Self {
            tops,
            bytes_max,
            bytes: 0,
            spent: Duration::ZERO,
            waiting: WaitingFolders::default(),
            current: None,
            closed,
            next_at: Instant::now() + EVERY,
        };
        meter.begin();
        Some(meter)
    }

    /// When it is to be looked at again.
    pub(super) fn look_at(&self) -> Instant {
        self.next_at
    }

    /// Looks at some more, if that is due; whether more was written than may be.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        if now < self.next_at {
            return false;
        }
        let is_through = self.step();
        let took = now.elapsed();
        self.spent += took;
        let is_over = self.bytes > self.bytes_max;
        if is_through || is_over {
            self.next_at = Instant::now() + EVERY.max(self.spent * PAUSE_LOOKS);
            self.begin();
        } else {
            self.next_at = Instant::now() + took * PAUSE_STEPS;
        }
        is_over
    }

    fn begin(&mut self) {
        (self.bytes, self.spent, self.current) = (0, Duration::ZERO, None);
        self.waiting = WaitingFolders::default();
        for layer in 0..self.tops.len() {
            self.waiting.push(layer, PathBuf::from("."));
        }
    }

    /// Counts some files; whether these were the last.
    fn step(&mut self) -> bool {
        let mut left = STEP;
        while left > 0 {
            let Some((folder, entries)) = self.current.take() else {
                let Some(folder) = self.waiting.pop() else { return true };
                self.current = self.enter(folder);
                left -= 1;
                continue;
            };
            let cost = match entries {
                Entries::Open(entries, begun) => self.count_next(folder, entries, begun),
                Entries::Closed(from) => self.count_closed(folder, from),
            };
            left = left.saturating_sub(cost);
        }
        false
    }

    /// Counts the next file of a folder; how many that is.
    fn count_next(&mut self, folder: LayerFolder, mut entries: Dir, mut begun: bool) -> usize {
        let Some(Ok(entry)) = entries.next() else { return 1 };
        let name = entry.file_name();
        if name != c"." && name != c".." {
            let found = entries.fd().and_then(|it| statat(it, name, AtFlags::SYMLINK_NOFOLLOW));
            match found {
                // It is not closed to be read, but what is in it cannot be looked at.
                Err(Errno::ACCESS) if self.closed.is_some() && !begun => {
                    self.current = Some((folder, Entries::Closed(0)));
                    return 1;
                }
                Err(_) => {}
                Ok(stat) => {
                    begun = true;
                    self.bytes += bytes_of(&stat);
                    if FileType::from_raw_mode(stat.st_mode).is_dir() {
                        let name = std::ffi::OsStr::from_bytes(name.to_bytes());
                        self.waiting.push(folder.layer, folder.path.join(name));
                    }
                }
            }
        }
        self.current = Some((folder, Entries::Open(entries, begun)));
        1
    }

    /// Counts some files of a folder that is closed; what that costs.
    fn count_closed(&mut self, folder: LayerFolder, from: u64) -> usize {
        let (Some(top), Some(reader)) = (self.tops.get(folder.layer), &mut self.closed) else {
            return 1;
        };
        // It may be gone, or of a group that is not ours.
        let Ok(part) = reader.read(top.as_fd(), &folder.path, from) else { return SENT };
        self.bytes += part.bytes;
        for name in part.folders() {
            self.waiting.push(folder.layer, folder.path.join(name));
        }
        if let Some(next) = part.next {
            self.current = Some((folder, Entries::Closed(next)));
        }
        SENT
    }

    /// Opens a folder of a layer; none that is gone. Whatever the command puts there meanwhile, no
    /// link is followed and nothing outside is reached.
    fn enter(&self, folder: LayerFolder) -> Option<(LayerFolder, Entries)> {
        let top = self.tops.get(folder.layer)?.as_fd();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let straight = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        match openat2(top, &folder.path, flags, Mode::empty(), straight) {
            Ok(opened) => Some((folder, Entries::Open(Dir::new(opened).ok()?, false))),
            Err(Errno::ACCESS) if self.closed.is_some() => Some((folder, Entries::Closed(0))),
            Err(_) => None,
        }
    }
}

/// What a file takes on the disk.
pub(super) fn bytes_of(stat: &Stat) -> u64 {
    const BLOCK: u64 = 512;
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::sandbox::CopyOnWrite;

    fn meter(upper: &Path, bytes_max: u64) -> CopyMeter {
        let bytes = upper.as_os_str().as_bytes().to_vec();
        let copy = CopyOnWrite { place: Vec::new(), upper: bytes, work: Vec::new() };
        let copies = RunCopies { places: vec![copy], bytes_max: Some(bytes_max) };
        CopyMeter::of(&copies, None).unwrap()
    }

    /// One look, all of its steps.
    fn look(meter: &mut CopyMeter) -> (bool, usize) {
        let mut steps = 0;
        loop {
            steps += 1;
            let through = meter.step();
            if through || meter.bytes > meter.bytes_max {
                return (meter.bytes > meter.bytes_max, steps);
            }
        }
    }

    #[test]
    fn everything_in_a_layer_is_counted_and_nothing_outside() {
        let scratch = tempfile::tempdir().unwrap();
        let (layer, other) = (scratch.path().join("layer"), scratch.path().join("other"));
        for folder in [layer.join("a/b/c"), other.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(other.join("large"), vec![1; 4 << 20]).unwrap();
        symlink(&other, layer.join("a/link")).unwrap();
        symlink("/", layer.join("a/b/root")).unwrap();
        fs::write(layer.join("a/b/c/file"), vec![1; 1 << 20]).unwrap();
        assert!(look(&mut meter(&layer, 1 << 19)).0);
        let mut enough = meter(&layer, 2 << 20);
        assert!(!look(&mut enough).0, "{}", enough.bytes);
        assert!(enough.bytes >= 1 << 20);
    }

    #[test]
    fn a_look_at_many_files_takes_many_short_steps() {
        let scratch = tempfile::tempdir().unwrap();
        for number in 0..3 * STEP {
            fs::write(scratch.path().join(number.to_string()), "x").unwrap();
        }
        let mut meter = meter(scratch.path(), u64::MAX);
        let (is_over, steps) = look(&mut meter);
        assert!(!is_over && steps > 3, "{steps}");
        assert!(meter.bytes >= 3 * STEP as u64, "{}", meter.bytes);
        // Nothing is due before its time, and the next look begins anew.
        assert!(!meter.is_over(Instant::now()));
        meter.begin();
        assert_eq!(look(&mut meter).1, steps);
    }
}
