//! Compares the gate with bash and dash: what they would run, the gate must have seen.
//!
//! `LEGWORK_FUZZ_SECONDS` says for how long (10 when absent), `LEGWORK_FUZZ_SEED` repeats a run.

#[path = "differential/generator.rs"]
mod generator;
#[path = "differential/isolated.rs"]
mod isolated;

use std::{
    env, fs,
    path::{Path, PathBuf},
    slice,
    time::{Duration, Instant},
};

use generator::{Random, broken, list, soup};
use legwork_gate::{Circumstances, Policy, Reading, Script, check as look, read};

/// Texts that one isolated driver runs.
const BATCH: usize = 1000;

/// The seed of a run that names none: the same every time, so that a change is judged by what it
/// changes.
/// `just fuzz` takes another one each time.
const SEED: u64 = 1_794_749_749;

/// One batch of so many is given to dash, too.
const DASH_EVERY: usize = 2;

/// What is said where nothing can be compared.
const SKIPPED: &str = "bash and unshare with user namespaces are needed";

/// Runs texts and gives the names that each would have run; nothing where isolation is not to be
/// had.
fn run_isolated(texts: &[String], folder: &Path) -> Option<Vec<Vec<String>>> {
    let (setup, empty) = (folder.join("setup.sh"), folder.join("empty"));
    fs::create_dir_all(&empty).ok()?;
    fs::write(&setup, include_str!("differential/setup.sh")).ok()?;
    let driver = include_str!("differential/driver.sh");
    let records = isolated::run(driver, &[empty.as_os_str(), setup.as_os_str()], texts)?;
    let names = |record: &String| record.lines().map(str::to_owned).collect();
    Some(records.iter().map(names).collect())
}

/// Runs texts, each in a fork of one shell, and gives the names that each would have run: much
/// faster, and what it finds is for [`run_isolated`] to confirm.
fn run_quickly(texts: &[String], folder: &Path) -> Option<Vec<Vec<String>>> {
    run_with(include_str!("differential/quick.sh"), texts, folder)
}

/// Runs texts by a driver that prints the number of a text and the name of what it ran.
fn run_with(driver: &str, texts: &[String], folder: &Path) -> Option<Vec<Vec<String>>> {
    let empty = folder.join("empty");
    fs::create_dir_all(&empty).ok()?;
    let answers = isolated::answers(driver, &[empty.as_os_str()], texts)?;
    let mut ran = vec![Vec::new(); texts.len()];
    for line in answers.lines() {
        let Some((number, name)) = line.split_once(' ') else { continue };
        let place = number.parse().ok().and_then(|number: usize| ran.get_mut(number));
        place?.push(name.to_owned());
    }
    Some(ran)
}

/// Checks one batch of made texts; says how many were understood and ran something. Where the
/// reading leaves nothing to complain about, nothing is run.
fn check_quickly(texts: &[String], folder: &Path, wrong: &mut Vec<String>) -> Option<usize> {
    let read_each = texts.iter().map(|text| (read(text), text));
    let telling: Vec<(Reading, &String)> = read_each
        .filter(|(reading, _)| {
            reading.substitution.is_none() || reading.runs_nothing || is_complete(reading)
        })
        .collect();
    let asked: Vec<String> = telling.iter().map(|(_, text)| (*text).clone()).collect();
    let runs = run_quickly(&asked, folder)?;
    let suspects =
        telling.iter().zip(&runs).filter(|((reading, _), ran)| complaint(reading, ran).is_some());
    let suspects: Vec<String> = suspects.map(|((_, text), _)| (*text).clone()).collect();
    if !suspects.is_empty() {
        check(&suspects, folder, wrong)?;
    }
    let ran_something = |((reading, _), ran): &(&(Reading, &String), &Vec<String>)| {
        reading.understood && !ran.is_empty()
    };
    Some(telling.iter().zip(&runs).filter(ran_something).count())
}

/// Whether the reading says that more may run than it names; literal `eval` is read and has to be
/// complete.
fn is_open(reading: &Reading) -> bool {
    let doubtful = reading.later.iter().any(|later| later.construct != "eval");
    doubtful || reading.runs.iter().any(|run| run.unresolved)
}

/// Whether a reading says that it names all that may run.
fn is_complete(reading: &Reading) -> bool {
    let named = reading.runs.iter().all(|run| run.name() != Some("?"));
    reading.understood && named && !is_open(reading)
}

/// What is wrong with a reading, given what was run.
fn complaint(reading: &Reading, ran: &[String]) -> Option<String> {
    if let Some(name) = ran.first().filter(|_| reading.runs_nothing) {
        return Some(format!("`{name}` ran in a text that bash was said not to begin"));
    }
    if let Some(name) = ran.iter().find(|name| name.starts_with("sub"))
        && reading.substitution.is_none()
    {
        return Some(format!("`{name}` ran in a substitution that was not seen"));
    }
    let names = reading.runs.iter().filter_map(|run| run.name());
    let names: Vec<String> = names.map(|name| name.replace('\n', " ")).collect();
    if !is_complete(reading) {
        return None;
    }
    let missing = ran.iter().find(|name| !names.contains(name))?;
    Some(format!("`{missing}` ran, which is not among {names:?}"))
}

/// Checks one batch; says how many texts were understood and ran something.
fn check(texts: &[String], folder: &Path, wrong: &mut Vec<String>) -> Option<usize> {
    let runs = run_isolated(texts, folder)?;
    let mut telling = 0;
    for (text, ran) in texts.iter().zip(&runs) {
        let reading = read(text);
        telling += usize::from(reading.understood && !ran.is_empty());
        if let Some(complaint) = complaint(&reading, ran) {
            wrong.push(format!("{complaint}:\n{text}\n--- as a literal: {text:?}"));
        }
    }
    Some(telling)
}

/// Whether a text is understood for plain `sh`.
fn is_understood_for_sh(text: &str) -> bool {
    let circumstances = Circumstances { shell: Some("sh"), ..Circumstances::default() };
    look(&Policy::default(), "ExecCommand", Script::Shell(text), circumstances).understood
}

/// Gives texts to dash.
const DASH: &str = include_str!("differential/dash.sh");

/// Checks with dash those texts of a batch that are understood for plain `sh`; says how many.
fn check_with_dash(texts: &[String], folder: &Path, wrong: &mut Vec<String>) -> Option<usize> {
    let understood = texts.iter().filter(|text| is_understood_for_sh(text));
    let understood: Vec<String> = understood.cloned().collect();
    let runs = run_with(DASH, &understood, folder)?;
    for (text, ran) in understood.iter().zip(&runs) {
        if complaint(&read(text), ran).is_none() {
            continue;
        }
        // The texts of a batch share a folder: a file of another one is no mistake of this one.
        let alone = run_with(DASH, slice::from_ref(text), folder)?;
        if let Some(complaint) = alone.first().and_then(|ran| complaint(&read(text), ran)) {
            wrong.push(format!("dash: {complaint}:\n{text}\n--- as a literal: {text:?}"));
        }
    }
    Some(understood.len())
}

/// One batch of made texts of every kind.
fn batch(random: &mut Random) -> Vec<String> {
    let text = |index: usize| {
        // Most are short: those are run soon, and find as much.
        let depth = index / 4 % 8 / 3;
        match index % 4 {
            0 => soup(random),
            1 => broken(random, depth),
            _ => list(random, 1 + depth, false),
        }
    };
    (0..BATCH).map(text).collect()
}

/// A scratch folder of this process; it is made with the files in it.
fn scratch(name: &str) -> PathBuf {
    env::temp_dir().join(format!("legwork-{name}-{}", std::process::id()))
}

#[test]
fn bash_agrees_on_what_was_hard_before() {
    let folder = scratch("oracle");
    let lines = include_str!("data/oracle.txt").lines().skip(1);
    let texts: Vec<String> = lines.map(|line| line.replace('⏎', "\n")).collect();
    let mut wrong = Vec::new();
    if check(&texts, &folder, &mut wrong).is_none() {
        skips::skip(SKIPPED);
    }
    drop(fs::remove_dir_all(&folder));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn dash_agrees_on_what_was_hard_before() {
    let folder = scratch("dash-oracle");
    let lines = include_str!("data/oracle.txt").lines().skip(1);
    let texts: Vec<String> = lines.map(|line| line.replace('⏎', "\n")).collect();
    let mut wrong = Vec::new();
    if check_with_dash(&texts, &folder, &mut wrong).is_none() {
        skips::skip(SKIPPED);
    }
    drop(fs::remove_dir_all(&folder));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn bash_runs_nothing_that_the_gate_did_not_see() {
    let seed = number("LEGWORK_FUZZ_SEED").unwrap_or(SEED);
    let seconds = number("LEGWORK_FUZZ_SECONDS").unwrap_or(10);
    println!("LEGWORK_FUZZ_SEED={seed}");
    let folder = scratch("differential");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut wrong, mut total, mut telling, mut by_dash) = (Vec::new(), 0, 0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) && wrong.len() < 20 {
        let texts = batch(&mut random);
        let Some(told) = check_quickly(&texts, &folder, &mut wrong) else {
            skips::skip(SKIPPED);
            return;
        };
        if (total / BATCH).is_multiple_of(DASH_EVERY) {
            by_dash += check_with_dash(&texts, &folder, &mut wrong).unwrap_or_default();
        }
        total += texts.len();
        telling += told;
    }
    drop(fs::remove_dir_all(&folder));
    println!("{total} texts, {telling} understood and running something, {by_dash} by dash");
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n\n"));
    assert!(telling * 8 > total, "the generator tells too little: {telling} of {total}");
}
