//! A full disk: the reserve has the room that a discard needs.

use std::fs;

use super::can_try;
use crate::common::{Scratch, in_namespace, parts, program};

/// Runs a script with a small disk, whose state folder is `$S`, and which `fill` fills.
fn with_small_disk(scratch: &Scratch, script: &str) -> Option<(String, String)> {
    let disk = scratch.file("disk");
    fs::create_dir(&disk).unwrap();
    fs::create_dir(scratch.file("w")).unwrap();
    let whole = format!(
        "mount -t tmpfs -o size=16m none {disk}; cd {folder}/w; LW={program}; S='--state {disk}/state'; \
         fill() {{ cat /dev/zero >> {disk}/filler 2>/dev/null; }}; {script}",
        folder = scratch.workspace.path().display(),
        program = program(),
    );
    let mut command = in_namespace(&whole)?;
    fs::create_dir(scratch.file("home")).unwrap();
    command.env("HOME", scratch.file("home"));
    let (_, stdout, stderr) = parts(&command.output().unwrap());
    Some((stdout, stderr))
}

#[test]
fn trials_are_discarded_though_the_ledger_has_no_room_to_be_opened() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = "for name in one two; do $LW try $S --sh \"head -c 2000000 /dev/zero > $name\" 2>&1 | head -1; done; \
        fill; $LW ps $S >/dev/null 2>&1; echo ps $?; $LW discard $S; echo code $?; \
        $LW discard $S --all; echo code $?; $LW discard $S; echo code $?; ls -A $LEFT; \
        $LW audit verify $S >/dev/null; echo audit $?; grep -c trial_discard ${S#--state }/audit.jsonl";
    let script = script.replace("$LEFT", "${S#--state }/trials | grep -v lock");
    let Some((stdout, stderr)) = with_small_disk(&scratch, &script) else { return };
    let discarded = stdout.lines().filter(|line| line.ends_with(": discarded")).count();
    assert_eq!(discarded, 2, "{stdout}{stderr}");
    let codes: Vec<&str> = stdout.lines().filter(|line| line.contains("code ")).collect();
    assert_eq!(codes, ["code 0", "code 0", "code 125"], "{stdout}{stderr}");
    assert!(stdout.contains("ps 125\n"), "the ledger could not be opened: {stdout}{stderr}");
    assert!(stderr.contains("there is no trial"), "{stdout}{stderr}");
    assert!(stdout.ends_with("audit 0\n2\n"), "it is noted: {stdout}{stderr}");
}

#[test]
fn a_reserve_that_was_freed_on_a_full_disk_is_kept_again() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = "$LW try $S --sh 'head -c 2000000 /dev/zero > big' 2>/dev/null; R=${S#--state }/reserve; \
        fill; $LW changes $S; echo changes $?; $LW discard $S t_none; echo none $?; [ -s $R ]; echo kept $?; \
        fill; $LW discard $S; echo code $?; stat -c '%s %a' $R";
    let Some((stdout, stderr)) = with_small_disk(&scratch, script) else { return };
    // Only what makes room gets the reserve.
    assert!(stdout.starts_with("changes 125\nnone 125\nkept 0\n"), "{stdout}{stderr}");
    assert!(stderr.contains("hint: check its space"), "{stdout}{stderr}");
    assert!(stdout.ends_with(": discarded\ncode 0\n1048576 600\n"), "{stdout}{stderr}");
}

#[test]
fn a_trial_that_still_runs_is_not_discarded_on_a_full_disk() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = "mkfifo ../go; touch ../out; $LW try $S --sh 'head -c 2000000 /dev/zero > big; echo begun; read line; ls big' \
        <>../go >../out 2>&1 & until grep -q begun ../out; do :; done; fill; $LW discard $S; echo code $?; \
        echo > ../go; wait; cat ../out; fill; $LW discard $S; echo code $?";
    let Some((stdout, stderr)) = with_small_disk(&scratch, script) else { return };
    assert!(stdout.starts_with("code 125\nbegun\nbig\n"), "{stdout}{stderr}");
    assert!(stderr.contains("still runs"), "{stdout}{stderr}");
    assert!(stdout.ends_with(": discarded\ncode 0\n"), "{stdout}{stderr}");
}
