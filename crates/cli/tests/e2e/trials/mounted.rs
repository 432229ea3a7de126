//! Another file system is mounted in a copied folder later, while changes are kept.

use std::fs;

use super::can_try;
use crate::common::{Scratch, in_namespace, parts, program};

/// Runs a script in which folders can be mounted, in a workspace in a home.
fn with_mounts(scratch: &Scratch, script: &str) -> Option<(String, String)> {
    let home = scratch.file("home");
    fs::create_dir_all(scratch.file("home/w/sub")).unwrap();
    fs::create_dir_all(scratch.file("home/.config")).unwrap();
    let policy = "[sandbox]\nlevel = \"workspace-write\"\noutside = \"layer\"\n";
    scratch.write("policy.toml", policy);
    let whole = format!(
        "cd {home}/w; LW={program}; S='--state {state}'; P='--mode open --policy {policy}'; {script}",
        program = program(),
        state = scratch.state.path().display(),
        policy = scratch.file("policy.toml"),
    );
    let mut command = in_namespace(&whole)?;
    let (_, stdout, stderr) = parts(&command.env("HOME", &home).output().unwrap());
    Some((stdout, stderr))
}

#[test]
fn a_trial_is_not_applied_into_what_was_mounted_since_and_the_rest_of_it_is() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = "echo before > file; echo before > sub/file; \
        $LW try $S --sh 'echo tried > file; echo tried > sub/file; echo made > sub/made' 2>/dev/null; \
        mount -t tmpfs none sub; echo other > sub/file; \
        $LW apply $S; echo code $?; $LW apply $S sub; echo code $?; cat file sub/*; \
        $LW apply $S file; echo code $?; cat file; $LW try $S --sh 'echo again > file'; echo code $?; \
        umount sub; cat sub/*; $LW apply $S; echo code $?; cat sub/*";
    let Some((stdout, stderr)) = with_mounts(&scratch, script) else { return };
    let said: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("t_")).collect();
    let refused = ["code 125", "code 125", "before", "other"];
    let applied = ["code 0", "tried", "code 125"];
    let after = ["before", "code 0", "tried", "made"];
    assert_eq!(said, [&refused[..], &applied, &after].concat(), "{stdout}{stderr}");
    assert!(stderr.contains("another file system is mounted over"), "{stderr}");
    assert!(stderr.contains("sub/file; nothing was brought over"), "{stderr}");
    assert!(stderr.contains("cannot be tried here: another file system is mounted at"), "{stderr}");
}

#[test]
fn a_layer_is_shown_applied_in_part_and_discarded_though_something_is_mounted_in_the_home() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = "$LW sh $S $P 'echo 1 > ~/one; mkdir ~/.config/a; echo 2 > ~/.config/a/two'; \
        mount -t tmpfs none ~/.config; $LW sh $S $P 'echo never > ~/three'; echo code $?; \
        $LW changes $S --outside >&2; echo code $?; $LW apply $S --outside; echo code $?; \
        $LW apply $S --outside ~/one; echo code $?; cat ~/one; find ~/.config -type f; \
        umount ~/.config; $LW sh $S $P 'cat ~/.config/a/two; ls ~/three'; echo code $?; \
        mount -t tmpfs none ~/.config; $LW discard $S --outside; echo code $?; \
        umount ~/.config; $LW sh $S $P 'ls ~/.config; echo after'";
    let Some((stdout, stderr)) = with_mounts(&scratch, script) else { return };
    let said: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("outside")).collect();
    let mounted = ["code 125", "code 0", "code 125", "code 0", "1"];
    let after = ["2", "code 2", "code 0", "after"];
    assert_eq!(said, [&mounted[..], &after].concat(), "{stdout}{stderr}");
    assert!(stderr.contains("cannot be kept in a layer: another file system"), "{stderr}");
    assert!(stderr.contains("another file system is mounted over"), "{stderr}");
    assert!(stderr.contains("/.config/a/two"), "it is listed: {stderr}");
}
