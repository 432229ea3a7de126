//! The sandbox of a command that is only tried: everything that it may write is a copy.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_warden::{
    protocol::RunCopies,
    sandbox::{CopyOnWrite, Enforcement, Profile, SandboxLayer},
};

use super::Sandboxing;
use crate::{
    id::TaskId,
    model::sandbox::{SandboxReport, Wanted},
    place::{PlaceError, Sandbox},
    state::reserve,
    threads::in_thread,
    trial::{LayersAhead, TrialLayer, Trials},
};

/// Layers of a trial to come. What is not used is removed.
#[derive(Debug)]
pub(crate) struct TrialAhead {
    layers: LayersAhead,
    /// How many of them are of places whose changes are wanted.
    kept: usize,
}

impl TrialAhead {
    fn copies(&self) -> Vec<CopyOnWrite> {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let copy = |layer: &TrialLayer| CopyOnWrite {
            place: bytes(&layer.place),
            upper: bytes(&layer.upper),
            work: bytes(&layer.work),
        };
        self.layers.layers().iter().map(copy).collect()
    }
}

/// Whether the kernel makes copy-on-write views.
pub(crate) fn knows_copies() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some("overlay"))
}

impl Sandboxing {
    /// Makes the layers of a trial that this warden will run, and the profile of its command.
    pub(crate) async fn prepare_trial(
        self: &Arc<Self>,
        profile: &Arc<Profile>,
        warden: &str,
    ) -> Result<(Profile, TrialAhead), PlaceError> {
        let (sandboxing, profile, warden) = (self.clone(), profile.clone(), warden.to_owned());
        let made = in_thread(move || {
            // Copies can fill the disk: then there is room to discard them.
            reserve::keep(&sandboxing.state);
            sandboxing.make_layers(&profile, &warden)
        });
        made.await.unwrap_or_else(cut)
    }

    /// Gives such layers to a trial that begins now; none if they do not fit any more.
    pub(crate) async fn begin_trial(
        self: &Arc<Self>,
        ahead: TrialAhead,
        id: &TaskId,
    ) -> Result<Option<RunCopies>, PlaceError> {
        let (sandboxing, id) = (self.clone(), id.clone());
        let begun = in_thread(move || sandboxing.give_layers(ahead, &id));
        begun.await.unwrap_or_else(cut)
    }

    /// Makes the layers. The last is of the temporary folder, if there is one: nobody wants its
    /// changes.
    fn make_layers(
        &self,
        profile: &Profile,
        warden: &str,
    ) -> Result<(Profile, TrialAhead), PlaceError> {
        if !knows_copies() {
            let problem = "this kernel has no overlay file system";
            return Err(PlaceError::NoCopies(problem.into()));
        }
        let path = |bytes: &Vec<u8>| PathBuf::from(OsStr::from_bytes(bytes));
        let real = |path: PathBuf| path.canonicalize().ok().filter(|path| path.is_dir());
        let mut places: Vec<PathBuf> = profile.writable.iter().map(path).filter_map(real).collect();
        places.sort();
        places.dedup();
        if let Some(mount) = mounts_below(&places).into_iter().next() {
            return Err(PlaceError::NoCopies(format!(
                "another file system is mounted at {}, which a copy of the folder around it would not show",
                mount.display()
            )));
        }
        let temporary = profile.tmp.as_ref().map(path);
        let all = places.iter().chain(&temporary).map(PathBuf::as_path);
        let layers = LayersAhead::make(&self.state, warden, all)?;
        let ahead = TrialAhead { layers, kept: places.len() };
        // A file that may be written has no copy of its own: it is only read.
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let profile = Profile {
            writable: places.iter().map(|place| bytes(place)).collect(),
            copies: ahead.copies(),
            ..profile.clone()
        };
        Ok((profile, ahead))
    }

    /// Gives the layers to a trial, unless something was mounted in their places meanwhile.
    fn give_layers(
        &self,
        mut ahead: TrialAhead,
        id: &TaskId,
    ) -> Result<Option<RunCopies>, PlaceError> {
        let kept = ahead.layers.layers().iter().take(ahead.kept);
        let places: Vec<PathBuf> = kept.map(|layer| layer.place.clone()).collect();
        if !mounts_below(&places).is_empty() {
            return Ok(None);
        }
        let trials = Trials::of(&self.state);
        let begun = trials.begin(&mut ahead.layers, ahead.kept, id, &self.workspace)?;
        let bytes_max = Some(self.settings.trial_bytes_max);
        Ok(begun.then(|| RunCopies { places: ahead.copies(), bytes_max }))
    }

    /// The sandbox of a trial as this machine makes it; an error if there is no copy.
    pub(crate) fn tried(
        &self,
        wanted: Wanted,
        enforcement: Enforcement,
    ) -> Result<Arc<Sandbox>, PlaceError> {
        if let Some(reason) = why_no_view(&enforcement) {
            return Err(PlaceError::NoCopies(reason.to_owned()));
        }
        let report = Arc::new(SandboxReport::new(wanted, &enforcement));
        let mut variables = self.variables(wanted);
        // To git a copy is another file system than the folders around it, where its repository
        // may be.
        variables.push(("GIT_DISCOVERY_ACROSS_FILESYSTEM".to_owned(), "1".into()));
        Ok(Arc::new(Sandbox { enforcement, report, variables, mark: [0; 32] }))
    }
}

fn cut<T>() -> Result<T, PlaceError> {
    Err(io::Error::other("it was cut off").into())
}

/// Why a command has no view of the files of its own, if it has none.
fn why_no_view(enforcement: &Enforcement) -> Option<&str> {
    if enforcement.enforced.contains(&SandboxLayer::MountNamespace) {
        return None;
    }
    let view = enforcement.missing.iter().find(|it| it.layer == SandboxLayer::MountNamespace);
    Some(view.map_or("no view of the files", |it| it.reason.as_str()))
}

/// What is mounted in some folders, below their tops.
fn mounts_below(places: &[PathBuf]) -> Vec<PathBuf> {
    mounted_in(&fs::read("/proc/self/mountinfo").unwrap_or_default(), places)
}

fn mounted_in(table: &[u8], places: &[PathBuf]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let is_below = |mounted: &PathBuf| {
        places.iter().any(|place| mounted.starts_with(place) && mounted != place)
    };
    fields.map(mount_point).filter(is_below).collect()
}

/// A path of the kernel's table: spaces, tabs, line ends and backslashes are octal numbers there.
fn mount_point(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), field);
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| *first == b'\\');
        let number = digits.and_then(|it| std::str::from_utf8(it).ok());
        if let Some(byte) = number.and_then(|it| u8::from_str_radix(it, 8).ok()) {
            path.push(byte);
            rest = others.get(3..).unwrap_or_default();
        } else {
            path.push(*first);
            rest = others;
        }
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_whole_names_and_whatever_their_names_are() {
        let table = b"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /h/w\\040s/in rw - tmpfs none rw\n\
            3 1 0:3 / /h/w2 rw - tmpfs none rw\n4 1 0:4 / /h/\xff\\134040 rw - tmpfs none rw\n";
        let below = |place: &str| mounted_in(table, &[PathBuf::from(place)]);
        assert_eq!(below("/h/w s"), [PathBuf::from("/h/w s/in")]);
        assert!(below("/h/w").is_empty() && below("/h/w2").is_empty());
        let odd = PathBuf::from(OsStr::from_bytes(b"/h/\xff\\040"));
        assert_eq!(below("/h"), [PathBuf::from("/h/w s/in"), PathBuf::from("/h/w2"), odd]);
    }
}
