//! Trials of an ordinary user, whom modes hold: what is closed to its owner is measured while the
//! command runs, and listed.

use std::{fs, os::unix::fs::PermissionsExt, process::Output};

use super::{can_try, tree};
use crate::{
    common::{parts, program},
    sandbox::house::House,
};

/// Fills a folder until it is stopped, having closed it, and one around it, to their owner.
const FILLS: &str = "mkdir -p shut/deep/inner; cd shut/deep/inner; chmod 000 ../../../shut/deep; \
    i=0; while [ $i -lt 600 ]; do head -c 1000000 /dev/zero > $i; i=$((i+1)); sleep 0.1; done; echo through";

/// A house of an ordinary user, whom modes hold, and who may write little.
fn house() -> Option<House> {
    if !can_try() {
        return None;
    }
    let house = House::ordinary()?;
    house
        .file("policy.toml", "[sandbox]\nlevel = \"workspace-write\"\ntrial_bytes_max = 3000000\n");
    Some(house)
}

fn run(house: &House, verb: &str, words: &[&str]) -> Output {
    let mut command = house.outside(program());
    command.arg(verb).arg("--state").arg(house.path("state"));
    if verb == "try" {
        command.args(["--mode", "open", "--policy"]).arg(house.path("policy.toml"));
    }
    command.args(words).output().unwrap()
}

#[test]
fn a_trial_that_fills_a_folder_which_it_has_closed_is_stopped() {
    let Some(house) = house() else { return };
    house.file("workspace/file", "before\n");
    let before = tree(&house.path("workspace"));
    let (code, stdout, stderr) = parts(&run(&house, "try", &["--sh", FILLS]));
    assert!(code != Some(0) && !stdout.contains("through"), "{code:?}: {stdout}{stderr}");
    assert!(stderr.contains("trial_bytes_max"), "{stderr}");
    assert_eq!(tree(&house.path("workspace")), before);
    // It was only looked at: the modes are those that the command has set.
    let listed = parts(&run(&house, "changes", &["--json"])).1;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let deep = listed["changes"].as_array().unwrap().iter();
    let deep = deep.into_iter().find(|it| it["path"].as_str().unwrap().ends_with("shut/deep"));
    assert_eq!(deep.unwrap()["mode"], "0", "{listed:#}");
    let (code, _, stderr) = parts(&run(&house, "discard", &[]));
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(fs::read_dir(house.path("state/trials")).unwrap().count(), 0);
}

#[test]
fn what_is_closed_below_a_trial_counts_as_changed_and_stops_nobody() {
    let Some(house) = house() else { return };
    house.file("workspace/f", "secret\n");
    house.file("workspace/d/inner", "inner\n");
    let mode = |name: &str, mode: u32| {
        fs::set_permissions(house.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("workspace/f", 0);
    mode("workspace/d", 0);
    for (script, name) in [
        ("chmod 644 f", "f"),
        ("chmod 755 d; echo 1 > d/new", "d/new"),
        ("chmod 755 d; rm -rf d; echo 2 > d", "d"),
    ] {
        let (code, stdout, stderr) = parts(&run(&house, "try", &["--sh", script]));
        assert_eq!(code, Some(0), "{script}: {stdout}{stderr}");
        let (code, stdout, stderr) = parts(&run(&house, "changes", &[]));
        assert!(code == Some(0) && stdout.contains(name), "{script}: {stdout}{stderr}");
        let (code, stdout, stderr) = parts(&run(&house, "discard", &[]));
        assert_eq!(code, Some(0), "{script}: {stdout}{stderr}");
    }
    mode("workspace/d", 0o700);
}
