//! The harness itself: what hangs, what is left behind and what is ignored is noticed.

use std::{
    env,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    signals, stage,
    watch::{Times, Watch},
};
use crate::common::{eventually, fixture, is_alive, signal, text};

/// Says to an ignored test that it is meant.
const MEANT: &str = "LEGWORK_PART_OF_A_TEST";

/// This program again, with one test that is ignored otherwise.
fn again(test: &str, through: &[&str]) -> Command {
    let this = env::current_exe().unwrap();
    let mut words = through.iter().map(Path::new).chain([this.as_path()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--ignored", "--exact", "--nocapture"]);
    command.arg(format!("harness::tests::{test}")).env(MEANT, "yes").stdin(Stdio::null());
    command
}

fn is_meant() -> bool {
    env::var_os(MEANT).is_some()
}

/// A process that stays, and is known by a folder.
fn stays(folder: &Path) -> Child {
    Command::new("sleep").arg("1000").env("OF_A_TEST", folder).spawn().unwrap()
}

fn said(run: impl FnOnce()) -> String {
    let failed = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    failed.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_process_that_is_left_behind_is_named_and_ended() {
    let folder = TempDir::new().unwrap();
    let times = Times { patience: Duration::ZERO, ..Times::USUAL };
    let watch = Watch::new(&[folder.path().to_owned()], times);
    let mut left = stays(folder.path());
    let told = said(|| watch.finish());
    assert!(told.contains(&format!("    {} ", left.id())), "{told}");
    assert!(told.contains("sleep 1000"), "{told}");
    assert_eq!(left.wait().unwrap().signal(), Some(9));
    watch.finish();
}

#[test]
fn a_test_over_its_time_loses_its_processes_and_fails() {
    let folder = TempDir::new().unwrap();
    let times = Times::at_most(Duration::from_millis(100));
    let watch = Watch::new(&[folder.path().to_owned()], times);
    // As most tests hang: they wait for a process.
    assert_eq!(stays(folder.path()).wait().unwrap().signal(), Some(9));
    let told = said(|| watch.finish());
    assert!(told.contains("it took longer than 100ms"), "{told}");
}

#[test]
#[ignore = "a part of the test below"]
fn hangs() {
    if is_meant() {
        let soon = Duration::from_millis(100);
        let _watch = Watch::new(&[], Times { limit: soon, farewell: soon, ..Times::USUAL });
        loop {
            thread::park();
        }
    }
}

#[test]
fn a_test_that_hangs_without_processes_ends_the_run_by_its_name() {
    let _watch = Watch::new(&[], Times::USUAL);
    let output = again("hangs", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(101), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("tests.rs:") && told.contains("the run is given up"), "{told}");
}

#[test]
#[ignore = "a part of the test below"]
fn is_killed() {
    if is_meant() {
        let folder = TempDir::new().unwrap();
        let _watch = Watch::new(&[folder.path().to_owned()], Times::USUAL);
        let mut left = stays(folder.path());
        let (stage, folder) = (stage::folder().display(), folder.path().display());
        println!("\nthese: {} {stage} {folder}", left.id());
        left.wait().unwrap();
    }
}

#[test]
fn a_killed_run_leaves_no_process_and_no_folder() {
    let _watch = Watch::new(&[], Times::USUAL);
    let mut run = again("is_killed", &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
    let these = lines.find_map(|line| Some(line.strip_prefix("these: ")?.to_owned())).unwrap();
    let [pid, stage, folder] = these.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let pid = pid.parse().unwrap();
    assert!(is_alive(pid) && Path::new(stage).join("legwork").exists());
    signal(run.id(), Signal::KILL);
    run.wait().unwrap();
    let folders = [stage, folder].map(PathBuf::from);
    eventually("everything is gone", || {
        (!is_alive(pid) && !folders.iter().any(|it| it.exists())).then_some(())
    });
}

#[test]
#[ignore = "a part of the test below"]
fn ignores_nothing() {
    if is_meant() {
        let interrupt = 1 << (Signal::INT.as_raw() - 1);
        assert_ne!(signals::ignored("self") & interrupt, 0);
        let mut child = stays(stage::folder());
        let (here, there) = (signals::ignored("self"), signals::ignored(&child.id().to_string()));
        child.kill().unwrap();
        child.wait().unwrap();
        // But for Rust's own SIGPIPE, and for signals that only the C library uses.
        let [here, there] = [here, there].map(|mask| mask & ((1 << 31) - 1));
        assert_eq!((here, there), (1 << (Signal::PIPE.as_raw() - 1), 0));
    }
}

#[test]
fn what_a_run_was_started_to_ignore_is_not_ignored_by_what_it_starts() {
    let _watch = Watch::new(&[], Times::USUAL);
    let output = again("ignores_nothing", &[fixture(), "with-bad-signals"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("1 passed"), "{output:?}");
}
