//! What commands of a workspace have written outside of it: layers over the home folder.
//!
//! Nothing is ever merged into a layer that a command has written. Each command writes into one of
//! its own. Once its sandbox is gone, that layer is finished: its name is added to the list of the
//! workspace, and later commands see it below theirs. Where the list gets long, layers are
//! [folded](super::fold) into a new one that takes their place in it. The list is a file that is
//! replaced at once, under a lock: whoever is killed leaves the list before or the list after, and
//! folders that are in none, which the next one removes or takes in.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Applied, LayersAhead, SEALED, Trial, TrialLayer, Trials, TriedChanges,
    ahead::set_apart,
    changes,
    error::TrialError,
    fold::LeftOut,
    record::{
        FileTime, LayerRecord, TrialRecord, lossless, read_json, write_json, write_json_soon,
    },
    shown::ShownPart,
    stack::{LayerList, ListedLayer, MarkBelow, OPENED, OpenedLayer},
    sweep::{bytes_of, remove_tree},
    tree::TreeTop,
};
use crate::{clock::now_ms, id::TaskId};

/// Whose layers they are.
const ABOUT: &str = "about.json";

/// So many layers are one command's lower ones, before some are folded.
const DEPTH: usize = 6;

/// Most of them: what the kernel takes in one option.
const DEPTH_MAX: usize = 12;

/// The layers of one workspace over one home.
#[derive(Debug, Clone)]
pub(crate) struct OutsideLayers {
    pub(super) folder: PathBuf,
    workspace: PathBuf,
    /// The home.
    pub(super) place: PathBuf,
}

/// Whose layers they are, and what they are laid over.
#[derive(Debug, Serialize, Deserialize)]
struct AboutLayers {
    #[serde(with = "lossless")]
    workspace: PathBuf,
    #[serde(with = "lossless")]
    place: PathBuf,
}

/// What a command's view is made of.
#[derive(Debug)]
pub(crate) struct OutsideView {
    layers: LayersAhead,
    /// What earlier commands have written, oldest first.
    below: Vec<String>,
    /// The same as folders, newest first.
    pub below_folders: Vec<PathBuf>,
}

impl OutsideView {
    /// The command's own layer, over the home.
    pub(crate) fn layer(&self) -> Option<&TrialLayer> {
        self.layers.layers().first()
    }

    /// Where the lowest part is put together.
    pub(crate) fn base(&self) -> PathBuf {
        self.layers.folder().join(BASE)
    }
}

/// Where the lowest part of a view is put together, in the folder of its layer.
const BASE: &str = "0/base";

/// What is kept of finished commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptLayers {
    /// What it takes on the disk.
    pub bytes: u64,
    /// When the last of them began, in milliseconds since 1970; 0 where that is not known.
    pub began_at_ms: i64,
}

/// Whether a warden lives, by its name.
pub(crate) type IsAlive<'a> = &'a dyn Fn(&str) -> bool;

impl OutsideLayers {
    /// All of a state folder.
    pub(crate) fn all(state: &Path) -> Vec<Self> {
        let entries = fs::read_dir(state.join("outside")).into_iter().flatten();
        let read = |folder: PathBuf| {
            let about: AboutLayers = read_json(&folder.join(ABOUT)).ok()?;
            Some(Self { folder, workspace: about.workspace, place: about.place })
        };
        entries.filter_map(Result::ok).filter_map(|entry| read(entry.path())).collect()
    }

    /// Those of the workspace that a folder is in.
    pub(crate) fn at(state: &Path, folder: &Path) -> Option<Self> {
        let is_here = |layers: &Self| folder.starts_with(&layers.workspace);
        let here = Self::all(state).into_iter().filter(is_here);
        here.max_by_key(|layers| layers.workspace.components().count())
    }

    /// Those in a state folder that have this name.
    pub(crate) fn of(state: &Path, name: &str, workspace: &Path, place: &Path) -> Self {
        let folder = state.join("outside").join(name);
        Self { folder, workspace: workspace.to_owned(), place: place.to_owned() }
    }

    /// Whose they are.
    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The folder that they are laid over.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Their name in the state folder.
    pub(crate) fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// What is kept of finished commands; none if that is nothing. Neither waits nor writes.
    pub(crate) fn kept(&self, is_alive: IsAlive<'_>) -> Option<KeptLayers> {
        let list = self.list().ok()?;
        let mut finished = self.unlisted(&list);
        finished.retain(|(name, opened)| !is_alive(&opened.warden) && !self.is_empty(name));
        if list.layers.is_empty() && list.unshown.is_empty() && finished.is_empty() {
            return None;
        }
        let own = finished.iter().map(|(name, _)| bytes_of(&self.upper(name)));
        let listed = list.layers.iter().map(|layer| layer.began_at_ms);
        let began = listed.chain(finished.iter().map(|(_, opened)| opened.created_at_ms));
        Some(KeptLayers {
            bytes: list.bytes() + own.sum::<u64>(),
            began_at_ms: began.max().unwrap_or(0),
        })
    }

    pub(crate) fn prepare(
        &self,
        state: &Path,
        warden: &str,
        is_alive: IsAlive<'_>,
    ) -> Result<OutsideView, TrialError> {
        let mut going = Vec::new();
        let made = self.prepare_locked(state, warden, &mut going, is_alive);
        // Others need not wait for that. What cannot be removed now is found by a clean-up.
        for folder in going {
            let _ = remove_tree(&folder);
        }
        made
    }

    fn prepare_locked(
        &self,
        state: &Path,
        warden: &str,
        going: &mut Vec<PathBuf>,
        is_alive: IsAlive<'_>,
    ) -> Result<OutsideView, TrialError> {
        let _lock = self.lock()?;
        let (mut list, garbage) = self.taken_in(is_alive)?;
        let in_use = self.in_use(is_alive);
        for name in garbage.iter().filter(|name| !in_use.contains(*name)) {
            going.extend(set_apart(state, &self.folder, name));
        }
        self.remove_gone(&mut list, &in_use)?;
        let about = self.folder.join(ABOUT);
        if !about.exists() {
            let (workspace, place) = (self.workspace.clone(), self.place.clone());
            write_json(&about, &AboutLayers { workspace, place })
                .map_err(TrialError::at(&about))?;
        }
        if list.layers.len() >= DEPTH {
            match self.fold_newest(&mut list) {
                Err(error) if list.layers.len() >= DEPTH_MAX => return Err(error),
                _ => {}
            }
        }
        let made = || -> io::Result<OutsideView> {
            let place: &Path = &self.place;
            let layers = LayersAhead::make(state, warden, [place].into_iter())?;
            fs::create_dir(layers.folder().join(BASE))?;
            let below_folders = list.names().rev().map(|name| self.upper(name)).collect();
            Ok(OutsideView { layers, below: list.names().cloned().collect(), below_folders })
        };
        made().map_err(TrialError::at(&self.folder))
    }

    /// Makes such a layer that of a task, which begins now: how many bytes it may write. None if
    /// what is finished is not the same any more, or the home.
    pub(crate) fn begin(
        &self,
        view: &mut OutsideView,
        id: &TaskId,
        warden: &str,
        is_alive: IsAlive<'_>,
        bytes_max: u64,
    ) -> Result<Option<u64>, TrialError> {
        let _lock = self.lock()?;
        // What is to be removed waits for whoever prepares the next one.
        let (list, _) = self.taken_in(is_alive)?;
        let bytes = list.bytes();
        if bytes > bytes_max {
            return Err(TrialError::LayersFull { bytes, bytes_max });
        }
        if !list.names().eq(&view.below) || !view.layers.is_current() {
            return Ok(None);
        }
        let mut begun = || -> io::Result<()> {
            let opened = OpenedLayer {
                task_id: id.clone(),
                warden: warden.to_owned(),
                began: FileTime::of_now(view.layers.folder())?,
                created_at_ms: now_ms(),
                below: view.below.clone(),
            };
            write_json_soon(&view.layers.folder().join(OPENED), &opened)?;
            view.layers.move_to(&self.folder.join(id.as_str()))
        };
        begun().map_err(TrialError::at(&self.folder))?;
        Ok(Some(bytes_max - bytes))
    }

    /// What the command of a task has written so far, whether it runs or not; nothing if it has no
    /// layer of its own any more.
    pub(crate) fn of_task(&self, id: &TaskId) -> Result<TriedChanges, TrialError> {
        let folder = self.folder.join(id.as_str());
        let Ok(opened) = read_json::<OpenedLayer>(&folder.join(OPENED)) else {
            return Ok(TriedChanges::default());
        };
        changes::look(&self.trial(folder, opened.began)?)
    }

    /// The tasks that may write into a layer now, and their wardens.
    pub(crate) fn opened(&self) -> Vec<(TaskId, String)> {
        let unlisted = self.unlisted(&self.list().unwrap_or_default()).into_iter();
        unlisted.map(|(_, opened)| (opened.task_id, opened.warden)).collect()
    }

    /// Shows all that finished commands have written, as one, and keeps in mind what of it was
    /// shown; none if that is nothing.
    pub(crate) fn show<T>(
        &self,
        show: impl FnOnce(&Trial, Option<String>) -> Result<(T, ShownPart), TrialError>,
        is_alive: IsAlive<'_>,
    ) -> Result<Option<T>, TrialError> {
        if !self.folder.is_dir() {
            return Ok(None);
        }
        let _lock = self.lock()?;
        let Some(trial) = self.gather(is_alive)? else { return Ok(None) };
        let note = self.unshown()?.map(|error| error.to_string());
        let (told, part) = show(&trial, note)?;
        self.note_shown(&trial, &part)?;
        Ok(Some(told))
    }

    /// Says that something cannot be shown, if it is so.
    fn unshown(&self) -> Result<Option<TrialError>, TrialError> {
        let list = self.list()?;
        let (count, why) = (list.unshown.len(), list.unshown.into_iter().next());
        Ok(why.map(|first| TrialError::Unshown { count, why: first.why }))
    }

    /// Brings something of it over: all, or what is at and below some paths. It must have been
    /// shown as it is.
    pub(crate) fn apply(
        &self,
        trials: &Trials,
        paths: &[PathBuf],
        is_alive: IsAlive<'_>,
    ) -> Result<Applied, TrialError> {
        let _lock = self.lock()?;
        let trial = self.gather(is_alive)?.ok_or(TrialError::Unknown)?;
        self.check_shown(&trial, paths)?;
        let mut applied = trials.apply_of(&trial, paths)?;
        // What is brought over is the same in the home now: cut off here, nothing is lost, and the
        // next look finds no difference.
        if let Err(error) = self.forget_applied(paths, applied.whole, is_alive) {
            applied.warning = Some(format!("it is kept outside the workspace, too: {error}"));
        }
        applied.whole &= self.unshown()?.is_none();
        Ok(applied)
    }

    /// Takes out of the layers what is in the home now.
    fn forget_applied(
        &self,
        paths: &[PathBuf],
        whole: bool,
        is_alive: IsAlive<'_>,
    ) -> Result<(), TrialError> {
        let mut list: LayerList = self.list()?;
        self.forget_shown(if whole { &[] } else { paths });
        if whole {
            let unshown = std::mem::take(&mut list.unshown);
            list.forget_all();
            list.unshown = unshown;
            self.write(&list)?;
        } else {
            let left_out = LeftOut { paths: paths.iter().cloned().collect(), in_hiding: false };
            if let Err(error) = self.fold_all(&mut list, &left_out) {
                // There may be no room for a copy of the rest. What stood below it before does not
                // count any more for what is brought over.
                let names: Vec<String> = list.names().cloned().collect();
                self.rewrite_marks(&names, &left_out)?;
                return Err(error);
            }
        }
        self.remove_gone(&mut list, &self.in_use(is_alive))
    }

    /// Forgets what finished commands have written: all, or what is at and below some paths. How
    /// many commands still run: what they write is not forgotten.
    pub(crate) fn discard(
        &self,
        paths: &[PathBuf],
        is_alive: IsAlive<'_>,
    ) -> Result<usize, TrialError> {
        if !self.folder.is_dir() {
            return Ok(0);
        }
        let _lock = self.lock()?;
        if paths.is_empty() || paths.iter().any(|path| self.place.starts_with(path)) {
            self.forget_shown(&[]);
            return self.discard_all(is_alive);
        }
        let trial = self.gather(is_alive)?.ok_or(TrialError::Unknown)?;
        for path in paths {
            self.check_alone(&trial, path)?;
        }
        self.forget_shown(paths);
        let mut list = self.list()?;
        let left_out = LeftOut { paths: paths.iter().cloned().collect(), in_hiding: true };
        self.fold_all(&mut list, &left_out)?;
        self.remove_gone(&mut list, &self.in_use(is_alive))?;
        Ok(0)
    }

    /// Whether a path can be left out: something is there, and without it what is below is seen.
    fn check_alone(&self, trial: &Trial, path: &Path) -> Result<(), TrialError> {
        let changes = trial.changes()?;
        let chosen = changes.within(path);
        if chosen.is_empty() {
            return Err(TrialError::NoChange(path.to_owned()));
        }
        let failed = TrialError::at(path);
        let upper = trial.record.layers.first().map(|layer| trial.upper(layer));
        let top = TreeTop::open_own(&upper.unwrap_or_default()).map_err(&failed)?;
        let below = path.strip_prefix(&self.place).unwrap_or(Path::new(""));
        for folder in below.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()) {
            let is_in = top.own_stat(folder).map_err(&failed)?.is_some();
            if is_in && changes::is_opaque(&top, folder).map_err(&failed)? {
                let is_below = chosen.iter().any(|change| change.before.is_some());
                return if is_below { Err(TrialError::NotAlone(path.to_owned())) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// When a command last had a layer of these, in milliseconds since 1970; never if nothing is
    /// kept.
    pub(crate) fn used_at_ms(&self) -> i64 {
        let changed = |name: &String| {
            let found = fs::metadata(self.folder.join(name)).and_then(|it| it.modified()).ok()?;
            let since = found.duration_since(std::time::UNIX_EPOCH).ok()?;
            i64::try_from(since.as_millis()).ok()
        };
        let names = self.names().unwrap_or_default();
        names.iter().filter_map(changed).max().unwrap_or(i64::MAX)
    }

    /// All finished layers as one, with what is different in the home now. What has no mark was not
    /// seen when its layer was finished: it is taken to be changed underneath.
    fn gather(&self, is_alive: IsAlive<'_>) -> Result<Option<Trial>, TrialError> {
        let mut list = self.settled(is_alive)?;
        self.retry(&mut list)?;
        if list.layers.is_empty() {
            return self.unshown()?.map_or(Ok(None), Err);
        }
        let is_one = list.layers.len() == 1 && list.names().all(|name| name.starts_with("fold-"));
        if !is_one {
            self.fold_all(&mut list, &LeftOut::default())?;
            self.remove_gone(&mut list, &self.in_use(is_alive))?;
        }
        let Some(ListedLayer { name, .. }) = list.layers.first() else { return Ok(None) };
        let folder = self.folder.join(name);
        // When something was changed is told by the marks alone.
        let trial = self.trial(folder.clone(), FileTime(i64::MAX, 0))?;
        let marks = self.marks(std::slice::from_ref(name), &LeftOut::default());
        let marks: HashMap<PathBuf, MarkBelow> =
            marks.into_iter().map(|mark| (mark.path.clone(), mark)).collect();
        let mut changes = changes::look(&trial)?;
        for change in &mut changes.all {
            match marks.get(&change.path) {
                Some(mark) => {
                    // Somebody has made it meanwhile, or removed it.
                    let is_other = mark.before.is_some() != change.before.is_some();
                    (change.before, change.stale) = (mark.before, mark.stale || is_other);
                }
                None => change.stale = true,
            }
        }
        write_json(&folder.join(SEALED), &changes).map_err(TrialError::at(&folder))?;
        Ok(Some(trial))
    }

    /// A layer, as something whose changes can be read and applied.
    pub(super) fn trial(&self, folder: PathBuf, began: FileTime) -> Result<Trial, TrialError> {
        let id = TaskId::random();
        let task_id =
            id.map_err(|error| TrialError::at(&folder)(io::Error::other(error.to_string())))?;
        let record = TrialRecord {
            task_id,
            workspace: self.workspace.clone(),
            layers: vec![LayerRecord::new(0, &self.place)],
            created_at_ms: now_ms(),
            began,
            applied: Vec::new(),
        };
        Ok(Trial { folder, record })
    }
}
