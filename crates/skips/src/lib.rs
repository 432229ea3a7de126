//! Tests that this machine cannot run. `cargo test` hides what a test prints that passes, so each
//! writes its reason into a file, and the last doc tests of the workspace, those of this package,
//! print the list.
//!
//! One file for each `cargo test`, in a folder that all test programs share; a line has the
//! program, the test and the reason.

#![forbid(unsafe_code)]

use std::{fs, io::Write, panic::Location, path::Path, process, thread};

/// Notes that the test that runs now skips what it cannot try here, and why. It is shown at once,
/// and listed at the end. Tests whose reason begins with "only root " are run by `.ci/run` as root.
#[track_caller]
pub fn skip(reason: &str) {
    let reason = reason.trim().replace(['\n', '\t'], " ");
    let thread = thread::current();
    // The only test of a program, and all of them on one processor, run on the main thread.
    let place = Location::caller().to_string();
    let test = thread.name().filter(|name| *name != "main").unwrap_or(&place);
    let line = format!("{}\t{test}\t{reason}\n", program());
    // Written, not printed: the harness keeps what a test prints.
    let _ = std::io::stderr().write_all(format!("SKIPPED {test}: {reason}\n").as_bytes());
    let path = Path::new(env!("OUT_DIR")).join(format!("skipped-{}", run()));
    let mut options = fs::File::options();
    let written = options.create(true).append(true).open(&path);
    let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        let told = format!("SKIPPED: not in the list at the end: {}: {error}\n", path.display());
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
}

/// The `cargo test` that has started this program.
#[cfg(unix)]
fn run() -> u32 {
    std::os::unix::process::parent_id()
}

#[cfg(not(unix))]
fn run() -> u32 {
    0
}

/// The name of this test program, without the hash that Cargo gives it.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((name, _)) => name.to_owned(),
        None => format!("{name} ({})", process::id()),
    }
}

// `cargo test` is the only one that runs rustdoc so, and this package is the last for which it
// does.
#[cfg(doctest)]
skips_list::print!();
