//! `legwork run` and `legwork sh` are transparent.

use std::{
    io::{Read, Write},
    process::Stdio,
};

use rustix::process::Signal;

use crate::common::{Scratch, announced, eventually, fixture, open, parts, program, signal, text};

#[test]
fn bytes_and_exit_code_are_the_commands_own() {
    let scratch = Scratch::new();
    let output = scratch
        .legwork("run")
        .args(["--", "sh", "-c", "printf 'a\\377b\\0'; printf 'err\\n' >&2; exit 42"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(output.stdout, b"a\xffb\0");
    assert_eq!(output.stderr, b"err\n");
}

#[test]
fn exit_codes_as_a_shell_gives_them() {
    let scratch = Scratch::new();
    let code = |words: &[&str]| {
        scratch.legwork("run").arg("--").args(words).output().unwrap().status.code()
    };
    assert_eq!(code(&[fixture(), "signal", "9"]), Some(137));
    assert_eq!(code(&["no-such-program-anywhere"]), Some(127));
    assert_eq!(code(&["/no/such/program"]), Some(127));
    assert_eq!(code(&["/etc/passwd"]), Some(126));
    assert_eq!(code(&["/etc"]), Some(126));
    let sh = scratch.legwork("sh").arg("exit 5").output().unwrap();
    assert_eq!(sh.status.code(), Some(5));
}

/// What waits for the disk takes longer than most commands.
#[test]
fn a_short_run_commits_nothing_to_the_ledger_and_is_there_for_whoever_reads_it() {
    let scratch = Scratch::new();
    let run = || {
        let status = scratch.legwork("run").args(["--", "true"]).status().unwrap();
        assert!(status.success());
        let ledger = scratch.state.path().join("ledger.db");
        std::fs::metadata(ledger).unwrap().modified().unwrap()
    };
    let made = run();
    assert_eq!((run(), run()), (made, made), "written to");
    assert_eq!(scratch.tasks().len(), 3);
}

#[test]
fn a_program_that_does_not_start_is_explained() {
    let scratch = Scratch::new();
    let output = scratch.legwork("run").args(["--", "no-such-program-anywhere"]).output().unwrap();
    assert_eq!(
        text(&output.stderr),
        "legwork: `no-such-program-anywhere` could not be started: it was not found on PATH\n\
         hint: name a program that exists on this machine, or give its full path\n"
    );
    let output = scratch.legwork("run").args(["--", "/etc/passwd"]).output().unwrap();
    assert!(text(&output.stderr).contains("permission denied"), "{output:?}");
    assert!(scratch.folders().is_empty(), "a start that failed leaves no folder");
}

#[test]
fn stdin_is_passed_through() {
    let scratch = Scratch::new();
    let mut child = scratch
        .legwork("run")
        .args(["--", fixture(), "copy"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through and through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(parts(&output), (Some(0), "through and through".into(), String::new()));
}

#[test]
fn output_comes_as_it_is_written() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut child = scratch
        .legwork("sh")
        .arg(format!("echo first; {} wait-then-print {gate} second", fixture()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 6];
    // The gate is still closed: only a stream that is passed on at once lets this read return.
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    open(&gate);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_order_of_both_streams_is_exact_when_they_are_one() {
    let scratch = Scratch::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done";
    let output = std::process::Command::new("sh")
        .args(["-c", "\"$0\" sh --state \"$1\" \"$2\" 2>&1", program()])
        .arg(scratch.state.path())
        .arg(script)
        .output()
        .unwrap();
    let expected: String = (1..=9).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn an_interrupt_reaches_the_command() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut child = scratch
        .legwork("run")
        .args(["--", fixture(), "on-interrupt", &ready, "33"])
        .spawn()
        .unwrap();
    announced(&ready);
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(33));
}

/// Runs a command, reads a little of its output, goes away, and returns its exit code.
fn code_without_reader(scratch: &Scratch, words: &[&str]) -> Option<i32> {
    let mut command = scratch.legwork("run");
    let mut child = command.arg("--").args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 1000];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    child.wait().unwrap().code()
}

#[test]
fn a_reader_that_goes_away_ends_the_command_as_it_would_have() {
    let scratch = Scratch::new();
    assert_eq!(code_without_reader(&scratch, &["yes"]), Some(128 + 13));
    eventually("it is recorded", || (scratch.tasks()[0]["outcome"]["signal"] == 13).then_some(()));
    // One that ignores the signal gets an error from its write, as it would have.
    let endless = u64::MAX.to_string();
    assert_eq!(code_without_reader(&scratch, &[fixture(), "flood", &endless]), Some(101));
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let scratch = Scratch::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = scratch.legwork("run").args(["--", "echo", "hi"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("stdout: No space left on device"), "{output:?}");
}

#[test]
fn a_signal_that_is_ignored_is_not_passed_on() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut child = std::process::Command::new(fixture())
        .args(["with-bad-signals", program(), "run", "--mode", "open", "--state"])
        .arg(scratch.state.path())
        .args(["--", fixture(), "on-interrupt", &ready, "33"])
        .spawn()
        .unwrap();
    let pid = announced(&ready);
    signal(child.id(), Signal::INT);
    // USR2 is passed on; the command dies of it, not of the interrupt before it.
    signal(child.id(), Signal::USR2);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 12));
    assert!(!crate::common::is_alive(pid));
}

#[test]
fn an_unknown_option_is_no_program() {
    let scratch = Scratch::new();
    let output = scratch.legwork("run").args(["--timout", "5", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("--timeout"), "{output:?}");
    let output = scratch.legwork("run").args(["echo", "-n", "--x"]).output().unwrap();
    assert_eq!(text(&output.stdout), "--x");
}
