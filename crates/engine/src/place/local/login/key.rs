//! The cache key of a login: everything that its effect is known to depend on.

use std::{
    collections::BTreeMap,
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

/// Variables that differ from one process to the next, and that no profile writes files by.
const PASSING: [&str; 9] = [
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "LINES",
    "COLUMNS",
    "WINDOWID",
    "TERM_SESSION_ID",
    "LEGWORK_LOG",
];

/// Files of all users.
const COMMON_FILES: [&str; 9] = [
    "/etc/profile",
    "/etc/profile.d",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/zsh",
    "/etc/zshenv",
    "/etc/zprofile",
    "/etc/zshrc",
    "/etc/zlogin",
];

/// Files below the user's own folder.
const OWN_FILES: [&str; 10] = [
    ".profile",
    ".bash_profile",
    ".bash_login",
    ".bashrc",
    ".bash_aliases",
    ".cargo/env",
    ".zshenv",
    ".zprofile",
    ".zshrc",
    ".zlogin",
];

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
    /// None if it is one whose state cannot be seen.
    pub shell: Option<Shell>,
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
    /// None if it is called in another way than shells are that we know.
    pub(super) fn of(wish: LoginWish<'_>, spec: &Spec) -> Option<Self> {
        let called = spec.argv.get(1..3)?;
        if called != [b"-lc".as_slice(), b"--".as_slice()] {
            return None;
        }
        Some(Self {
            shell: Shell::of(wish.program),
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
        let mut key = Parts::default();
        key.add(self.workdir_path.as_os_str().as_bytes());
        self.add_shell(&mut key);
        let Environment { inherited, set, unset } = &self.environment;
        key.add(&[u8::from(*inherited)]);
        key.add(&set.len().to_le_bytes());
        for part in set.iter().flat_map(|(name, value)| [name, value]).chain(unset) {
            key.add(part);
        }
        key.finish()
    }

    /// The same in every process and folder for as long as nothing changes that the profile's
    /// complaints depend on: the shell, the profile's files, the environment, the sandbox.
    pub(super) fn complaint_key(&self, sandbox: &LoginKey) -> LoginKey {
        let mut key = Parts::default();
        key.add(sandbox);
        self.add_shell(&mut key);
        for (name, value) in self.variables() {
            key.add(&name);
            key.add(&value);
        }
        key.finish()
    }

    /// The shell, and what is known of the files that it reads.
    fn add_shell(&self, key: &mut Parts) {
        key.add(self.program.as_os_str().as_bytes());
        key.add(&self.name);
        key.add(format!("{:?} {:?}", self.wanted, self.limits).as_bytes());
        key.add_file(&self.program);
        for file in COMMON_FILES {
            key.add_file(Path::new(file));
        }
        for home in ["HOME", "ZDOTDIR"].into_iter().filter_map(|name| self.value(name)) {
            for file in OWN_FILES {
                key.add_file(&Path::new(&home).join(file));
            }
        }
        for file in ["BASH_ENV", "ENV"].into_iter().filter_map(|name| self.value(name)) {
            key.add_file(Path::new(&file));
        }
    }

    /// The variables that the shell gets, in order of their names, without the passing ones.
    fn variables(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let Environment { inherited, set, unset } = &self.environment;
        let ours = std::env::vars_os().filter(|_| *inherited);
        let mut all: BTreeMap<_, _> =
            ours.map(|(name, value)| (name.into_vec(), value.into_vec())).collect();
        all.retain(|name, _| !unset.contains(name));
        all.extend(set.iter().cloned());
        all.retain(|name, _| !PASSING.iter().any(|passing| name == passing.as_bytes()));
        all
    }

    /// A variable as the shell gets it.
    fn value(&self, name: &str) -> Option<OsString> {
        let Environment { inherited, set, .. } = &self.environment;
        let set = set.iter().find(|(set, _)| set == name.as_bytes());
        let set = set.map(|(_, value)| OsString::from_vec(value.clone()));
        set.or_else(|| std::env::var_os(OsStr::new(name)).filter(|_| *inherited))
    }
}

/// Stands for which files these are, and when they were changed.
pub(super) fn mark_of(files: &[PathBuf]) -> LoginKey {
    let mut mark = Parts::default();
    for file in files {
        mark.add(file.as_os_str().as_bytes());
        mark.add_file(file);
    }
    mark.finish()
}

/// Parts of a key, each with its length, so that none runs into the next.
#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn finish(self) -> LoginKey {
        self.0.finalize().into()
    }

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
