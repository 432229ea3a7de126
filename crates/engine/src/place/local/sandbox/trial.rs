//! The sandbox of a command that is only tried: everything that it may write is a copy.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_warden::sandbox::{CopyOnWrite, Enforcement, Profile, SandboxLayer};

use super::Sandboxing;
use crate::{
    id::TaskId,
    model::sandbox::{SandboxReport, Wanted},
    place::{PlaceError, Sandbox},
    threads::in_thread,
    trial::{TrialLayer, Trials},
};

/// Whether the kernel makes copy-on-write views.
pub(crate) fn knows_copies() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some("overlay"))
}

impl Sandboxing {
    /// Makes the layers of a trial, and the profile of its command.
    pub(crate) async fn begin_trial(
        self: &Arc<Self>,
        wanted: Wanted,
        id: &TaskId,
    ) -> Result<Profile, PlaceError> {
        if !knows_copies() {
            let problem = "this kernel has no overlay file system";
            return Err(PlaceError::NoCopies(problem.into()));
        }
        let profile = self.profile(wanted).await;
        let (sandboxing, id) = (self.clone(), id.clone());
        let made = in_thread(move || sandboxing.make_layers(&profile, &id)).await;
        made.unwrap_or_else(|| Err(io::Error::other("it was cut off").into()))
    }

    fn make_layers(&self, profile: &Profile, id: &TaskId) -> Result<Profile, PlaceError> {
        let path = |bytes: &Vec<u8>| PathBuf::from(OsStr::from_bytes(bytes));
        let real = |path: PathBuf| path.canonicalize().ok().filter(|path| path.is_dir());
        let mut places: Vec<PathBuf> = profile.writable.iter().map(path).filter_map(real).collect();
        places.sort();
        places.dedup();
        if let Some(mount) = places.iter().flat_map(|place| mounts_below(place)).next() {
            return Err(PlaceError::NoCopies(format!(
                "another file system is mounted at {}, which a copy of the folder around it would not show",
                mount.display()
            )));
        }
        let temporary = profile.tmp.as_ref().map(path);
        let trials = Trials::of(&self.state);
        let layers = trials.create(id, &self.workspace, &places, temporary.as_deref())?;
        // A file that may be written has no copy of its own: it is only read.
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let copy = |layer: &TrialLayer| CopyOnWrite {
            place: bytes(&layer.place),
            upper: bytes(&layer.upper),
            work: bytes(&layer.work),
            layers: Vec::new(),
            base: Vec::new(),
        };
        Ok(Profile {
            writable: places.iter().map(|place| bytes(place)).collect(),
            copies: layers.iter().map(copy).collect(),
            ..profile.clone()
        })
    }

    /// The sandbox of a trial as this machine makes it; an error if there is no copy.
    pub(crate) fn tried(
        &self,
        wanted: Wanted,
        enforcement: Enforcement,
    ) -> Result<Arc<Sandbox>, PlaceError> {
        if !enforcement.enforced.contains(&SandboxLayer::MountNamespace) {
            let missing = enforcement.missing.iter();
            let mount = missing.into_iter().find(|it| it.layer == SandboxLayer::MountNamespace);
            let reason = mount.map_or("no view of the files", |it| it.reason.as_str());
            return Err(PlaceError::NoCopies(reason.to_owned()));
        }
        let report = Arc::new(SandboxReport::new(wanted, &enforcement));
        let variables = self.variables(wanted);
        Ok(Arc::new(Sandbox { enforcement, report, variables, mark: [0; 32] }))
    }
}

/// What is mounted in a folder, below its top.
pub(super) fn mounts_below(place: &Path) -> Vec<PathBuf> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let places = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    places.filter(|mounted| mounted.starts_with(place) && mounted != place).collect()
}
