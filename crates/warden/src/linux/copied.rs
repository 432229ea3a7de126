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

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat,
};

use super::sandbox::path_of;
use crate::protocol::RunCopies;

/// A command is first looked at after this time, and this long after the last look is through.
const EVERY: Duration = Duration::from_millis(500);

/// Files in one step.
const STEP: usize = 500;

/// The time between steps, and between looks, as a multiple of what they take.
const PAUSE_STEPS: u32 = 4;
const PAUSE_LOOKS: u32 = 20;

/// Most folders that wait to be looked at. Who makes more has those counted that fit.
const WAITING_MAX: usize = 100_000;

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
    /// The folders that it has not been in yet: the layer, and the path in it.
    waiting: Vec<(usize, PathBuf)>,
    /// The folder that it is in.
    current: Option<(usize, PathBuf, Dir)>,
    next_at: Instant,
}

impl CopyMeter {
    /// For a run that begins now; none where it may write as much as it likes.
    pub(super) fn of(copies: &RunCopies) -> Option<Self> {
        let bytes_max = copies.bytes_max?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |upper: &Path| openat(CWD, upper, flags, Mode::empty()).ok();
        let tops = copies.places.iter().filter_map(|copy| open(path_of(&copy.upper))).collect();
        let mut meter = Self {
            tops,
            bytes_max,
            bytes: 0,
            spent: Duration::ZERO,
            waiting: Vec::new(),
            current: None,
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
        self.waiting = (0..self.tops.len()).map(|layer| (layer, PathBuf::from("."))).collect();
    }

    /// Counts some files; whether these were the last.
    fn step(&mut self) -> bool {
        for _ in 0..STEP {
            if self.current.is_none() {
                let Some((layer, path)) = self.waiting.pop() else { return true };
                self.current = self.enter(layer, path);
            }
            let Some((layer, path, entries)) = &mut self.current else { continue };
            let Some(Ok(entry)) = entries.next() else {
                self.current = None;
                continue;
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let found = entries.fd().and_then(|it| statat(it, name, AtFlags::SYMLINK_NOFOLLOW));
            let Ok(stat) = found else { continue };
            self.bytes += bytes_of(&stat);
            let is_folder = FileType::from_raw_mode(stat.st_mode).is_dir();
            if is_folder && self.waiting.len() < WAITING_MAX {
                let name = std::ffi::OsStr::from_bytes(name.to_bytes());
                self.waiting.push((*layer, path.join(name)));
            }
        }
        false
    }

    /// Opens a folder of a layer; none that is gone, or that the command has closed to its owner.
    /// Whatever the command puts there meanwhile, no link is followed and nothing outside is
    /// reached.
    fn enter(&self, layer: usize, path: PathBuf) -> Option<(usize, PathBuf, Dir)> {
        let top = self.tops.get(layer)?.as_fd();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let straight = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let folder = openat2(top, &path, flags, Mode::empty(), straight).ok()?;
        Some((layer, path, Dir::new(folder).ok()?))
    }
}

/// What a file takes on the disk.
fn bytes_of(stat: &Stat) -> u64 {
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
        let none = Vec::new;
        let copy = CopyOnWrite {
            place: none(),
            upper: bytes,
            work: none(),
            layers: Vec::new(),
            base: none(),
        };
        CopyMeter::of(&RunCopies { places: vec![copy], bytes_max: Some(bytes_max) }).unwrap()
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
