//! Finds programs on this machine, and explains why one cannot be executed.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use crate::place::NoProgram;

/// What can be executed, by the ends of its names, in the order in which they are tried.
const EXECUTABLE: [&str; 4] = ["com", "exe", "bat", "cmd"];

/// Finds a program: a path as it is (relative to the folder it runs in), a name on `PATH`, with or
/// without the end of its file's name. The folder that it runs in is not looked at for a name.
pub(super) fn find(name: &OsStr, workdir: &Path) -> Result<PathBuf, NoProgram> {
    let text = name.to_str().unwrap_or_default();
    if text.is_empty() || text.contains(['\0', '"', '*', '?', '<', '>', '|']) {
        return Err(NoProgram::Invalid);
    }
    if text.contains(['/', '\\', ':']) {
        return find_file(&workdir.join(name)).map_err(|refused| {
            refused.map_or_else(|| NoProgram::NotFound, NoProgram::NotExecutable)
        });
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut refused = None;
    // An empty entry would be the current folder.
    for folder in env::split_paths(&path).filter(|folder| folder.is_absolute()) {
        match find_file(&folder.join(name)) {
            Ok(found) => return Ok(found),
            Err(other) => refused = refused.or(other),
        }
    }
    Err(refused.map_or(NoProgram::NotFound, NoProgram::NotExecutable))
}

/// The file that a path means, or one that has its name and cannot be executed.
fn find_file(path: &Path) -> Result<PathBuf, Option<PathBuf>> {
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    let ends = |end: &str| extension.as_deref() == Some(OsStr::new(end));
    if EXECUTABLE.iter().any(|end| ends(end)) && path.is_file() {
        return Ok(path.to_owned());
    }
    for end in EXECUTABLE {
        let mut longer: OsString = path.as_os_str().to_owned();
        longer.push(".");
        longer.push(end);
        if Path::new(&longer).is_file() {
            return Ok(longer.into());
        }
    }
    Err(path.is_file().then(|| path.to_owned()))
}

/// The meaning of the system's refusal to execute a program.
pub(super) fn refusal(program: &Path, errno: i32) -> String {
    match errno {
        2 | 3 => "no such file".into(),
        5 if program.is_dir() => "it is a folder".into(),
        5 => "access is denied".into(),
        10 => "its environment cannot be passed: a name or a value is no proper text".into(),
        160 => "its arguments cannot be passed: they are no proper text, or a batch file would \
                take them for something else"
            .into(),
        193 | 216 => "not a program of this machine".into(),
        206 => "the command line is too long".into(),
        740 => "it wants the rights of an administrator".into(),
        _ => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}
