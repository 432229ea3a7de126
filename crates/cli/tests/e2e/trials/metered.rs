//! What a command may write into its copies is measured while it runs, wherever it writes.

use std::{fs, process::Output};

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
    house.file(
        "policy.toml",
        "[sandbox]\nlevel = \"workspace-write\"\noutside = \"layer\"\ntrial_bytes_max = 3000000\n\
         layer_bytes_max = 3000000\n",
    );
    Some(house)
}

fn run(house: &House, verb: &str, words: &[&str]) -> Output {
    let mut command = house.outside(program());
    command.arg(verb).arg("--state").arg(house.path("state"));
    if ["sh", "try"].contains(&verb) {
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
fn a_command_that_fills_a_folder_of_the_home_which_it_has_closed_is_stopped() {
    let Some(house) = house() else { return };
    let (code, stdout, stderr) = parts(&run(&house, "sh", &[&format!("cd ~; {FILLS}")]));
    assert!(code != Some(0) && !stdout.contains("through"), "{code:?}: {stdout}{stderr}");
    assert!(stderr.contains("layer_bytes_max"), "{stderr}");
    assert_eq!(fs::read_dir(house.path("home")).unwrap().count(), 0);
    let (code, _, stderr) = parts(&run(&house, "discard", &["--outside"]));
    assert_eq!(code, Some(0), "{stderr}");
}
