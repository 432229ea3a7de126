//! The stack of layers over a home: which are finished, in which order, and what is done with them
//! under their lock.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{
    REMOVED,
    changes::{self, TriedChange},
    error::TrialError,
    fold::{LeftOut, fold},
    make_layer,
    outside::{IsAlive, OutsideLayers},
    record::{FileTime, lossless, read_json, write_json},
    sweep::{bytes_of, remove_tree},
    tree::{FileMark, TreeTop},
};
use crate::id::TaskId;

/// The list of a workspace, and the lock of whoever changes it.
const LIST: &str = "layers.json";
const LOCK: &str = "lock";

/// The record of a command's layer, and what stood below a layer's files when it was finished.
pub(super) const OPENED: &str = "opened.json";
const MARKS: &str = "marks.json";

/// The finished layers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LayerList {
    /// Oldest first.
    pub layers: Vec<ListedLayer>,
    /// Layers of commands that are to be removed.
    pub gone: Vec<String>,
    /// Finished layers that cannot be shown: no command sees them, and they wait to be discarded.
    #[serde(default)]
    pub unshown: Vec<UnshownLayer>,
}

/// A finished layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ListedLayer {
    pub name: String,
    /// What it takes on the disk.
    pub bytes: u64,
    /// When its command began, or the last of those that are folded in it.
    #[serde(default)]
    pub began_at_ms: i64,
}

/// A finished layer that cannot be shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UnshownLayer {
    pub name: String,
    pub bytes: u64,
    pub why: String,
}

/// What has become of the layer of a command that has ended.
pub(super) enum FinishedLayer {
    /// Nothing is in it.
    Empty,
    Marked,
    Unshown(TrialError),
}

impl LayerList {
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &String> {
        self.layers.iter().map(|layer| &layer.name)
    }

    pub fn bytes(&self) -> u64 {
        let unshown = self.unshown.iter().map(|layer| layer.bytes);
        self.layers.iter().map(|layer| layer.bytes).chain(unshown).sum()
    }

    /// Adds a layer above those whose commands began before its own: a command that ends late does
    /// not win over one that began after it.
    fn add(&mut self, layer: ListedLayer) {
        let before = |other: &ListedLayer| other.began_at_ms <= layer.began_at_ms;
        let at = self.layers.iter().rposition(before).map_or(0, |at| at + 1);
        self.layers.insert(at, layer);
    }

    /// Takes all out of the list.
    pub fn forget_all(&mut self) {
        self.gone.extend(self.layers.drain(..).map(|layer| layer.name));
        self.gone.extend(self.unshown.drain(..).map(|layer| layer.name));
    }
}

/// The layer of a command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpenedLayer {
    pub task_id: TaskId,
    /// Whose end is the end of the sandbox.
    pub warden: String,
    pub began: FileTime,
    pub created_at_ms: i64,
    /// The layers that it is laid over.
    pub below: Vec<String>,
}

/// What stood below a file of a layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MarkBelow {
    #[serde(with = "lossless")]
    pub path: PathBuf,
    pub before: Option<FileMark>,
    pub stale: bool,
}

impl OutsideLayers {
    pub(super) fn upper(&self, name: &str) -> PathBuf {
        self.folder.join(name).join("0/upper")
    }

    pub(super) fn lock(&self) -> Result<fs::File, TrialError> {
        let locked = || {
            private(&self.folder)?;
            let place = self.folder.join(LOCK);
            let file = fs::File::options().create(true).truncate(false).write(true).open(place)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        locked().map_err(TrialError::at(&self.folder))
    }

    pub(super) fn list(&self) -> Result<LayerList, TrialError> {
        let mut list: LayerList = match read_json(&self.folder.join(LIST)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => LayerList::default(),
            read => read.map_err(TrialError::at(&self.folder.join(LIST)))?,
        };
        // Who discards removes them first: a full disk may have no room for another list.
        list.layers.retain(|layer| self.folder.join(&layer.name).is_dir());
        list.unshown.retain(|layer| self.folder.join(&layer.name).is_dir());
        Ok(list)
    }

    pub(super) fn write(&self, list: &LayerList) -> Result<(), TrialError> {
        write_json(&self.folder.join(LIST), list).map_err(TrialError::at(&self.folder.join(LIST)))
    }

    /// The names of the folders, finished or not.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
                && !name.starts_with(REMOVED)
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The list, once what has finished since is in it, and what is in no list is removed.
    pub(super) fn settled(&self, is_alive: IsAlive<'_>) -> Result<LayerList, TrialError> {
        let (mut list, garbage) = self.taken_in(is_alive)?;
        let in_use = self.in_use(is_alive);
        for name in garbage.iter().filter(|name| !in_use.contains(*name)) {
            remove_tree(&self.folder.join(name)).map_err(TrialError::at(&self.folder))?;
        }
        self.remove_gone(&mut list, &in_use)?;
        Ok(list)
    }

    /// The list, once what has finished since is in it, and what is in no list.
    pub(super) fn taken_in(
        &self,
        is_alive: IsAlive<'_>,
    ) -> Result<(LayerList, Vec<String>), TrialError> {
        let mut list = self.list()?;
        let unshown = list.unshown.iter().map(|layer| &layer.name);
        let known: HashSet<String> =
            list.names().chain(&list.gone).chain(unshown).cloned().collect();
        let names = self.names().map_err(TrialError::at(&self.folder))?;
        let mut finished = Vec::new();
        let mut garbage = Vec::new();
        for name in names.into_iter().filter(|name| !known.contains(name)) {
            match read_json::<OpenedLayer>(&self.folder.join(&name).join(OPENED)) {
                Ok(opened) if is_alive(&opened.warden) => {}
                Ok(opened) => finished.push((opened.created_at_ms, name, opened)),
                // Nobody else makes one now: it was cut off, by a power cut if the record is empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => garbage.push(name),
                Err(_) if is_empty_file(&self.folder.join(&name).join(OPENED)) => {
                    garbage.push(name);
                }
                // What cannot be read is not gone.
                Err(error) => return Err(TrialError::at(&self.folder.join(&name))(error)),
            }
        }
        finished.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        for (_, name, opened) in finished {
            match self.finish(&name, &opened)? {
                // It never was below another one: nobody need know that it was there.
                FinishedLayer::Empty => garbage.push(name),
                FinishedLayer::Marked => {
                    self.add_marked(&mut list, name, &opened);
                    self.write(&list)?;
                }
                FinishedLayer::Unshown(why) => {
                    let bytes = bytes_of(&self.upper(&name));
                    list.unshown.push(UnshownLayer { name, bytes, why: why.to_string() });
                    self.write(&list)?;
                }
            }
        }
        Ok((list, garbage))
    }

    /// The layers of commands that are in no list yet.
    pub(super) fn unlisted(&self, list: &LayerList) -> Vec<(String, OpenedLayer)> {
        let unshown = list.unshown.iter().map(|layer| &layer.name);
        let known: HashSet<&String> = list.names().chain(&list.gone).chain(unshown).collect();
        let names = self.names().unwrap_or_default().into_iter();
        let opened = |name: String| {
            let opened = read_json(&self.folder.join(&name).join(OPENED)).ok()?;
            Some((name, opened))
        };
        names.filter(|name| !known.contains(name)).filter_map(opened).collect()
    }

    /// Whether nothing is in a layer that nobody writes any more.
    pub(super) fn is_empty(&self, name: &str) -> bool {
        let top = TreeTop::open_own(&self.upper(name));
        top.and_then(|top| top.own_names(Path::new(""))).is_ok_and(|names| names.is_empty())
    }

    fn add_marked(&self, list: &mut LayerList, name: String, opened: &OpenedLayer) {
        let bytes = bytes_of(&self.upper(&name));
        list.add(ListedLayer { name, bytes, began_at_ms: opened.created_at_ms });
    }

    /// Looks again at what could not be shown: what kept us from it may be gone.
    pub(super) fn retry(&self, list: &mut LayerList) -> Result<(), TrialError> {
        let before = list.unshown.len();
        for layer in std::mem::take(&mut list.unshown) {
            let opened = read_json::<OpenedLayer>(&self.folder.join(&layer.name).join(OPENED));
            match opened.map(|opened| (self.finish(&layer.name, &opened), opened)) {
                Ok((Ok(FinishedLayer::Marked), opened)) => {
                    self.add_marked(list, layer.name, &opened);
                }
                _ => list.unshown.push(layer),
            }
        }
        if list.unshown.len() == before { Ok(()) } else { self.write(list) }
    }

    /// Notes what stands below the files of a layer that nobody writes any more. The first look is
    /// kept. A layer that cannot be read stops nobody: whoever wrote it may have meant that.
    fn finish(&self, name: &str, opened: &OpenedLayer) -> Result<FinishedLayer, TrialError> {
        let folder = self.folder.join(name);
        let failed = TrialError::at(&folder);
        let read = TreeTop::open_own(&self.upper(name))
            .and_then(|top| top.own_names(Path::new("")).map(|names| (top, names)));
        let (top, names) = match read {
            Ok(read) => read,
            Err(error) => return Ok(FinishedLayer::Unshown(failed(error))),
        };
        if names.is_empty() {
            return Ok(FinishedLayer::Empty);
        }
        let place = folder.join(MARKS);
        if !place.exists() {
            // The kernel was told not to: what is in the list is on the disk.
            rustix::fs::syncfs(top.handle()).map_err(|errno| failed(errno.into()))?;
            let changes = match changes::look(&self.trial(folder.clone(), opened.began)?) {
                Ok(changes) => changes,
                Err(error) => return Ok(FinishedLayer::Unshown(error)),
            };
            let mark =
                |it: TriedChange| MarkBelow { path: it.path, before: it.before, stale: it.stale };
            let marks: Vec<MarkBelow> = changes.all.into_iter().map(mark).collect();
            write_json(&place, &marks).map_err(&failed)?;
        }
        Ok(FinishedLayer::Marked)
    }

    /// Takes all layers out that no sandbox has mounted, the newest first, and removes them.
    /// Nothing of them is looked at, and nothing is written before they are gone.
    pub(super) fn discard_all(&self, is_alive: IsAlive<'_>) -> Result<usize, TrialError> {
        let failed = TrialError::at(&self.folder);
        let mut list = self.list().unwrap_or_default();
        let in_use = self.in_use(is_alive);
        let mut names = self.names().map_err(&failed)?;
        let running = names.iter().filter(|name| self.is_running(name, is_alive)).count();
        // What is in the list stays consistent if this is cut off.
        names.sort_by_key(|name| list.names().rev().position(|it| it == name));
        for name in names.iter().filter(|name| !in_use.contains(*name)) {
            let going = self.folder.join(format!("{REMOVED}{name}"));
            fs::rename(self.folder.join(name), going).map_err(&failed)?;
        }
        self.remove_going().map_err(&failed)?;
        list.forget_all();
        list.gone.retain(|name| in_use.contains(name));
        if !list.gone.is_empty() || self.folder.join(LIST).exists() {
            self.write(&list)?;
        }
        Ok(running)
    }

    fn is_running(&self, name: &str, is_alive: IsAlive<'_>) -> bool {
        let opened = read_json::<OpenedLayer>(&self.folder.join(name).join(OPENED));
        opened.is_ok_and(|opened| is_alive(&opened.warden))
    }

    /// Removes what was taken out before.
    fn remove_going(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(REMOVED.as_bytes()) {
                remove_tree(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The layers that some command's view has below its own, finished or folded.
    pub(super) fn in_use(&self, is_alive: IsAlive<'_>) -> HashSet<String> {
        let mut in_use = HashSet::new();
        for name in self.names().unwrap_or_default() {
            if let Ok(opened) = read_json::<OpenedLayer>(&self.folder.join(&name).join(OPENED))
                && is_alive(&opened.warden)
            {
                in_use.extend(opened.below);
                in_use.insert(name);
            }
        }
        in_use
    }

    pub(super) fn remove_gone(
        &self,
        list: &mut LayerList,
        in_use: &HashSet<String>,
    ) -> Result<(), TrialError> {
        let before = list.gone.len();
        let _ = self.remove_going();
        let removed =
            |name: &String| !in_use.contains(name) && remove_tree(&self.folder.join(name)).is_ok();
        list.gone.retain(|name| !removed(name));
        if list.gone.len() == before { Ok(()) } else { self.write(list) }
    }

    /// Folds the newest layers, and older ones as long as they are not much larger: a large one is
    /// not copied for each that comes after it.
    pub(super) fn fold_newest(&self, list: &mut LayerList) -> Result<(), TrialError> {
        let bytes = |at: usize| list.layers.get(at).map_or(u64::MAX, |layer| layer.bytes);
        let mut begin = list.layers.len().saturating_sub(2);
        let mut sum: u64 = list.layers.iter().skip(begin).map(|layer| layer.bytes).sum();
        while let Some(older) = begin.checked_sub(1)
            && bytes(older) <= sum
        {
            begin = older;
            sum += bytes(older);
        }
        self.fold_from(list, begin, &LeftOut::default())
    }

    pub(super) fn fold_all(
        &self,
        list: &mut LayerList,
        left_out: &LeftOut,
    ) -> Result<(), TrialError> {
        self.fold_from(list, 0, left_out)
    }

    /// Puts a new layer in the place of all from this one on.
    pub(super) fn fold_from(
        &self,
        list: &mut LayerList,
        begin: usize,
        left_out: &LeftOut,
    ) -> Result<(), TrialError> {
        let old: Vec<String> = list.names().skip(begin).cloned().collect();
        if old.is_empty() {
            return Ok(());
        }
        let failed = TrialError::at(&self.folder);
        let random = TaskId::random().map_err(|error| failed(io::Error::other(error.to_string())));
        let name = format!("fold-{}", random?);
        let folder = self.folder.join(&name);
        private(&folder).map_err(&failed)?;
        let copied = || {
            let layer = make_layer(&folder, 0, &self.place).map_err(&failed)?;
            let tops = self.tops(&old).map_err(&failed)?;
            let below: Vec<String> = list.names().take(begin).cloned().collect();
            let below = self.tops(&below);
            fold(&tops, &below.map_err(&failed)?, &self.place, &layer.upper, left_out)?;
            let marks = self.marks(&old, left_out);
            write_json(&folder.join(MARKS), &marks).map_err(&failed)?;
            let top = TreeTop::open(&layer.upper).map_err(&failed)?;
            rustix::fs::syncfs(top.handle()).map_err(|errno| failed(errno.into()))
        };
        if let Err(error) = copied() {
            let _ = remove_tree(&folder);
            return Err(error);
        }
        let replaced = list.layers.split_off(begin);
        let bytes = bytes_of(&self.upper(&name));
        let began_at_ms = replaced.iter().map(|layer| layer.began_at_ms).max().unwrap_or(0);
        list.layers.push(ListedLayer { name, bytes, began_at_ms });
        list.gone.extend(old);
        self.write(list)
    }

    /// Writes the marks of layers again, without those of some paths.
    pub(super) fn rewrite_marks(
        &self,
        names: &[String],
        left_out: &LeftOut,
    ) -> Result<(), TrialError> {
        for name in names {
            let place = self.folder.join(name).join(MARKS);
            let marks = self.marks(std::slice::from_ref(name), left_out);
            write_json(&place, &marks).map_err(TrialError::at(&place))?;
        }
        Ok(())
    }

    /// These layers, newest first.
    pub(super) fn tops(&self, names: &[String]) -> io::Result<Vec<TreeTop>> {
        names.iter().rev().map(|name| TreeTop::open_own(&self.upper(name))).collect()
    }

    /// What stood below the files of these layers, oldest first: the oldest look counts, since a
    /// later command saw the file as an earlier one had left it.
    pub(super) fn marks(&self, names: &[String], left_out: &LeftOut) -> Vec<MarkBelow> {
        let mut known = HashSet::new();
        let mut all = Vec::new();
        for name in names {
            let marks: Vec<MarkBelow> =
                read_json(&self.folder.join(name).join(MARKS)).unwrap_or_default();
            for mark in marks {
                let is_out = mark.path.ancestors().any(|path| left_out.paths.contains(path));
                if !is_out && known.insert(mark.path.clone()) {
                    all.push(mark);
                }
            }
        }
        all
    }
}

fn is_empty_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0)
}

/// Makes a folder that only its owner can read, unless it is there.
pub(super) fn private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
