//! What a command can leave in a layer to make it a trap: for whoever shows, applies or discards
//! it, and for the commands that come after.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use super::{House, LAYERED};
use crate::{
    common::{eventually, has_program, parts, program},
    sandbox::house::House as UserHouse,
    trials::can_try,
};

/// A script that makes folders in one another, deeper than any path can name.
fn deep(levels: usize) -> String {
    format!("cd ~; perl -e 'for(1..{levels}){{mkdir q(dd);chdir q(dd)}}'")
}

/// A verb with few descriptors.
fn with_few(house: &House, verb: &str) -> (Option<i32>, String, String) {
    let known = house.legwork(verb);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\" --outside"]);
    command.arg(known.get_program()).args(known.get_args()).current_dir(house.home.join("work"));
    parts(&command.env("HOME", &house.home).output().unwrap())
}

#[test]
fn a_layer_too_deep_to_be_shown_stops_no_command_and_can_be_discarded() {
    if !can_try() || !has_program("perl", &["-e", "1"]) {
        return;
    }
    let house = House::new();
    house.works(&deep(3000));
    assert_eq!(house.works("echo next"), "next\n");
    let (code, _, stderr) = with_few(&house, "changes");
    assert!(code == Some(125) && stderr.contains("cannot be shown"), "{code:?} {stderr}");
    assert!(stderr.len() < 1000 && stderr.contains("discard --outside"), "{stderr}");
    // What others have written is shown all the same, and comes over.
    house.works("echo made > ~/made");
    assert_eq!(house.changes(), [("made".to_owned(), "made".to_owned())]);
    let (code, stdout, stderr) = house.apply(&[]);
    assert_eq!((code, house.read("made").as_str()), (Some(0), "made\n"), "{stdout}{stderr}");
    assert!(stdout.contains("the rest is kept"), "{stdout}");
    let (code, stdout, stderr) = with_few(&house, "discard");
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(house.layers(), Vec::<std::path::PathBuf>::new());
    assert_eq!(house.works("ls -d ~/dd 2>/dev/null; echo after"), "after\n");
}

#[test]
fn folders_as_deep_as_can_be_shown_are_folded_applied_and_discarded() {
    if !can_try() || !has_program("perl", &["-e", "1"]) {
        return;
    }
    let house = House::new();
    for number in 0..6 {
        house.works(&format!("echo {number} > ~/small{number}"));
    }
    house.works(&deep(495));
    assert_eq!(house.works("cat ~/small5; cd ~/dd/dd && echo there"), "5\nthere\n");
    let (code, stdout, stderr) = house.apply(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(house.home.join("dd/dd/dd/dd").is_dir());
    house.works("rm -rf ~/dd; echo x > ~/dd");
    let (code, _, stderr) = with_few(&house, "changes");
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(with_few(&house, "discard").0, Some(0));
    assert_eq!(house.layers(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_came_after_the_changes_were_shown_is_named_and_not_applied() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let apply = |paths: &[&str]| {
        let paths = paths.iter().map(|path| house.home.join(path));
        parts(&house.legwork("apply").arg("--outside").args(paths).output().unwrap())
    };
    house.works("echo harmless > ~/.config-x; mkdir ~/d; echo 1 > ~/d/one; echo a > ~/same");
    let (code, _, stderr) = apply(&[]);
    assert!(code == Some(125) && stderr.contains("not shown yet"), "{code:?} {stderr}");
    assert_eq!(house.changes().len(), 4);
    // Of the same length, and with the same times.
    house.works(
        "echo evil >> ~/.bashrc; touch -r ~/.config-x ~/t; echo hArmless > ~/.config-x; \
         touch -r ~/t ~/.config-x; rm ~/t; echo a > ~/same; chmod 755 ~/d/one",
    );
    let before = house.real();
    for (paths, named) in [
        (&[][..], &[".bashrc", ".config-x", "d/one"][..]),
        (&[".config-x"], &[".config-x"]),
        (&["d"], &["d/one"]),
        (&[".bashrc"], &[".bashrc"]),
    ] {
        let (code, stdout, stderr) = apply(paths);
        assert_eq!(code, Some(125), "{paths:?} {stdout}{stderr}");
        assert!(stderr.contains("changes --outside --diff"), "{stderr}");
        assert!(named.iter().all(|it| stderr.contains(it)), "{named:?}: {stderr}");
        assert!(!stderr.contains("same"), "{stderr}");
    }
    assert_eq!(house.real(), before);
    // What is as it was comes over; all, once it was shown.
    assert_eq!(apply(&["same"]).0, Some(0));
    assert_eq!(house.read("same"), "a\n");
    assert_eq!(house.changes().len(), 4);
    let (code, stdout, stderr) = apply(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(house.read(".bashrc"), "# mine\nevil\n");
    // The same once more is something new.
    fs::write(house.home.join(".bashrc"), "# mine\n").unwrap();
    house.works("echo evil >> ~/.bashrc");
    assert_eq!(apply(&[]).0, Some(125));
}

#[test]
fn what_is_closed_below_a_layer_counts_as_changed_and_stops_nobody() {
    if !can_try() {
        return;
    }
    let Some(house) = UserHouse::ordinary() else { return };
    let policy = house.file("policy.toml", LAYERED);
    let run = |verb: &str, words: &[&str]| {
        let mut command = house.outside(program());
        command.arg(verb).arg("--state").arg(house.path("state"));
        if verb == "sh" {
            command.args(["--mode", "open", "--policy"]).arg(&policy);
        }
        parts(&command.args(words).output().unwrap())
    };
    house.file("home/f", "secret\n");
    house.file("home/d/inner", "inner\n");
    let mode = |name: &str, mode: u32| {
        fs::set_permissions(house.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("home/f", 0);
    mode("home/d", 0);
    for script in ["chmod 644 ~/f", "chmod 755 ~/d; echo 1 > ~/d/new", "rm -rf ~/d; echo 2 > ~/d"] {
        let (code, stdout, stderr) = run("sh", &[script]);
        assert_eq!(code, Some(0), "{script}: {stdout}{stderr}");
    }
    let (code, stdout, stderr) = run("changes", &["--outside"]);
    assert!(code == Some(0) && stdout.contains("/f"), "{stdout}{stderr}");
    let (code, stdout, stderr) = run("discard", &["--outside"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(run("sh", &["echo after"]).1, "after\n");
    // Closed folders are counted, too.
    let small = format!("{LAYERED}layer_bytes_max = 1000000\n");
    fs::write(&policy, small).unwrap();
    let (_, stdout, stderr) =
        run("sh", &["mkdir ~/c; head -c 3000000 /dev/zero >~/c/big; chmod 000 ~/c"]);
    let (code, _, full) = run("sh", &["true"]);
    assert_eq!(code, Some(125), "{stdout}{stderr}{full}");
    assert!(full.contains("bytes are kept") && full.contains("layer_bytes_max"), "{full}");
    assert_eq!(run("discard", &["--outside"]).0, Some(0));
    assert_eq!(run("sh", &["echo after"]).1, "after\n");
    mode("home/d", 0o700);
}

#[test]
fn a_part_of_a_layer_is_discarded_or_refused_and_nothing_else_is() {
    if !can_try() {
        return;
    }
    let house = House::new();
    fs::create_dir(house.home.join("d")).unwrap();
    fs::write(house.home.join("d/old"), "old\n").unwrap();
    house.works("rm -rf ~/d; mkdir ~/d; echo 1 > ~/d/f; echo 1 > ~/g");
    let discard = |path: &Path| {
        let mut discard = house.legwork("discard");
        parts(&discard.args(["--outside", "--path"]).arg(path).output().unwrap())
    };
    for path in ["none", "work/x", "d/old"] {
        let (code, stdout, stderr) = discard(&house.home.join(path));
        assert_eq!(code, Some(125), "{path}: {stdout}{stderr}");
    }
    assert_eq!(discard(Path::new("/usr")).0, Some(125));
    assert_eq!(house.works("cat ~/d/f ~/g; ls ~/d"), "1\n1\nf\n");
    let (code, stdout, stderr) = discard(&house.home.join("d/f"));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(house.works("ls ~/d; cat ~/g"), "1\n");
    assert_eq!(house.apply(&["g"]).0, Some(0));
    house.works("echo 2 > ~/g");
    // At the home and above it, that is everything.
    assert_eq!(discard(&house.home).0, Some(0));
    assert_eq!(house.works("ls ~/d; cat ~/g"), "old\n1\n");
    let (code, _, stderr) = parts(&house.legwork("changes").arg("--outside").output().unwrap());
    assert!(code == Some(125) && stderr.contains("nothing is kept"), "{stderr}");
}

#[test]
fn on_a_full_disk_the_layer_that_filled_it_can_be_discarded() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let script = "$LW sh $S $P 'head -c 100000000 /dev/zero > ~/big'; \
         $LW discard $S --outside; echo \"code $?\"; \
         $LW sh $S $P 'ls ~/big; echo after'";
    let Some((stdout, stderr)) = house.on_disk("size=12m", script) else { return };
    assert!(stdout.contains("code 0\nafter\n"), "{stdout}{stderr}");
}

#[test]
fn what_is_brought_over_is_said_to_be_though_no_room_is_left_to_note_it() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let script = "$LW sh $S $P 'head -c 8000000 /dev/urandom > ~/big; echo 1 > ~/f1'; $LW changes $S --outside; \
         head -c $(($(df -k --output=avail $D | tail -1) * 1024 - 6000000)) /dev/zero > $D/rest; \
         $LW apply $S --outside ~/f1; echo \"code $?\"; cat ~/f1; rm $D/rest; $LW sh $S $P 'echo 2 > ~/f1'; \
         $LW changes $S --outside; $LW apply $S --outside ~/f1; echo \"code $?\"; cat ~/f1";
    let Some((stdout, stderr)) = house.on_disk("size=24m", script) else { return };
    assert!(!stderr.contains("nothing was brought over"), "{stdout}{stderr}");
    assert!(stdout.contains("code 0\n1\n"), "{stdout}{stderr}");
    assert!(stderr.contains("No space left"), "{stdout}{stderr}");
    // And what is written there later comes over as well.
    assert!(stdout.ends_with("code 0\n2\n"), "{stdout}{stderr}");
}

#[test]
fn of_commands_at_once_the_one_that_began_later_wins_whichever_ends_first() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let start = |name: &str| -> Child {
        let script = format!("echo {name} > ~/file; echo begun > {name}-begun; read line");
        let mut command = house.legwork("sh");
        command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let begun = house.home.join("work").join(format!("{name}-begun"));
        eventually("it has begun", || begun.exists().then_some(()));
        child
    };
    let (first, second) = (start("first"), start("second"));
    let end = |mut child: Child| {
        drop(child.stdin.take());
        child.wait().unwrap();
    };
    end(second);
    assert_eq!(house.works("cat ~/file"), "second\n");
    let (code, stdout, stderr) = parts(
        &house
            .legwork("discard")
            .args(["--outside", "--path"])
            .arg(house.home.join("none"))
            .output()
            .unwrap(),
    );
    assert_eq!(code, Some(125), "{stdout}{stderr}");
    end(first);
    assert_eq!(house.works("cat ~/file"), "second\n");
}

#[test]
fn a_discard_while_a_command_runs_says_that_its_changes_come_later() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let mut command = house.legwork("sh");
    command.arg("echo 1 > ~/file; echo begun > begun; read line").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = house.home.join("work/begun");
    eventually("it has begun", || begun.exists().then_some(()));
    let (code, _, stderr) = parts(&house.legwork("discard").arg("--outside").output().unwrap());
    assert!(code == Some(0) && stderr.contains("still run"), "{code:?} {stderr}");
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(house.changes(), [("file".to_owned(), "made".to_owned())]);
}
