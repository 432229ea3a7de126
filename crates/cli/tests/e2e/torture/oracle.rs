//! What must hold after a round: the ledger and the artifacts against the witnesses' own journal.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt, fs,
};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{
    load::{Load, Witness},
    processes::Killed,
};
use crate::common::Scratch;

/// One run of a witness, by its own account.
#[derive(Debug, Default, Clone)]
struct Testimony {
    parent: u32,
    parent_name: String,
    begins: u32,
    /// Stream and checksum of each line that it was about to print.
    announced: Vec<(String, u32)>,
    /// How many of them it has printed.
    printed: usize,
    exit: Option<i32>,
}

/// A task as it is recorded, with all that is stored of its output.
pub struct Row {
    id: String,
    command: String,
    pub status: String,
    pub reason: Option<String>,
    pub outcome: Value,
    /// Whether both streams came as one.
    tty: bool,
    pub stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, command, status, reason, outcome, .. } = self;
        write!(formatter, "{id} {status} {reason:?} {outcome} of `{command}`")
    }
}

impl Row {
    pub fn exit_status(&self) -> Option<i64> {
        self.outcome["exit_status"].as_i64()
    }

    fn pid(&self) -> Option<u32> {
        self.outcome["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }
}

/// Everything that can be seen of a round.
pub struct Round {
    witnesses: Vec<Witness>,
    testimonies: BTreeMap<(String, u32), Testimony>,
    pub rows: Vec<Row>,
    killed: HashSet<u32>,
    killed_names: Vec<String>,
    /// Processes that should be gone.
    pub left: Vec<String>,
    answers: Vec<Value>,
    /// Whether the ledger was made to fail, so that callers may be told so.
    pub ledger_failed: bool,
    failure: Option<String>,
}

/// A sentence that says which promise is broken.
type Verdict = Result<(), String>;

fn broken<T>(what: String) -> Result<T, String> {
    Err(what)
}

impl Round {
    /// Reads journal, ledger and artifacts.
    pub fn look(scratch: &Scratch, load: &Load, killed: &Killed) -> Self {
        Self {
            witnesses: load.witnesses.clone(),
            testimonies: read_journal(&load.journal),
            rows: read_rows(scratch, &format!(" {} ", load.journal)),
            killed: killed.pids.clone(),
            killed_names: killed.names.clone(),
            left: Vec::new(),
            answers: Vec::new(),
            ledger_failed: false,
            failure: None,
        }
    }

    /// A round that did not come to its end.
    pub fn failed(load: &Load, killed: &Killed, failure: String) -> Self {
        Self {
            witnesses: load.witnesses.clone(),
            testimonies: BTreeMap::new(),
            rows: Vec::new(),
            killed: killed.pids.clone(),
            killed_names: killed.names.clone(),
            left: Vec::new(),
            answers: Vec::new(),
            ledger_failed: false,
            failure: Some(failure),
        }
    }

    /// Takes note of what callers were told.
    pub fn hear(&mut self, answers: Vec<Value>) {
        self.answers = answers;
    }

    /// Makes a witness seem to have begun twice.
    pub fn begin_again(&mut self) {
        self.testimonies.values_mut().next().unwrap().begins = 2;
    }

    /// The first promise that is broken.
    pub fn check(&self) -> Verdict {
        if let Some(failure) = &self.failure {
            return broken(format!("{failure}\nkilled: {:?}", self.killed_names));
        }
        let told = |wrong| format!("{wrong}\nkilled: {:?} {:?}", self.killed_names, self.killed);
        self.check_answers().map_err(told)?;
        self.check_starts().map_err(told)?;
        for row in &self.rows {
            self.check_row(row).map_err(|wrong| told(format!("{wrong}\n{row}")))?;
        }
        let left: Vec<&String> =
            self.left.iter().filter(|process| !self.is_excused(process)).collect();
        if !left.is_empty() {
            return broken(told(format!("P6: still there: {left:?}")));
        }
        Ok(())
    }

    /// What a command left behind that has ended long ago is found by a clean-up later, if warden
    /// and spawner are killed.
    fn is_excused(&self, process: &str) -> bool {
        let has = |name: &str| self.killed_names.iter().any(|known| known == name);
        let pid = process.split(' ').next().and_then(|pid| pid.parse::<u32>().ok());
        let behind = self.testimonies.keys().any(|(name, of)| {
            let of_an_ended_one = |row: &Row| {
                let command = self.witnesses.iter().find(|known| known.command == row.command);
                row.exit_status().is_some()
                    && command.is_some_and(|witness| *name == format!("{}-left", witness.name))
            };
            pid == Some(*of) && self.rows.iter().any(of_an_ended_one)
        });
        behind && has("legwork-warden") && has("legwork-spawner")
    }

    /// P1, P2: what was answered is recorded, and as it was answered.
    fn check_answers(&self) -> Verdict {
        let rows: HashMap<&str, &Row> =
            self.rows.iter().map(|row| (row.id.as_str(), row)).collect();
        for answer in self.answers.iter().filter(|answer| answer["tool_name"] == "ExecCommand") {
            if answer["status"] != "success" {
                if answer["error"]["kind"] == "state_unavailable" && !self.ledger_failed {
                    return broken(format!("P1: the ledger is whole, but: {answer}"));
                }
                continue;
            }
            let result = &answer["result"];
            let id = result["task_id"].as_str().or(result["task_handle"]["task_id"].as_str());
            let Some(row) = id.and_then(|id| rows.get(id)) else {
                return broken(format!("P1: acknowledged and unknown: {answer}"));
            };
            if result["disposition"] == "completed"
                && result["exit_status"] != row.outcome["exit_status"]
            {
                return broken(format!("P2: told {answer}, recorded {row}"));
            }
        }
        Ok(())
    }

    /// P3: whatever began has a row, and began once for each.
    fn check_starts(&self) -> Verdict {
        for witness in &self.witnesses {
            let rows = self.rows.iter().filter(|row| row.command == witness.command).count();
            let runs = self.testimonies.iter().filter(|((name, _), _)| *name == witness.name);
            let begins: u32 = runs.map(|(_, testimony)| testimony.begins).sum();
            let most = if witness.twice { rows } else { rows.min(1) };
            if begins > 0 && rows == 0 {
                return broken(format!("P1: {} has begun, and there is no task", witness.name));
            }
            if usize::try_from(begins).unwrap() > most {
                return broken(format!(
                    "P3: {} began {begins} times for {rows} tasks",
                    witness.name
                ));
            }
            if rows > 1 && !witness.twice {
                return broken(format!("P3: {} has {rows} tasks", witness.name));
            }
        }
        Ok(())
    }

    fn check_row(&self, row: &Row) -> Verdict {
        let Some(witness) = self.witnesses.iter().find(|known| known.command == row.command) else {
            return broken("P2: a command that nobody asked for".into());
        };
        if ["queued", "running", "cancelling"].contains(&row.status.as_str()) {
            return broken(format!("P1: not settled: {}", row.status));
        }
        let runs: Vec<(u32, &Testimony)> = self
            .testimonies
            .iter()
            .filter(|((name, _), _)| *name == witness.name)
            .map(|((_, pid), testimony)| (*pid, testimony))
            .collect();
        let run = runs.iter().find(|(pid, _)| row.pid() == Some(*pid)).map(|(_, run)| *run);
        let claimed = |pid: u32| self.rows.iter().any(|other| other.pid() == Some(pid));
        let unclaimed: Vec<(u32, &Testimony)> =
            runs.into_iter().filter(|(pid, _)| !claimed(*pid)).collect();
        let ended = match (row.exit_status(), row.outcome["signal"].as_i64()) {
            (Some(code), _) => check_exit(witness, run, code),
            (_, Some(signal)) => self.check_signal(row, run, signal),
            _ if row.status == "interrupted" => self.check_lost(&unclaimed),
            _ if row.reason.as_deref() == Some("spawn_failed") && unclaimed.is_empty() => Ok(()),
            _ => broken(format!("P2: {} without an outcome", row.status)),
        };
        ended?;
        let whole = row.exit_status().is_some() || row.outcome["signal"].as_i64().is_some();
        self.check_output(row, witness, whole)
    }

    fn check_signal(&self, row: &Row, run: Option<&Testimony>, signal: i64) -> Verdict {
        let stopped = row.status == "cancelled" && row.reason.as_deref() == Some("stopped");
        let by_us = row.pid().is_some_and(|pid| self.killed.contains(&pid)) && signal == 9;
        if !stopped && !by_us {
            return broken(format!("P2: nobody sent signal {signal}"));
        }
        match run.and_then(|run| run.exit) {
            Some(code) if !by_us => broken(format!("P2: it exited with {code}, not by a signal")),
            _ => Ok(()),
        }
    }

    /// Only what never began, or lost its warden, is lost.
    fn check_lost(&self, runs: &[(u32, &Testimony)]) -> Verdict {
        let excused = |run: &Testimony| {
            self.killed.contains(&run.parent) || run.parent_name != "legwork-warden"
        };
        if runs.iter().all(|(_, run)| !excused(run)) && !runs.is_empty() {
            return broken("P2: said to be lost, but its warden was not killed".into());
        }
        Ok(())
    }

    /// P4: line for line what was printed; less only where the warden was killed.
    fn check_output(&self, row: &Row, witness: &Witness, whole: bool) -> Verdict {
        let flags = row.outcome["flags"].as_array().cloned().unwrap_or_default();
        if flags.iter().any(|flag| flag == "output_dropped") {
            // It is said, and where the gap is has its own tests.
            return Ok(());
        }
        let mut found: HashMap<(String, u32), Vec<(&str, u32)>> = HashMap::new();
        for (stream, bytes) in [("stdout", &row.stdout), ("stderr", &row.stderr)] {
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let text = String::from_utf8_lossy(line).replace("\r\n", "\n");
                if !text.ends_with('\n') && !whole {
                    // Cut by the kill; it was the beginning of a line that was announced.
                    continue;
                }
                let mut words = text.split(' ');
                let name = words.next().unwrap_or_default().to_owned();
                let pid = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                let line = (stream, crc32fast::hash(text.as_bytes()));
                found.entry((name, pid)).or_default().push(line);
            }
        }
        for ((name, pid), lines) in &found {
            let Some(run) = self.testimonies.get(&(name.clone(), *pid)) else {
                return broken(format!("P4: a line of nobody: {name} {pid}"));
            };
            for stream in ["stdout", "stderr"] {
                let announced = run.announced.iter().filter(|(of, _)| of == stream || row.tty);
                let stored = lines.iter().filter(|(of, _)| *of == stream);
                check_stream(announced, stored)
                    .map_err(|place| format!("P4: {name}: line {place} of {stream} is another"))?;
            }
        }
        if !whole {
            return Ok(());
        }
        let left = format!("{}-left", witness.name);
        for ((name, pid), run) in &self.testimonies {
            let own = *name == witness.name && row.pid() == Some(*pid);
            // What it left behind may be lost with the warden, which was needed after its end too.
            let behind = *name == left && self.check_lost(&[(*pid, run)]).is_err();
            let stored = found.get(&(name.clone(), *pid)).map_or(0, Vec::len);
            if (own || behind && self.killed.is_empty()) && stored < run.printed {
                return broken(format!("P4: {name} printed {}, {stored} are stored", run.printed));
            }
        }
        Ok(())
    }
}

/// The lines that are stored are the first of those that were announced; else, the place of one
/// that is not.
fn check_stream<'a>(
    mut announced: impl Iterator<Item = &'a (String, u32)>,
    stored: impl Iterator<Item = &'a (&'a str, u32)>,
) -> Result<(), usize> {
    for (place, (_, checksum)) in stored.enumerate() {
        if announced.next().map(|(_, checksum)| checksum) != Some(checksum) {
            return Err(place);
        }
    }
    Ok(())
}

fn check_exit(witness: &Witness, run: Option<&Testimony>, code: i64) -> Verdict {
    let Some(run) = run else {
        return broken(format!("P2: exit status {code} of a process that never was"));
    };
    if run.exit.map(i64::from) != Some(code) || i64::from(witness.code) != code {
        return broken(format!("P2: exit status {code}, but it says {:?}", run.exit));
    }
    Ok(())
}

fn read_journal(path: &str) -> BTreeMap<(String, u32), Testimony> {
    let mut testimonies: BTreeMap<(String, u32), Testimony> = BTreeMap::new();
    let text = fs::read_to_string(path).unwrap_or_default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [word, name, pid, rest @ ..] = words.as_slice() else { panic!("{line}") };
        let one = testimonies.entry(((*name).to_owned(), pid.parse().unwrap())).or_default();
        match (*word, rest) {
            ("begin", [parent, parent_name]) => {
                one.begins += 1;
                one.parent = parent.parse().unwrap();
                (*parent_name).clone_into(&mut one.parent_name);
            }
            ("print", [_, stream, _, checksum]) => {
                one.announced.push(((*stream).to_owned(), checksum.parse().unwrap()));
            }
            ("printed", _) => one.printed += 1,
            ("exit", [code]) => one.exit = Some(code.parse().unwrap()),
            ("read", _) => {}
            _ => panic!("{line}"),
        }
    }
    testimonies
}

fn read_rows(scratch: &Scratch, words: &str) -> Vec<Row> {
    let path = scratch.state.path().join("ledger.db");
    let ledger = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sql = "SELECT id, command, status, reason, outcome, stdout, stderr, tty FROM task \
               WHERE instr(command, ?)";
    let mut statement = ledger.prepare(sql).unwrap();
    let rows = statement.query_map([words], |row| {
        let id: String = row.get(0)?;
        let folder = scratch.state.path().join("tasks").join(&id);
        let stored = |name: &str| fs::read(folder.join(name)).unwrap_or_default();
        let (stdout, stderr): (Option<Vec<u8>>, Option<Vec<u8>>) = (row.get(5)?, row.get(6)?);
        let tty = row.get(7)?;
        let first = if tty { "terminal" } else { "stdout" };
        let outcome: Option<String> = row.get(4)?;
        Ok(Row {
            command: row.get(1)?,
            status: row.get(2)?,
            reason: row.get(3)?,
            outcome: outcome.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default(),
            tty,
            stdout: stdout.unwrap_or_else(|| stored(first)),
            stderr: stderr.unwrap_or_else(|| stored("stderr")),
            id,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// What was seen over all rounds.
#[derive(Default)]
pub struct Seen {
    outcomes: Vec<(String, String, Value)>,
    kinds: BTreeMap<String, usize>,
    errors: BTreeMap<String, usize>,
}

impl Seen {
    pub fn add(&mut self, round: &Round) {
        for row in &round.rows {
            *self.kinds.entry(row.status.clone()).or_default() += 1;
            self.outcomes.push((row.id.clone(), row.status.clone(), row.outcome.clone()));
        }
        for name in &round.killed_names {
            *self.kinds.entry(format!("killed {name}")).or_default() += 1;
        }
        for answer in round.answers.iter().filter(|answer| answer["status"] == "error") {
            let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
            *self.errors.entry(message).or_default() += 1;
        }
    }

    /// Every outcome is still the one that was there first.
    pub fn check_again(&self, scratch: &Scratch) {
        let now: HashMap<String, Row> =
            read_rows(scratch, " witness ").into_iter().map(|row| (row.id.clone(), row)).collect();
        for (id, status, outcome) in &self.outcomes {
            let row = &now[id];
            assert_eq!((&row.status, &row.outcome), (status, outcome), "{id}");
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}; errors: {:?}", self.kinds, self.errors)
    }
}
