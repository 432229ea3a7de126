//! The cache key of a login: everything that its effect is known to depend on.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_warden::protocol::{Environment, Limits, Spec};
use sha2::{Digest, Sha256};

use crate::{model::sandbox::Wanted, place::LoginWish};

/// Stands for everything that a login depends on.
pub(super) type LoginKey = [u8; 32];

/// Files of all users.
const COMMON_FILES: [&str; 4] =
    ["/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/bashrc"];

/// Files below the user's own folder.
const OWN_FILES: [&str; 6] =
    [".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".cargo/env"];

/// A shell of which it is known how to see all of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shell {
    Bash,
    Dash,
}

impl Shell {
    /// By what it really is: `sh` is one or the other.
    fn of(program: &Path) -> Option<Self> {
        match program.canonicalize().ok()?.file_name()?.to_str()? {
            "bash" => Some(Self::Bash),
            "dash" => Some(Self::Dash),
            _ => None,
        }
    }

    /// The arguments of a login, changed so that no profile is read. A bash without one is still a
    /// login shell in every other respect; a dash has no other.
    pub(super) fn without_profile(self, argv: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut argv = argv.to_vec();
        match (self, argv.get_mut(1)) {
            (Self::Bash, Some(_)) => argv.insert(1, b"--noprofile".to_vec()),
            (Self::Dash, Some(options)) => *options = b"-c".to_vec(),
            (_, None) => {}
        }
        argv
    }
}

/// A login that a command asks for.
#[derive(Debug)]
pub(super) struct Login {
    pub shell: Shell,
    pub program: PathBuf,
    /// The name it is called by.
    pub name: Vec<u8>,
    pub environment: Environment,
    pub workdir: Arc<OwnedFd>,
    workdir_path: PathBuf,
    pub wanted: Wanted,
    pub limits: Limits,
}

impl Login {
    /// None if it is a shell whose state cannot be seen.
    pub(super) fn of(wish: LoginWish<'_>, spec: &Spec) -> Option<Self> {
        Some(Self {
            shell: Shell::of(wish.program)?,
            program: wish.program.to_owned(),
            name: spec.argv.first()?.clone(),
            environment: spec.environment.clone(),
            workdir: wish.workdir.handle.clone()?,
            workdir_path: wish.workdir.path.clone(),
            wanted: wish.wanted,
            limits: spec.limits,
        })
    }

    /// The arguments for a script of ours.
    pub(super) fn argv(&self, options: &str, script: &str) -> Vec<Vec<u8>> {
        [&self.name, options.as_bytes(), b"--", script.as_bytes()].map(<[u8]>::to_vec).to_vec()
    }

    /// The same for as long as nothing changes. The inherited part of the environment is the
    /// engine's, and does not.
    pub(super) fn key(&self) -> LoginKey {
        let mut key = Parts(Sha256::new());
        key.add(self.program.as_os_str().as_bytes());
        key.add(&self.name);
        key.add(self.workdir_path.as_os_str().as_bytes());
        key.add(format!("{:?} {:?}", self.wanted, self.limits).as_bytes());
        let Environment { inherited, set, unset } = &self.environment;
        key.add(&[u8::from(*inherited)]);
        key.add(&set.len().to_le_bytes());
        for part in set.iter().flat_map(|(name, value)| [name, value]).chain(unset) {
            key.add(part);
        }
        key.add_file(&self.program);
        for file in COMMON_FILES {
            key.add_file(Path::new(file));
        }
        let home = self.value("HOME").unwrap_or_default();
        for file in OWN_FILES {
            key.add_file(&Path::new(&home).join(file));
        }
        for file in ["BASH_ENV", "ENV"].into_iter().filter_map(|name| self.value(name)) {
            key.add_file(Path::new(&file));
        }
        key.0.finalize().into()
    }

    /// A variable as the shell gets it.
    fn value(&self, name: &str) -> Option<OsString> {
        let Environment { inherited, set, .. } = &self.environment;
        let set = set.iter().find(|(set, _)| set == name.as_bytes());
        let set = set.map(|(_, value)| OsString::from_vec(value.clone()));
        set.or_else(|| std::env::var_os(OsStr::new(name)).filter(|_| *inherited))
    }
}

/// Parts of a key, each with its length, so that none runs into the next.
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.0.update(part.len().to_le_bytes());
        self.0.update(part);
    }

    /// Which file that is, and when it was changed; of a folder also what is in it.
    fn add_file(&mut self, path: &Path) {
        let Ok(data) = fs::metadata(path) else {
            self.add(b"absent");
            return;
        };
        for number in [data.dev(), data.ino(), data.size(), data.mode().into()] {
            self.add(&number.to_le_bytes());
        }
        for time in [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()] {
            self.add(&time.to_le_bytes());
        }
        if data.is_dir() {
            let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
            let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            files.sort();
            files.iter().filter(|file| !file.is_dir()).for_each(|file| self.add_file(file));
        }
    }
}
