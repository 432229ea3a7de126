//! The sandbox of a command that writes outside its workspace into a layer over the home folder.

use std::{
    env, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_gate::Level;
use legwork_warden::sandbox::{CopyOnWrite, Enforcement, Profile};

use super::{
    Sandboxing,
    places::short_name,
    trial::{knows_copies, mounts_below},
};
use crate::{
    id::TaskId,
    model::sandbox::{Outside, Wanted},
    place::{PlaceError, Sandbox},
    threads::in_thread,
    trial::{OutsideLayers, TrialError},
};

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
    pub(crate) async fn begin_layer(
        self: &Arc<Self>,
        wanted: Wanted,
        id: &TaskId,
        warden: &str,
    ) -> Result<Profile, PlaceError> {
        let profile = self.profile(wanted).await;
        let (sandboxing, id, warden) = (self.clone(), id.clone(), warden.to_owned());
        let made = in_thread(move || sandboxing.make_layer(&profile, &id, &warden)).await;
        made.unwrap_or_else(|| Err(io::Error::other("it was cut off").into()))
    }

    fn make_layer(
        &self,
        profile: &Profile,
        id: &TaskId,
        warden: &str,
    ) -> Result<Profile, PlaceError> {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let (Some(home), Some(layers)) = (self.home(), self.outside()) else {
            return Ok(profile.clone());
        };
        if !knows_copies() {
            return Err(PlaceError::NoLayer("this kernel has no overlay file system".into()));
        }
        // What may be written is seen as it is, whatever is mounted there.
        let is_room =
            |place: &PathBuf| profile.writable.iter().any(|room| bytes(place).starts_with(room));
        if let Some(mount) = mounts_below(&home).into_iter().find(|place| !is_room(place)) {
            return Err(PlaceError::NoLayer(format!(
                "another file system is mounted at {}, which a layer over {} would not show",
                mount.display(),
                home.display()
            )));
        }
        let bytes_max = self.settings.layer_bytes_max;
        let view = layers.begin(id, warden, &|warden| self.is_alive(warden), bytes_max)?;
        let copy = CopyOnWrite {
            place: bytes(&home),
            upper: bytes(&view.layer.upper),
            work: bytes(&view.layer.work),
            layers: view.below.iter().map(|path| bytes(path)).collect(),
            base: bytes(&view.base),
        };
        let mut layered = Profile { copies: vec![copy], ..profile.clone() };
        layered.writable.push(bytes(&home));
        Ok(layered)
    }

    /// The sandbox of such a command, as this machine makes it.
    pub(crate) fn layered(&self, wanted: Wanted, enforcement: Enforcement) -> Arc<Sandbox> {
        let known = self.learn(wanted, enforcement);
        let mut variables = known.variables.clone();
        // To git the workspace is on another file system than the folders around it.
        variables.push(("GIT_DISCOVERY_ACROSS_FILESYSTEM".to_owned(), "1".into()));
        let (enforcement, report) = (known.enforcement.clone(), known.report.clone());
        Arc::new(Sandbox { enforcement, report, variables, mark: known.mark })
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
        Self::NoLayer(error.to_string())
    }
}
