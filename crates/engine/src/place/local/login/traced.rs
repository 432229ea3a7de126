//! Reads what a shell says of itself as it goes (`-x`): which files a profile reads, and what is
//! left of stderr without that.

use std::path::{Path, PathBuf};

/// Most files that are looked at.
const FILES_MAX: usize = 64;

/// The text of stderr without the lines of the trace. One that is traced over several lines is not
/// taken out whole: then the text is another one, and proves nothing.
pub(super) fn without_trace(stderr: &[u8]) -> Vec<u8> {
    let lines = stderr.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| !line.starts_with(b"+")).flatten().copied().collect()
}

/// The files that were read, in the order of the first time.
pub(super) fn sources(stderr: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(stderr);
    let mut files: Vec<PathBuf> = Vec::new();
    for file in text.lines().filter_map(source).filter(|file| is_lasting(file)) {
        if files.len() < FILES_MAX && !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// The file that a line of the trace says is read: `++ . /etc/profile.d/x.sh`, or of zsh
/// `+/etc/zprofile:3> source /x`.
fn source(line: &str) -> Option<PathBuf> {
    let (_, command) = line.strip_prefix('+')?.split_once(' ')?;
    let (name, argument) = command.split_once(' ')?;
    if !matches!(name, "." | "source") {
        return None;
    }
    let file = match argument.strip_prefix('\'') {
        Some(quoted) => quoted.split('\'').next()?,
        None => argument.split_whitespace().next()?,
    };
    Some(PathBuf::from(file))
}

/// Whether it is a file that is there the next time, too, under this name.
fn is_lasting(file: &Path) -> bool {
    file.is_absolute() && !file.starts_with("/dev") && !file.starts_with("/proc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_a_profile_reads_are_named_by_its_trace() {
        let bash = b"+ '[' -d /etc ']'\n+ . /etc/profile.d/a.sh\n++ source /home/me/.nvm/nvm.sh\n\
            ++ . /home/me/.nvm/nvm.sh --no-use\n+ . '/home/me/with space'\n+ . relative\n\
            + source /dev/fd/63\n+ echo . /no\nx: Permission denied\n+/etc/zprofile:3> source /z\n";
        let files = ["/etc/profile.d/a.sh", "/home/me/.nvm/nvm.sh", "/home/me/with space", "/z"];
        assert_eq!(sources(bash), files.map(PathBuf::from));
        assert_eq!(without_trace(bash), b"x: Permission denied\n");
        assert_eq!(sources(b""), [""; 0].map(PathBuf::from));
    }
}
