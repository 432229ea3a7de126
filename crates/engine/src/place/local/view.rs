//! Answers whether a sandbox shows a path and lets it be written, without entering the sandbox.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use legwork_warden::sandbox::{GuardKind, Profile};

/// Folders that are the command's own in a sandbox, or hold devices: what can be written there is
/// not the profile's to say.
const OWN: [&str; 6] = ["/tmp", "/var/tmp", "/dev", "/proc", "/run", "/sys"];

/// Devices that every command has.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Where a path is that a command names under a profile; none if it is hidden from it, or in a
/// place of its own that cannot be looked at from outside. Asks the disk where links lead to.
pub(super) fn seen(profile: &Profile, path: &Path) -> Option<PathBuf> {
    let place = placed(profile, path)?;
    let own = profile.tmp.as_deref().map(|tmp| real(path_of(tmp)));
    let leads_to = real(&place);
    let is_own = own.is_some_and(|own| leads_to.starts_with(own));
    (is_own || !is_hidden(profile, &leads_to)).then_some(place)
}

/// Where a path is, as far as its name says: the temporary folders are the command's own, and one.
fn placed(profile: &Profile, path: &Path) -> Option<PathBuf> {
    let shown = profile.shown.iter().chain(&profile.writable);
    let is_shown = shown.into_iter().any(|folder| path.starts_with(path_of(folder)));
    let rest = ["/tmp", "/var/tmp"].iter().find_map(|folder| path.strip_prefix(folder).ok());
    match rest {
        Some(rest) if !is_shown => Some(path_of(profile.tmp.as_deref()?).join(rest)),
        _ => Some(path.to_owned()),
    }
}

/// Whether a real path is not there for a command, or is something else for it.
fn is_hidden(profile: &Profile, path: &Path) -> bool {
    let is_in = |folder: &[u8]| {
        let folder = path_of(folder);
        path.starts_with(folder) || path.starts_with(real(folder))
    };
    if profile.unreadable.iter().any(|secret| is_in(secret)) || is_in(&profile.state) {
        return true;
    }
    let shown = profile.shown.iter().chain(&profile.writable).any(|folder| is_in(folder));
    let device = DEVICES.iter().any(|device| path == Path::new(device));
    !shown && !device && OWN.iter().any(|folder| path.starts_with(folder))
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Those of these paths that surely cannot be written under a profile. Asks the disk where links
/// lead to.
pub(super) fn refused(profile: &Profile, paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter(|path| is_refused(profile, &real(path))).collect()
}

fn is_refused(profile: &Profile, path: &Path) -> bool {
    let is_in = |folder: &[u8]| path.starts_with(path_of(folder));
    if profile.writable.iter().any(|folder| is_in(folder)) {
        let kept = |guard: GuardKind| guard != GuardKind::InPlace;
        return profile.unwritable.iter().any(|it| kept(it.guard) && is_in(&it.path));
    }
    !OWN.iter().any(|folder| is_in(folder.as_bytes()))
}

/// Where a path leads, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut here = path;
    loop {
        if let Ok(real) = here.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        let (Some(parent), Some(name)) = (here.parent(), here.file_name()) else {
            return path.to_owned();
        };
        missing.push(name);
        here = parent;
    }
}

#[cfg(test)]
mod tests {
    use legwork_warden::sandbox::Guarded;

    use super::*;

    /// A profile without anything in it.
    fn nothing() -> Profile {
        Profile {
            network: false,
            names: false,
            writable: Vec::new(),
            shown: Vec::new(),
            unwritable: Vec::new(),
            unreadable: Vec::new(),
            tmp: None,
            state: b"/no/state".to_vec(),
            denied: Vec::new(),
            program_folders: Vec::new(),
            tells_exec: false,
            copies: Vec::new(),
        }
    }

    #[test]
    fn a_path_is_where_the_command_sees_it_or_nowhere() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (workspace, tmp, secret) = (base.join("ws"), base.join("state/tmp"), base.join("key"));
        std::fs::create_dir_all(&workspace).unwrap();
        std::fs::create_dir_all(&tmp).unwrap();
        std::fs::write(&secret, "").unwrap();
        for folder in [&workspace, &tmp] {
            std::os::unix::fs::symlink(&secret, folder.join("link")).unwrap();
            std::os::unix::fs::symlink("/tmp/elsewhere", folder.join("own")).unwrap();
        }
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let profile = Profile {
            writable: vec![bytes(&workspace)],
            shown: vec![bytes(&workspace)],
            unreadable: vec![bytes(&secret)],
            tmp: Some(bytes(&tmp)),
            state: bytes(&base.join("state")),
            ..nothing()
        };
        let in_memory = Profile { tmp: None, ..profile.clone() };
        for (path, expected) in [
            (workspace.join("x"), Some(workspace.join("x"))),
            (PathBuf::from("/usr/bin"), Some("/usr/bin".into())),
            (PathBuf::from("/dev/null"), Some("/dev/null".into())),
            (PathBuf::from("/tmp/x"), Some(tmp.join("x"))),
            (secret.clone(), None),
            (workspace.join("link"), None),
            (workspace.join("own"), None),
            (PathBuf::from("/tmp/link"), None),
            (base.join("state/ledger.db"), None),
            (PathBuf::from("/run/docker.sock"), None),
            (PathBuf::from("/proc/1"), None),
        ] {
            // The folders of this test may be in `/tmp` themselves.
            let own = path.starts_with("/tmp") && path.starts_with(&base) && expected.is_none();
            let found = seen(&profile, &path);
            assert!(found == expected || own && found.is_some_and(|it| !it.exists()), "{path:?}");
        }
        assert_eq!(seen(&in_memory, Path::new("/tmp/x")), None);
    }

    #[test]
    fn only_what_surely_cannot_be_written_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let workspace = base.join("ws");
        std::fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
        std::os::unix::fs::symlink("/etc", workspace.join("out")).unwrap();
        let bytes = |path: PathBuf| path.into_os_string().into_encoded_bytes();
        let guard = |name: &str, guard| Guarded { path: bytes(workspace.join(name)), guard };
        let profile = Profile {
            writable: vec![bytes(workspace.clone())],
            unwritable: vec![
                guard(".git", GuardKind::InPlace),
                guard(".git/hooks", GuardKind::ReadOnly),
            ],
            ..nothing()
        };
        for (path, expected) in [
            (PathBuf::from("/etc/foo"), true),
            (PathBuf::from("/no/such/folder/x"), true),
            (workspace.join("x"), false),
            (workspace.join("new/x"), false),
            (workspace.join("out/foo"), true),
            (workspace.join(".git/x"), false),
            (workspace.join(".git/hooks/pre-commit"), true),
            (PathBuf::from("/tmp/x"), false),
            (PathBuf::from("/dev/null"), false),
        ] {
            let refused = !refused(&profile, vec![path.clone()]).is_empty();
            assert_eq!(refused, expected, "{}", path.display());
        }
    }
}
