//! Finds other paths of the same file: a folder that is mounted in two places shows it twice.
//!
//! What is hidden or guarded has to be so everywhere. Image-based systems mount a home folder below
//! `/sysroot` as well, others keep it in `/persist`; containers share folders under other names.

use std::{
    fs,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// The mounts of this process's namespace.
#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<Mounted>);

#[derive(Debug)]
struct Mounted {
    device: String,
    /// What of the file system is shown.
    root: PathBuf,
    place: PathBuf,
}

impl Mounts {
    pub(super) fn now() -> Self {
        let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Self {
        let mounted = |line: &str| {
            let mut words = line.split(' ').skip(2);
            let (device, root, place) = (words.next()?, words.next()?, words.next()?);
            Some(Mounted { device: device.into(), root: unescaped(root), place: unescaped(place) })
        };
        Self(text.lines().filter_map(mounted).collect())
    }

    /// These real paths, and everywhere else where the same files are.
    pub(super) fn everywhere(&self, paths: Vec<PathBuf>) -> Vec<PathBuf> {
        let others: Vec<PathBuf> = paths.iter().flat_map(|path| self.others(path)).collect();
        paths.into_iter().chain(others).collect()
    }

    /// Where else a file is.
    pub(super) fn others(&self, path: &Path) -> Vec<PathBuf> {
        let same = |other: &PathBuf| {
            let identity = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
            matches!((identity(path), identity(other)), (Ok(one), Ok(two)) if one == two)
        };
        self.candidates(path).into_iter().filter(same).collect()
    }

    /// Where else it would be, if nothing is mounted over that.
    fn candidates(&self, path: &Path) -> Vec<PathBuf> {
        // Of those at the same place, the last is on top.
        let holds = |(_, mounted): &(usize, &Mounted)| path.starts_with(&mounted.place);
        let depth = |(_, mounted): &(usize, &Mounted)| mounted.place.components().count();
        let Some((own, mounted)) = self.0.iter().enumerate().filter(holds).max_by_key(depth) else {
            return Vec::new();
        };
        let Ok(below) = path.strip_prefix(&mounted.place) else { return Vec::new() };
        let inner = mounted.root.join(below);
        let others = self.0.iter().enumerate().filter(|(place, other)| {
            *place != own && other.device == mounted.device && other.place != mounted.place
        });
        others
            .filter_map(|(_, other)| Some(other.place.join(inner.strip_prefix(&other.root).ok()?)))
            .map(|other| other.components().collect())
            .collect()
    }
}

/// A path in which blanks and backslashes are written as octal numbers.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let number = after.get(..3).filter(|_| *first == b'\\');
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = number.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_wherever_its_file_system_shows_it() {
        let mounts = Mounts::parse(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n\
             2 1 8:2 /data/home /home rw - btrfs /dev/b rw\n\
             3 1 8:2 / /sys\\040root rw - btrfs /dev/b rw\n\
             4 1 8:2 /data/home/me/work /work rw - btrfs /dev/b rw\n\
             5 1 8:3 / /mnt rw - ext4 /dev/c rw\n",
        );
        let of = |path: &str| mounts.candidates(Path::new(path));
        assert_eq!(of("/home/me/.ssh"), [PathBuf::from("/sys root/data/home/me/.ssh")]);
        assert_eq!(
            of("/home/me/work/.git"),
            [PathBuf::from("/sys root/data/home/me/work/.git"), PathBuf::from("/work/.git")]
        );
        assert_eq!(
            of("/work"),
            [Path::new("/home/me/work"), Path::new("/sys root/data/home/me/work")]
        );
        assert!(of("/etc/shadow").is_empty() && of("/mnt/x").is_empty());
    }
}
