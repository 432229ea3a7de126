//! Landlock rules, which a process cannot drop: what it may write, signal and connect to.
//!
//! With namespaces these rules are the second lock on the same door. Without them they are the only
//! one: then secrets are kept by leaving them out of what may be read, which means listing their
//! neighbours instead of the folder they are in.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};

/// The newest rights that are asked for; an older kernel keeps those that it knows.
const NEWEST: ABI = ABI::V6;

/// The first version that knows abstract sockets and signals.
const SCOPES: i64 = 6;

/// What is to be allowed; all else is not.
#[derive(Debug)]
pub(super) struct FileRules<'a> {
    /// What may be read and executed.
    pub readable: Vec<PathBuf>,
    /// What may be written besides.
    pub writable: Vec<&'a Path>,
    /// Device files, and folders of them, that may be opened for writing.
    pub devices: Vec<PathBuf>,
    /// Whether connecting and listening by TCP is refused here, for want of a network namespace.
    pub refuse_tcp: bool,
}

impl FileRules<'_> {
    /// Makes the ruleset, for a later process to restrict itself by.
    pub(super) fn build(&self) -> io::Result<OwnedFd> {
        let version = version()?;
        let all = AccessFs::from_all(NEWEST);
        let read = AccessFs::from_read(NEWEST);
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let mut ruleset = Ruleset::default().handle_access(all).map_err(io::Error::other)?;
        if version >= SCOPES {
            let scopes = Scope::AbstractUnixSocket | Scope::Signal;
            ruleset = ruleset.scope(scopes).map_err(io::Error::other)?;
        }
        if self.refuse_tcp {
            let tcp = AccessNet::from_all(NEWEST);
            ruleset = ruleset.handle_access(tcp).map_err(io::Error::other)?;
        }
        let mut ruleset = ruleset.create().map_err(io::Error::other)?;
        let groups: [(Vec<&Path>, BitFlags<AccessFs>); 3] = [
            (self.readable.iter().map(PathBuf::as_path).collect(), read),
            (self.writable.clone(), all),
            (self.devices.iter().map(PathBuf::as_path).collect(), device),
        ];
        for (paths, access) in groups {
            for path in paths {
                // What is not there needs no rule.
                let Ok(handle) = open_path(path) else { continue };
                let is_folder = handle.metadata().is_ok_and(|data| data.is_dir());
                let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
                let rule = PathBeneath::new(handle, access);
                ruleset = ruleset.add_rule(rule).map_err(io::Error::other)?;
            }
        }
        let descriptor: Option<OwnedFd> = ruleset.into();
        descriptor.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// The version of the kernel's interface.
pub(super) fn version() -> io::Result<i64> {
    const ASK_FOR_VERSION: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes no pointer and only answers with a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, ASK_FOR_VERSION) };
    if version < 0 { Err(io::Error::last_os_error()) } else { Ok(version) }
}

/// What is lacking in an older kernel, where anything is.
pub(super) fn without_scopes() -> Option<String> {
    let version = version().ok().filter(|version| *version < SCOPES)?;
    Some(format!(
        "only files: version {version} of this kernel's Landlock knows no scopes, so abstract sockets can be reached"
    ))
}

/// Why there are no rules.
pub(super) fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel was built without Landlock".into(),
        Some(libc::EOPNOTSUPP) => "Landlock is not enabled in this kernel (lsm=)".into(),
        _ => format!("the rules cannot be made: {error}"),
    }
}

fn open_path(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

/// All that is in these folders but the hidden paths: the neighbours of each, and of each folder on
/// the way to it.
pub(super) fn everything_in(folders: Vec<PathBuf>, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut shown = Vec::new();
    let mut waiting = folders;
    while let Some(folder) = waiting.pop() {
        if hidden.iter().any(|path| folder.starts_with(path)) {
            continue;
        }
        if !hidden.iter().any(|path| path.starts_with(&folder)) {
            shown.push(folder);
        } else if let Ok(entries) = std::fs::read_dir(&folder) {
            // A link would open what it points to, which may be what is hidden; its target counts
            // by itself.
            let real = entries.filter_map(|entry| {
                let entry = entry.ok()?;
                (!entry.file_type().ok()?.is_symlink()).then(|| entry.path())
            });
            waiting.extend(real);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_a_path_is_its_neighbours_all_the_way_up_and_no_link() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        for folder in ["a/secret", "a/plain", "b"] {
            std::fs::create_dir_all(base.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(base.join("a/secret"), base.join("link")).unwrap();
        let everything = || vec![PathBuf::from("/")];
        let hidden = [base.join("a/secret")];
        let shown = everything_in(everything(), &hidden);
        let below: Vec<&PathBuf> = shown.iter().filter(|path| path.starts_with(&base)).collect();
        assert_eq!(below.len(), 2, "{below:?}");
        assert!(shown.contains(&base.join("a/plain")) && shown.contains(&base.join("b")));
        assert!(!shown.contains(&PathBuf::from("/")));
        assert_eq!(everything_in(everything(), &[]), everything());
        assert_eq!(everything_in(vec![base.join("a")], &hidden), [base.join("a/plain")]);
        assert!(everything_in(vec![base.join("a/secret/deep")], &hidden).is_empty());
    }
}
