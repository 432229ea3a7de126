//! Applying while somebody is at work in the same folders: nothing but what the trial made comes
//! over, no file elsewhere is reached, and nothing of a person's is lost.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::can_try;
use crate::common::{Scratch, has_program, in_namespace, parts, program};

/// A trial with a hard link whose second name is copied long after its first.
const LINKED: &str = "mkdir aa; echo harmless > aa/id_x; ln aa/id_x zz; mkdir mm; \
                      for i in $(seq 60); do head -c 1000000 /dev/zero | tr '\\0' x > mm/$i; done";

/// Whether what an apply does can be slowed and cut off at a system call.
fn can_trace() -> bool {
    can_try() && has_program("strace", &["-qq", "-o", "/dev/null", "true"])
}

/// `legwork apply` under strace, which does something at a system call.
fn traced(scratch: &Scratch, inject: &str) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", inject, "--"]);
    command.arg(program()).arg("apply").arg("--state").arg(scratch.state.path());
    command.current_dir(scratch.workspace.path()).stdin(Stdio::null());
    command.env("XDG_CONFIG_HOME", scratch.state.path());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// An apply that is killed at one of the exchanges. The first only finds out whether names can be
/// exchanged.
fn killed_at(scratch: &Scratch, exchange: u32) {
    let inject = format!("inject=renameat2:error=EINTR:signal=KILL:when={exchange}");
    let killed = traced(scratch, &inject).status().unwrap();
    assert!(!killed.success());
}

/// What a script prints in a workspace on a disk of its own, so that copies are made beside it.
fn on_own_disk(scratch: &Scratch, script: &str) -> Option<(Option<i32>, String, String)> {
    let disk = scratch.file("disk");
    fs::create_dir(&disk).unwrap();
    let script = format!(
        "set -e; mount -t tmpfs -o size=400m none {disk}; mkdir {disk}/w {disk}/secret; \
         echo key > {disk}/secret/id_x; chmod 700 {disk}/secret; cd {disk}/w; {script}"
    );
    let script = script
        .replace("$DISK", &disk)
        .replace("$LW", program())
        .replace("$STATE", &format!("--state {}", scratch.state.path().display()));
    let mut command = in_namespace(&script)?;
    command.env("XDG_CONFIG_HOME", scratch.state.path());
    Some(parts(&command.output().unwrap()))
}

fn staging_of(workspace: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(workspace).unwrap().filter_map(Result::ok);
    let is_staging = |path: &PathBuf| {
        path.file_name().is_some_and(|it| it.to_string_lossy().starts_with(".legwork-apply-"))
    };
    entries.map(|entry| entry.path()).find(is_staging)
}

#[test]
fn no_command_reaches_the_copies_of_an_apply() {
    if !can_try() {
        return;
    }
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    elsewhere.write("secret/id_x", "key\n");
    let secret = elsewhere.workspace.path().join("secret");
    let tried = scratch.try_sh(LINKED);
    assert!(tried.status.success(), "{tried:?}");
    let (over, seen) = (AtomicBool::new(false), AtomicBool::new(false));
    let applied = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let Some(staging) = staging_of(scratch.workspace.path()) else { continue };
                seen.store(true, Ordering::Relaxed);
                let first = staging.join("0");
                if first.join("id_x").exists() && !first.is_symlink() {
                    let moved = fs::rename(&first, staging.join("zold"));
                    let _ = moved.and_then(|()| symlink(&secret, &first));
                }
            }
        });
        let applied = scratch.apply(&[]);
        over.store(true, Ordering::Relaxed);
        applied
    });
    let links = fs::metadata(secret.join("id_x")).unwrap().nlink();
    assert_eq!(links, 1, "a file elsewhere got a name in the workspace: {applied:?}");
    assert!(!seen.load(Ordering::Relaxed), "the copies can be reached: {applied:?}");
    assert_eq!(applied.0, Some(0), "{applied:?}");
    assert!(!Path::new(&scratch.file("aa")).is_symlink());
    assert_eq!(fs::read_to_string(scratch.file("zz")).unwrap(), "harmless\n");
}

#[test]
fn a_link_in_the_place_of_a_copy_leads_to_no_file_elsewhere() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = format!(
        "$LW try $STATE --sh '{linked}' >&2; \
         (while [ ! -e ../over ]; do for d in .legwork-apply-*; do \
            [ -f $d/0/id_x ] && [ ! -L $d/0 ] && mv $d/0 $d/zold && ln -s $DISK/secret $d/0 && \
            echo swapped; done; done) & \
         set +e; $LW apply $STATE; echo \"code $?\"; : > ../over; wait; \
         stat -c 'links %h' ../secret/id_x; ls -A",
        linked = LINKED.replace('\'', "\"")
    );
    let Some((code, stdout, stderr)) = on_own_disk(&scratch, &script) else { return };
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("links 1\n"), "{stdout}{stderr}");
    let swapped = stdout.contains("swapped\n");
    assert!(stdout.contains(if swapped { "code 125\n" } else { "code 0\n" }), "{stdout}{stderr}");
    assert!(!swapped || !stdout.contains("\nmm\n"), "nothing is left: {stdout}{stderr}");
}

#[test]
fn a_file_in_the_place_of_a_copy_is_not_moved_into_the_workspace() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = format!(
        "echo before > aa; $LW try $STATE --sh 'echo tried > aa; echo made > ab; {large}' >&2; \
         (while [ ! -e ../over ]; do for d in .legwork-apply-*; do \
            [ -f $d/1 ] && [ -d $d/2 ] && [ ! -e $d/zold ] && mv $d/0 $d/zold && echo other > $d/0 && \
            echo swapped; done; done) & \
         set +e; $LW apply $STATE; echo \"code $?\"; : > ../over; wait; cat aa; ls -A",
        large = "mkdir mm; for i in $(seq 60); do head -c 1000000 /dev/zero > mm/$i; done"
    );
    let Some((code, stdout, stderr)) = on_own_disk(&scratch, &script) else { return };
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    if stdout.contains("swapped\n") {
        assert!(stdout.contains("code 125\nbefore\naa\n"), "{stdout}{stderr}");
        assert!(stderr.contains("/aa"), "it is named: {stderr}");
    } else {
        assert!(stdout.contains("code 0\ntried\n"), "{stdout}{stderr}");
    }
}

#[test]
fn a_link_in_the_place_of_a_closed_folder_gives_nothing_elsewhere_another_mode() {
    if !can_trace() {
        return;
    }
    let scratch = Scratch::new();
    let script = "$LW try $STATE --sh 'mkdir aa; chmod 077 aa' >&2; \
         (while [ ! -e ../over ]; do for d in .legwork-apply-*; do \
            [ \"$(stat -c %a $d/0 2>/dev/null)\" = 77 ] && [ ! -L $d/0 ] && mv $d/0 $d/zold && \
            ln -s $DISK/secret $d/0; done; done) & \
         set +e; strace -f -qq -o /dev/null -e inject=fchmodat,chmod:delay_enter=700000 \
            $LW apply $STATE; : > ../over; wait; stat -c 'mode %a' ../secret";
    let Some((code, stdout, stderr)) = on_own_disk(&scratch, script) else { return };
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("mode 700\n"), "{stdout}{stderr}");
}

#[test]
fn copies_that_are_moved_away_do_not_stop_an_apply_nor_later_ones() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = format!(
        "$LW try $STATE --sh '{linked}' >&2; \
         (while [ ! -e ../over ]; do for d in .legwork-apply-*; do \
            [ -f $d/0/id_x ] && mv $d gotcha; done; done) & \
         set +e; $LW apply $STATE; echo \"code $?\"; : > ../over; wait; \
         mkdir ../other; cd ../other; $LW try $STATE --sh 'echo other > other' >&2; \
         $LW apply $STATE; echo \"then $?\"; cat other",
        linked = LINKED.replace('\'', "\"")
    );
    let Some((code, stdout, stderr)) = on_own_disk(&scratch, &script) else { return };
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("then 0\nother\n"), "{stdout}{stderr}");
    assert!(stdout.contains("code 0\n"), "{stdout}{stderr}");
}

#[test]
fn an_apply_that_can_be_neither_finished_nor_undone_keeps_nobody_from_applying() {
    if !can_trace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("a", "before\n");
    scratch.write("b", "before\n");
    let tried = scratch.try_sh("rm a; echo tried > b; echo made > c");
    assert!(tried.status.success(), "{tried:?}");
    killed_at(&scratch, 3);
    // It has taken `a` away. Somebody makes another one, so that it cannot be put back.
    scratch.write("a", "mine\n");
    let other = Scratch::new();
    let here = |verb: &str| {
        let mut command = scratch.legwork(verb);
        command.current_dir(other.workspace.path());
        command
    };
    let tried = here("try").args(["--sh", "echo tried > file"]).output().unwrap();
    assert!(tried.status.success(), "{tried:?}");
    let (code, stdout, stderr) = parts(&here("apply").output().unwrap());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(fs::read_to_string(other.file("file")).unwrap(), "tried\n");
    assert_eq!(fs::read_to_string(scratch.file("a")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(scratch.file("b")).unwrap(), "before\n");
    assert!(!fs::exists(scratch.file("c")).unwrap());
    // What it could not put back is kept, and told of.
    let told = parts(&here("doctor").output().unwrap()).1;
    let kept = told.split_whitespace().find(|word| word.contains("/applying/"));
    let kept = kept.unwrap_or_else(|| panic!("{told}")).trim_end_matches([',', ';', '.']);
    let journal: serde_json::Value = serde_json::from_slice(&fs::read(kept).unwrap()).unwrap();
    let staging = Path::new(journal["grounds"][0]["staging"].as_str().unwrap()).to_owned();
    assert_eq!(fs::read_to_string(staging.join("0")).unwrap(), "before\n");
}

#[test]
fn a_workspace_that_is_gone_after_a_kill_keeps_nobody_from_applying() {
    if !can_trace() {
        return;
    }
    let scratch = Scratch::new();
    for name in ["a", "b"] {
        scratch.write(&format!("w/{name}"), "before\n");
    }
    let at = |verb: &str, folder: &str| {
        let mut command = scratch.legwork(verb);
        command.current_dir(scratch.file(folder));
        command
    };
    let tried = at("try", "w").args(["--sh", "echo tried > a; echo tried > b"]).output().unwrap();
    assert!(tried.status.success(), "{tried:?}");
    let inject = "inject=renameat2:error=EINTR:signal=KILL:when=3";
    let killed = traced(&scratch, inject).current_dir(scratch.file("w")).status().unwrap();
    assert!(!killed.success());
    fs::remove_dir_all(scratch.file("w")).unwrap();
    scratch.write("other/file", "before\n");
    let tried = at("try", "other").args(["--sh", "echo tried > file"]).output().unwrap();
    assert!(tried.status.success(), "{tried:?}");
    let (code, stdout, stderr) = parts(&at("apply", "other").output().unwrap());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(fs::read_to_string(scratch.file("other/file")).unwrap(), "tried\n");
}

#[test]
fn what_a_person_changed_after_a_kill_in_a_folder_that_goes_is_kept() {
    if !can_trace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("dir/f1", "before\n");
    scratch.write("dir/f2", "before\n");
    let tried = scratch.try_sh("rm -r dir; echo made > made");
    assert!(tried.status.success(), "{tried:?}");
    killed_at(&scratch, 2);
    scratch.write("dir/new", "work\n");
    scratch.write("dir/f1", "edited\n");
    assert!(scratch.legwork("ps").output().unwrap().status.success());
    let read = |name: &str| fs::read_to_string(scratch.file(name)).ok();
    assert_eq!(read("dir/new").as_deref(), Some("work\n"));
    assert_eq!(read("dir/f1").as_deref(), Some("edited\n"));
    assert_eq!(read("dir/f2").as_deref(), Some("before\n"));
    assert_eq!(read("made"), None, "all of it is undone");
    assert_eq!(staging_of(scratch.workspace.path()), None);
}

#[test]
fn what_a_person_changed_after_a_kill_in_what_was_made_is_kept() {
    if !can_trace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("b/f1", "before\n");
    let tried = scratch.try_sh("mkdir a; echo made > a/made; rm -r b");
    assert!(tried.status.success(), "{tried:?}");
    killed_at(&scratch, 3);
    // `a` is there already. Because of what is new in `b` all has to be undone.
    scratch.write("a/mine", "work\n");
    scratch.write("b/new", "work\n");
    assert!(scratch.legwork("ps").output().unwrap().status.success());
    let read = |name: &str| fs::read_to_string(scratch.file(name)).ok();
    assert_eq!(read("a/mine").as_deref(), Some("work\n"));
    assert_eq!(read("b/new").as_deref(), Some("work\n"));
    assert_eq!(read("b/f1").as_deref(), Some("before\n"));
}

/// `legwork VERB` as a user whom modes hold back.
fn as_ordinary_user(scratch: &Scratch, verb: &str) -> Command {
    let usual = scratch.legwork(verb);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(usual.get_program()).args(usual.get_args()).stdin(Stdio::null());
    command.current_dir(scratch.workspace.path());
    command.env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", scratch.state.path());
    command.env("HOME", scratch.state.path());
    command
}

#[test]
fn a_closed_folder_is_applied_in_part_and_then_the_rest() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    // Root may write whatever the mode is.
    let is_root = rustix::process::geteuid().is_root();
    let legwork = |verb: &str| {
        if is_root { as_ordinary_user(&scratch, verb) } else { scratch.legwork(verb) }
    };
    if is_root {
        for folder in [&scratch.state, &scratch.workspace] {
            std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
        }
        let sees = legwork("ps").output();
        if !sees.is_ok_and(|output| output.status.success()) {
            skips::skip("another user cannot run the program here");
            return;
        }
    }
    let tried = "mkdir ro; for i in f g h; do echo $i > ro/$i; done; chmod 500 ro";
    let tried = legwork("try").args(["--sh", tried]).output().unwrap();
    assert!(tried.status.success(), "{tried:?}");
    let mode = |name: &str| fs::metadata(scratch.file(name)).unwrap().permissions().mode() & 0o777;
    for paths in [&["ro/f"][..], &["ro/g"], &[]] {
        let (code, _, stderr) = parts(&legwork("apply").args(paths).output().unwrap());
        assert_eq!((code, mode("ro")), (Some(0), 0o500), "{paths:?}: {stderr}");
    }
    assert_eq!(fs::read_to_string(scratch.file("ro/h")).unwrap(), "h\n");
    fs::set_permissions(scratch.file("ro"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_staging_folder_that_somebody_made_before_stops_no_apply() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script = "$LW try $STATE --sh 'echo tried > file' >&2; \
         for id in $(ls $DIR/trials | grep t_); do mkdir .legwork-apply-$id; done; ls -d .legwork-*; \
         $LW apply $STATE; cat file";
    let script = script.replace("$DIR", &scratch.state.path().display().to_string());
    let Some((code, stdout, stderr)) = on_own_disk(&scratch, &script) else { return };
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(
        stdout.contains(".legwork-apply-t_") && stdout.ends_with("tried\n"),
        "{stdout}{stderr}"
    );
}

/// A script that makes folders in one another.
fn deep(levels: usize) -> String {
    format!("perl -e 'for(1..{levels}){{mkdir q(dd);chdir q(dd)}}'")
}

/// A verb with few descriptors.
fn with_few(scratch: &Scratch, verb: &str) -> (Option<i32>, String, String) {
    let usual = scratch.legwork(verb);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""]);
    command.arg(usual.get_program()).args(usual.get_args());
    command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    parts(&command.current_dir(scratch.workspace.path()).output().unwrap())
}

#[test]
fn a_trial_too_deep_to_be_shown_can_be_discarded() {
    if !can_try() || !has_program("perl", &["-e", "1"]) {
        return;
    }
    let scratch = Scratch::new();
    let (code, _, stderr) = parts(&scratch.try_sh(&deep(3000)));
    assert!(code == Some(0) && stderr.contains("too deep"), "{code:?} {stderr}");
    for verb in ["changes", "apply"] {
        let (code, _, stderr) = with_few(&scratch, verb);
        assert!(code == Some(125) && stderr.contains("too deep"), "{code:?} {stderr}");
        assert!(stderr.len() < 1000, "{stderr}");
    }
    let (code, stdout, stderr) = with_few(&scratch, "discard");
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
    assert!(!fs::exists(scratch.file("dd")).unwrap());
}

#[test]
fn folders_as_deep_as_can_be_shown_are_applied_and_discarded() {
    if !can_try() || !has_program("perl", &["-e", "1"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.try_sh(&deep(495));
    let (code, stdout, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(scratch.workspace.path().join("dd/dd/dd/dd").is_dir());
    scratch.try_sh("rm -rf dd; echo x > dd");
    for verb in ["changes", "discard"] {
        let (code, _, stderr) = with_few(&scratch, verb);
        assert_eq!(code, Some(0), "{verb}: {stderr}");
    }
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}
