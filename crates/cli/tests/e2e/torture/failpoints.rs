//! Every failpoint in turn: whichever process dies there, the next engine finds a defined state.

use std::{fs, process::Command};

use legwork_warden::failpoint::Failpoint;
use serde_json::Value;

use super::{
    load::{BIG, Load, SHORT, UNTIL_STOPPED, WITH_INPUT},
    oracle::Round,
    processes::{Family, Killed, Member},
    server::Server,
    settle,
};
use crate::common::{Scratch, eventually, parent};

/// What must be recorded of a command after a process died on its way.
#[derive(Debug, PartialEq, Eq)]
enum Recorded {
    /// Nothing: it never was a task.
    Nothing,
    /// That it is lost, for this reason.
    Lost(&'static str),
    /// Its own exit code.
    Truth,
}

/// What must be recorded when the process dies here; `big` is a run that is in its folder by then.
fn expected(point: Failpoint, big: bool) -> Recorded {
    use Failpoint::{
        EngineAfterAdoption, EngineAfterOutcome, EngineAfterPosting, EngineAfterRow,
        EngineAfterStart, EngineAfterSubmission, EngineBeforeAdoption, EngineBeforeFarewell,
        EngineBeforeNewDaybook, EngineBeforeRow, EngineBeforeSettlement, EngineBeforeSubmission,
        EngineHeardEnd, EngineInOutcome, EngineInPosting, EngineInRegistration, SpawnerAfterFork,
        SpawnerBeforeFork, WardenAfterStart, WardenAfterTelling, WardenBeforeForgetting,
        WardenBeforeStart, WardenBeforeTelling, WardenFilledFolder, WardenInRecord,
        WardenMadeFolder, WardenReservedRecord, WardenSawEnd, WardenWroteRecord,
    };
    match point {
        // The last four are of schedulers, which have their own tests.
        EngineBeforeRow
        | EngineInRegistration
        | SpawnerBeforeFork
        | EngineBeforeSubmission
        | Failpoint::EngineStartedSrun
        | Failpoint::EngineOrderedSrun
        | EngineAfterSubmission => Recorded::Nothing,
        EngineAfterStart
        | EngineHeardEnd
        | EngineInOutcome
        | EngineAfterOutcome
        | EngineBeforeFarewell
        | EngineInPosting
        | EngineAfterPosting
        | EngineBeforeNewDaybook
        | EngineBeforeAdoption
        | EngineAfterAdoption
        | WardenWroteRecord
        | WardenAfterTelling
        | SpawnerAfterFork
        | WardenBeforeForgetting => Recorded::Truth,
        // What is in the folder is known; what was in the warden's memory is not.
        WardenBeforeTelling if big => Recorded::Truth,
        WardenInRecord => Recorded::Lost("exit_record_damaged"),
        EngineAfterRow
        | EngineBeforeSettlement
        | WardenBeforeStart
        | WardenAfterStart
        | WardenMadeFolder
        | WardenReservedRecord
        | WardenFilledFolder
        | WardenSawEnd
        | WardenBeforeTelling => Recorded::Lost("warden_lost"),
    }
}

/// One failpoint in one scene.
struct Scene<'a> {
    scratch: &'a Scratch,
    family: &'a Family,
    point: Failpoint,
    log: String,
}

impl Scene<'_> {
    /// Makes a process, and what it starts, die at the failpoint.
    fn doomed(&self, mut command: Command) -> Command {
        self.family.mark(&mut command);
        command.env("LEGWORK_FAILPOINT", self.point.name()).env("LEGWORK_FAILPOINT_LOG", &self.log);
        command
    }

    /// Who has died there.
    fn dead(&self) -> Killed {
        let mut killed = Killed::default();
        for line in fs::read_to_string(&self.log).unwrap_or_default().lines() {
            let (pid, name) = line.split_once(' ').unwrap();
            killed.note(&Member { pid: pid.parse().unwrap(), name: name.to_owned() });
        }
        killed
    }

    /// The death of a process between the call and the answer.
    fn in_a_call(&self, load: &mut Load, kind: usize) -> (Vec<Value>, Killed) {
        let output = load.call_alone(kind, self.doomed(self.scratch.legwork("call")));
        (serde_json::from_slice(&output.stdout).into_iter().collect(), self.dead())
    }

    /// The death of a server that is about to adopt what another one left.
    fn in_an_adoption(&self, load: &mut Load) -> (Vec<Value>, Killed) {
        let mut first = Server::start(self.scratch, self.family);
        let answer = load.promote(&mut first, WITH_INPUT);
        let by_hand = first.kill();
        first.wait();
        let mut second = Server::spawn(&mut self.doomed(self.scratch.legwork("mcp")));
        second.hello();
        second.wait();
        let mut killed = self.dead();
        assert_eq!(killed.names, ["legwork"]);
        killed.note(&by_hand);
        (vec![answer], killed)
    }

    /// The death of a process that has found another one dead.
    fn in_a_settlement(&self, load: &mut Load) -> (Vec<Value>, Killed) {
        let mut first = Server::start(self.scratch, self.family);
        let answer = load.promote(&mut first, UNTIL_STOPPED);
        let witness = eventually("the witness", || {
            self.family.commands().into_iter().find(|member| member.name == "fixture")
        });
        let warden = Member { pid: parent(witness.pid), name: "legwork-warden".into() };
        let by_hand = first.kill();
        first.wait();
        assert!(self.family.kill(warden.pid));
        eventually("it is gone", || self.family.commands().is_empty().then_some(()));
        let _ = self.doomed(self.scratch.legwork("ps")).output().unwrap();
        let mut killed = self.dead();
        assert_eq!(killed.names, ["legwork"]);
        killed.note(&by_hand);
        killed.note(&warden);
        (vec![answer], killed)
    }

    /// The death of a process that makes the ledger what the daybook says, or begins a new daybook.
    fn in_a_posting(&self, load: &mut Load, kind: usize) -> (Vec<Value>, Killed) {
        let mut call = self.scratch.legwork("call");
        self.family.mark(&mut call);
        let output = load.call_alone(kind, call);
        if self.point == Failpoint::EngineBeforeNewDaybook {
            let mut ps = self.scratch.legwork("ps");
            self.family.mark(&mut ps);
            assert!(ps.output().unwrap().status.success());
            fs::remove_file(self.scratch.state.path().join("ledger.db-daybook")).unwrap();
        }
        let _ = self.doomed(self.scratch.legwork("ps")).output().unwrap();
        (serde_json::from_slice(&output.stdout).into_iter().collect(), self.dead())
    }

    /// Plays the scene, lets a new server settle everything, and looks; none if nobody died.
    fn play(&self, number: u64, kind: usize) -> bool {
        let mut load = Load::new(self.scratch, number);
        let (mut answers, killed) = match self.point {
            Failpoint::EngineBeforeAdoption | Failpoint::EngineAfterAdoption => {
                self.in_an_adoption(&mut load)
            }
            Failpoint::EngineBeforeSettlement => self.in_a_settlement(&mut load),
            Failpoint::EngineInPosting
            | Failpoint::EngineAfterPosting
            | Failpoint::EngineBeforeNewDaybook => self.in_a_posting(&mut load, kind),
            _ => self.in_a_call(&mut load, kind),
        };
        let died = !killed.pids.is_empty();
        let mut server = Server::start(self.scratch, self.family);
        settle(&mut server, &load).unwrap();
        let left = self.family.wait_for_commands();
        let mut round = Round::look(self.scratch, &load, &killed);
        answers.extend(server.close());
        round.left = [left, self.family.wait_for_all()].concat();
        round.hear(answers);
        let place = format!("{} of kind {kind}, {:?} died", self.point.name(), killed.names);
        assert_eq!(round.check(), Ok(()), "{place}");
        let expected = if died { expected(self.point, kind == BIG) } else { Recorded::Truth };
        let recorded = match round.rows.as_slice() {
            [] => Recorded::Nothing,
            [row] if row.exit_status().is_some() => Recorded::Truth,
            [row] => match row.reason.as_deref() {
                Some("exit_record_damaged") => Recorded::Lost("exit_record_damaged"),
                Some("warden_lost") => Recorded::Lost("warden_lost"),
                other => panic!("{place}: {other:?}"),
            },
            _ => panic!("{place}: more than one task"),
        };
        assert_eq!(recorded, expected, "{place}");
        died
    }
}

#[test]
fn a_death_at_any_step_of_start_and_settlement_leaves_a_defined_state() {
    let scratch = Scratch::new();
    let family = Family::new(&scratch);
    let mut number = 0;
    let submissions = [
        Failpoint::EngineBeforeSubmission,
        Failpoint::EngineStartedSrun,
        Failpoint::EngineOrderedSrun,
        Failpoint::EngineAfterSubmission,
    ];
    for point in Failpoint::ALL.iter().filter(|point| !submissions.contains(point)) {
        let mut reached = false;
        for kind in [SHORT, BIG] {
            let log = scratch.file(&format!("dead-{number}"));
            let scene = Scene { scratch: &scratch, family: &family, point: *point, log };
            reached |= scene.play(number, kind);
            number += 1;
        }
        assert!(reached, "nobody ever comes to {}", point.name());
    }
    family.end();
}
