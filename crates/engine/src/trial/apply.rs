//! Brings the changes of a trial over, as one step.
//!
//! First everything is compared with what stood there when the trial was looked at. Then copies are
//! made in a folder at the top of the place, and written to the disk. Then the journal says that
//! they count, and each is moved into place: exchanged with what it replaces, which stays in that
//! folder until all is done. What comes out of an exchange is looked at: if it is not what was
//! expected, everything is moved back. Cut off before the journal says so, an apply is undone by
//! whoever comes next, later it is finished.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, RenameFlags, Stat, renameat_with, syncfs},
    io::Errno,
};
use serde::Serialize;

use super::{
    RECORD, Trial, Trials,
    changes::{ChangeKind, ChangedFile, TriedChange, TriedChanges},
    error::TrialError,
    journal::{ApplyJournal, ApplyPhase, ApplyStep, ApplyStepKind, StagingGround},
    record::{LayerRecord, write_json},
    stage::{CopySource, StagingFolder, remove_staging},
    tree::{FileMark, TreeTop, is_absent, stat_in, walk},
};

/// What the name of a staging folder begins with.
const STAGING: &str = ".legwork-apply-";

/// What was brought over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Files made.
    pub made: usize,
    /// Files changed, also in their modes or times.
    pub changed: usize,
    /// Files removed.
    pub removed: usize,
    /// Whether nothing of the trial is left.
    pub whole: bool,
    /// What could not be done after it was brought over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Brings over what a trial changed at and below these paths; everything without any.
pub(super) fn apply(
    trials: &Trials,
    trial: &Trial,
    paths: &[PathBuf],
) -> Result<Applied, TrialError> {
    let all = trial.changes()?;
    let pending = trial.pending(&[])?;
    let chosen = trial.pending(paths)?;
    if let Some(path) = paths.iter().find(|path| chosen.within(path).is_empty()) {
        return Err(TrialError::NoChange(path.clone()));
    }
    if let Some(socket) = chosen.all.iter().find(|change| is_socket(trial, change)) {
        return Err(TrialError::Unfit { path: socket.path.clone(), why: "it is a socket" });
    }
    let work = Work { trial, all: &all, pending: &pending, chosen: &chosen };
    let mut journal = work.plan(paths, chosen.all.len() == pending.all.len())?;
    work.check(&journal)?;
    // Nothing is to be done where somebody has applied all of it already.
    if journal.steps.is_empty() {
        if journal.whole {
            let removed = trials.remove(&journal.trial);
            removed.map_err(|error| TrialError::io("the trial", &error))?;
        }
        return Ok(Applied { whole: journal.whole, ..Applied::default() });
    }
    journal.write(trials)?;
    if let Err(error) = work.stage(&mut journal).and_then(|()| work.check(&journal)) {
        clear(trials, &journal)?;
        return Err(error);
    }
    journal.advance(ApplyPhase::Committing, trials)?;
    let known = Known::of(&pending);
    if let Err(error) = commit(&journal, Some(&known)) {
        undo(trials, &mut journal)?;
        return Err(error);
    }
    let counted = |kinds: &[ChangeKind]| kinds.iter().map(|kind| chosen.count(*kind)).sum();
    let applied = Applied {
        made: counted(&[ChangeKind::Made]),
        changed: counted(&[ChangeKind::Changed, ChangeKind::Touched]),
        removed: counted(&[ChangeKind::Removed]),
        whole: journal.whole,
        warning: None,
    };
    finish(trials, &mut journal)?;
    Ok(applied)
}

/// Finishes or undoes an apply that was cut off.
pub(super) fn recover(trials: &Trials) -> Result<(), TrialError> {
    let Some(mut journal) = ApplyJournal::read(trials)? else { return Ok(()) };
    match journal.phase {
        ApplyPhase::StagingFolder => clear(trials, &journal),
        ApplyPhase::Committing => match commit(&journal, None) {
            Ok(()) => finish(trials, &mut journal),
            // Somebody was there meanwhile.
            Err(_) => undo(trials, &mut journal),
        },
        ApplyPhase::Undoing => undo(trials, &mut journal),
        ApplyPhase::Done => finish(trials, &mut journal),
    }
}

fn is_socket(trial: &Trial, change: &TriedChange) -> bool {
    let is_other = change.file == ChangedFile::Other && change.kind != ChangeKind::Removed;
    let layers = trial.record.layers.iter().filter(|_| is_other);
    let Some(layer) = layers.into_iter().find(|layer| layer.number == change.layer) else {
        return false;
    };
    let Ok(path) = change.path.strip_prefix(&layer.place) else { return false };
    let found = TreeTop::open_own(&trial.upper(layer)).and_then(|top| top.own_stat(path));
    found.is_ok_and(|found| {
        found.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket())
    })
}

/// What a trial says was at each path.
struct Known<'a> {
    changes: &'a TriedChanges,
    by_path: HashMap<&'a Path, &'a TriedChange>,
}

impl<'a> Known<'a> {
    fn of(changes: &'a TriedChanges) -> Self {
        let by_path = changes.all.iter().map(|change| (change.path.as_path(), change)).collect();
        Self { changes, by_path }
    }

    fn get(&self, path: &Path) -> Option<&'a TriedChange> {
        self.by_path.get(path).copied()
    }

    fn before(&self, path: &Path) -> Option<FileMark> {
        self.get(path)?.before
    }

    /// The paths at and below one that are not as they were.
    fn differing(&self, top: &TreeTop, place: &Path, path: &Path) -> io::Result<Vec<PathBuf>> {
        let (mut differing, mut seen) = (Vec::new(), HashSet::new());
        walk(top, path, |inner, stat| {
            let full = place.join(&inner);
            if self.before(&full) != Some(FileMark::of(&stat)) {
                differing.push(full.clone());
            }
            seen.insert(full);
            Ok(())
        })?;
        // Only what is there: an apply of many files looks at each of them once.
        let known = self.changes.within(&place.join(path)).iter();
        let gone = known.filter(|it| it.before.is_some() && !seen.contains(&it.path));
        differing.extend(gone.map(|change| change.path.clone()));
        differing.sort();
        Ok(differing)
    }
}

/// An apply that is being prepared.
struct Work<'a> {
    trial: &'a Trial,
    all: &'a TriedChanges,
    /// What was not brought over before.
    pending: &'a TriedChanges,
    /// What of that is to be.
    chosen: &'a TriedChanges,
}

impl Work<'_> {
    fn layer(&self, number: usize) -> Result<&LayerRecord, TrialError> {
        let layers = &self.trial.record.layers;
        layers.iter().find(|layer| layer.number == number).ok_or(TrialError::Unknown)
    }

    /// The steps: a folder that is made or removed as a whole is one.
    fn plan(&self, paths: &[PathBuf], whole: bool) -> Result<ApplyJournal, TrialError> {
        let (mut steps, mut closing): (Vec<ApplyStep>, Vec<ApplyStep>) = (Vec::new(), Vec::new());
        let mut covering: Option<&Path> = None;
        let folders = self.made_above()?;
        let there = self.above_applied();
        for change in folders.values().copied().chain(&self.chosen.all) {
            if covering.is_some_and(|path| change.path.starts_with(path))
                || is_made_folder(change) && there.contains(change.path.as_path())
            {
                continue;
            }
            let layer = self.layer(change.layer)?;
            let path = change.path.strip_prefix(&layer.place).unwrap_or(Path::new("")).to_owned();
            let shell = folders.contains_key(change.path.as_path());
            let kind = Self::step_kind(change, shell)?;
            let takes_all_below =
                !matches!(kind, ApplyStepKind::MakeFolder | ApplyStepKind::Mode(_));
            covering = takes_all_below.then_some(change.path.as_path());
            let staged = steps.len().to_string();
            let before = change.before;
            let step = ApplyStep { layer: change.layer, path, kind, staged, copy: 0, before };
            // What is closed to its owner can be neither moved nor written into: that comes last.
            match (kind, closed_mode(change)) {
                (ApplyStepKind::Mode(_), Some(_)) => closing.push(step),
                (_, Some(mode)) if takes_all_below => {
                    let kind = ApplyStepKind::Mode(mode);
                    closing.push(ApplyStep { kind, before: None, ..step.clone() });
                    steps.push(step);
                }
                _ => steps.push(step),
            }
        }
        steps.extend(closing.into_iter().rev());
        let mut grounds = Vec::new();
        let used: HashSet<usize> = steps.iter().map(|step| step.layer).collect();
        for layer in self.trial.record.layers.iter().filter(|it| used.contains(&it.number)) {
            let staging = format!("{STAGING}{}", self.trial.record.task_id);
            grounds.push(StagingGround {
                layer: layer.number,
                place: layer.place.clone(),
                staging,
            });
        }
        let everything = || self.trial.record.layers.iter().map(|layer| layer.place.clone());
        Ok(ApplyJournal {
            phase: ApplyPhase::StagingFolder,
            trial: self.trial.record.task_id.clone(),
            grounds,
            steps,
            applied: if paths.is_empty() { everything().collect() } else { paths.to_vec() },
            whole,
        })
    }

    /// The folders that are there because something in them was brought over.
    fn above_applied(&self) -> HashSet<&Path> {
        let applied = self.trial.record.applied.iter();
        applied.flat_map(|path| path.ancestors().skip(1)).collect()
    }

    /// Folders that the trial made, that are not chosen, and that something chosen is in.
    fn made_above(&self) -> Result<BTreeMap<&Path, &TriedChange>, TrialError> {
        let known = Known::of(self.all);
        let chosen: HashSet<&Path> =
            self.chosen.all.iter().map(|change| change.path.as_path()).collect();
        let mut above = BTreeMap::new();
        for change in self.chosen.all.iter().filter(|it| it.kind != ChangeKind::Removed) {
            for folder in change.path.ancestors().skip(1) {
                let Some(made) = known.get(folder) else { continue };
                if chosen.contains(folder) || made.kind == ChangeKind::Touched {
                    continue;
                }
                if made.kind == ChangeKind::Changed {
                    return Err(TrialError::NotInPart(made.path.clone()));
                }
                let layer = self.layer(made.layer)?;
                let top = TreeTop::open(&layer.place).map_err(TrialError::at(&layer.place))?;
                let path = made.path.strip_prefix(&layer.place).unwrap_or(Path::new(""));
                let there = top.look(path).map_err(TrialError::at(&made.path))?;
                // An earlier apply may have made it.
                if !there.is_some_and(|stat| super::tree::is_folder(&stat)) {
                    above.insert(folder, made);
                }
            }
        }
        Ok(above)
    }

    fn step_kind(change: &TriedChange, shell: bool) -> Result<ApplyStepKind, TrialError> {
        Ok(match change.kind {
            ChangeKind::Made if shell => ApplyStepKind::MakeFolder,
            ChangeKind::Made => ApplyStepKind::Make,
            ChangeKind::Removed => ApplyStepKind::Remove,
            ChangeKind::Touched if change.file == ChangedFile::Folder => {
                let mark = change.after.ok_or_else(|| TrialError::NoChange(change.path.clone()))?;
                ApplyStepKind::Mode(mark.mode & 0o7777)
            }
            ChangeKind::Changed | ChangeKind::Touched => ApplyStepKind::Replace,
        })
    }

    /// Compares everything with what stood there when the trial was looked at.
    fn check(&self, journal: &ApplyJournal) -> Result<(), TrialError> {
        let known = Known::of(self.pending);
        let mut differing: Vec<PathBuf> = Vec::new();
        let made: HashSet<(usize, &Path)> =
            journal.steps.iter().filter_map(ApplyStep::made_folder).collect();
        let stale = self.chosen.all.iter().filter(|change| change.stale);
        differing.extend(stale.map(|change| change.path.clone()));
        for ground in &journal.grounds {
            let top = TreeTop::open(&ground.place).map_err(TrialError::at(&ground.place))?;
            for step in journal.steps.iter().filter(|step| step.layer == ground.layer) {
                let at = journal.at(step);
                let failed = TrialError::at(&at);
                match step.kind {
                    // Its parent has to be there too; one that is made comes with it.
                    ApplyStepKind::Make | ApplyStepKind::MakeFolder => {
                        let there = top.look(&step.path).map_err(&failed)?;
                        let parent = step.path.parent().unwrap_or(Path::new(""));
                        let has_parent =
                            made.contains(&(step.layer, parent)) || top.folder(parent).is_ok();
                        if there.is_some() || !has_parent {
                            differing.push(at.clone());
                        }
                    }
                    // It comes with this apply.
                    ApplyStepKind::Mode(_) if step.before.is_none() => {}
                    ApplyStepKind::Mode(_) => {
                        let there = top.look(&step.path).map_err(&failed)?;
                        if there.as_ref().map(FileMark::of) != step.before {
                            differing.push(at.clone());
                        }
                    }
                    ApplyStepKind::Replace | ApplyStepKind::Remove => {
                        let found = known.differing(&top, &ground.place, &step.path);
                        differing.extend(found.map_err(&failed)?);
                    }
                }
            }
        }
        differing.sort();
        differing.dedup();
        if differing.is_empty() { Ok(()) } else { Err(TrialError::ChangedUnderneath(differing)) }
    }

    /// Makes the copies, and sees to it that they are on the disk.
    fn stage(&self, journal: &mut ApplyJournal) -> Result<(), TrialError> {
        let known = Known::of(self.all);
        let seen = |path: &Path| known.get(path)?.after;
        for ground in journal.grounds.clone() {
            let failed = TrialError::at(&ground.place);
            let top = TreeTop::open(&ground.place).map_err(&failed)?;
            let mut staging = StagingFolder::make(&top, &ground.staging).map_err(&failed)?;
            staging.check().map_err(&failed)?;
            let layer = self.layer(ground.layer)?;
            let upper = TreeTop::open_own(&self.trial.upper(layer)).map_err(&failed)?;
            let from = CopySource { top: &upper, place: &ground.place, seen: Some(&seen) };
            for step in journal.steps.iter_mut().filter(|step| step.layer == ground.layer) {
                step.copy = match step.kind {
                    ApplyStepKind::Make | ApplyStepKind::Replace => {
                        staging.copy(&from, &step.path, &step.staged)?
                    }
                    ApplyStepKind::MakeFolder => {
                        staging.copy_folder(&from, &step.path, &step.staged)?
                    }
                    ApplyStepKind::Remove | ApplyStepKind::Mode(_) => 0,
                };
            }
            syncfs(staging.handle()).map_err(|errno| failed(errno.into()))?;
        }
        Ok(())
    }
}

/// Forgets an apply that has changed nothing, or whose changes are undone.
fn clear(trials: &Trials, journal: &ApplyJournal) -> Result<(), TrialError> {
    for ground in &journal.grounds {
        let Ok(top) = TreeTop::open(&ground.place) else { continue };
        remove_staging(&top, &ground.staging).map_err(TrialError::at(&ground.place))?;
    }
    ApplyJournal::remove(trials)
}

/// All is moved: notes it, removes what was replaced, then the journal.
fn finish(trials: &Trials, journal: &mut ApplyJournal) -> Result<(), TrialError> {
    if journal.phase != ApplyPhase::Done {
        for ground in &journal.grounds {
            let failed = TrialError::at(&ground.place);
            let top = TreeTop::open(&ground.place).map_err(&failed)?;
            syncfs(top.handle()).map_err(|errno| failed(errno.into()))?;
        }
        journal.advance(ApplyPhase::Done, trials)?;
    }
    if journal.whole {
        let removed = trials.remove(&journal.trial);
        removed.map_err(|error| TrialError::io("the trial", &error))?;
    } else if let Ok(mut trial) = trials.get(&journal.trial) {
        let known: HashSet<PathBuf> = trial.record.applied.iter().cloned().collect();
        trial
            .record
            .applied
            .extend(journal.applied.iter().filter(|path| !known.contains(*path)).cloned());
        write_json(&trial.folder.join(RECORD), &trial.record)
            .map_err(|error| TrialError::io("the record of the trial", &error))?;
    }
    clear(trials, journal)
}

/// Moves everything into place that is not there yet.
fn commit(journal: &ApplyJournal, known: Option<&Known<'_>>) -> Result<(), TrialError> {
    each_step(journal, journal.steps.iter(), |bench, step| bench.commit(step, known))
}

/// Moves everything back that was moved, the last first.
fn undo(trials: &Trials, journal: &mut ApplyJournal) -> Result<(), TrialError> {
    journal.advance(ApplyPhase::Undoing, trials)?;
    each_step(journal, journal.steps.iter().rev(), Bench::undo)?;
    clear(trials, journal)
}

fn each_step<'a>(
    journal: &'a ApplyJournal,
    steps: impl Iterator<Item = &'a ApplyStep>,
    mut each: impl FnMut(&Bench, &ApplyStep) -> Result<(), TrialError>,
) -> Result<(), TrialError> {
    let mut benches: HashMap<usize, Bench> = HashMap::new();
    for ground in &journal.grounds {
        let failed = TrialError::at(&ground.place);
        let top = TreeTop::open(&ground.place).map_err(&failed)?;
        let staging = StagingFolder::open(&top, &ground.staging).map_err(&failed)?;
        benches.insert(ground.layer, Bench { ground: ground.clone(), top, staging });
    }
    for step in steps {
        if let Some(bench) = benches.get(&step.layer) {
            each(bench, step)?;
        }
    }
    Ok(())
}

/// A place with its staging folder, while files are moved between the two.
struct Bench {
    ground: StagingGround,
    top: TreeTop,
    staging: StagingFolder,
}

impl Bench {
    fn at(&self, step: &ApplyStep) -> PathBuf {
        self.ground.place.join(&step.path)
    }

    fn staged(&self, step: &ApplyStep) -> io::Result<Option<Stat>> {
        match stat_in(self.staging.handle().as_fd(), OsStr::new(&step.staged)) {
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

    fn commit(&self, step: &ApplyStep, known: Option<&Known<'_>>) -> Result<(), TrialError> {
        let at = self.at(step);
        let failed = TrialError::at(&at);
        let changed = || TrialError::ChangedUnderneath(vec![at.clone()]);
        let there = self.top.look(&step.path).map_err(&failed)?;
        let is_copy = there.as_ref().is_some_and(|stat| stat.st_ino == step.copy);
        match step.kind {
            ApplyStepKind::Make | ApplyStepKind::MakeFolder | ApplyStepKind::Replace if is_copy => {
                Ok(())
            }
            ApplyStepKind::Make | ApplyStepKind::MakeFolder => {
                match self.shift(step, RenameFlags::NOREPLACE, true) {
                    Err(error) if is_taken(&error) => Err(changed()),
                    moved => moved.map_err(failed),
                }
            }
            ApplyStepKind::Replace => {
                self.shift(step, RenameFlags::EXCHANGE, true).map_err(&failed)?;
                self.expect_old(step, known)
            }
            ApplyStepKind::Remove => {
                if self.staged(step).map_err(&failed)?.is_some() {
                    return if there.is_none() { Ok(()) } else { Err(changed()) };
                }
                self.shift(step, RenameFlags::NOREPLACE, false).map_err(&failed)?;
                self.expect_old(step, known)
            }
            ApplyStepKind::Mode(mode) => self.set_mode(step, mode),
        }
    }

    /// What was taken out of its place has to be what was compared before: between the two somebody
    /// may have come.
    fn expect_old(&self, step: &ApplyStep, known: Option<&Known<'_>>) -> Result<(), TrialError> {
        let at = self.at(step);
        let failed = TrialError::at(&at);
        let changed = || TrialError::ChangedUnderneath(vec![at.clone()]);
        let old = self.staged(step).map_err(&failed)?.ok_or_else(changed)?;
        let (old, Some(before)) = (FileMark::of(&old), step.before) else { return Err(changed()) };
        if !before.is_same_moved(&old) {
            return Err(changed());
        }
        let Some(known) = known.filter(|_| old.is_folder()) else { return Ok(()) };
        // A folder goes with all that is in it.
        let inside = Path::new(&self.ground.staging).join(&step.staged);
        let mut differing = Vec::new();
        let looked = walk(&self.top, &inside, |path, stat| {
            let path = at.join(path.strip_prefix(&inside).unwrap_or(Path::new("")));
            if path != at && known.before(&path) != Some(FileMark::of(&stat)) {
                differing.push(path);
            }
            Ok(())
        });
        looked.map_err(failed)?;
        if differing.is_empty() { Ok(()) } else { Err(TrialError::ChangedUnderneath(differing)) }
    }

    fn undo(&self, step: &ApplyStep) -> Result<(), TrialError> {
        let at = self.at(step);
        let failed = TrialError::at(&at);
        let there = self.top.look(&step.path).map_err(&failed)?;
        let staged = self.staged(step).map_err(&failed)?;
        let is_copy = there.as_ref().is_some_and(|stat| stat.st_ino == step.copy);
        let is_staged = staged.as_ref().is_some_and(|stat| stat.st_ino == step.copy);
        let stuck = || TrialError::Stuck {
            path: at.clone(),
            kept: self.ground.place.join(&self.ground.staging),
        };
        match step.kind {
            ApplyStepKind::Make | ApplyStepKind::MakeFolder if is_copy => {
                self.shift(step, RenameFlags::NOREPLACE, false).map_err(failed)
            }
            ApplyStepKind::Replace if is_copy => {
                self.shift(step, RenameFlags::EXCHANGE, true).map_err(failed)
            }
            ApplyStepKind::Replace if !is_staged => Err(stuck()),
            ApplyStepKind::Remove if staged.is_some() => {
                match self.shift(step, RenameFlags::NOREPLACE, true) {
                    Err(error) if is_taken(&error) => Err(stuck()),
                    moved => moved.map_err(failed),
                }
            }
            ApplyStepKind::Mode(_) => {
                let mode = step.before.map_or(Mode::RWXU.as_raw_mode(), |it| it.mode & 0o7777);
                match self.set_mode(step, mode) {
                    // What it came with was not moved yet.
                    Err(_) if there.is_none() => Ok(()),
                    done => done,
                }
            }
            // It was not moved yet.
            _ => Ok(()),
        }
    }

    fn set_mode(&self, step: &ApplyStep, mode: u32) -> Result<(), TrialError> {
        let mode = Mode::from_raw_mode(mode);
        self.top.set_mode(&step.path, mode).map_err(TrialError::at(&self.at(step)))
    }
}

/// The mode that a folder gets, if its owner may not write into it then.
fn closed_mode(change: &TriedChange) -> Option<u32> {
    let mark = change.after.filter(FileMark::is_folder)?;
    let mode = Mode::from_raw_mode(mark.mode & 0o7777);
    (!mode.contains(Mode::WUSR | Mode::XUSR)).then_some(mode.as_raw_mode())
}

fn is_made_folder(change: &TriedChange) -> bool {
    change.kind == ChangeKind::Made && change.file == ChangedFile::Folder
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EXIST.raw_os_error())
}
