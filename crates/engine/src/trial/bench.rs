//! Moves copies into their places and what they replace out of them, and back again.
//!
//! Others may be at work in the place meanwhile, and at the copies too where those are beside it.
//! Each copy is compared with what was made before it is moved, and each file with what was seen
//! there after it was: what is neither is left where it is.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, RenameFlags, Stat, renameat_with, syncfs},
    io::Errno,
};

use super::{
    error::TrialError,
    journal::{ApplyJournal, ApplyMarks, ApplyStep, ApplyStepKind, StagingGround},
    stage::{StagingFolder, remove_staging},
    tree::{FileMark, TreeTop, is_absent, is_folder, stat_in},
};

/// The places of an apply, each with its staging folder, by the number of the layer.
#[derive(Debug, Default)]
pub(super) struct Benches {
    whole: HashMap<usize, Bench>,
    lost: HashMap<usize, LostBench>,
}

impl Benches {
    /// Those of an apply that was cut off, as far as they are still there.
    pub(super) fn of(journal: &ApplyJournal) -> Self {
        let mut all = Self::default();
        for ground in &journal.grounds {
            let is = |top: &TreeTop, number: Option<u64>| {
                number.is_none_or(|number| top.number().is_ok_and(|it| it == number))
            };
            let top = TreeTop::open(&ground.place).ok();
            let top = top.filter(|top| is(top, Some(ground.place_number)));
            let staging = match &top {
                Some(top) => StagingFolder::found(top, &ground.staging).ok(),
                None if ground.is_beside() => None,
                None => TreeTop::open(&ground.staging).ok(),
            };
            let staging = staging.filter(|staging| is(staging, ground.staging_number));
            match (top, staging) {
                (Some(top), Some(staging)) => all.add(ground, top, staging),
                (top, staging) => {
                    let ground = ground.clone();
                    all.lost.insert(ground.layer, LostBench { ground, top, staging });
                }
            }
        }
        all
    }

    pub(super) fn add(&mut self, ground: &StagingGround, top: TreeTop, staging: TreeTop) {
        self.whole.insert(ground.layer, Bench { ground: ground.clone(), top, staging });
    }

    /// Sees to it that all that was moved is on the disk.
    pub(super) fn sync(&self) -> Result<(), TrialError> {
        for bench in self.whole.values() {
            let failed = TrialError::at(&bench.ground.place);
            syncfs(bench.top.handle()).map_err(|errno| failed(errno.into()))?;
        }
        Ok(())
    }

    /// Removes the copies that are left, and what was replaced.
    pub(super) fn clear(&self) -> Result<(), TrialError> {
        let whole = self.whole.values().map(|it| (&it.ground, Some(&it.top), Some(&it.staging)));
        let lost = self.lost.values().map(|it| (&it.ground, it.top.as_ref(), it.staging.as_ref()));
        for (ground, top, staging) in whole.chain(lost) {
            let Some(staging) = staging else { continue };
            let removed = remove_staging(top, staging, &ground.staging);
            removed.map_err(TrialError::at(&ground.kept()))?;
        }
        Ok(())
    }

    /// Moves everything into place that is not there yet.
    pub(super) fn commit(
        &self,
        journal: &ApplyJournal,
        marks: &ApplyMarks,
    ) -> Result<(), TrialError> {
        if let Some(lost) = self.lost.values().next() {
            return Err(TrialError::at(&lost.ground.place)(io::ErrorKind::NotFound.into()));
        }
        for step in &journal.steps {
            if let Some(bench) = self.whole.get(&step.layer) {
                bench.commit(step, marks)?;
            }
        }
        Ok(())
    }

    /// Moves everything back that was moved, the last first. What cannot be stays as it is, and the
    /// first of it is the error.
    pub(super) fn undo(
        &self,
        journal: &ApplyJournal,
        marks: &ApplyMarks,
    ) -> Result<(), TrialError> {
        let mut stuck = None;
        for step in journal.steps.iter().rev() {
            let undone = match (self.whole.get(&step.layer), self.lost.get(&step.layer)) {
                (Some(bench), _) => bench.undo(step, marks).unwrap_or(false),
                (None, Some(lost)) => !lost.has_moved(step),
                (None, None) => true,
            };
            if let (false, Some(ground)) = (undone, journal.ground(step.layer)) {
                stuck.get_or_insert(TrialError::Stuck {
                    path: journal.at(step),
                    kept: ground.kept(),
                });
            }
        }
        stuck.map_or(Ok(()), Err)
    }
}

/// A place with its staging folder, while files are moved between the two.
#[derive(Debug)]
struct Bench {
    ground: StagingGround,
    top: TreeTop,
    staging: TreeTop,
}

/// One of which something is gone, or another folder stands there.
#[derive(Debug)]
struct LostBench {
    ground: StagingGround,
    top: Option<TreeTop>,
    staging: Option<TreeTop>,
}

impl LostBench {
    /// Whether something was moved that cannot be moved back without what is missing.
    fn has_moved(&self, step: &ApplyStep) -> bool {
        let there = self.top.as_ref().map(|top| top.look(&step.path).ok().flatten());
        let staged =
            self.staging.as_ref().map(|it| it.look(Path::new(&step.staged)).ok().flatten());
        let is_copy = |stat: &Stat| stat.st_ino == step.copy;
        let is_old = |stat: Stat| !is_copy(&stat);
        match (step.kind, there, staged) {
            (ApplyStepKind::Mode(_), ..) => false,
            (ApplyStepKind::Replace | ApplyStepKind::Remove, _, Some(staged)) => {
                staged.is_some_and(is_old)
            }
            (ApplyStepKind::Remove, Some(there), None) => there.is_none(),
            (ApplyStepKind::Replace | ApplyStepKind::Remove, None, None) => true,
            (_, there, _) => there.flatten().as_ref().is_some_and(is_copy),
        }
    }
}

impl Bench {
    fn at(&self, step: &ApplyStep) -> PathBuf {
        self.ground.place.join(&step.path)
    }

    fn staged(&self, step: &ApplyStep) -> io::Result<Option<Stat>> {
        match stat_in(self.staging.handle(), OsStr::new(&step.staged)) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves between the staging folder and the place.
    fn shift(&self, step: &ApplyStep, flags: RenameFlags, into_place: bool) -> io::Result<()> {
        let (parent, name) = self.top.parent(&step.path)?;
        let (staging, staged) = (self.staging.handle(), OsStr::new(&step.staged));
        if into_place {
            renameat_with(staging, staged, &parent, name, flags)?;
        } else {
            renameat_with(&parent, name, staging, staged, flags)?;
        }
        Ok(())
    }

    fn commit(&self, step: &ApplyStep, marks: &ApplyMarks) -> Result<(), TrialError> {
        let at = self.at(step);
        let failed = TrialError::at(&at);
        let changed = || TrialError::ChangedUnderneath(vec![at.clone()]);
        let there = self.top.look(&step.path).map_err(&failed)?;
        match step.kind {
            ApplyStepKind::Make | ApplyStepKind::MakeFolder | ApplyStepKind::Replace
                if is_numbered(there.as_ref(), step.copy) =>
            {
                Ok(())
            }
            ApplyStepKind::Make | ApplyStepKind::MakeFolder => {
                self.place_copy(step, RenameFlags::NOREPLACE, marks)
            }
            ApplyStepKind::Replace => {
                self.place_copy(step, RenameFlags::EXCHANGE, marks)?;
                self.expect_old(step, marks)
            }
            ApplyStepKind::Remove => {
                let staged = self.staged(step).map_err(&failed)?;
                if step.before.is_some_and(|it| is_numbered(staged.as_ref(), it.number)) {
                    return if there.is_none() { Ok(()) } else { Err(changed()) };
                }
                self.shift(step, RenameFlags::NOREPLACE, false).map_err(&failed)?;
                self.expect_old(step, marks)
            }
            ApplyStepKind::Mode(mode) => match self.set_mode(step, mode) {
                Ok(false) => Err(changed()),
                set => set.map(drop).map_err(failed),
            },
        }
    }

    /// Moves a copy into its place, if it is what was made.
    fn place_copy(
        &self,
        step: &ApplyStep,
        flags: RenameFlags,
        marks: &ApplyMarks,
    ) -> Result<(), TrialError> {
        let at = self.at(step);
        let failed = TrialError::at(&at);
        let changed = || TrialError::ChangedUnderneath(vec![at.clone()]);
        let swapped = || TrialError::Swapped(at.clone());
        let staged = (&self.staging, Path::new(&step.staged));
        if !self.is_as_made(step, staged, marks, false).map_err(&failed)? {
            return Err(swapped());
        }
        match self.shift(step, flags, true) {
            Err(error) if is_taken(&error) => return Err(changed()),
            moved => moved.map_err(&failed)?,
        }
        let placed = (&self.top, step.path.as_path());
        if !self.ground.is_beside() {
            let there = self.top.look(&step.path).map_err(&failed)?;
            let is_there = is_numbered(there.as_ref(), step.copy);
            return if is_there { Ok(()) } else { Err(changed()) };
        }
        // Somebody may have put something else there at the last moment.
        if self.is_as_made(step, placed, marks, true).unwrap_or(false) {
            return Ok(());
        }
        self.shift(step, flags, false).map_err(&failed)?;
        Err(swapped())
    }

    /// Whether what stands somewhere is the copy, with all that was made in it and nothing else.
    fn is_as_made(
        &self,
        step: &ApplyStep,
        (top, path): (&TreeTop, &Path),
        marks: &ApplyMarks,
        moved: bool,
    ) -> io::Result<bool> {
        let Some(stat) = top.own_stat(path)?.filter(|stat| stat.st_ino == step.copy) else {
            return Ok(false);
        };
        let Some(made) = &marks.made else { return Ok(true) };
        let at = self.at(step);
        if !is_folder(&stat) {
            return Ok(made.get(&at).is_some_and(|mark| mark.is_of(&stat, moved)));
        }
        // What else is to come into a folder comes by steps of its own.
        if step.kind == ApplyStepKind::MakeFolder {
            return Ok(top.own_names(path)?.is_empty());
        }
        let within = made.range(at.clone()..).take_while(|(path, _)| path.starts_with(&at));
        let expected = within.count();
        let (differing, same) = differing(top, path, &at, made)?;
        Ok(differing.is_empty() && same + 1 == expected)
    }

    /// What was taken out of its place has to be what was compared before: between the two somebody
    /// may have come.
    fn expect_old(&self, step: &ApplyStep, marks: &ApplyMarks) -> Result<(), TrialError> {
        let at = self.at(step);
        let failed = TrialError::at(&at);
        let changed = || TrialError::ChangedUnderneath(vec![at.clone()]);
        let old = self.staged(step).map_err(&failed)?.ok_or_else(changed)?;
        let (old, Some(before)) = (FileMark::of(&old), step.before) else { return Err(changed()) };
        if !before.is_same_moved(&old) {
            return Err(changed());
        }
        if !old.is_folder() {
            return Ok(());
        }
        // A folder goes with all that is in it.
        let found = differing(&self.staging, Path::new(&step.staged), &at, &marks.old);
        let (differing, _) = found.map_err(failed)?;
        if differing.is_empty() { Ok(()) } else { Err(TrialError::ChangedUnderneath(differing)) }
    }

    /// Moves something back, if it was moved; whether its place is as it was.
    fn undo(&self, step: &ApplyStep, marks: &ApplyMarks) -> io::Result<bool> {
        let there = self.top.look(&step.path)?;
        let staged = self.staged(step)?;
        let is_copy = is_numbered(there.as_ref(), step.copy);
        let is_before = there.as_ref().is_some_and(|stat| {
            step.before.is_some_and(|before| before.is_same_moved(&FileMark::of(stat)))
        });
        match step.kind {
            ApplyStepKind::Make | ApplyStepKind::MakeFolder | ApplyStepKind::Replace if is_copy => {
                // Somebody may have worked on it since: that is not thrown away.
                let placed = (&self.top, step.path.as_path());
                if !self.is_as_made(step, placed, marks, true)? {
                    return Ok(false);
                }
                let is_replaced = step.kind == ApplyStepKind::Replace;
                let flags =
                    if is_replaced { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
                self.shift(step, flags, false).map(|()| true)
            }
            ApplyStepKind::Replace => Ok(is_before || is_numbered(staged.as_ref(), step.copy)),
            ApplyStepKind::Remove if is_before => Ok(true),
            ApplyStepKind::Remove => {
                if !step.before.is_some_and(|it| is_numbered(staged.as_ref(), it.number)) {
                    return Ok(there.is_some());
                }
                match self.shift(step, RenameFlags::NOREPLACE, true) {
                    Err(error) if is_taken(&error) => Ok(false),
                    moved => moved.map(|()| true),
                }
            }
            ApplyStepKind::Mode(_) => {
                let mode = step.before.map_or(Mode::RWXU.as_raw_mode(), |it| it.mode & 0o7777);
                // Something else stands there, or what it came with was not moved yet.
                self.set_mode(step, mode).map(|_| true)
            }
            // It was not moved yet.
            ApplyStepKind::Make | ApplyStepKind::MakeFolder => Ok(true),
        }
    }

    /// Gives a folder another mode; whether it is there.
    fn set_mode(&self, step: &ApplyStep, mode: u32) -> io::Result<bool> {
        let number = step.before.map_or(step.copy, |before| before.number);
        self.top.set_mode(&step.path, number, Mode::from_raw_mode(mode))
    }
}

/// What is in a folder and is not what is known of it, and how much is.
fn differing(
    top: &TreeTop,
    path: &Path,
    at: &Path,
    known: &BTreeMap<PathBuf, FileMark>,
) -> io::Result<(Vec<PathBuf>, usize)> {
    let (mut differing, mut same) = (Vec::new(), 0);
    let mut waiting = vec![path.to_owned()];
    while let Some(folder) = waiting.pop() {
        for name in top.own_names(&folder)? {
            let inner = folder.join(name);
            let Some(stat) = top.own_stat(&inner)? else { continue };
            let full = at.join(inner.strip_prefix(path).unwrap_or(&inner));
            match known.get(&full) {
                Some(mark) if mark.is_of(&stat, false) => same += 1,
                _ => differing.push(full),
            }
            if is_folder(&stat) {
                waiting.push(inner);
            }
        }
    }
    differing.sort();
    Ok((differing, same))
}

fn is_numbered(stat: Option<&Stat>, number: u64) -> bool {
    stat.is_some_and(|stat| stat.st_ino == number)
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EXIST.raw_os_error())
}
