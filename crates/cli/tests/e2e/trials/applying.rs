//! Applying: what comes over is what the trial made, to the last attribute, or nothing does.

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
};

use super::{can_try, tree};
use crate::common::Scratch;

#[test]
fn modes_links_holes_attributes_and_times_come_over() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("tool.sh", "old\n");
    scratch.write("gone/a", "a\n");
    scratch.write("was a folder/x", "x\n");
    scratch.write("was a file", "x\n");
    let script = "printf 'new\\n' > tool.sh; chmod 750 tool.sh; ln tool.sh second; rm -r gone; \
                  ln -s /etc/passwd absolute; ln -s tool.sh relative; truncate -s 64M sparse; \
                  printf end | dd of=sparse bs=1 seek=67108000 conv=notrunc status=none; \
                  touch -d 2001-02-03T04:05:06Z old; mkfifo pipe; mkdir -m 750 closed; touch closed/in; \
                  touch -h -d 2002-02-03T04:05:06Z relative; rm -r 'was a folder'; echo f > 'was a folder'; \
                  rm 'was a file'; mkdir 'was a file'; echo in > 'was a file/in'; chmod 711 .; \
                  python3 -c 'import os; os.setxattr(\"old\", \"user.note\", b\"kept\")' 2> /dev/null; \
                  touch -d 2003-02-03T04:05:06Z closed";
    let tried = scratch.try_sh(script);
    assert!(tried.status.success(), "{tried:?}");
    let (code, stdout, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let at = |name: &str| fs::symlink_metadata(scratch.file(name)).unwrap();
    assert_eq!(fs::read_to_string(scratch.file("tool.sh")).unwrap(), "new\n");
    assert_eq!(at("tool.sh").mode() & 0o7777, 0o750);
    assert_eq!((at("tool.sh").ino(), at("tool.sh").nlink()), (at("second").ino(), 2));
    assert_eq!(fs::read_link(scratch.file("absolute")).unwrap(), PathBuf::from("/etc/passwd"));
    assert_eq!(at("relative").mtime(), 1_012_709_106);
    assert_eq!((at("sparse").len(), at("sparse").blocks() < 1000), (64 << 20, true));
    assert!(fs::read(scratch.file("sparse")).unwrap()[67_108_000..].starts_with(b"end"));
    assert_eq!(at("old").mtime(), 981_173_106);
    assert_eq!((at("closed").mode() & 0o777, at("closed").mtime()), (0o750, 1_044_245_106));
    assert!(at("was a folder").is_file() && at("was a file").is_dir());
    assert!(
        !fs::exists(scratch.file("gone")).unwrap()
            && fs::exists(scratch.file("closed/in")).unwrap()
    );
    assert_eq!(at("pipe").permissions().mode() & 0o170_000, 0o010_000);
    let mut value = [0; 16];
    let read = rustix::fs::lgetxattr(scratch.file("old"), "user.note", &mut value[..]);
    assert_eq!(read.map(|length| value[..length].to_vec()), Ok(b"kept".to_vec()));
    let overlay =
        rustix::fs::lgetxattr(scratch.file("tool.sh"), "user.overlay.origin", &mut value[..]);
    assert!(overlay.is_err(), "nothing of the layer comes along");
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
    let names: Vec<String> = tree(scratch.workspace.path())
        .keys()
        .map(|path| path.display().to_string())
        .filter(|name| name.contains("legwork"))
        .collect();
    assert_eq!(names, Vec::<String>::new(), "nothing is left beside");
}

#[test]
fn what_was_changed_underneath_is_named_and_nothing_is_applied() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    for name in ["a", "b", "dir/one", "dir/two", "mode"] {
        scratch.write(name, "before\n");
    }
    let tried = scratch
        .try_sh("echo tried > a; echo tried > b; rm -r dir; echo tried > new; chmod 600 mode");
    assert!(tried.status.success(), "{tried:?}");
    scratch.write("b", "mine\n");
    scratch.write("dir/three", "mine\n");
    scratch.write("new", "mine\n");
    let before = tree(scratch.workspace.path());
    let (code, _, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.contains("changed underneath"), "{stderr}");
    let workspace = scratch.workspace.path().canonicalize().unwrap();
    for name in ["b", "dir/three", "new"] {
        let line = format!("  {}", workspace.join(name).display());
        assert!(stderr.lines().any(|it| it == line), "{name}: {stderr}");
    }
    assert!(!stderr.lines().any(|it| it.ends_with("/a")), "{stderr}");
    assert_eq!(tree(scratch.workspace.path()), before);
    // What nobody else has touched can be had by name.
    let (code, _, stderr) = scratch.apply(&["a", "mode"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(fs::read_to_string(scratch.file("a")).unwrap(), "tried\n");
    assert_eq!(fs::read_to_string(scratch.file("b")).unwrap(), "mine\n");
}

#[test]
fn a_file_that_was_changed_while_the_trial_ran_is_not_overwritten() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("a", "before\n");
    // The trial waits for a line.
    let mut trial = scratch.legwork("try");
    trial.args(["--sh", "echo tried > a; read line"]);
    let (piped, null) = (std::process::Stdio::piped(), std::process::Stdio::null());
    let mut child = trial.stdin(piped).stderr(null).spawn().unwrap();
    let upper = scratch.state.path().join("trials");
    crate::common::eventually("it has written", || {
        let trial =
            fs::read_dir(&upper).ok()?.filter_map(Result::ok).find(|it| it.path().is_dir())?;
        let layers = fs::read_dir(trial.path()).ok()?.filter_map(Result::ok);
        let found = layers.map(|it| it.path().join("upper/a"));
        found.filter_map(|it| fs::read(it).ok()).find(|it| it == b"tried\n")
    });
    scratch.write("a", "mine\n");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    let (code, _, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.contains("/a"), "{stderr}");
    assert_eq!(fs::read_to_string(scratch.file("a")).unwrap(), "mine\n");
}

#[test]
fn nothing_is_applied_through_a_link_out_of_the_workspace() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let outside = Scratch::new();
    scratch.write("dir/file", "before\n");
    let tried = scratch.try_sh("echo tried > dir/file; echo tried > dir/new");
    assert!(tried.status.success(), "{tried:?}");
    // The folder is moved away, and a link stands in its place.
    fs::rename(scratch.file("dir"), outside.file("dir")).unwrap();
    symlink(outside.file("dir"), scratch.file("dir")).unwrap();
    let (code, _, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(125), "{stderr}");
    assert_eq!(fs::read_to_string(outside.file("dir/file")).unwrap(), "before\n");
    assert!(!fs::exists(outside.file("dir/new")).unwrap());
}

#[test]
fn a_trial_is_applied_in_parts_and_then_the_rest() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("old/a", "a\n");
    scratch.write("old/b", "b\n");
    let tried = scratch
        .try_sh("mkdir -p new/deep; for i in 1 2 3; do echo $i > new/deep/$i; done; rm -r old");
    assert!(tried.status.success(), "{tried:?}");
    assert_eq!(scratch.apply(&["new/deep/2"]).0, Some(0));
    assert_eq!(fs::read_dir(scratch.file("new/deep")).unwrap().count(), 1);
    assert_eq!(scratch.apply(&["old/a"]).0, Some(0));
    assert!(fs::exists(scratch.file("old/b")).unwrap());
    let (code, _, stderr) = scratch.apply(&["no such file"]);
    assert_eq!(code, Some(125), "{stderr}");
    let (code, stdout, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(fs::read_dir(scratch.file("new/deep")).unwrap().count(), 3);
    assert!(!fs::exists(scratch.file("old")).unwrap());
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}
