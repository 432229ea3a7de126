//! What is measured.

use std::{
    collections::HashMap,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    client::Client,
    crowd::running,
    gate::gate,
    history::history,
    http::http,
    login::login,
    measure::{
        cpu_of_tree, median, memory_kb, micros, minimum, own_cpu, percentile, pss_of_tree, spawn,
    },
    names::names,
    places::places,
    report::Report,
    stop::stop,
    trials::trials,
};

/// A workload: the program to measure, whether to be quick, and where the figures go.
pub type Workload = fn(&Path, bool, &mut Report);

/// All of them.
pub const ALL: [(&str, Workload); 16] = [
    ("trivial", trivial),
    ("sandboxed", sandboxed),
    ("cpu", cpu),
    // Before what removes thousands of files: for minutes ext4 looks at each of them whenever a new
    // one is made.
    ("start", start),
    ("run-verb", run_verb),
    ("concurrent", concurrent),
    ("flood", flood),
    ("running", running),
    ("stop", stop),
    ("history", history),
    ("login", login),
    ("gate", gate),
    ("http", http),
    ("names", names),
    ("trials", trials),
    ("places", places),
];

/// After this long everything that a call leaves to do is done.
pub const AT_REST: Duration = Duration::from_millis(10);

/// The command of the trivial call, raw.
pub const TRUE: [&str; 4] = ["/bin/sh", "-c", "--", "true"];

fn trivial(legwork: &Path, quick: bool, report: &mut Report) {
    let rounds = if quick { 300 } else { 3000 };
    let mut client = Client::start(legwork);
    for _ in 0..50 {
        client.run("true");
        spawn(&TRUE);
    }
    let (mut ours, mut raw, mut pings) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(micros(|| drop(client.run("true"))));
        raw.push(micros(|| spawn(&TRUE)));
        pings.push(micros(|| client.ping()));
    }
    report.compare("trivial call, p50", median(&ours), median(&raw), "us", "1.25");
    report.compare("trivial call, minimum", minimum(&ours), minimum(&raw), "us", "");
    report.note("MCP ping, p50 (nothing is started)", median(&pings), "us", "");
    report.curve("legwork", &ours);
    report.curve("raw", &raw);
    let (ours, raw) = (percentile(&ours, 0.99), percentile(&raw, 0.99));
    report.compare("trivial call, p99", ours, raw, "us", "");
}

/// The same call in the sandbox, with and without network, and what bubblewrap takes for as much.
fn sandboxed(legwork: &Path, quick: bool, report: &mut Report) {
    let rounds = if quick { 200 } else { 2000 };
    let workspace = TempDir::new().unwrap();
    let place = workspace.path().to_str().unwrap();
    for (trust, network) in [("trusted_operator", true), ("trusted_integration", false)] {
        let mut client = Client::start_with(legwork, &["--workspace", place, "--trust", trust]);
        let bwrap = bubblewrap(place, network);
        let bwrap = bwrap.iter().map(String::as_str).collect::<Vec<_>>();
        let has_bwrap = Command::new("bwrap").arg("--version").output().is_ok();
        for _ in 0..50 {
            client.run("true");
            spawn(&TRUE);
        }
        let (mut ours, mut raw, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(micros(|| drop(client.run("true"))));
            raw.push(micros(|| spawn(&TRUE)));
            if has_bwrap {
                theirs.push(micros(|| spawn(&bwrap)));
            }
        }
        let what = if network { "sandboxed call" } else { "sandboxed call, no network" };
        report.curve(what, &ours);
        report.curve(if network { "raw" } else { "raw, beside no network" }, &raw);
        report.compare(&format!("{what}, p50"), median(&ours), median(&raw), "us", "1.6");
        report.compare(&format!("{what}, minimum"), minimum(&ours), minimum(&raw), "us", "");
        // While the next sandbox is made ahead, a raw spawn beside it is slow, too.
        let undisturbed: Vec<f64> = (0..rounds / 4)
            .map(|_| {
                client.run("true");
                thread::sleep(AT_REST);
                micros(|| spawn(&TRUE))
            })
            .collect();
        let alone = format!("{what}, p50, beside a raw turn on a machine at rest");
        report.compare(&alone, median(&ours), median(&undisturbed), "us", "2.3");
        let (high, raw_high) = (percentile(&ours, 0.99), percentile(&raw, 0.99));
        report.compare(&format!("{what}, p99"), high, raw_high, "us", "");
        if has_bwrap {
            report.curve(if network { "bwrap" } else { "bwrap, no network" }, &theirs);
            let what = if network { "bwrap, p50" } else { "bwrap, no network, p50" };
            report.compare(what, median(&theirs), median(&raw), "us", "");
        }
    }
}

/// What of our sandbox bubblewrap can do, as its command line.
fn bubblewrap(workspace: &str, network: bool) -> Vec<String> {
    let files = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"];
    let place = ["--bind", workspace, workspace, "--unshare-all"];
    let share: &[&str] = if network { &["--share-net"] } else { &[] };
    let rest = ["--die-with-parent", "--new-session", "--cap-drop", "ALL"];
    ["bwrap"]
        .iter()
        .chain(&files)
        .chain(&place)
        .chain(share)
        .chain(&rest)
        .chain(&TRUE)
        .map(|word| (*word).to_owned())
        .collect()
}

fn cpu(legwork: &Path, quick: bool, report: &mut Report) {
    let workspace = TempDir::new().unwrap();
    let place = workspace.path().to_str().unwrap();
    let sandboxed = ["--workspace", place, "--trust", "trusted_operator"];
    let what = "trivial call, CPU of the tree";
    cpu_of_calls(Client::start(legwork), quick, report, what, "1.4");
    // What is made ahead for the next call is counted with it.
    let what = "sandboxed call, CPU of the tree";
    cpu_of_calls(Client::start_with(legwork, &sandboxed), quick, report, what, "");
}

fn cpu_of_calls(
    mut client: Client,
    quick: bool,
    report: &mut Report,
    what: &str,
    hold: &'static str,
) {
    // Short blocks in turn, because the processor itself is now faster and now slower; and sums,
    // because the kernel tells processor time in hundredths of a second.
    let (blocks, calls) = if quick { (12, 50) } else { (100, 50) };
    for _ in 0..50 {
        client.run("true");
    }
    let (mut ours, mut raw) = (0.0, 0.0);
    for _ in 0..blocks {
        let before = cpu_of_tree(client.pid());
        for _ in 0..calls {
            client.run("true");
        }
        ours += cpu_of_tree(client.pid()) - before;
        let before = own_cpu();
        for _ in 0..calls {
            spawn(&TRUE);
        }
        raw += own_cpu() - before;
    }
    let each = 1e6 / f64::from(blocks * calls);
    report.compare(what, ours * each, raw * each, "us", hold);
}

fn concurrent(legwork: &Path, quick: bool, report: &mut Report) {
    let calls = if quick { 600 } else { 4000 };
    for width in [1_usize, 8, 64, 256] {
        let mut client = Client::start(legwork);
        let (mut ours, mut raw, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            ours.push(rate(calls, || latencies.extend(pipelined(&mut client, calls, width))));
            raw.push(rate(calls, || spawn_in_threads(calls, width.min(2))));
        }
        let what = format!("calls/s, {width} at a time");
        let hold = if width == 64 { ">= 0.8" } else { "" };
        report.compare(&what, median(&ours), median(&raw), "1/s", hold);
        let (middle, high) = (median(&latencies), percentile(&latencies, 0.99));
        let what = format!("{width} at a time, p99 / p50 of a call");
        report.note(&what, high / middle, "x", "");
        report.curve(&format!("{width} at a time"), &latencies);
    }
}

fn rate(calls: usize, work: impl FnOnce()) -> f64 {
    calls as f64 / (micros(work) / 1e6)
}

/// Keeps this many calls under way until all are answered, and says how long each took, in
/// microseconds.
fn pipelined(client: &mut Client, calls: usize, width: usize) -> Vec<f64> {
    let mut asked = HashMap::new();
    let mut latencies = Vec::with_capacity(calls);
    for _ in 0..width.min(calls) {
        asked.insert(client.ask("true"), Instant::now());
    }
    for done in 0..calls {
        let (id, _) = client.expect_any_success();
        latencies.push(asked[&id].elapsed().as_secs_f64() * 1e6);
        if done + width < calls {
            asked.insert(client.ask("true"), Instant::now());
        }
    }
    latencies
}

fn spawn_in_threads(calls: usize, threads: usize) {
    let left = AtomicUsize::new(calls);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let take = |left: usize| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    spawn(&TRUE);
                }
            });
        }
    });
}

fn flood(legwork: &Path, quick: bool, report: &mut Report) {
    let bytes: u64 = if quick { 200_000_000 } else { 1_000_000_000 };
    let producer = format!("head -c {bytes} /dev/zero");
    let scratch = TempDir::new().unwrap();
    let copy = format!("{producer} | cat > {}", scratch.path().join("raw").display());
    let mut client = Client::start(legwork);
    // What any first calls need is no growth by output.
    for _ in 0..50 {
        client.run("seq 1 20000");
    }
    let before = memory_kb(client.pid(), "status", "VmHWM:");
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        // What one half leaves to be written to the disk must not be paid for by the other.
        rustix::fs::sync();
        raw.push(micros(|| spawn(&["/bin/sh", "-c", &copy])) / 1e3);
        std::fs::remove_file(scratch.path().join("raw")).unwrap();
        rustix::fs::sync();
        // The last words of the command are about its parent, the warden.
        let cmd = format!("{producer}; grep VmHWM /proc/$PPID/status >&2");
        ours.push(
            micros(|| {
                let receipt = client.run(&cmd);
                let (_, peak) = receipt.rsplit_once("VmHWM:").unwrap();
                let peak: f64 = peak.split_whitespace().next().unwrap().parse().unwrap();
                if ours.is_empty() {
                    report.note("warden's peak over the flood", peak / 1e3, "MB", "< 10");
                }
            }) / 1e3,
        );
    }
    let what = format!("{} MB of output kept", bytes / 1_000_000);
    report.compare(&what, median(&ours), median(&raw), "ms", "1.2");
    report.compare(&format!("{what}, minimum"), minimum(&ours), minimum(&raw), "ms", "1.2");
    let growth = memory_kb(client.pid(), "status", "VmHWM:") - before;
    report.note("engine's growth over the flood", growth / 1e3, "MB", "~ 0");
}

fn start(legwork: &Path, quick: bool, report: &mut Report) {
    let rounds = if quick { 10 } else { 50 };
    let samples: Vec<f64> = (0..rounds)
        .map(|_| {
            let begin = Instant::now();
            let mut client = Client::start(legwork);
            client.run("true");
            begin.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    report.note("start to the first command's answer", median(&samples), "ms", "< 15");
    let mut client = Client::start(legwork);
    client.run("true");
    report.note("idle memory, the whole tree", pss_of_tree(client.pid()) / 1e3, "MB", "< 15");
}

fn run_verb(legwork: &Path, quick: bool, report: &mut Report) {
    let rounds = if quick { 50 } else { 300 };
    let state = TempDir::new().unwrap();
    let ours = || {
        let status = Command::new(legwork)
            .args(["run", "--mode", "open", "--state"])
            .arg(state.path())
            .args(["--", "true"])
            .stdin(Stdio::null())
            .status();
        assert!(status.unwrap().success());
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with.push(micros(ours));
        without.push(micros(|| spawn(&["true"])));
    }
    report.compare("legwork run -- true, p50", median(&with), median(&without), "us", "6");
    report.compare("legwork run -- true, minimum", minimum(&with), minimum(&without), "us", "");
}
