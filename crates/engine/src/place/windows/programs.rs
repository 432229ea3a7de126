//! Finds programs on this machine, and explains why one cannot be executed.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use legwork_gate::windows_program_name;

use crate::{place::NoProgram, platform::is_device};

/// What can be executed, by the ends of its names, in the order in which they are tried where the
/// user's `PATHEXT` says nothing.
const EXECUTABLE: [&str; 4] = ["com", "exe", "bat", "cmd"];

/// All that `cmd.exe` may run for a name without its end, also by programs that are started for
/// it.
const EVERY_END: [&str; 12] =
    ["com", "exe", "bat", "cmd", "vbs", "vbe", "js", "jse", "wsf", "wsh", "msc", "lnk"];

/// Shells of which Windows has one of its own that works in another system (WSL), and Git the one
/// that is meant.
const GIT_SHELLS: [&str; 2] = ["bash", "sh"];

/// Finds a program: a path as it is (relative to the folder it runs in), a name on `PATH`, with or
/// without the end of its file's name. The folder that it runs in is not looked at for a name.
pub(super) fn find(name: &OsStr, workdir: &Path) -> Result<PathBuf, NoProgram> {
    let text = name.to_str().unwrap_or_default();
    if text.is_empty() || text.contains(['\0', '"', '*', '<', '>', '|']) {
        return Err(NoProgram::Invalid);
    }
    if text.split(['/', '\\']).any(is_device) {
        return Err(NoProgram::Invalid);
    }
    // Behind a drive a colon means a stream of a file, which is no program that has been judged.
    if text.get(2..).is_some_and(|rest| rest.contains(':')) {
        return Err(NoProgram::Invalid);
    }
    let ends = ends();
    if text.contains(['/', '\\', ':']) {
        return find_file(&workdir.join(name), &ends).map_err(|refused| {
            refused.map_or_else(|| NoProgram::NotFound, NoProgram::NotExecutable)
        });
    }
    let is_git_shell = GIT_SHELLS.contains(&windows_program_name(text).as_str());
    let mut refused = None;
    for folder in folders().filter(|folder| !(is_git_shell && is_of_system(folder))) {
        match find_file(&folder.join(name), &ends) {
            Ok(found) => return Ok(found),
            Err(other) => refused = refused.or(other),
        }
    }
    let beside_git = is_git_shell.then(git_folders).into_iter().flatten();
    let mut beside_git = beside_git.map(|folder| find_file(&folder.join(name), &ends));
    let found = beside_git.find_map(Result::ok);
    found.ok_or_else(|| refused.map_or(NoProgram::NotFound, NoProgram::NotExecutable))
}

/// Whether a folder has a file that `cmd.exe` would run for a name, before it looks on `PATH`.
pub(super) fn is_in_folder(name: &OsStr, folder: &Path) -> bool {
    let is_bare = name.to_str().is_some_and(|text| !text.contains(['/', '\\', ':']));
    is_bare && EVERY_END.iter().any(|end| with_end(&folder.join(name), end).is_file())
}

/// The folders of `PATH`. An empty entry would be the current folder.
fn folders() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.into_iter().filter(|folder| folder.is_absolute())
}

/// Whether a folder is the system's, or one of the shop's, whose files lead there.
fn is_of_system(folder: &Path) -> bool {
    let lower = |path: &Path| path.to_string_lossy().to_lowercase();
    let system = env::var_os("SystemRoot").map(|root| lower(Path::new(&root)));
    let folder = lower(folder);
    system.is_some_and(|root| folder.starts_with(&root)) || folder.contains(r"\windowsapps")
}

/// Where Git has its shells: beside the `git` of `PATH`, and where it is installed by itself.
fn git_folders() -> Vec<PathBuf> {
    let ends = ends();
    let git = folders().find(|folder| find_file(&folder.join("git"), &ends).is_ok());
    let beside = git.as_deref().and_then(Path::parent).map(Path::to_owned);
    let installed = [("ProgramFiles", "Git"), ("LOCALAPPDATA", r"Programs\Git")];
    let installed = installed
        .into_iter()
        .filter_map(|(variable, folder)| Some(PathBuf::from(env::var_os(variable)?).join(folder)));
    beside.into_iter().chain(installed).map(|git| git.join("bin")).collect()
}

/// The ends of names that are tried, in their order.
fn ends() -> Vec<String> {
    let listed = env::var("PATHEXT").unwrap_or_default().to_lowercase();
    let listed = listed.split(';').map(|end| end.trim_start_matches('.').to_owned());
    let known: Vec<String> = listed.filter(|end| EXECUTABLE.contains(&end.as_str())).collect();
    if known.is_empty() { EXECUTABLE.map(str::to_owned).to_vec() } else { known }
}

/// The file that a path means, or one that has its name and cannot be executed.
fn find_file(path: &Path, ends: &[String]) -> Result<PathBuf, Option<PathBuf>> {
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    let is = |end: &str| extension.as_deref() == Some(OsStr::new(end));
    if EXECUTABLE.iter().any(|end| is(end)) && path.is_file() {
        return Ok(path.to_owned());
    }
    for end in ends {
        let longer = with_end(path, end);
        if longer.is_file() {
            return Ok(longer);
        }
    }
    Err(path.is_file().then(|| path.to_owned()))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut longer: OsString = path.as_os_str().to_owned();
    longer.push(".");
    longer.push(end);
    longer.into()
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
