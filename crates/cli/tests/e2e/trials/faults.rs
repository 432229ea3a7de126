//! Trials where something fails: the disk, a process, the file system, or the number of files.

use std::{fs, io::Write, os::unix::fs::PermissionsExt, path::PathBuf, process::Stdio};

use serde_json::Value;

use super::{can_try, tree};
use crate::common::{Scratch, children, eventually, in_namespace, parts, program, text};

#[test]
fn two_trials_at_once_do_not_see_each_other() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "before\n");
    let start = |mark: &str| {
        let script = format!("echo {mark} > file; read line; cat file");
        let mut command = scratch.legwork("try");
        command
            .args(["--sh", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let (one, two) = (start("one"), start("two"));
    eventually("both run", || (scratch.trials_left().len() == 2).then_some(()));
    assert_eq!(text(&one.wait_with_output().unwrap().stdout), "one\n");
    assert_eq!(text(&two.wait_with_output().unwrap().stdout), "two\n");
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "before\n");
    let listed = scratch.legwork("changes").args(["--list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["trials"].as_array().unwrap().len(), 2, "{listed:#}");
    // The second to be applied finds the file changed underneath.
    assert_eq!(scratch.apply(&["file"]).0, Some(0));
    let left = listed["trials"][1]["task_id"].as_str().unwrap();
    let (code, _, stderr) = scratch.apply(&["--trial", left]);
    assert_eq!(code, Some(125), "{stderr}");
    let discarded = scratch.legwork("discard").arg("--all").output().unwrap();
    assert!(discarded.status.success(), "{discarded:?}");
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}

#[test]
fn a_trial_outlives_its_engine_and_is_shown_later() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "before\n");
    let mut trial = scratch.legwork("try");
    trial.args(["--sh", "echo tried > file; read line; echo more > made"]);
    trial.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = trial.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    eventually("it has begun", || {
        let trial = scratch.trials_left().into_iter().next()?;
        let layers = fs::read_dir(trial).ok()?.filter_map(Result::ok);
        layers.map(|it| it.path().join("upper/file")).find(|it| it.exists())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    // While it runs it is neither shown nor applied.
    let (code, _, stderr) = scratch.apply(&[]);
    assert!(code == Some(125) && stderr.contains("still runs"), "{stderr}");
    input.write_all(b"\n").unwrap();
    let id = scratch.tasks()[0]["task_id"].as_str().unwrap().to_owned();
    assert!(scratch.legwork("wait").arg(&id).output().unwrap().status.success());
    let changes = scratch.changes();
    assert!(changes.contains_key("file") && changes.contains_key("made"), "{changes:?}");
    assert_eq!(scratch.apply(&[]).0, Some(0));
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "tried\n");
}

#[test]
fn a_trial_whose_warden_is_killed_is_interrupted_and_changes_nothing() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "before\n");
    let mut trial = scratch.legwork("try");
    trial.args(["--sh", "echo tried > file; echo $$ > made; sleep 60"]);
    let mut child = trial.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let warden = eventually("it has begun", || {
        let trial = scratch.trials_left().into_iter().next()?;
        let layers = fs::read_dir(trial).ok()?.filter_map(Result::ok);
        layers.map(|it| it.path().join("upper/made")).find(|it| it.exists())?;
        // The program, its spawner, the warden.
        children(child.id()).into_iter().flat_map(children).next()
    });
    crate::common::signal(warden, rustix::process::Signal::KILL);
    child.wait().unwrap();
    let tasks = scratch.tasks();
    assert_eq!(tasks[0]["status"], "interrupted", "{tasks:#?}");
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "before\n");
    assert!(scratch.changes().contains_key("file"));
    assert!(scratch.legwork("discard").output().unwrap().status.success());
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}

#[test]
fn a_trial_is_not_over_while_a_process_of_it_hides_its_command_line() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "before\n");
    // It has no words, and writes when somebody looks away.
    let hidden = "exec -a '' cat <>pipe >>file";
    let script = format!("mkfifo pipe; bash -c \"{hidden}\" >/dev/null 2>&1 & echo tried > file");
    let tried = scratch.try_sh(&script);
    let (code, _, stderr) = parts(&tried);
    assert!(stderr.contains("still runs"), "{code:?}: {stderr}");
    let (code, _, stderr) = scratch.apply(&[]);
    assert!(code == Some(125) && stderr.contains("still runs"), "{stderr}");
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "before\n");
    let id = scratch.tasks()[0]["task_id"].as_str().unwrap().to_owned();
    let stopped = scratch.legwork("stop").arg(&id).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    let (code, _, stderr) = scratch.apply(&["file"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "tried\n");
}

#[test]
fn what_was_not_shown_is_not_applied_though_it_is_in_the_layer() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "before\n");
    let tried = scratch.try_sh("echo tried > file; mkdir made; echo one > made/one");
    assert_eq!(parts(&tried).0, Some(0));
    assert!(scratch.changes().contains_key("made/one"));
    let layer = |name: &str| {
        let trial = scratch.trials_left().into_iter().next().unwrap();
        let layers = fs::read_dir(trial).unwrap().map(|it| it.unwrap().path().join("upper"));
        layers.into_iter().find(|it| it.join("file").exists()).unwrap().join(name)
    };
    // Somebody writes into the layer after everybody has looked.
    fs::write(layer("made/two"), "planted\n").unwrap();
    let (code, _, stderr) = scratch.apply(&[]);
    assert!(code == Some(125) && stderr.contains("made/two was changed in the trial"), "{stderr}");
    fs::remove_file(layer("made/two")).unwrap();
    fs::write(layer("file"), "other\n").unwrap();
    let (code, _, stderr) = scratch.apply(&[]);
    assert!(code == Some(125) && stderr.contains("file was changed in the trial"), "{stderr}");
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "before\n");
    let names = |path: &PathBuf| path.display().to_string();
    let left: Vec<_> = tree(scratch.workspace.path()).keys().map(names).collect();
    assert_eq!(left, ["file"]);
    // The rest is as it was shown.
    assert_eq!(scratch.apply(&["made"]).0, Some(0));
    assert_eq!(fs::read_to_string(scratch.file("made/one")).unwrap(), "one\n");
}

#[test]
fn what_a_command_has_closed_to_its_owner_is_listed_and_applied_as_it_is() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("folder/file", "before\n");
    let tried = scratch.try_sh(
        "echo tried > folder/file; mkdir made; echo one > made/one; chmod 000 made/one made folder .",
    );
    let (code, _, stderr) = parts(&tried);
    assert_eq!(code, Some(0), "{stderr}");
    let changes = scratch.changes();
    for name in ["folder", "folder/file", "made", "made/one"] {
        assert!(changes.contains_key(name), "{name}: {changes:?}");
    }
    let (code, _, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    let mode = |name: &str| fs::metadata(scratch.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("folder"), mode("made")), (0, 0));
    for name in ["folder", "made"] {
        fs::set_permissions(scratch.file(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(mode("made/one"), 0);
    assert_eq!(fs::read_to_string(scratch.file("folder/file")).unwrap(), "tried\n");
}

#[test]
fn a_full_disk_in_an_apply_leaves_the_workspace_as_it_was() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let disk = scratch.file("disk");
    fs::create_dir(&disk).unwrap();
    // The workspace is small, the state folder is not.
    let script = format!(
        "set -e; mount -t tmpfs -o size=4m none {disk}; cd {disk}; LW={program}; S={state}; \
         echo before > file; $LW try --state $S --sh 'echo tried > file; head -c 3000000 /dev/zero > large' >&2; \
         head -c 3000000 /dev/zero > filler; set +e; $LW apply --state $S; echo \"code $?\"; cat file; ls -A; \
         rm filler; $LW apply --state $S; echo \"code $?\"; cat file; ls -A",
        program = program(),
        state = scratch.state.path().display(),
    );
    let Some(mut command) = in_namespace(&script) else { return };
    let (code, stdout, stderr) = parts(&command.output().unwrap());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let (full, after) = stdout.split_once("filler\n").unwrap();
    assert_eq!(full, "code 125\nbefore\nfile\n", "{stderr}");
    assert!(after.contains("code 0\ntried\nfile\nlarge\n"), "{stdout}{stderr}");
    assert!(stderr.contains("No space left"), "{stderr}");
}

#[test]
fn a_full_disk_in_a_trial_fails_the_command_and_not_the_workspace() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let disk = scratch.file("disk");
    fs::create_dir(&disk).unwrap();
    scratch.write("w/large", &"x".repeat(3_000_000));
    let script = format!(
        "set -e; mount -t tmpfs -o size=2m none {disk}; cd {folder}/w; \
         set +e; {program} try --state {disk}/state --sh 'echo more >> large'; echo \"code $?\"; \
         {program} discard --state {disk}/state",
        folder = scratch.workspace.path().display(),
        program = program(),
    );
    let Some(mut command) = in_namespace(&script) else { return };
    let (code, stdout, stderr) = parts(&command.output().unwrap());
    assert!(!stdout.contains("code 0"), "{code:?}: {stdout}{stderr}");
    assert!(stderr.contains("No space left"), "{stdout}{stderr}");
    assert_eq!(fs::metadata(scratch.file("w/large")).unwrap().len(), 3_000_000);
}

#[test]
fn a_trial_that_writes_too_much_is_stopped_and_says_so() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "before\n");
    let before = tree(scratch.workspace.path());
    let policy = "[sandbox]\ntrial_bytes_max = 3000000\n";
    let writes = "mkdir made; i=0; while :; do head -c 1000000 /dev/zero > made/$i; i=$((i+1)); sleep 0.1; done";
    let mut command = scratch.guarded("try", "guarded", Some(policy));
    let (code, _, stderr) = parts(&command.args(["--sh", writes]).output().unwrap());
    assert!(code != Some(0) && stderr.contains("trial_bytes_max"), "{code:?}: {stderr}");
    assert_eq!(tree(scratch.workspace.path()), before);
    let outcome = &scratch.tasks()[0]["outcome"];
    assert_eq!(outcome["ended_by"], "layer_limit", "{outcome:#}");
    // What it wrote until then can be looked at, and forgotten.
    assert!(scratch.changes().contains_key("made/0"));
    assert!(scratch.legwork("discard").output().unwrap().status.success());
    // What a command has left behind is stopped, too.
    let left = format!("({writes}) >/dev/null 2>&1 & echo begun");
    let mut command = scratch.guarded("try", "guarded", Some(policy));
    let (code, stdout, stderr) = parts(&command.args(["--sh", &left]).output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(0), "begun\n"), "{stderr}");
    eventually("what was left is stopped", || {
        let discarded = scratch.legwork("discard").output().unwrap();
        discarded.status.success().then_some(())
    });
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
    // Within its limit nothing is stopped, however long it takes.
    let mut command = scratch.guarded("try", "guarded", Some(policy));
    let little = "head -c 1000000 /dev/zero > made; sleep 2; echo through";
    let (code, stdout, stderr) = parts(&command.args(["--sh", little]).output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(0), "through\n"), "{stderr}");
}

#[test]
fn a_workspace_that_cannot_be_copied_is_refused_and_told_why() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.file("mounted")).unwrap();
    scratch.write("file", "before\n");
    let script = format!(
        "mount -t tmpfs none mounted && exec {} try --state {} --sh 'echo tried > file'",
        program(),
        scratch.state.path().display()
    );
    let Some(mut command) = in_namespace(&script) else { return };
    let output = command.current_dir(scratch.workspace.path()).output().unwrap();
    let (code, _, stderr) = parts(&output);
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.contains("cannot be tried here") && stderr.contains("/mounted"), "{stderr}");
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "before\n");
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}

#[test]
fn a_state_folder_on_a_file_system_that_takes_no_layers_is_refused_and_told_why() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("w/file", "before\n");
    // A copy-on-write view keeps no layers of another one.
    let folder = scratch.workspace.path().display().to_string();
    let script = format!(
        "set -e; mkdir {folder}/lower {folder}/upper {folder}/work {folder}/state; cd {folder}/w; \
         mount -t overlay -o userxattr,lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work \
         none {folder}/state; set +e; {program} try --state {folder}/state --sh 'echo tried > file'; \
         echo \"code $?\"; ls -A {folder}/state/trials {folder}/state/ahead 2>/dev/null | grep -v ':$'; cat file",
        program = program(),
    );
    let Some(mut command) = in_namespace(&script) else { return };
    let (_, stdout, stderr) = parts(&command.output().unwrap());
    assert!(stdout.starts_with("code 125\n") && stdout.ends_with("before\n"), "{stdout}{stderr}");
    assert!(stderr.contains("cannot be tried here"), "{stderr}");
    assert!(stderr.contains("copy-on-write view of"), "the reason: {stderr}");
    assert_eq!(stdout.trim(), "code 125\nbefore", "nothing is left: {stdout}");
}

#[test]
fn a_hundred_thousand_changed_files_are_listed_applied_and_discarded() {
    if !can_try() {
        return;
    }
    // The whole number takes a minute: `just apply-kills` has it.
    let count = if std::env::var_os("LEGWORK_APPLY_ROUNDS").is_some() { 100_000 } else { 3_000 };
    let scratch =
        Scratch::with(crate::harness::watch::Times::at_most(std::time::Duration::from_secs(3600)));
    let script =
        format!("mkdir many; cd many; i=0; while [ $i -lt {count} ]; do : > $i; i=$((i+1)); done");
    let tried = scratch.try_sh(&script);
    let (code, _, stderr) = parts(&tried);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains(&format!("{count} made")), "{stderr}");
    assert!(stderr.contains(" more\n"), "the list is bounded: {stderr}");
    let (code, stdout, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains(&format!("{count} made")), "{stdout}");
    assert_eq!(tree(&scratch.workspace.path().join("many")).len(), count);
    // Each of these is a step of its own.
    let half = count / 2;
    let script = format!(
        "cd many; i=0; while [ $i -lt {half} ]; do echo x > $i; i=$((i+1)); done; \
         seq {half} {last} | xargs rm",
        last = count - 1
    );
    assert_eq!(parts(&scratch.try_sh(&script)).0, Some(0));
    let (code, stdout, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    let expected = format!("0 made, {half} changed, {} removed", count - half);
    assert!(stdout.contains(&expected), "{stdout}");
    assert_eq!(tree(&scratch.workspace.path().join("many")).len(), half);
    let removed = scratch.try_sh("rm -r many");
    assert!(parts(&removed).2.contains(&format!("{half} removed")), "{removed:?}");
    assert!(scratch.legwork("discard").output().unwrap().status.success());
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}
