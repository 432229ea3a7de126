//! The program for Windows as the one under test: run under wine, by tests that stay where they
//! are.
//!
//! `.ci/windows e2e` runs these tests so, and names the folder with the programs for Windows and
//! the system that has wine. The staged `legwork` then is a small program that becomes
//! `legwork.exe`, the fixture is `portable.exe`, and scripts are run by the fixture's own `sh.exe`,
//! which stands for Git's.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use legwork_fixture::processes::{self, Process};

use super::stage;

/// A number that no process has.
const NOBODY: u32 = 0x3fff_ffff;

/// Utilities that the scripts of the tests start as programs.
const UTILITIES: [&str; 14] = [
    "cat", "echo", "false", "ls", "mkdir", "printf", "pwd", "rm", "seq", "sh", "sleep", "touch",
    "true", "yes",
];

/// The programs for Windows, if they are what is tested.
pub static IS_TESTED: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| env::var_os("LEGWORK_E2E_WINDOWS").map(PathBuf::from));

/// Whether the program for Windows is tested.
pub fn is_tested() -> bool {
    IS_TESTED.is_some()
}

/// A folder with all that is needed to run it. Temporary folders are the same on both sides.
pub fn stage(fixture: &Path) -> PathBuf {
    let folder = tempfile::Builder::new().prefix("legwork-").tempdir().unwrap().keep();
    let built = IS_TESTED.clone().unwrap();
    fs::copy(fixture, folder.join("fixture")).unwrap();
    fs::copy(fixture, folder.join("legwork")).unwrap();
    let portable = folder.join("portable.exe");
    for name in ["legwork.exe", "portable.exe"] {
        let (from, to) = (built.join(name), folder.join(name));
        fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)).unwrap();
    }
    fs::create_dir(folder.join("bin")).unwrap();
    for name in UTILITIES {
        fs::hard_link(&portable, folder.join(format!("bin/{name}.exe"))).unwrap();
    }
    fs::write(folder.join("wine-system"), env::var("LEGWORK_E2E_SYSTEM").unwrap()).unwrap();
    folder
}

/// The fixture, by a path that is the same to `sh` and to a program for Windows.
pub fn fixture(folder: &Path) -> Option<String> {
    is_tested().then(|| format!("Z:{}/portable.exe", folder.display()))
}

/// The program under test, by a name under which commands can start it.
pub fn inner_program() -> String {
    if is_tested() {
        fixture(stage::folder()).unwrap().replace("portable", "legwork")
    } else {
        stage::program().to_owned()
    }
}

/// The first on Unix, the second on Windows.
pub fn by_system<T>(unix: T, windows: T) -> T {
    if is_tested() { windows } else { unix }
}

/// The path on this machine of what the program under test calls so.
pub fn here(path: &str) -> PathBuf {
    PathBuf::from(path.strip_prefix("Z:").map_or_else(|| path.into(), |it| it.replace('\\', "/")))
}

/// A path of this machine as the program under test shows it.
pub fn shown(path: impl AsRef<Path>) -> String {
    let path = path.as_ref().display().to_string();
    if is_tested() { format!("Z:{}", path.replace('/', "\\")) } else { path }
}

/// A path of this machine as the program under test is given it by its arguments.
pub fn given(path: impl AsRef<Path>) -> String {
    let path = path.as_ref().display().to_string();
    if is_tested() { format!("Z:{path}") } else { path }
}

/// A text with the line ends of Unix.
pub fn unix_lines(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// The pid on this machine of a process that has announced itself in a file: on Windows it has told
/// another one, and is known by the file's name among its arguments. One that is gone has a pid
/// that nobody has.
pub fn pid_here(told: u32, file: &str) -> u32 {
    if !is_tested() {
        return told;
    }
    let (folder, name) = file.rsplit_once('/').unwrap();
    // Some make the name of the file by themselves.
    let mut own = vec![file.to_owned(), format!("refork {folder} {name} ")];
    if name == "self" {
        own.push(format!("detached-tree {folder} "));
    }
    let is_meant = |process: &Process| {
        let arguments = format!("{} ", process.arguments.trim_end());
        own.iter().any(|words| arguments.contains(&**words))
    };
    // The innermost: the script that starts a fixture names the file, too.
    let found = processes::naming(&[PathBuf::from(folder)]).into_iter().filter(is_meant);
    found.map(|process| process.pid).max().unwrap_or(NOBODY)
}

/// Whether a process is of wine itself, or a warden that never began: its engine was killed while
/// it started it, and Windows lets a program begin only after whoever starts it has said so.
pub fn never_began(process: &Process) -> bool {
    let of_wine = ["\\conhost.exe --server", "\\explorer.exe /desktop"];
    if of_wine.iter().any(|program| process.arguments.contains(program)) {
        return is_tested();
    }
    let words: Vec<&str> = process.arguments.split(' ').collect();
    let Some(at) = words.iter().position(|word| *word == "__legwork-warden") else { return false };
    let (Some(name), Some(wardens)) = (words.get(at + 1), words.get(at + 3)) else { return false };
    is_tested() && !here(wardens).join(name).exists()
}
