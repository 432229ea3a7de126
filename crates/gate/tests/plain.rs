//! Plain text, held against the shells themselves: what is plain runs exactly the simple commands
//! that are listed, with exactly those words.
//!
//! Every program is a stub that records its arguments. `LEGWORK_FUZZ_SECONDS` says for how long
//! texts are made (10 when absent), `LEGWORK_FUZZ_SEED` repeats a run.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

#[path = "differential/generator.rs"]
#[expect(dead_code, reason = "the other test makes texts of the rest")]
mod generator;
#[path = "differential/isolated.rs"]
mod isolated;
#[path = "plain/texts.rs"]
mod texts;

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use generator::Random;
use legwork_gate::{Dialect, Form, PlainCommand, Word, plain};

const SEED: u64 = 1_794_749_749;
const BATCH: usize = 150;
const SKIPPED: &str = "the shell, or unshare with user namespaces, is not to be had";

/// What a stub does: it tells its name and its arguments, and fails if its name ends with `f`.
const STUB: &str = "#!/bin/sh\nprintf '%s\\036' \"$(printf '%s\\037' \"${0##*/}\" \"$@\")\" >&9\n\
                    case $0 in *f) exit 1 ;; esac\n";

/// Variables that the shells of the test see.
fn is_in_environment(name: &str) -> bool {
    ["PATH", "seen", "HOME", "PWD"].contains(&name)
}

fn read(text: &str, dialect: Dialect) -> Option<Vec<PlainCommand>> {
    plain(text, dialect, &is_in_environment).ok()
}

struct Oracle {
    folder: PathBuf,
    shell: &'static str,
}

impl Oracle {
    fn new(shell: &'static str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("legwork-plain-{}-{count}", std::process::id()));
        fs::create_dir_all(folder.join("stubs")).unwrap();
        fs::create_dir_all(folder.join("empty")).unwrap();
        for name in texts::STUBS {
            let stub = folder.join("stubs").join(name);
            fs::write(&stub, STUB).unwrap();
            fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder, shell }
    }

    /// Runs texts, and gives what each of them ran.
    fn run(&self, texts: &[String]) -> Option<Vec<Vec<Vec<String>>>> {
        let (empty, stubs) = (self.folder.join("empty"), self.folder.join("stubs"));
        let arguments = [empty.as_os_str(), stubs.as_os_str(), OsStr::new(self.shell)];
        let records = isolated::run(include_str!("plain/driver.sh"), &arguments, texts)?;
        let words = |record: &str| record.split_terminator('\u{1f}').map(str::to_owned).collect();
        let ran = |records: &String| records.split_terminator('\u{1e}').map(words).collect();
        Some(records.iter().map(ran).collect())
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Whether a listed word can be what was seen; how many seen words it takes is up to it.
fn matches(words: &[Word], seen: &[String]) -> bool {
    let Some((first, rest)) = words.split_first() else { return seen.is_empty() };
    let one = |fits: bool| fits && !seen.is_empty() && matches(rest, &seen[1..]);
    match first.form {
        Form::Literal => one(seen.first() == Some(&first.text)),
        Form::Dynamic => {
            let beginning = if first.text == "~" { "" } else { first.text.as_str() };
            one(seen.first().is_some_and(|seen| seen.starts_with(beginning)))
        }
        // As many as there are files, or itself.
        Form::Glob => (1..=seen.len()).any(|count| matches(rest, &seen[count..])),
        Form::Fields => (0..=seen.len()).any(|count| matches(rest, &seen[count..])),
    }
}

/// The words of a command that is no builtin.
fn program(command: &PlainCommand) -> &[Word] {
    match command.words.split_first() {
        Some((first, rest)) if first.text == "command" => rest,
        _ => &command.words,
    }
}

fn complaint(listed: &[PlainCommand], ran: &[Vec<String>]) -> Option<String> {
    let unseen = ran.iter().find(|seen| !listed.iter().any(|it| matches(program(it), seen)))?;
    Some(format!("{unseen:?} ran, which is not listed: {listed:?}"))
}

/// Checks texts; says how many of them were plain and ran something.
fn check(
    oracle: &Oracle,
    dialect: Dialect,
    texts: Vec<String>,
    wrong: &mut Vec<String>,
) -> Option<usize> {
    let plain: Vec<(String, Vec<PlainCommand>)> =
        texts.into_iter().filter_map(|text| read(&text, dialect).map(|it| (text, it))).collect();
    let texts: Vec<String> = plain.iter().map(|(text, _)| text.clone()).collect();
    let all = oracle.run(&texts)?;
    let mut telling = 0;
    for ((text, listed), ran) in plain.iter().zip(&all) {
        telling += usize::from(!ran.is_empty());
        if let Some(complaint) = complaint(listed, ran) {
            wrong.push(format!("{}: {complaint}\n{text}\n--- {text:?}", oracle.shell));
        }
    }
    Some(telling)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn fuzz(shell: &'static str, dialect: Dialect) {
    let seed = number("LEGWORK_FUZZ_SEED").unwrap_or(SEED);
    let seconds = number("LEGWORK_FUZZ_SECONDS").unwrap_or(10);
    println!("LEGWORK_FUZZ_SEED={seed}");
    if !Path::new(shell).exists() {
        skips::skip(SKIPPED);
        return;
    }
    let oracle = Oracle::new(shell);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut wrong, mut total, mut telling) = (Vec::new(), 0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) && wrong.len() < 10 {
        let mut made = Vec::new();
        while made.len() < BATCH {
            let text = texts::text(&mut random);
            total += 1;
            if read(&text, dialect).is_some() {
                made.push(text);
            }
        }
        let Some(told) = check(&oracle, dialect, made, &mut wrong) else {
            skips::skip(SKIPPED);
            return;
        };
        telling += told;
    }
    println!("{total} texts, {telling} of them plain and running something");
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n\n"));
    assert!(telling > 50, "the generator tells too little: {telling} of {total}");
}

#[test]
fn bash_runs_what_is_listed_of_a_plain_text() {
    fuzz("/bin/bash", Dialect::Bash);
}

#[test]
fn dash_runs_what_is_listed_of_a_plain_text() {
    fuzz("/bin/dash", Dialect::Posix);
}

#[test]
fn a_straight_text_runs_all_of_it() {
    let oracle = Oracle::new("/bin/bash");
    let texts: Vec<String> = [
        "p1 a; p2 'b c' \"d\"",
        "p1 | p2 x | p3",
        "p1\np2 \\$x & wait",
        "{ p1; (p2 a) ; } >f 2>&1",
    ]
    .map(str::to_owned)
    .to_vec();
    let Some(all) = oracle.run(&texts) else {
        skips::skip(SKIPPED);
        return;
    };
    for (text, ran) in texts.iter().zip(all) {
        let listed = read(text, Dialect::Bash).unwrap_or_else(|| panic!("{text}"));
        let programs = listed
            .iter()
            .filter(|command| command.words.first().is_some_and(|word| word.text.starts_with('p')));
        assert_eq!(programs.count(), ran.len(), "{text}: {ran:?}");
        assert_eq!(complaint(&listed, &ran), None, "{text}");
    }
}

#[test]
fn what_is_plain_and_what_is_not() {
    for line in include_str!("data/plain.txt").lines() {
        let Some((expected, text)) = line.split_once(": ") else { continue };
        let text = text.replace('⏎', "\n");
        let read = plain(&text, Dialect::Bash, &is_in_environment);
        match expected {
            "plain" => assert!(read.is_ok(), "{text:?}: {read:?}"),
            "not" => assert!(read.is_err(), "{text:?}: {read:?}"),
            other => panic!("{other}"),
        }
    }
}
