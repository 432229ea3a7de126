//! Which paths a sandbox refuses to be written, told before anything runs.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use legwork_warden::sandbox::{GuardKind, Profile};

/// Folders that are the command's own in a sandbox, or hold devices: what can be written there is
/// not the profile's to say.
const OWN: [&str; 6] = ["/tmp", "/var/tmp", "/dev", "/proc", "/run", "/sys"];

/// Those of these paths that surely cannot be written under a profile. Asks the disk where links
/// lead to.
pub(super) fn refused(profile: &Profile, paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter(|path| is_refused(profile, &real(path))).collect()
}

fn is_refused(profile: &Profile, path: &Path) -> bool {
    let is_in = |folder: &[u8]| path.starts_with(Path::new(OsStr::from_bytes(folder)));
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
            network: false,
            writable: vec![bytes(workspace.clone())],
            shown: Vec::new(),
            unwritable: vec![
                guard(".git", GuardKind::InPlace),
                guard(".git/hooks", GuardKind::ReadOnly),
            ],
            unreadable: Vec::new(),
            tmp: None,
            state: Vec::new(),
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
