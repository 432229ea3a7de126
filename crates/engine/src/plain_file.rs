//! Reads a small file safely, although a command may have replaced it.
//!
//! Where a command can write, a name may stand for anything: a pipe that never ends, a device, a
//! file without end, a link to a secret. Reading it must neither wait nor fill the memory, nor tell
//! in an error what the command cannot read.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    path::Path,
};

use crate::platform::{NO_FOLLOW, NO_WAIT, OpenOptionsExt};

/// The largest file that is read.
const BYTES_MAX: u64 = 1024 * 1024;

/// Opens a plain file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, NO_WAIT)
}

fn open_with(path: &Path, flags: i32) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    Ok(file)
}

/// The text of a plain file of bounded size.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    read(path, NO_WAIT)
}

/// The same of a file that need not be text.
#[cfg(target_os = "linux")]
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    read_with(path, NO_WAIT)
}

/// The same, of the file itself: a link is not followed.
pub(crate) fn read_text_itself(path: &Path) -> io::Result<String> {
    read(path, NO_WAIT | NO_FOLLOW)
}

fn read(path: &Path, flags: i32) -> io::Result<String> {
    let text = String::from_utf8(read_with(path, flags)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn read_with(path: &Path, flags: i32) -> io::Result<Vec<u8>> {
    let file = open_with(path, flags)?;
    let length = file.metadata()?.len();
    if length > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // One more, so that the end is seen without a second piece.
    let mut bytes = Vec::with_capacity(usize::try_from(length + 1).unwrap_or_default());
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_file_is_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        std::fs::write(path("plain"), "text").unwrap();
        assert_eq!(read_text(&path("plain")).unwrap(), "text");
        std::fs::write(path("large"), vec![b'x'; 1024 * 1024 + 1]).unwrap();
        assert_eq!(read_text(&path("large")).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        std::os::unix::fs::symlink("/dev/zero", path("endless")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RWXU).unwrap();
        for name in ["endless", "pipe"] {
            assert_eq!(read_text(&path(name)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        std::os::unix::fs::symlink("plain", path("link")).unwrap();
        assert_eq!(read_text(&path("link")).unwrap(), "text");
        assert!(read_text_itself(&path("link")).is_err());
    }
}
