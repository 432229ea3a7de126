//! Brings the changes of a trial over, as one step.
//!
//! First everything is compared with what stood there when the trial was looked at. Then copies are
//! made in the state folder, or in the place where that is on another file system, and written to
//! the disk. Then the journal says that they count, and each is moved into place: exchanged with
//! what it replaces, which stays where the copies were until all is done. What is moved is looked
//! at: if it is not what was expected, everything is moved back. Cut off before the journal says
//! so, an apply is undone by whoever comes next, later it is finished. What can be neither is set
//! aside with its journal, and keeps nobody from applying something else.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, syncfs},
    io::Errno,
};
use serde::Serialize;

use super::{
    RECORD, Trial, Trials,
    bench::Benches,
    changes::{ChangeKind, ChangedFile, TriedChange, TriedChanges},
    error::TrialError,
    journal::{ApplyJournal, ApplyMarks, ApplyPhase, ApplyStep, ApplyStepKind, StagingGround},
    private,
    record::{LayerRecord, write_json},
    stage::{CopySource, StagingFolder},
    tree::{FileMark, TreeTop, walk},
};
use crate::id::TaskId;

/// What the name of a staging folder begins with that is in a place.
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
}

/// Brings over what a trial changed at and below these paths; everything without any.
pub(super) fn apply(
    trials: &Trials,
    trial: &Trial,
    paths: &[PathBuf],
) -> Result<Applied, TrialError> {
    match attempt(trials, trial, paths, false) {
        // Quotas may keep files from being moved between folders of one file system.
        Err(TrialError::Io { error, .. })
            if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) =>
        {
            attempt(trials, trial, paths, true)
        }
        applied => applied,
    }
}

fn attempt(
    trials: &Trials,
    trial: &Trial,
    paths: &[PathBuf],
    beside: bool,
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
    let work = Work { trials, trial, all: &all, pending: &pending, chosen: &chosen, beside };
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
    journal.write()?;
    let mut benches = Benches::default();
    let marks = match work.prepare(&mut journal, &mut benches) {
        Ok(marks) => marks,
        Err(error) => {
            clear(&journal, &benches)?;
            return Err(error);
        }
    };
    if let Err(error) = benches.commit(&journal, &marks) {
        undo(&mut journal, &benches, &marks)?;
        return Err(error);
    }
    let counted = |kinds: &[ChangeKind]| kinds.iter().map(|kind| chosen.count(*kind)).sum();
    let applied = Applied {
        made: counted(&[ChangeKind::Made]),
        changed: counted(&[ChangeKind::Changed, ChangeKind::Touched]),
        removed: counted(&[ChangeKind::Removed]),
        whole: journal.whole,
    };
    finish(trials, &mut journal, &benches)?;
    Ok(applied)
}

/// Finishes or undoes all applies that were cut off. What can be neither is set aside, and the
/// first of it is the error.
pub(super) fn recover(trials: &Trials) -> Result<(), TrialError> {
    let mut failed = None;
    for file in ApplyJournal::all(trials) {
        let settled = match ApplyJournal::read(&file) {
            Ok(mut journal) => settle(trials, &mut journal),
            Err(error) => {
                ApplyJournal::set_aside(&file).map_err(TrialError::at(&file)).and(Err(error))
            }
        };
        if let Err(error) = settled {
            failed.get_or_insert(error);
        }
    }
    for file in ApplyJournal::left(trials) {
        let _ = std::fs::remove_file(file);
    }
    failed.map_or(Ok(()), Err)
}

fn settle(trials: &Trials, journal: &mut ApplyJournal) -> Result<(), TrialError> {
    let benches = Benches::of(journal);
    let marks = || ApplyMarks::read(&journal.file).unwrap_or_else(|| sealed_marks(trials, journal));
    match journal.phase {
        ApplyPhase::StagingFolder => clear(journal, &benches),
        ApplyPhase::Committing => {
            let marks = marks();
            match benches.commit(journal, &marks) {
                Ok(()) => finish(trials, journal, &benches),
                // Somebody was there meanwhile.
                Err(_) => undo(journal, &benches, &marks),
            }
        }
        ApplyPhase::Undoing => {
            let marks = marks();
            undo(journal, &benches, &marks)
        }
        ApplyPhase::Done => finish(trials, journal, &benches),
    }
}

/// The marks for a journal that has none: what its trial says was there.
fn sealed_marks(trials: &Trials, journal: &ApplyJournal) -> ApplyMarks {
    let changes = trials.get(&journal.trial).and_then(|trial| trial.changes());
    let changes = changes.map(|changes| changes.all).unwrap_or_default();
    let old = changes.into_iter().filter_map(|change| Some((change.path, change.before?)));
    ApplyMarks { old: old.collect(), made: None }
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
    trials: &'a Trials,
    trial: &'a Trial,
    all: &'a TriedChanges,
    /// What was not brought over before.
    pending: &'a TriedChanges,
    /// What of that is to be.
    chosen: &'a TriedChanges,
    /// Whether copies have to be made in the place itself.
    beside: bool,
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
                (_, Some(mode)) => {
                    let kind = ApplyStepKind::Mode(mode);
                    closing.push(ApplyStep { kind, before: None, ..step.clone() });
                    steps.push(step);
                }
                _ => steps.push(step),
            }
        }
        let opening = self.reopened(&steps)?;
        let closed = |step: &ApplyStep| {
            let mode = step.before.map_or(0, |before| before.mode & 0o7777);
            ApplyStep { kind: ApplyStepKind::Mode(mode), before: None, ..step.clone() }
        };
        closing.extend(opening.iter().map(closed));
        steps.splice(..0, opening);
        steps.extend(closing.into_iter().rev());
        let used: HashSet<usize> = steps.iter().map(|step| step.layer).collect();
        let layers = self.trial.record.layers.iter().filter(|it| used.contains(&it.number));
        let grounds: Result<Vec<StagingGround>, TrialError> =
            layers.map(|layer| self.ground(layer)).collect();
        let everything = || self.trial.record.layers.iter().map(|layer| layer.place.clone());
        Ok(ApplyJournal {
            phase: ApplyPhase::StagingFolder,
            trial: self.trial.record.task_id.clone(),
            grounds: grounds?,
            steps,
            applied: if paths.is_empty() { everything().collect() } else { paths.to_vec() },
            whole,
            file: ApplyJournal::file_of(self.trials, &self.trial.record.task_id),
        })
    }

    /// Where copies for a place are made: where no command reaches them, if they can be moved from
    /// there. Nobody can know its name before.
    fn ground(&self, layer: &LayerRecord) -> Result<StagingGround, TrialError> {
        let failed = TrialError::at(&layer.place);
        let top = TreeTop::open(&layer.place).map_err(&failed)?;
        let name = TaskId::random()
            .map_err(|error| TrialError::io("a name", &io::Error::other(error.to_string())))?;
        let apart = &self.trials.applying;
        private(apart).map_err(TrialError::at(apart))?;
        let own = TreeTop::open(apart).map_err(TrialError::at(apart))?;
        let is_apart = !self.beside && own.is_mounted_with(&top).unwrap_or(false);
        let beside = || PathBuf::from(format!("{STAGING}{name}"));
        let staging = if is_apart { apart.join(name.as_str()) } else { beside() };
        let place_number = top.number().map_err(&failed)?;
        let (layer, place) = (layer.number, layer.place.clone());
        Ok(StagingGround { layer, place, place_number, staging, staging_number: None })
    }

    /// Opens the folders to their owner that an earlier apply has made and closed, where something
    /// is put into them now.
    fn reopened(&self, steps: &[ApplyStep]) -> Result<Vec<ApplyStep>, TrialError> {
        let (folders, mut opening) = (self.above_applied(), BTreeMap::new());
        for step in steps {
            let place = &self.layer(step.layer)?.place;
            let Some(path) =
                step.path.parent().filter(|it| folders.contains(place.join(it).as_path()))
            else {
                continue;
            };
            if path.as_os_str().is_empty() || opening.contains_key(&(step.layer, path)) {
                continue;
            }
            let top = TreeTop::open(place).map_err(TrialError::at(place))?;
            let found = top.look(path).map_err(TrialError::at(&place.join(path)))?;
            let Some(before) = found.as_ref().map(FileMark::of) else { continue };
            let Some(mode) = closed_folder(&before) else { continue };
            let kind = ApplyStepKind::Mode(mode | Mode::RWXU.as_raw_mode());
            let (path_of, before) = (path.to_owned(), Some(before));
            opening.insert(
                (step.layer, path),
                ApplyStep { path: path_of, kind, before, copy: 0, ..step.clone() },
            );
        }
        Ok(opening.into_values().collect())
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

    /// Makes the copies, and notes that from now on they count.
    fn prepare(
        &self,
        journal: &mut ApplyJournal,
        benches: &mut Benches,
    ) -> Result<ApplyMarks, TrialError> {
        let mut marks = self.stage(journal, benches)?;
        self.check(journal)?;
        let gone =
            |step: &&ApplyStep| matches!(step.kind, ApplyStepKind::Replace | ApplyStepKind::Remove);
        for step in journal.steps.iter().filter(gone) {
            let inside = self.pending.within(&journal.at(step)).iter();
            let before = inside.filter_map(|change| Some((change.path.clone(), change.before?)));
            marks.old.extend(before);
        }
        marks.write(&journal.file)?;
        journal.advance(ApplyPhase::Committing)?;
        Ok(marks)
    }

    /// Makes the copies, and sees to it that they are on the disk.
    fn stage(
        &self,
        journal: &mut ApplyJournal,
        benches: &mut Benches,
    ) -> Result<ApplyMarks, TrialError> {
        let known = Known::of(self.all);
        let seen = |path: &Path| known.get(path)?.after;
        let mut made = BTreeMap::new();
        for ground in &mut journal.grounds {
            let place = ground.place.clone();
            let failed = TrialError::at(&place);
            let top = TreeTop::open(&place).map_err(&failed)?;
            let staging = StagingFolder::make(&top, &ground.staging).map_err(&failed)?;
            let folder = staging.folder().map_err(&failed)?;
            ground.staging_number = Some(folder.number().map_err(&failed)?);
            benches.add(ground, top, folder);
            let layer = self.layer(ground.layer)?;
            let upper = TreeTop::open_own(&self.trial.upper(layer)).map_err(&failed)?;
            let from = CopySource { top: &upper, place: &place, seen: &seen };
            let steps = journal.steps.iter_mut().filter(|step| step.layer == ground.layer);
            made.extend(stage_steps(staging, &from, steps)?);
        }
        Ok(ApplyMarks { old: BTreeMap::new(), made: Some(made) })
    }
}

/// Makes the copies for some steps, and returns what was made.
fn stage_steps<'a>(
    mut staging: StagingFolder,
    from: &CopySource<'_>,
    steps: impl Iterator<Item = &'a mut ApplyStep>,
) -> Result<BTreeMap<PathBuf, FileMark>, TrialError> {
    let failed = TrialError::at(from.place);
    staging.check().map_err(&failed)?;
    let mut copies: HashMap<PathBuf, u64> = HashMap::new();
    for step in steps {
        step.copy = match step.kind {
            ApplyStepKind::Make | ApplyStepKind::Replace => {
                staging.copy(from, &step.path, &step.staged)?
            }
            ApplyStepKind::MakeFolder => staging.copy_folder(from, &step.path, &step.staged)?,
            // One that is closed comes after what it closes.
            ApplyStepKind::Mode(_) => copies.get(&step.path).copied().unwrap_or(0),
            ApplyStepKind::Remove => 0,
        };
        let number = step.before.filter(|_| step.copy == 0).map_or(step.copy, |it| it.number);
        copies.insert(step.path.clone(), number);
    }
    syncfs(staging.handle()).map_err(|errno| failed(errno.into()))?;
    Ok(staging.into_made())
}

/// Forgets an apply that has changed nothing, or whose changes are undone.
fn clear(journal: &ApplyJournal, benches: &Benches) -> Result<(), TrialError> {
    benches.clear()?;
    journal.remove()
}

/// All is moved: notes it, removes what was replaced, then the journal.
fn finish(
    trials: &Trials,
    journal: &mut ApplyJournal,
    benches: &Benches,
) -> Result<(), TrialError> {
    if journal.phase != ApplyPhase::Done {
        benches.sync()?;
        journal.advance(ApplyPhase::Done)?;
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
    clear(journal, benches)
}

/// Moves everything back that was moved. What cannot be is kept, and set aside with the journal.
fn undo(
    journal: &mut ApplyJournal,
    benches: &Benches,
    marks: &ApplyMarks,
) -> Result<(), TrialError> {
    journal.advance(ApplyPhase::Undoing)?;
    match benches.undo(journal, marks) {
        Ok(()) => clear(journal, benches),
        Err(stuck) => {
            ApplyJournal::set_aside(&journal.file).map_err(TrialError::at(&journal.file))?;
            Err(stuck)
        }
    }
}

/// The mode that a folder gets, if its owner may not write into it then.
fn closed_mode(change: &TriedChange) -> Option<u32> {
    closed_folder(&change.after?)
}

fn closed_folder(mark: &FileMark) -> Option<u32> {
    let mode = Mode::from_raw_mode(mark.mode & 0o7777);
    let is_closed = mark.is_folder() && !mode.contains(Mode::WUSR | Mode::XUSR);
    is_closed.then_some(mode.as_raw_mode())
}

fn is_made_folder(change: &TriedChange) -> bool {
    change.kind == ChangeKind::Made && change.file == ChangedFile::Folder
}
