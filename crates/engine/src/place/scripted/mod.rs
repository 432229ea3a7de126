//! A place that exists only in a test: wardens that follow a script, on a clock that the test owns.
//!
//! Nothing here forks, dials or touches a file. A warden is a few numbers, chosen by a seed: when
//! its command ends and how, whether it is killed and when, how long each of its answers takes.
//! Whatever a real warden promises (answers in order, one owner, memory until it is committed),
//! this one keeps; whatever a real one leaves open, this one varies. What really became of each
//! task is known ([`Truth`]), whatever the library records of it.

mod line;
mod place;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    task::Waker,
    time::Duration,
};

use legwork_warden::{
    protocol::{
        EndCause, FromWarden, KeptOutput, LiveResources, NewOutput, Order, Report, RunEnd, Spec,
        StartFailure, StartStage, WardenFrame, version,
    },
    record::{CommandEnd, ExitRecord, LimitsInForce, StreamTotal},
};
use tokio::{sync::watch, time::Instant};

use super::Warden;
use crate::output::SmallOutput;

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn ms(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }
}

/// What really became of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    /// How often its command was started.
    pub starts: u32,
    /// The code that its command gave, once it has ended.
    pub code: Option<i32>,
    pub stopped: bool,
    /// Whether its warden was killed before its command was committed.
    pub killed: bool,
    /// Whether its end was stored in its folder.
    pub stored: bool,
    /// Whether its start failed.
    pub failed: bool,
}

/// How the wardens of a place behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WardenScript {
    /// In how many of a hundred runs the warden is killed.
    pub killed: u64,
    /// In how many a start fails.
    pub fails: u64,
    /// In how many something is left behind, so that the warden cannot be used again.
    pub leaves: u64,
    /// The longest time of a command, in milliseconds.
    pub longest_ms: u64,
    /// The longest time that an answer takes, in milliseconds.
    pub slowest_ms: u64,
}

/// A place that follows a script.
#[derive(Debug)]
pub(crate) struct Scripted {
    world: Arc<Mutex<World>>,
    /// The mark of the engine that this handle is for.
    mark: String,
    boot_id: String,
    /// Counts the engines that were killed.
    ends: watch::Sender<u64>,
}

#[derive(Debug)]
struct World {
    dice: Dice,
    script: WardenScript,
    wardens: BTreeMap<String, Actor>,
    /// Idle wardens of each engine.
    idle: HashMap<String, Vec<Warden>>,
    /// Engines that live.
    engines: Vec<String>,
    folders: HashMap<String, (SmallOutput, Option<ExitRecord>)>,
    truths: BTreeMap<String, Truth>,
    next: u64,
}

/// A warden.
#[derive(Debug)]
struct Actor {
    alive: bool,
    run: Option<Running>,
    wires: Vec<Outbox>,
    /// Which wire owns it.
    owner: Option<usize>,
}

/// The command of a warden.
#[derive(Debug)]
struct Running {
    task: String,
    ends_at: Instant,
    killed_at: Option<Instant>,
    code: i32,
    stopped: bool,
    printed: Vec<u8>,
    spilled: bool,
    leaves: bool,
    /// The end, once it has come.
    ended: Option<ExitRecord>,
}

/// What a warden has to say on one connection.
#[derive(Debug, Default)]
struct Outbox {
    messages: VecDeque<(Instant, WardenFrame)>,
    waker: Option<Waker>,
    open: bool,
    /// Whether the end was put into it.
    told: bool,
}

impl Scripted {
    pub(crate) fn new(seed: u64, script: WardenScript) -> Self {
        let world = World {
            dice: Dice::new(seed),
            script,
            wardens: BTreeMap::new(),
            idle: HashMap::new(),
            engines: vec!["e0".into()],
            folders: HashMap::new(),
            truths: BTreeMap::new(),
            next: 0,
        };
        let world = Arc::new(Mutex::new(world));
        let ends = watch::Sender::new(0);
        Self { world, mark: "e0".into(), boot_id: "a boot".into(), ends }
    }

    /// The same place after its engine was killed: its channels are closed, another engine begins.
    pub(crate) fn after_a_kill(&self) -> Self {
        let mut world = self.world();
        world.engines.clear();
        let mark = format!("e{}", world.next);
        world.next += 1;
        world.engines.push(mark.clone());
        // Wardens that were idle end with their engine; outside of the lock, since their lines take
        // it.
        let idle = std::mem::take(&mut world.idle);
        drop(world);
        drop(idle);
        self.ends.send_modify(|ends| *ends += 1);
        let (world, ends) = (self.world.clone(), self.ends.clone());
        Self { world, mark, boot_id: self.boot_id.clone(), ends }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// What really became of every task.
    pub(crate) fn truths(&self) -> BTreeMap<String, Truth> {
        self.world().truths.clone()
    }

    /// Connections that are open, but for those of idle wardens.
    pub(crate) fn busy_wires(&self) -> usize {
        let world = self.world();
        let open = world.wardens.values().flat_map(|warden| &warden.wires);
        open.filter(|wire| wire.open).count() - world.idle.values().map(Vec::len).sum::<usize>()
    }

    /// How many wardens there have ever been.
    pub(crate) fn forked(&self) -> usize {
        self.world().wardens.len()
    }

    /// Wardens that live, but for idle ones.
    pub(crate) fn busy_wardens(&self) -> Vec<String> {
        let mut world = self.world();
        let names: Vec<String> = world.wardens.keys().cloned().collect();
        for name in &names {
            world.pass(name);
        }
        let is_idle = |name: &String| {
            let mut idle = world.idle.values().flatten();
            idle.any(|warden| warden.name == *name)
        };
        let is_alive = |name: &String| world.wardens.get(name).is_some_and(|it| it.alive);
        names.iter().filter(|name| is_alive(name) && !is_idle(name)).cloned().collect()
    }
}

impl World {
    /// Says something about the run of a warden, or about the warden.
    fn say(&mut self, warden: &str, wire: usize, message: FromWarden) {
        let run = self.wardens.get(warden).and_then(|it| it.run.as_ref());
        let task = run.map(|run| run.task.clone()).unwrap_or_default();
        self.say_of(&task, warden, wire, message);
    }

    /// Says something about the run of a task.
    fn say_of(&mut self, task: &str, warden: &str, wire: usize, message: FromWarden) {
        let frame = match message {
            FromWarden::Hello { .. } => WardenFrame::about_warden(message),
            message => WardenFrame::about_run(task, message),
        };
        let delay = Duration::from_millis(self.dice.below(self.script.slowest_ms));
        let Some(outbox) = self.wardens.get_mut(warden).and_then(|it| it.wires.get_mut(wire))
        else {
            return;
        };
        if !outbox.open {
            return;
        }
        // In order: none before the one that was said before it.
        let before = outbox.messages.back().map(|(due, _)| *due);
        let due = (Instant::now() + delay).max(before.unwrap_or_else(Instant::now));
        outbox.messages.push_back((due, frame));
        if let Some(waker) = outbox.waker.take() {
            waker.wake();
        }
    }

    /// Lets time pass for a warden: its command ends, or it is killed.
    fn pass(&mut self, name: &str) {
        let now = Instant::now();
        let Some(warden) = self.wardens.get_mut(name) else { return };
        let Some(run) = warden.run.as_mut().filter(|_| warden.alive) else { return };
        let killed = run.killed_at.is_some_and(|at| at <= now);
        if run.ended.is_none()
            && run.ends_at <= now
            && !(killed && run.killed_at <= Some(run.ends_at))
        {
            let record = run.record();
            if run.spilled {
                let stored = self.folders.entry(run.task.clone()).or_default();
                stored.1 = Some(record.clone());
            }
            let truth = self.truths.entry(run.task.clone()).or_default();
            truth.code = Some(run.code);
            truth.stopped = run.stopped;
            truth.stored = run.spilled;
            run.ended = Some(record);
        }
        if killed {
            self.truths.entry(run.task.clone()).or_default().killed = true;
            self.kill(name);
            return;
        }
        self.tell_end(name);
        self.retire(name);
    }

    /// A warden whose command has ended and that has no owner stores what it has and ends, unless
    /// something was left below it: then some time later.
    fn retire(&mut self, name: &str) {
        let later = Instant::now() + Duration::from_millis(self.script.longest_ms);
        let Some(warden) = self.wardens.get_mut(name) else { return };
        if warden.owner.and_then(|owner| warden.wires.get(owner)).is_some_and(|wire| wire.open) {
            return;
        }
        let Some(run) = warden.run.as_mut().filter(|run| run.ended.is_some()) else { return };
        run.spilled = true;
        let small = SmallOutput { stdout: run.printed.clone(), ..SmallOutput::default() };
        self.truths.entry(run.task.clone()).or_default().stored = true;
        self.folders.insert(run.task.clone(), (small, run.ended.clone()));
        if run.leaves {
            run.killed_at.get_or_insert(later);
        } else {
            self.kill(name);
        }
    }

    fn tell_end(&mut self, name: &str) {
        let Some(warden) = self.wardens.get(name) else { return };
        let Some(run) = &warden.run else { return };
        let Some(record) = run.ended.clone() else { return };
        let kept = if run.spilled {
            KeptOutput::Folder
        } else {
            let (stderr, timeline) = (Vec::new(), Vec::new());
            KeptOutput::Memory { stdout: run.printed.clone(), stderr, timeline }
        };
        let (reusable, stopped) = (!run.leaves, run.stopped);
        let untold = |(_, outbox): &(usize, &Outbox)| outbox.open && !outbox.told;
        let wires: Vec<usize> =
            warden.wires.iter().enumerate().filter(untold).map(|(wire, _)| wire).collect();
        for wire in wires {
            if let Some(outbox) = self.wardens.get_mut(name).and_then(|it| it.wires.get_mut(wire)) {
                outbox.told = true;
            }
            let ended = RunEnd {
                record: record.clone(),
                kept: kept.clone(),
                reusable,
                denials: Vec::new(),
                refused: Vec::new(),
            };
            self.say(name, wire, FromWarden::Ended(Box::new(ended)));
            if stopped {
                self.say(name, wire, FromWarden::Stopped { survivors: Vec::new() });
            }
        }
    }

    fn kill(&mut self, name: &str) {
        let Some(warden) = self.wardens.get_mut(name) else { return };
        warden.alive = false;
        for wire in &mut warden.wires {
            if let Some(waker) = wire.waker.take() {
                waker.wake();
            }
        }
    }

    fn start(&mut self, name: &str, spec: &Spec) {
        let truth = self.truths.entry(spec.task.clone()).or_default();
        truth.starts += 1;
        if self.dice.percent(self.script.fails) {
            truth.failed = true;
            let errno = rustix::io::Errno::NOENT.raw_os_error();
            let failure = StartFailure { stage: StartStage::Execute, errno };
            self.say_of(&spec.task, name, 0, FromWarden::StartFailed(failure));
            return;
        }
        let ends_at = Instant::now() + self.dice.ms(self.script.longest_ms);
        let killed = self.dice.percent(self.script.killed);
        let killed_at = killed.then(|| Instant::now() + self.dice.ms(self.script.longest_ms));
        let code = i32::try_from(self.dice.below(3)).unwrap();
        let leaves = self.dice.percent(self.script.leaves);
        let Some(warden) = self.wardens.get_mut(name) else { return };
        for wire in &mut warden.wires {
            wire.told = false;
        }
        warden.run = Some(Running {
            task: spec.task.clone(),
            ends_at,
            killed_at,
            code,
            stopped: false,
            // So that nobody can mistake it for another's.
            printed: spec.task.clone().into_bytes(),
            spilled: false,
            leaves,
            ended: None,
        });
        // Who came before the task did is told that it is here now.
        for wire in 1..warden.wires.len() {
            let task = Some(spec.task.clone());
            self.say(name, wire, FromWarden::Hello { version: version(), pid: 1, task });
        }
    }

    fn obey(&mut self, name: &str, wire: usize, task: &str, order: &Order) {
        self.pass(name);
        let held = self.run_of(name).is_some_and(|run| run.task == task);
        if !held {
            return self.say_of(task, name, wire, FromWarden::NotHeld);
        }
        match order {
            Order::Stop { because, .. } => self.stop(name, wire, *because),
            Order::Spill => self.spill(name, wire),
            Order::Report => self.say(name, wire, FromWarden::Report(Box::new(report()))),
            Order::Measure => {
                self.say(name, wire, FromWarden::Measured(LiveResources::default()));
            }
            Order::Follow { stdout_bytes, .. } => self.follow(name, wire, *stdout_bytes),
            Order::Committed => self.forget(name),
            Order::Adopt => self.adopt(name, wire),
            Order::Signal { .. }
            | Order::Close(_)
            | Order::Input(_)
            | Order::WithdrawInput
            | Order::EndInput
            | Order::Resize(_)
            | Order::Watch(_)
            | Order::AnswerProgram { .. }
            | Order::AnswerName { .. } => {}
        }
        self.pass(name);
    }

    fn run_of(&mut self, name: &str) -> Option<&mut Running> {
        self.wardens.get_mut(name)?.run.as_mut()
    }

    fn stop(&mut self, name: &str, wire: usize, because: EndCause) {
        let soon = Instant::now() + Duration::from_millis(5);
        let Some(run) = self.run_of(name) else { return };
        if run.ended.is_none() {
            run.stopped = because == EndCause::Stopped;
            run.code = 143;
            // As long as the tree needs, never the whole grace.
            run.ends_at = run.ends_at.min(soon);
            return;
        }
        if run.leaves {
            // What was left is ended now, and the warden with it.
            run.killed_at = Some(soon);
        }
        self.say(name, wire, FromWarden::Stopped { survivors: Vec::new() });
    }

    fn spill(&mut self, name: &str, wire: usize) {
        let Some(run) = self.run_of(name) else { return };
        run.spilled = true;
        let (task, record) = (run.task.clone(), run.ended.clone());
        let small = SmallOutput { stdout: run.printed.clone(), ..SmallOutput::default() };
        self.truths.entry(task.clone()).or_default().stored = record.is_some();
        self.folders.insert(task, (small, record));
        self.say(name, wire, FromWarden::Spilled(true));
    }

    fn follow(&mut self, name: &str, wire: usize, from: u64) {
        let Some(run) = self.run_of(name) else { return };
        let from = usize::try_from(from).unwrap();
        let Some(more) = run.printed.get(from..).filter(|more| !more.is_empty()) else { return };
        let growth = if run.spilled {
            NewOutput::InFolder { stdout_bytes: run.printed.len() as u64, stderr_bytes: 0 }
        } else {
            NewOutput::Bytes { stdout: more.to_vec(), stderr: Vec::new() }
        };
        self.say(name, wire, FromWarden::Grew(growth));
    }

    fn forget(&mut self, name: &str) {
        let later = Instant::now() + self.dice.ms(self.script.longest_ms);
        let Some(warden) = self.wardens.get_mut(name) else { return };
        match &mut warden.run {
            Some(run) if run.ended.is_none() => {}
            // What was left ends some time, and the warden with it.
            Some(run) if run.leaves => run.killed_at = Some(later),
            run => *run = None,
        }
    }

    fn adopt(&mut self, name: &str, wire: usize) {
        let Some(warden) = self.wardens.get_mut(name) else { return };
        let owner = warden.owner.and_then(|owner| warden.wires.get(owner));
        let free = owner.is_none_or(|outbox| !outbox.open);
        if free {
            warden.owner = Some(wire);
        }
        self.say(name, wire, FromWarden::Adopted(free));
    }
}

fn report() -> Report {
    Report {
        pid: 1,
        duration_ms: 1,
        takes_input: false,
        terminal: None,
        waiting_for_input: None,
        background_pids: Vec::new(),
        limits: LimitsInForce::default(),
    }
}

impl Running {
    fn record(&self) -> ExitRecord {
        let bytes = self.printed.len() as u64;
        ExitRecord {
            task: self.task.clone(),
            pid: 1,
            end: CommandEnd::Exited(self.code),
            ended_by: self.stopped.then_some(EndCause::Stopped),
            ended_at_ms: 0,
            duration_ms: 1,
            stdout: StreamTotal { bytes, lines: 0, dropped_bytes: 0 },
            stderr: StreamTotal::default(),
            background_pids: if self.leaves { vec![2] } else { Vec::new() },
            leaked_handles: false,
            process_limit_hit: false,
            oom_killed: false,
            low_disk: false,
            store_errno: None,
            limits: LimitsInForce::default(),
            used: None,
            connections: Vec::new(),
        }
    }
}
