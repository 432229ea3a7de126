//! A login shell whose profile only sets the environment, beside a shell without a login.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    client::Client,
    measure::{median, micros, minimum, until},
    report::Report,
};

/// What installers leave in profiles: folders on the path, a few variables, a program that is asked
/// something.
const PROFILE: &str = "export EDITOR=vi LESS=-R\nPATH=\"$HOME/bin:$HOME/.local/bin:$PATH\"\n\
    export HOST_NAME=\"$(uname -n)\"\nif [ -d /opt ]; then PATH=\"$PATH:/opt/bin\"; fi\n";

/// The same command with and without a login, and both without us.
pub fn login(legwork: &Path, quick: bool, report: &mut Report) {
    let rounds = if quick { 200 } else { 2000 };
    let home = TempDir::new().unwrap();
    fs::write(home.path().join(".profile"), PROFILE).unwrap();
    let mut client = Client::start_at_home(legwork, home.path());
    // Real ones, until the profile is known.
    until("the login is known", || {
        run(&mut client, true, "tr '\\0' ' ' </proc/$$/cmdline").contains("--noprofile")
    });
    let [mut with, mut without, mut raw_with, mut raw_without] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        with.push(micros(|| drop(run(&mut client, true, "true"))));
        without.push(micros(|| drop(run(&mut client, false, "true"))));
        raw_with.push(micros(|| spawn(home.path(), "-lc")));
        raw_without.push(micros(|| spawn(home.path(), "-c")));
    }
    let hold = "1.2";
    report.compare("login against none, p50", median(&with), median(&without), "us", hold);
    report.compare("login against none, minimum", minimum(&with), minimum(&without), "us", hold);
    let what = "login, raw bash against raw bash, p50";
    report.compare(what, median(&raw_with), median(&raw_without), "us", "");
    report.curve("login", &with);
    report.curve("no login", &without);
    report.curve("raw bash -lc", &raw_with);
    report.curve("raw bash -c", &raw_without);
}

fn run(client: &mut Client, login: bool, cmd: &str) -> String {
    let input = json!({ "cmd": cmd, "login": login, "shell": "/bin/bash" });
    client.tool("ExecCommand", &input)
}

fn spawn(home: &Path, option: &str) {
    let mut command = Command::new("/bin/bash");
    command.args([option, "--", "true"]).env("HOME", home).stdin(Stdio::null());
    assert!(command.output().unwrap().status.success());
}
