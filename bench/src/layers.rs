//! Copy-on-write views: a call whose writes in the home folder go into a layer, and a trial, which
//! has the same kind of view over its workspace.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    client::Client,
    measure::{median, micros, minimum, spawn},
    report::Report,
    workloads::TRUE,
};

pub fn layers(legwork: &Path, quick: bool, report: &mut Report) {
    calls(legwork, if quick { 100 } else { 1000 }, report);
    trials(legwork, if quick { 20 } else { 100 }, report);
}

/// A call with a layer, without one, and a raw spawn.
fn calls(legwork: &Path, rounds: u32, report: &mut Report) {
    let home = TempDir::new().unwrap();
    let workspace = home.path().join("work");
    fs::create_dir(&workspace).unwrap();
    let client = |outside: &str| {
        let policy = home.path().join(format!("{outside}.toml"));
        fs::write(&policy, format!("[sandbox]\noutside = \"{outside}\"\n")).unwrap();
        let (place, policy) = (workspace.to_str().unwrap(), policy.to_str().unwrap());
        let trust = ["--trust", "trusted_operator"];
        let arguments = [&["--workspace", place, "--policy", policy], &trust[..]].concat();
        Client::start_with_home(legwork, home.path(), &arguments)
    };
    let (mut layered, mut plain) = (client("layer"), client("refuse"));
    for _ in 0..20 {
        layered.run("true");
        plain.run("true");
    }
    let (mut ours, mut without, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(micros(|| drop(layered.run("true"))));
        without.push(micros(|| drop(plain.run("true"))));
        raw.push(micros(|| spawn(&TRUE)));
    }
    report.curve("with a layer", &ours);
    report.curve("sandboxed", &without);
    let what = "sandboxed call with a layer over the home";
    report.compare(&format!("{what}, p50"), median(&ours), median(&raw), "us", "");
    report.compare(&format!("{what}, minimum"), minimum(&ours), minimum(&raw), "us", "");
    let what = "the same without a layer, beside it";
    report.compare(&format!("{what}, p50"), median(&without), median(&raw), "us", "2.0");
}

/// `legwork try -- true` against `legwork run -- true`, each with the start of the program.
fn trials(legwork: &Path, rounds: u32, report: &mut Report) {
    let (state, workspace) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let verb = |verb: &str| {
        let mut command = Command::new(legwork);
        command.arg(verb).arg("--state").arg(state.path()).args(["--", "true"]);
        command.current_dir(workspace.path());
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().unwrap().success(), "{verb}");
    };
    let (mut tried, mut run) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        tried.push(micros(|| verb("try")));
        run.push(micros(|| verb("run")));
    }
    let what = "`legwork try -- true` against `legwork run -- true`";
    report.compare(&format!("{what}, p50"), median(&tried), median(&run), "us", "3.0");
    report.compare(&format!("{what}, minimum"), minimum(&tried), minimum(&run), "us", "");
}
