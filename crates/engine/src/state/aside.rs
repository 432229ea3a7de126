//! Sets aside what stands in the place of one of our files or folders: it is renamed, never
//! removed.
//!
//! A folder where a file belongs (a container's mount makes one), a link that leads nowhere, a
//! pipe: none of them can be opened as what it should be, and each may be somebody's. A link that
//! leads to the right kind of thing is used.

use std::{
    fs::{self, FileType},
    io,
    path::Path,
};

use serde::Serialize;

use crate::{
    clock::now_ms,
    platform::{FlockOperation, flock, open_to_lock},
};

/// What a name has behind it that was set aside, before the time in milliseconds since 1970.
pub(crate) const SET_ASIDE: &str = ".aside-";

/// What belongs under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Folder,
}

impl FileKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Folder => "a folder",
        }
    }
}

/// Something that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// The name that it had.
    pub name: String,
    /// What was wrong with it.
    pub why: String,
    /// The name that it has now, in the same folder.
    pub now: String,
}

impl SetAside {
    /// What a person should know, in one line.
    pub fn message(&self) -> String {
        let Self { name, why, now } = self;
        format!("`{name}` in the state folder {why}. It was set aside as {now}")
    }
}

/// What is wrong with what stands under a name; nothing if it is of the right kind, or nothing is
/// there.
pub(crate) fn strange(path: &Path, belongs: FileKind) -> Option<String> {
    let found = match fs::metadata(path) {
        Ok(data) if data.is_file() && belongs == FileKind::File => return None,
        Ok(data) if data.is_dir() && belongs == FileKind::Folder => return None,
        Ok(data) if data.is_file() => "a file",
        Ok(data) if data.is_dir() => "a folder",
        Ok(_) => "a pipe, a socket or a device",
        Err(_) if path.is_symlink() => "a link that leads nowhere",
        // It is not there; or whoever opens it learns what is wrong.
        Err(_) => return None,
    };
    Some(format!("is {found} where {} belongs", belongs.as_str()))
}

/// Sets aside what stands under this name, if it is of the wrong kind.
pub(crate) fn set_aside_strange(path: &Path, belongs: FileKind) -> io::Result<Option<SetAside>> {
    if strange(path, belongs).is_none() {
        return Ok(None);
    }
    let Some(folder) = path.parent() else { return Ok(None) };
    // Of two processes that see it, the second one must not take away what the first has put in its
    // place.
    let alone = open_to_lock(folder)?;
    flock(&alone, FlockOperation::LockExclusive)?;
    match strange(path, belongs) {
        Some(why) => set_aside(path, why).map(Some),
        None => Ok(None),
    }
}

/// Sets aside what stands under this name.
pub(crate) fn set_aside(path: &Path, why: String) -> io::Result<SetAside> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut stamp = now_ms();
    let new = loop {
        let new = format!("{name}{SET_ASIDE}{stamp}");
        if fs::symlink_metadata(path.with_file_name(&new)).is_err() {
            break new;
        }
        stamp += 1;
    };
    fs::rename(path, path.with_file_name(&new))?;
    Ok(SetAside { name, why, now: new })
}

/// When something of this name was set aside, if it was.
pub(crate) fn set_aside_at_ms(name: &str) -> Option<i64> {
    let (_, stamp) = name.rsplit_once(SET_ASIDE)?;
    let digits: String = stamp.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Removes whatever stands under a name, but no folder in which there is something: that may be
/// anybody's.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let is_folder = fs::symlink_metadata(path)?.is_dir();
    if is_folder { fs::remove_dir(path) } else { fs::remove_file(path) }
}

/// Removes one of our own folders with all that is in it, or whatever has its name.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    let is_folder = fs::symlink_metadata(path)?.is_dir();
    if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Sets aside everything in a folder that is of the wrong kind; what cannot be moved is left for
/// its user to fail at.
pub(super) fn set_aside_all(folder: &Path, belongs: &[(&str, FileKind)]) -> Vec<SetAside> {
    // One look at all names: a look at each takes longer than all else that opens the folder.
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let moved = entries.filter_map(|entry| {
        let name = entry.file_name();
        let (_, kind) = belongs.iter().find(|(belongs, _)| *belongs == name)?;
        let is_right = |found: FileType| match kind {
            FileKind::File => found.is_file(),
            FileKind::Folder => found.is_dir(),
        };
        if entry.file_type().is_ok_and(is_right) {
            return None;
        }
        let path = entry.path();
        set_aside_strange(&path, *kind)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "it is in the way"))
            .ok()
            .flatten()
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_of_the_wrong_kind_is_set_aside_and_what_is_right_or_absent_is_left() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("file"), "kept").unwrap();
        fs::create_dir(path("folder")).unwrap();
        symlink("file", path("link")).unwrap();
        for (name, kind) in [
            ("file", FileKind::File),
            ("link", FileKind::File),
            ("folder", FileKind::Folder),
            ("no", FileKind::File),
        ] {
            assert_eq!(set_aside_strange(&path(name), kind).unwrap(), None, "{name}");
        }
        symlink("nowhere", path("dangling")).unwrap();
        symlink("loop", path("loop")).unwrap();
        for (name, kind) in [
            ("dangling", FileKind::File),
            ("loop", FileKind::Folder),
            ("file", FileKind::Folder),
            ("folder", FileKind::File),
        ] {
            let moved = set_aside_strange(&path(name), kind).unwrap().unwrap();
            assert!(fs::symlink_metadata(path(name)).is_err(), "{name}");
            assert!(fs::symlink_metadata(path(&moved.now)).is_ok(), "{name}");
            assert!(set_aside_at_ms(&moved.now).unwrap() > 0, "{moved:?}");
        }
    }

    #[test]
    fn a_folder_with_something_in_it_is_not_removed() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("full/inner")).unwrap();
        assert!(remove(&scratch.path().join("full")).is_err());
        remove(&scratch.path().join("full/inner")).unwrap();
        remove_all(&scratch.path().join("full")).unwrap();
    }
}
