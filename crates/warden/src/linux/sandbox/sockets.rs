//! Hides the Unix sockets of other programs that have a path.
//!
//! A mount that may only be read does not keep anybody from connecting, and Landlock knows nothing
//! of such sockets. Most are in folders that are covered anyway; those that are not are covered one
//! by one.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Folders in which nothing of others is seen.
const COVERED: [&str; 6] = ["/run", "/var/run", "/tmp", "/var/tmp", "/dev", "/proc"];

/// What stands before the path in a line of the kernel's list.
const COLUMNS: usize = 7;

/// Those that a command would reach who may write there and whose state is there, by their real
/// paths. Asks in the network namespace of this process.
pub(super) fn reachable(writable: &[PathBuf], state: &Path) -> Vec<PathBuf> {
    let text = kernel_list().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut named: Vec<&Path> = text.lines().filter_map(path_of).collect();
    named.sort_unstable();
    named.dedup();
    named.retain(|named| !COVERED.iter().any(|folder| named.starts_with(folder)));
    if named.is_empty() {
        return Vec::new();
    }
    // What is in a folder that the command may write is there for it.
    let mut real: Vec<PathBuf> = named
        .into_iter()
        .filter_map(|named| named.canonicalize().ok())
        .filter(|real| {
            !real.starts_with(state) && !writable.iter().any(|own| real.starts_with(own))
        })
        .filter(|real| !COVERED.iter().any(|folder| real.starts_with(folder)))
        .collect();
    real.sort();
    real.dedup();
    real
}

/// The kernel's list of sockets. It says no size, so that a plain read would ask for a few bytes at
/// a time.
fn kernel_list() -> io::Result<Vec<u8>> {
    let (mut file, mut text) = (File::open("/proc/self/net/unix")?, Vec::new());
    let mut buffer = [0; 4096];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(text),
            Ok(bytes) => text.extend_from_slice(buffer.get(..bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The path in a line, if it has one that says where it is.
fn path_of(line: &str) -> Option<&Path> {
    let mut rest = line;
    for _ in 0..COLUMNS {
        rest = rest.trim_start().split_once(' ')?.1;
    }
    let named = Path::new(rest.trim_start());
    named.is_absolute().then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_say_where_they_are_have_a_path() {
        let line =
            |end: &str| format!("00000000b05c3b4e: 00000003 00000000 00010000 0001 01  8585{end}");
        assert_eq!(path_of(&line(" /var/lib/a b.sock")), Some(Path::new("/var/lib/a b.sock")));
        assert_eq!(path_of(&line(" @/abstract")), None);
        assert_eq!(path_of(&line(" relative")), None);
        assert_eq!(path_of(&line("")), None);
        assert_eq!(path_of("Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }
}
