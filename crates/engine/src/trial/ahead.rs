//! Layers that are made ahead of the command that will write into them.
//!
//! They begin in `ahead/<warden>` of the state folder, for the warden that has mounted them and
//! waits. A command that gets them gives their folder its own name and place by one rename: what is
//! mounted stays mounted. A folder in there whose warden is gone was never used.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{TrialLayer, make_layer, private, sweep::remove_tree};

/// The folder in the state folder.
const AHEAD: &str = "ahead";

/// Empty layers; removed with this, unless a command has got them.
#[derive(Debug)]
pub(crate) struct LayersAhead {
    folder: PathBuf,
    layers: Vec<TrialLayer>,
    /// What their places were like.
    marks: Vec<PlaceMark>,
    is_used: bool,
}

/// What a layer's top has of its place, and which folder that was.
#[derive(Debug, PartialEq, Eq)]
struct PlaceMark {
    folder: (u64, u64),
    mode: u32,
    owner: (u32, u32),
}

impl PlaceMark {
    fn of(place: &Path) -> io::Result<Self> {
        let found = fs::metadata(place)?;
        let folder = (found.dev(), found.ino());
        Ok(Self { folder, mode: found.mode(), owner: (found.uid(), found.gid()) })
    }
}

impl LayersAhead {
    /// Makes a layer for each of these places.
    pub(crate) fn make<'p>(
        state: &Path,
        warden: &str,
        places: impl Iterator<Item = &'p Path>,
    ) -> io::Result<Self> {
        let folder = state.join(AHEAD).join(warden);
        private(&folder)?;
        // What fails from here on is removed.
        let (layers, marks) = (Vec::new(), Vec::new());
        let mut made = Self { folder, layers, marks, is_used: false };
        for (number, place) in places.enumerate() {
            made.marks.push(PlaceMark::of(place)?);
            made.layers.push(make_layer(&made.folder, number, place)?);
        }
        Ok(made)
    }

    /// The folder that they are in.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The layers.
    pub(crate) fn layers(&self) -> &[TrialLayer] {
        &self.layers
    }

    /// Whether their places are as they were.
    pub(super) fn is_current(&self) -> bool {
        let mut both = self.layers.iter().zip(&self.marks);
        both.all(|(layer, mark)| PlaceMark::of(&layer.place).is_ok_and(|now| now == *mark))
    }

    /// Gives their folder another place, where it stays.
    pub(super) fn move_to(&mut self, folder: &Path) -> io::Result<()> {
        fs::rename(&self.folder, folder)?;
        let moved = |path: &Path| match path.strip_prefix(&self.folder) {
            Ok(rest) => folder.join(rest),
            Err(_) => path.to_owned(),
        };
        for layer in &mut self.layers {
            (layer.upper, layer.work) = (moved(&layer.upper), moved(&layer.work));
        }
        (self.folder, self.is_used) = (folder.to_owned(), true);
        Ok(())
    }
}

impl Drop for LayersAhead {
    fn drop(&mut self) {
        if !self.is_used {
            // What cannot be removed now is found by a clean-up.
            let _ = remove_tree(&self.folder);
        }
    }
}

/// Removes layers that were never used, of wardens that are gone.
pub(crate) fn clear_ahead(state: &Path, is_left: &dyn Fn(&str, &Path) -> bool) {
    let entries = fs::read_dir(state.join(AHEAD)).into_iter().flatten().filter_map(Result::ok);
    for entry in entries {
        if let Ok(warden) = entry.file_name().into_string()
            && is_left(&warden, &entry.path())
        {
            let _ = remove_tree(&entry.path());
        }
    }
}
