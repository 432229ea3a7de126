//! Calls at other places, beside the programs that reach these: `ssh host true` over a shared
//! connection, `docker exec`, `srun true`.
//!
//! Whoever has such places says in a file which they are, and names it in a variable; `just
//! measure-places` starts some and does that.

use std::{collections::BTreeMap, env, fs, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    client::Client,
    measure::{median, micros, minimum},
    report::Report,
};

/// Names the file that has the places, as JSON.
const PLACES: &str = "LEGWORK_BENCH_PLACES";

/// A place that is there.
struct There {
    /// The kind: `ssh`, `docker`, `slurm`.
    kind: String,
    /// Its section in the configuration, named `there`.
    configuration: String,
    environment: BTreeMap<String, String>,
    /// A folder that is seen there, too.
    workspace: String,
    /// What runs `true` there without us.
    raw: Vec<String>,
}

impl There {
    fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let pairs = value["environment"].as_object().unwrap().iter();
        Self {
            kind: text(&value["kind"]),
            configuration: text(&value["configuration"]),
            environment: pairs.map(|(name, value)| (name.clone(), text(value))).collect(),
            workspace: text(&value["workspace"]),
            raw: value["raw"].as_array().unwrap().iter().map(text).collect(),
        }
    }

    fn client(&self, legwork: &Path, folder: &TempDir) -> Client {
        let policy = folder.path().join("policy.toml");
        fs::write(&policy, &self.configuration).unwrap();
        let mut command = Command::new(legwork);
        command.envs(&self.environment);
        let policy = policy.to_str().unwrap();
        let arguments = ["--mode", "open", "--workspace", &self.workspace, "--policy", policy];
        Client::start_as(command, &arguments)
    }

    fn run_raw(&self) {
        let mut command = Command::new(&self.raw[0]);
        let output = command.args(&self.raw[1..]).envs(&self.environment).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

pub fn places(legwork: &Path, quick: bool, report: &mut Report) {
    let Some(file) = env::var_os(PLACES) else {
        eprintln!("skipped: {PLACES} names no file; see `just measure-places`");
        return;
    };
    let known: Vec<Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    for there in known.iter().map(There::of) {
        measure(legwork, quick, &there, report);
    }
}

/// The same command by us and without us, and by us on this machine.
fn measure(legwork: &Path, quick: bool, there: &There, report: &mut Report) {
    let rounds = if quick { 20 } else { 100 };
    let folder = TempDir::new().unwrap();
    let mut client = there.client(legwork, &folder);
    let mut call = |place: &str| {
        let input = json!({ "cmd": "true", "login": false, "shell": "/bin/sh", "place": place,
                            "duplicate_policy": "start_new", "yield_time_ms": 60_000 });
        micros(|| {
            let said = client.tool("ExecCommand", &input);
            assert!(said.starts_with("Process exited with code 0"), "{said}");
        })
    };
    for _ in 0..3 {
        call("there");
        call("local");
        there.run_raw();
    }
    let [mut ours, mut here, mut raw] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        ours.push(call("there"));
        raw.push(micros(|| there.run_raw()));
        here.push(call("local"));
    }
    let kind = &there.kind;
    report.curve(&format!("call, {kind}"), &ours);
    report.curve(&format!("without us, {kind}"), &raw);
    // A scheduler's job costs what its own client costs, and ours a call on top of that.
    let is_scheduler = kind == "slurm";
    let (what, hold) = if is_scheduler {
        (format!("{kind}: call against srun true and a call here"), "1.3")
    } else {
        (format!("{kind}: call against {} true", there.raw[0]), "3")
    };
    let with = |raw: f64, here: f64| if is_scheduler { raw + here } else { raw };
    let p50 = with(median(&raw), median(&here));
    report.compare(&format!("{what}, p50"), median(&ours), p50, "us", hold);
    let least = with(minimum(&raw), minimum(&here));
    report.compare(&format!("{what}, minimum"), minimum(&ours), least, "us", hold);
}
