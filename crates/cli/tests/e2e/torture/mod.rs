//! The random kill loop: mixed load, `kill -9` of anything of ours at any moment, a new server, and
//! a comparison of everything that is recorded with what the commands themselves wrote down.
//!
//! `LEGWORK_TORTURE_ROUNDS` says for how long (`just torture`), `LEGWORK_TORTURE_SEED` repeats what
//! was chosen in a
//! run; when exactly a kill meets its victim is up to the machine.

mod failpoints;
mod load;
mod oracle;
mod processes;
mod server;
mod system_calls;

use std::{
    env, fs,
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use self::{
    load::Load,
    oracle::Round,
    processes::{Family, Killed},
    server::Server,
};
use crate::common::{Scratch, eventually, program};

/// How long everything may take to be settled after the last kill.
const SETTLED: Duration = Duration::from_secs(60);

/// Numbers that look random and are the same for the same seed (`SplitMix64`).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True so many times out of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let end = u64::try_from(from.len()).unwrap();
        (end > 0).then(|| &from[usize::try_from(self.below(end)).unwrap()])
    }

    pub fn pause(&mut self, below_ms: u64) {
        thread::sleep(Duration::from_micros(self.below(below_ms * 1000)));
    }
}

/// A number that the environment sets.
pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// The seed that is asked for, or another one each time.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    number("LEGWORK_TORTURE_SEED").unwrap_or(u64::try_from(now).unwrap())
}

#[test]
fn killed_at_random_moments_nothing_is_lost_invented_doubled_or_left() {
    let rounds = number("LEGWORK_TORTURE_ROUNDS").unwrap_or(12);
    let seed = seed();
    eprintln!("LEGWORK_TORTURE_SEED={seed} LEGWORK_TORTURE_ROUNDS={rounds}");
    let mut dice = Dice::new(seed);
    let scratch = Scratch::new();
    let mut history = oracle::Seen::default();
    let begin = Instant::now();
    for round in 0..rounds {
        let found = play(&scratch, round, &mut dice);
        found.check().unwrap_or_else(|wrong| {
            let kept = keep(&scratch, round);
            panic!("round {round} of seed {seed}: {wrong}\nkept in {kept}");
        });
        history.add(&found);
        if round % 50 == 49 {
            eprintln!("{} rounds in {:?}: {history}", round + 1, begin.elapsed());
        }
    }
    eprintln!("{rounds} rounds in {:?}: {history}", begin.elapsed());
    // What was settled once has not changed since, and the chain of notes is whole.
    history.check_again(&scratch);
    let mut verify = Command::new(program());
    verify.args(["audit", "verify", "--state"]).arg(scratch.state.path());
    let verified = verify.output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

/// Keeps what a failed round left, to be looked at.
fn keep(scratch: &Scratch, round: u64) -> String {
    let kept = env::temp_dir().join(format!("legwork-torture-{}-{round}", std::process::id()));
    let _ = fs::create_dir(&kept);
    let copied = Command::new("cp")
        .arg("-a")
        .args([scratch.state.path(), scratch.workspace.path(), &kept])
        .status();
    copied.map_or_else(|error| error.to_string(), |_| kept.display().to_string())
}

/// One round: load, kills, a new server, and everything that can then be seen.
fn play(scratch: &Scratch, round: u64, dice: &mut Dice) -> Round {
    let family = Family::new(scratch);
    let mut load = Load::new(scratch, round);
    let mut first = Server::start(scratch, &family);
    load.begin(&family, &mut first, dice);
    let mut killed = Killed::default();
    for _ in 0..=dice.below(3) {
        dice.pause(100);
        family.kill_one(dice, &mut killed);
    }
    if dice.percent(75) {
        killed.note(&first.kill());
    }
    let mut second = Server::start(scratch, &family);
    // What they start may be registered at any time before they end.
    let mut answers = load.answers();
    first.hear_out();
    let round = settle(&mut second, &load).map(|()| {
        // What a command left behind goes on printing.
        let left = family.wait_for_commands();
        let mut round = Round::look(scratch, &load, &killed);
        round.left = left;
        round
    });
    answers.extend(first.close());
    answers.extend(second.close());
    let left = family.wait_for_all();
    family.end();
    let mut round = round.unwrap_or_else(|wrong| Round::failed(&load, &killed, wrong));
    round.left.extend(left);
    round.hear(answers);
    round
}

/// Lets every task come to its end: those that wait for input get it, those that stay are stopped.
fn settle(server: &mut Server, load: &Load) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let listed = server.call("TaskList", &json!({ "limit": 100 }))?;
        let running = listed["result"]["tasks"].as_array().cloned().unwrap_or_default();
        if running.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > SETTLED {
            return Err(format!("P1: these never end: {running:#?}"));
        }
        for task in &running {
            let command = task["command"].as_str().unwrap_or_default();
            let id = &task["task_id"];
            match load.then(command) {
                Some("echo") => {
                    let input =
                        json!({ "task_id": id, "input": format!("{id} last\n"), "eof": true });
                    server.call("TaskInput", &input)?;
                }
                Some("stay") => {
                    server.call("TaskStop", &json!({ "task_id": id, "grace_ms": 2000 }))?;
                }
                _ => {}
            }
        }
        let ids: Vec<_> = running.iter().map(|task| task["task_id"].clone()).collect();
        server.call("TaskWait", &json!({ "task_ids": ids, "timeout_ms": 500 }))?;
    }
}

#[test]
fn the_oracle_sees_what_is_wrong() {
    let scratch = Scratch::new();
    let family = Family::new(&scratch);
    let mut load = Load::new(&scratch, 0);
    let mut server = Server::start(&scratch, &family);
    load.begin(&family, &mut server, &mut Dice::new(1));
    eventually("all have begun", || load.has_begun().then_some(()));
    settle(&mut server, &load).unwrap();
    eventually("all is quiet", || family.commands().is_empty().then_some(()));
    let look = || Round::look(&scratch, &load, &Killed::default());
    let sound = look();
    assert_eq!(sound.check(), Ok(()));
    let wrong = |what: &str, change: &dyn Fn(&mut Round)| {
        let mut round = look();
        change(&mut round);
        let said = round.check().unwrap_err();
        assert!(said.starts_with(what), "{what}: {said}");
    };
    let exited = |round: &Round| {
        round.rows.iter().position(|row| row.exit_status().is_some_and(|code| code > 0)).unwrap()
    };
    wrong("P1", &|round| round.rows.clear());
    wrong("P1", &|round| round.rows[0].status = "running".into());
    wrong("P2", &|round| {
        let place = exited(round);
        round.rows[place].outcome["exit_status"] = json!(0);
    });
    wrong("P2", &|round| {
        let place = exited(round);
        round.rows[place].outcome = json!({ "lost": "warden_lost" });
        round.rows[place].status = "interrupted".into();
    });
    wrong("P3", &|round| round.begin_again());
    wrong("P4", &|round| {
        let place = exited(round);
        round.rows[place].stdout.pop();
    });
    wrong("P4", &|round| {
        let place = exited(round);
        round.rows[place].stdout.extend_from_slice(b"invented\n");
    });
    wrong("P4", &|round| {
        let place = exited(round);
        round.rows[place].stdout[20] ^= 1;
    });
    wrong("P6", &|round| round.left.push("7 fixture".into()));
    server.close();
}
