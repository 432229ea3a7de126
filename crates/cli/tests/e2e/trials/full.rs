//! A full disk: what makes room needs none.

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
fn what_trials_changed_is_shown_though_the_ledger_has_no_room_to_be_opened() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = "$LW try $S --sh 'head -c 2000000 /dev/zero > big; echo said > small' 2>/dev/null; \
        fill; $LW ps $S >/dev/null 2>&1; echo ps $?; for what in '' --diff --list --json '--path small'; do \
        $LW changes $S $what > ../shown; echo code $?; cat ../shown; done; \
        $LW changes $S t_none; echo code $?; rm $KEPT; fill; $LW changes $S; $LW discard $S";
    let script = script.replace("$KEPT", "${S#--state }/trials/t_*/changes.json");
    let Some((stdout, stderr)) = with_small_disk(&scratch, &script) else { return };
    assert!(stdout.starts_with("ps 125\n"), "the ledger could not be opened: {stdout}{stderr}");
    let parts: Vec<&str> = stdout.split("code 0\n").collect();
    let [_, plain, diff, list, json, small] = parts.as_slice() else {
        panic!("{stdout}{stderr}");
    };
    assert!(plain.contains("2 made\n") && plain.contains("+ big"), "{stdout}");
    assert!(diff.contains("+said"), "{stdout}");
    assert!(list.starts_with("t_") && list.lines().count() == 1, "{stdout}");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["changes"].as_array().unwrap().len(), 2, "{stdout}");
    assert!(small.contains("1 made\n") && small.contains("code 125\n"), "{stdout}");
    let (_, unkept) = small.split_once("code 125\n").unwrap();
    assert!(unkept.contains("2 made\n"), "no look was kept before: {stdout}{stderr}");
    assert!(stdout.ends_with(": discarded\n"), "{stdout}{stderr}");
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

#[test]
fn a_layer_over_the_home_is_discarded_though_the_ledger_has_no_room_to_be_opened() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let policy = "[sandbox]\nlevel = \"workspace-write\"\noutside = \"layer\"\n";
    scratch.write("policy.toml", policy);
    let script = "P='--mode open --policy ../policy.toml'; \
        $LW sh $S $P 'head -c 2000000 /dev/zero > ~/big'; fill; $LW ps $S >/dev/null 2>&1; echo ps $?; \
        $LW discard $S --outside; echo code $?; $LW sh $S $P 'ls ~/big; echo after'";
    let Some((stdout, stderr)) = with_small_disk(&scratch, script) else { return };
    assert!(stdout.contains("ps 125\n"), "the ledger could not be opened: {stdout}{stderr}");
    assert!(
        stdout.contains("outside the workspace: discarded\ncode 0\nafter\n"),
        "{stdout}{stderr}"
    );
}
