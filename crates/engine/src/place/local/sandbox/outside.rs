//! The sandbox of a command that writes outside its workspace into a layer over the home folder.

use std::{
    env,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_gate::Level;
use legwork_warden::sandbox::{CopyOnWrite, Enforcement, Profile};

use super::{
    Sandboxing,
    places::short_name,
    trial::{across_file_systems, knows_copies, mounts_below, why_no_view},
};
use crate::{
    id::TaskId,
    model::sandbox::{Outside, Wanted},
    place::{PlaceError, Sandbox},
    trial::{OutsideLayers, OutsideView, TrialError, TrialLayer},
};

/// The layer over the home of a command to come.
#[derive(Debug)]
pub(crate) struct OutsideAhead {
    view: OutsideView,
    home: PathBuf,
    /// What was mounted in the home.
    mounted: Vec<PathBuf>,
}

impl OutsideAhead {
    pub(super) fn copies(&self) -> Vec<CopyOnWrite> {
        let copy = |layer: &TrialLayer| CopyOnWrite {
            place: bytes(&layer.place),
            upper: bytes(&layer.upper),
            work: bytes(&layer.work),
            layers: self.view.below_folders.iter().map(|path| bytes(path)).collect(),
            base: bytes(&self.view.base()),
        };
        self.view.layer().map(copy).into_iter().collect()
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

impl Sandboxing {
    /// Whether such a command writes into a layer over the home folder. One whose workspace is the
    /// home, or around it, writes there as it is.
    pub(crate) fn is_layered(&self, wanted: Wanted) -> bool {
        self.settings.outside == Outside::Layer
            && wanted.level == Level::WorkspaceWrite
            && self.home().is_some()
    }

    /// The home folder, by its real path.
    fn home(&self) -> Option<PathBuf> {
        let home = env::home_dir().filter(|home| home.is_absolute())?.canonicalize().ok()?;
        let is_inside = |root: &PathBuf| home.starts_with(root);
        (home != Path::new("/") && home.is_dir() && !self.roots.iter().any(is_inside))
            .then_some(home)
    }

    /// The layers of this workspace, where commands have any.
    pub(crate) fn outside(&self) -> Option<OutsideLayers> {
        if self.settings.outside != Outside::Layer {
            return None;
        }
        let home = self.home()?;
        let name = format!("{}-{}", short_name(&self.workspace), short_name(&home));
        Some(OutsideLayers::of(&self.state, &name, &self.workspace, &home))
    }

    /// Makes the layer of a command that this warden will run, and the profile of its sandbox.
    pub(super) fn prepare_layer(
        &self,
        profile: &Profile,
        warden: &str,
    ) -> Result<(Profile, OutsideAhead), PlaceError> {
        let (Some(home), Some(layers)) = (self.home(), self.outside()) else {
            return Err(PlaceError::NoLayer("there is no home folder".into()));
        };
        if !knows_copies() {
            return Err(PlaceError::NoLayer("this kernel has no overlay file system".into()));
        }
        let mounted = mounts_below(std::slice::from_ref(&home));
        // What may be written is seen as it is, whatever is mounted there.
        let is_room = |place: &PathBuf| {
            let mut rooms = profile.writable.iter().map(|room| Path::new(OsStr::from_bytes(room)));
            rooms.any(|room| place.starts_with(room))
        };
        if let Some(mount) = mounted.iter().find(|place| !is_room(place)) {
            return Err(PlaceError::NoLayer(format!(
                "another file system is mounted at {}, which a layer over {} would not show",
                mount.display(),
                home.display()
            )));
        }
        let view = layers.prepare(&self.state, warden, &|warden| self.is_alive(warden))?;
        let ahead = OutsideAhead { view, home, mounted };
        let mut layered = Profile { copies: ahead.copies(), ..profile.clone() };
        layered.writable.push(bytes(&ahead.home));
        Ok((layered, ahead))
    }

    /// Makes such a layer that of a task, which begins now: how many bytes it may write. None if it
    /// does not fit any more.
    pub(super) fn begin_layer(
        &self,
        ahead: &mut OutsideAhead,
        id: &TaskId,
        warden: &str,
    ) -> Result<Option<u64>, PlaceError> {
        let Some(layers) = self.outside() else { return Ok(None) };
        if mounts_below(std::slice::from_ref(&ahead.home)) != ahead.mounted {
            return Ok(None);
        }
        let (is_alive, bytes_max) =
            (|warden: &str| self.is_alive(warden), self.settings.layer_bytes_max);
        Ok(layers.begin(&mut ahead.view, id, warden, &is_alive, bytes_max)?)
    }

    /// The sandbox of such a command, as this machine makes it.
    pub(super) fn layered(
        &self,
        wanted: Wanted,
        enforcement: Enforcement,
    ) -> Result<Arc<Sandbox>, PlaceError> {
        if let Some(reason) = why_no_view(&enforcement) {
            return Err(PlaceError::NoLayer(reason.to_owned()));
        }
        let known = self.learn(wanted, enforcement);
        let mut variables = known.variables.clone();
        variables.push(across_file_systems());
        let (enforcement, report) = (known.enforcement.clone(), known.report.clone());
        Ok(Arc::new(Sandbox { enforcement, report, variables, mark: known.mark }))
    }

    fn is_alive(&self, warden: &str) -> bool {
        let folder = rustix::fs::open(
            self.state.join("wardens"),
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
        // When in doubt it lives.
        folder.map_or(true, |folder| legwork_warden::is_alive(folder, warden).unwrap_or(true))
    }
}

impl From<TrialError> for PlaceError {
    fn from(error: TrialError) -> Self {
        match error {
            TrialError::LayersFull { .. } => Self::LayersFull(error.to_string()),
            error => Self::NoLayer(error.to_string()),
        }
    }
}
