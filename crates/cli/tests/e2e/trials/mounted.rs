//! Another file system is mounted in a copied folder later, while changes are kept.

use std::fs;

use super::can_try;
use crate::common::{Scratch, in_namespace, parts, program};

/// Runs a script in which folders can be mounted, in a workspace.
fn with_mounts(scratch: &Scratch, script: &str) -> Option<(String, String)> {
    fs::create_dir_all(scratch.file("w/sub")).unwrap();
    let whole = format!(
        "cd {workspace}; LW={program}; S='--state {state}'; {script}",
        workspace = scratch.file("w"),
        program = program(),
        state = scratch.state.path().display(),
    );
    let mut command = in_namespace(&whole)?;
    let (_, stdout, stderr) = parts(&command.output().unwrap());
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
