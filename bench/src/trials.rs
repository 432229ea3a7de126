//! Trials: calls on a copy-on-write view of the workspace.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use legwork::{Caller, Engine, Options, Request, Submitted, TaskId, TrialWish, Trust};
use tempfile::TempDir;

use crate::{
    client::Client,
    measure::{median, micros, minimum, spawn},
    report::Report,
    workloads::{AT_REST, TRUE},
};

pub fn trials(legwork: &Path, quick: bool, report: &mut Report) {
    embedded(if quick { 100 } else { 1000 }, report);
    tried(legwork, if quick { 100 } else { 1000 }, report);
    verbs(legwork, if quick { 20 } else { 100 }, report);
}

/// A trial of `true` on a warm engine of this very program, to its end; and the same command in a
/// sandbox without copies. A raw turn is undisturbed.
fn embedded(rounds: u32, report: &mut Report) {
    let place = TempDir::new().unwrap();
    let workspace = place.path().join("work");
    fs::create_dir(&workspace).unwrap();
    let mut options = Options::new(&workspace).state(place.path().join("state"));
    options.sandbox.level = Some(legwork::gate::Level::WorkspaceWrite);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut tried, mut plain, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    runtime.block_on(async {
        let engine = Engine::open(options).unwrap();
        engine.warm_up(Trust::TrustedOperator).await.unwrap();
        let caller = Caller::operator("bench");
        let request = || Request::script("true").shell("/bin/sh");
        for round in 0..rounds + 20 {
            let begin = Instant::now();
            let ended = run(&engine, request().tried(TrialWish { network: false }), &caller).await;
            let took = begin.elapsed();
            let trial = engine.trial(ended.as_str()).await.unwrap();
            engine.discard_trial(&trial, "bench").await.unwrap();
            tokio::time::sleep(AT_REST * 4).await;
            let begin = Instant::now();
            run(&engine, request(), &caller).await;
            let took_plain = begin.elapsed();
            tokio::time::sleep(AT_REST * 4).await;
            let took_raw = micros(|| spawn(&TRUE));
            if round >= 20 {
                tried.push(took.as_secs_f64() * 1e6);
                plain.push(took_plain.as_secs_f64() * 1e6);
                raw.push(took_raw);
            }
        }
    });
    for (what, ours, hold) in [
        ("trial of `true` on a warm engine", &tried, "3.0"),
        ("the same in a sandbox without copies", &plain, ""),
    ] {
        report.curve(what, ours);
        report.compare(&format!("{what}, p50"), median(ours), median(&raw), "us", hold);
        report.compare(&format!("{what}, minimum"), minimum(ours), minimum(&raw), "us", "");
    }
}

/// Runs a command to its end; its task.
async fn run(engine: &Engine, request: Request, caller: &Caller) -> TaskId {
    let submitted = engine.submit(request, caller).await.unwrap();
    let Submitted::Started(mut run) = submitted else { panic!("it was not started") };
    let ended = run.ended().await.unwrap();
    assert_eq!(ended.outcome.exit_status, Some(0));
    run.task_id().clone()
}

/// A trial of `true` on a warm engine, up to the question that shows what it did; and calls without
/// a trial, where one is made ready and where none ever is.
fn tried(legwork: &Path, rounds: u32, report: &mut Report) {
    let place = TempDir::new().unwrap();
    let workspace = place.path().join("work");
    fs::create_dir(&workspace).unwrap();
    let rule = "[[rule]]\ndecision = \"try\"\nprogram = \"true\"\n";
    let client = |name: &str, rule: &str| {
        let policy = place.path().join(name);
        fs::write(&policy, rule).unwrap();
        let (place, policy) = (workspace.to_str().unwrap(), policy.to_str().unwrap());
        let trust = ["--trust", "trusted_operator"];
        Client::start_with(
            legwork,
            &[&["--workspace", place, "--policy", policy], &trust[..]].concat(),
        )
    };
    let (mut trying, mut never) = (client("try.toml", rule), client("none.toml", ""));
    for _ in 0..20 {
        trying.tried("true");
        trying.run(":");
        never.run(":");
    }
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(trying.tried("true"));
        // A person takes longer to answer, and the next one is made ready meanwhile.
        thread::sleep(AT_REST * 4);
        raw.push(micros(|| spawn(&TRUE)));
    }
    report.curve("tried", &ours);
    let what = "trial of `true`, until its effect is shown";
    report.compare(&format!("{what}, p50"), median(&ours), median(&raw), "us", "3.0");
    report.compare(&format!("{what}, minimum"), minimum(&ours), minimum(&raw), "us", "");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with.push(micros(|| drop(trying.run(":"))));
        without.push(micros(|| drop(never.run(":"))));
    }
    let what = "sandboxed call beside a trial that is made ready, against none";
    report.compare(&format!("{what}, p50"), median(&with), median(&without), "us", "1.0");
    report.compare(&format!("{what}, minimum"), minimum(&with), minimum(&without), "us", "");
}

/// `legwork try -- true` against `legwork run -- true`, each with the start of the program.
fn verbs(legwork: &Path, rounds: u32, report: &mut Report) {
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
