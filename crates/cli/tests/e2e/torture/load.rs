//! The load of a round: witnesses of every kind, over the server and by processes of their own.

use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use super::{Dice, processes::Family, server::Server};
use crate::common::{Scratch, fixture};

/// What one witness is to do, and how it is asked for.
#[derive(Debug, Clone)]
pub struct Witness {
    pub name: String,
    pub command: String,
    pub code: i32,
    then: &'static str,
    /// Whether it is asked for more than once.
    pub twice: bool,
    input: Value,
}

/// The load of a round.
pub struct Load<'a> {
    scratch: &'a Scratch,
    pub journal: String,
    round: u64,
    pub witnesses: Vec<Witness>,
    callers: Vec<Child>,
}

/// Lines, their width, the pause after each, what comes then, more input of the call.
type Kind = (u64, usize, u64, &'static str, Value);

pub const SHORT: usize = 0;
pub const BIG: usize = 2;
pub const WITH_INPUT: usize = 6;
pub const UNTIL_STOPPED: usize = 8;

fn kinds() -> Vec<Kind> {
    vec![
        // Short: in the warden's memory from begin to end.
        (3, 10, 0, "end", json!({})),
        (2, 10, 0, "end", json!({})),
        // Big: spills while it prints.
        (120, 1500, 0, "end", json!({})),
        // Promoted at once, and soon long enough to be in a folder.
        (40, 30, 9000, "end", json!({ "yield_time_ms": 0 })),
        (10, 30, 3000, "end", json!({ "yield_time_ms": 0 })),
        // Promoted in the middle.
        (20, 30, 10_000, "end", json!({ "yield_time_ms": 60 })),
        // With input, and with a terminal.
        (2, 10, 0, "echo", json!({ "yield_time_ms": 0, "accepts_input": true })),
        (15, 30, 5000, "end", json!({ "yield_time_ms": 50, "tty": true })),
        // Until it is stopped.
        (2, 10, 0, "stay", json!({ "yield_time_ms": 0 })),
    ]
}

impl<'a> Load<'a> {
    pub fn new(scratch: &'a Scratch, round: u64) -> Self {
        let journal = scratch.file(&format!("journal-{round}"));
        Self { scratch, journal, round, witnesses: Vec::new(), callers: Vec::new() }
    }

    /// Whether every witness has begun, by its own word.
    pub fn has_begun(&self) -> bool {
        let journal = std::fs::read_to_string(&self.journal).unwrap_or_default();
        let begun = |witness: &Witness| {
            let start = format!("begin {} ", witness.name);
            journal.lines().any(|line| line.starts_with(&start))
        };
        self.witnesses.iter().all(begun)
    }

    /// Starts everything, and waits for nothing.
    pub fn begin(&mut self, family: &Family, server: &mut Server, dice: &mut Dice) {
        for kind in kinds() {
            let witness = self.witness(&kind, dice);
            server.ask("ExecCommand", &witness.input);
        }
        let background = self.with_background(dice);
        server.ask("ExecCommand", &background.input);
        let twice = self.twice(dice);
        for _ in 0..2 {
            server.ask("ExecCommand", &twice.input);
        }
        for place in [0, 3] {
            let witness = self.witness(&kinds()[place], dice);
            self.call(family, &witness);
        }
        let witness = self.witness(&kinds()[5], dice);
        self.sh(family, &witness);
    }

    /// A witness of a kind, by a process of its own that may die on the way.
    pub fn call_alone(&mut self, kind: usize, mut command: Command) -> Output {
        let witness = self.witness(&kinds()[kind], &mut Dice::new(kind as u64));
        command.args(["ExecCommand", "--json", &witness.input.to_string()]);
        command.output().unwrap()
    }

    /// A witness of a kind that waits for input, which the server has acknowledged.
    pub fn promote(&mut self, server: &mut Server, kind: usize) -> Value {
        let witness = self.witness(&kinds()[kind], &mut Dice::new(kind as u64));
        let answer = server.call("ExecCommand", &witness.input).unwrap();
        assert_eq!(answer["result"]["disposition"], "promoted_to_task", "{answer}");
        answer
    }

    fn words(&self, name: &str, kind: &Kind, code: i32) -> String {
        let (lines, width, pause_us, then, _) = kind;
        format!(
            "{} witness {} {name} {lines} {width} {pause_us} {code} {then}",
            fixture(),
            self.journal
        )
    }

    fn witness(&mut self, kind: &Kind, dice: &mut Dice) -> Witness {
        let name = format!("w{}-{}", self.round, self.witnesses.len());
        let code = i32::try_from(dice.below(5)).unwrap();
        let command = format!("exec {}", self.words(&name, kind, code));
        self.add(name, command, code, kind)
    }

    fn add(&mut self, name: String, command: String, code: i32, kind: &Kind) -> Witness {
        let mut input = json!({ "cmd": command, "login": false });
        input.as_object_mut().unwrap().extend(kind.4.as_object().unwrap().clone());
        let witness = Witness { name, command, code, then: kind.3, twice: false, input };
        self.witnesses.push(witness.clone());
        witness
    }

    /// One that leaves another one behind.
    fn with_background(&mut self, dice: &mut Dice) -> Witness {
        let name = format!("w{}-{}", self.round, self.witnesses.len());
        let code = i32::try_from(dice.below(5)).unwrap();
        let kinds = kinds();
        let left = self.words(&format!("{name}-left"), &kinds[4], 0);
        let command = format!("{left} & exec {}", self.words(&name, &kinds[0], code));
        self.add(name, command, code, &kinds[0])
    }

    /// One that is asked for twice at the same time.
    fn twice(&mut self, dice: &mut Dice) -> Witness {
        let kind = kinds()[3].clone();
        let witness = self.witness(&kind, dice);
        if let Some(last) = self.witnesses.last_mut() {
            last.twice = true;
        }
        witness
    }

    fn call(&mut self, family: &Family, witness: &Witness) {
        let mut command = self.scratch.legwork("call");
        family.mark(&mut command).args(["ExecCommand", "--json", &witness.input.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        self.callers.push(command.spawn().unwrap());
    }

    fn sh(&mut self, family: &Family, witness: &Witness) {
        let mut command = self.scratch.legwork("sh");
        family.mark(&mut command).arg(&witness.command);
        // Into two places: where both are the same, it keeps them as one.
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        self.callers.push(command.spawn().unwrap());
    }

    /// What the witness of a command does after its lines.
    pub fn then(&self, command: &str) -> Option<&'static str> {
        self.witnesses.iter().find(|known| known.command == command).map(|known| known.then)
    }

    /// Waits for the processes of their own; the envelopes that they printed.
    pub fn answers(&mut self) -> Vec<Value> {
        let ended = self.callers.drain(..).map(|child| child.wait_with_output().unwrap());
        ended.filter_map(|output| serde_json::from_slice(&output.stdout).ok()).collect()
    }
}
