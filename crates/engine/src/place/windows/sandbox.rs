//! The sandbox of a command, as there is none on Windows yet: what is missing is said by name.
//!
//! A restricted token of low integrity was tried under wine, which takes the calls and holds
//! nothing (docs/windows.md): it is not used before somebody has seen it hold.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use legwork_gate::NetworkMode;
use legwork_warden::sandbox::{Enforcement, Profile};
use sha2::{Digest, Sha256};

use crate::{
    model::sandbox::{SandboxReport, Wanted},
    place::Sandbox,
    platform::{is_below, real_path},
};

/// What was looked at before a command, to be compared with afterwards: nothing is.
#[derive(Debug)]
pub(crate) enum LocalTamperCheck {}

impl LocalTamperCheck {
    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn warnings(self, _leaves: bool) -> Vec<String> {
        match self {}
    }
}

/// Whether a workspace is in a repository, or has one: nothing is compared there.
pub(crate) fn has_repository(_workspace: &Path, _others: &[String]) -> bool {
    false
}

/// Knows what this machine makes of the sandboxes of one engine.
#[derive(Debug)]
pub(crate) struct Sandboxing {
    /// Where a command can put a file.
    writable: Vec<PathBuf>,
    profiles: Mutex<HashMap<Wanted, Arc<Profile>>>,
    known: Mutex<HashMap<Wanted, Arc<Sandbox>>>,
}

impl Sandboxing {
    pub(crate) fn new(roots: &[PathBuf], state: &Path) -> Self {
        let temporary = std::env::temp_dir();
        let folders = roots.iter().map(PathBuf::as_path).chain([state, &*temporary]);
        // A file is compared by its real path, and these can be written in other ways.
        let writable = folders.map(|it| real_path(it).unwrap_or_else(|_| it.to_owned())).collect();
        Self { writable, profiles: Mutex::default(), known: Mutex::default() }
    }

    /// The profile with all that is in the folders which commands may write now: that changes
    /// nothing here.
    pub(crate) async fn current_profile(&self, wanted: Wanted) -> Arc<Profile> {
        self.profile(wanted).await
    }

    /// The profile, made once: a warden says what it can make of it, which is little.
    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn profile(&self, wanted: Wanted) -> Arc<Profile> {
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = || Profile {
            network: wanted.network == NetworkMode::All,
            names: wanted.network == NetworkMode::Names,
            writable: Vec::new(),
            shown: Vec::new(),
            unwritable: Vec::new(),
            unreadable: Vec::new(),
            tmp: None,
            state: Vec::new(),
            denied: Vec::new(),
            program_folders: Vec::new(),
            tells_exec: false,
            copies: Vec::new(),
        };
        profiles.entry(wanted).or_insert_with(|| Arc::new(profile())).clone()
    }

    /// What this machine makes of it, if that is known.
    pub(crate) fn known(&self, wanted: Wanted) -> Option<Arc<Sandbox>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&wanted).cloned()
    }

    /// Remembers what this machine makes of it.
    pub(crate) fn learn(&self, wanted: Wanted, enforcement: Enforcement) -> Arc<Sandbox> {
        let report = Arc::new(SandboxReport::new(wanted, &enforcement));
        let mark = Sha256::digest(format!("{enforcement:?}")).into();
        let sandbox = Arc::new(Sandbox { enforcement, report, variables: Vec::new(), mark });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(wanted, sandbox.clone());
        sandbox
    }

    /// Whether a command can write there.
    pub(crate) fn can_be_written(&self, path: &Path) -> bool {
        self.writable.iter().any(|folder| is_below(path, folder))
    }
}
