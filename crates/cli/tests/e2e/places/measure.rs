//! Starts a place of each kind, and lets the workload `places` of legwork-bench measure calls
//! there;
//! `just measure-places` does that. Nothing is asserted.

use std::{env, fs, process::Command};

use serde_json::{Value, json};

use super::{There, docker::Docker, slurm::cluster::Cluster, ssh::Sshd};
use crate::common::{Scratch, program};

/// A place as the workload takes it.
fn told(
    scratch: &Scratch,
    kind: &str,
    configuration: &str,
    environment: &[(&str, String)],
    raw: &[String],
) -> Value {
    let pairs = environment.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    let environment: serde_json::Map<String, Value> = pairs.collect();
    let workspace = scratch.workspace.path();
    json!({ "kind": kind, "configuration": configuration, "environment": environment, "raw": raw,
            "workspace": workspace })
}

#[test]
fn calls_at_places_beside_the_programs_that_reach_them() {
    let Some(bench) = env::var_os("LEGWORK_BENCH") else { return };
    let scratch = Scratch::new();
    let (sshd, docker) = (Sshd::without_profile(), Docker::start(&scratch));
    let cluster = Cluster::start();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut places = Vec::new();
    if let Some(sshd) = &sshd {
        let configuration = sshd.configuration(&scratch);
        let raw = sshd.shared(&scratch.file("shared"), "true");
        places.push(told(&scratch, "ssh", &configuration, &[], &raw));
    }
    if let Some(docker) = &docker {
        let raw = words(&["docker", "exec", "there", "true"]);
        let environment = [("DOCKER_HOST", docker.host())];
        places.push(told(&scratch, "docker", &docker.configuration(&scratch), &environment, &raw));
    }
    if let Some(cluster) = &cluster {
        let (configuration, environment) = (cluster.place(&[]), cluster.variables());
        let raw = words(&["srun", "true"]);
        places.push(told(&scratch, "slurm", &configuration, &environment, &raw));
    }
    let file = scratch.file("places.json");
    fs::write(&file, Value::from(places).to_string()).unwrap();
    let mut command = Command::new(bench);
    command.arg("--legwork").arg(program()).args(["--only", "places"]);
    if env::var_os("LEGWORK_BENCH_QUICK").is_some() {
        command.arg("--quick");
    }
    let measured = command.env("LEGWORK_BENCH_PLACES", &file).status().unwrap();
    assert!(measured.success());
}
