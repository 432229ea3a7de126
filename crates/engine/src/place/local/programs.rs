//! Finds programs on this machine, and explains why one cannot be executed.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use crate::place::NoProgram;

/// Finds a program: a path as it is (relative to the folder it runs in), a name on `PATH`.
pub(super) fn find(name: &OsStr, workdir: &Path) -> Result<PathBuf, NoProgram> {
    if name.is_empty() || name.as_bytes().contains(&0) {
        return Err(NoProgram::Invalid);
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(workdir.join(name));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for folder in env::split_paths(&path) {
        let candidate = workdir.join(folder).join(name);
        match candidate.metadata() {
            Ok(data) if data.is_file() && data.permissions().mode() & 0o111 != 0 => {
                return Ok(candidate);
            }
            Ok(data) if data.is_file() => refused = Some(candidate),
            _ => {}
        }
    }
    Err(refused.map_or(NoProgram::NotFound, NoProgram::NotExecutable))
}

/// The meaning of the system's refusal to execute a program.
pub(super) fn refusal(program: &Path, errno: i32) -> String {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(errno) {
        Errno::NOENT if program.exists() => {
            let interpreter = interpreter(program).unwrap_or_else(|| "its loader".into());
            format!("bad interpreter: {interpreter} does not exist")
        }
        Errno::NOENT => "no such file".into(),
        Errno::ACCESS if program.is_dir() => "it is a folder".into(),
        Errno::ACCESS => "permission denied: it, or its interpreter, is not executable".into(),
        Errno::NOEXEC => {
            "exec format error: neither a program of this machine nor a script with #!".into()
        }
        Errno::TOOBIG => "argument list too long".into(),
        Errno::TXTBSY => "text file busy: somebody is writing to it".into(),
        _ => io::Error::from_raw_os_error(errno).to_string(),
    }
}

/// The program that the first line of a script names.
fn interpreter(script: &Path) -> Option<String> {
    let mut start = Vec::new();
    File::open(script).ok()?.take(256).read_to_end(&mut start).ok()?;
    let start = String::from_utf8_lossy(&start);
    let line = start.strip_prefix("#!")?.lines().next()?;
    line.split_whitespace().next().map(str::to_owned)
}
