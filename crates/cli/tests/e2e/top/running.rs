//! A thousand tasks that run at once, in `legwork top`: measured where that is asked for, since it
//! takes minutes (`just measure-top`).

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;

use super::tmux::Tmux;
use crate::{common::Scratch, harness::watch::Times, mcp::Wire};

const TASKS: usize = 1000;

/// Tasks that print a line every second.
const PRINTING: usize = 50;

/// Processor time that a process has used, in milliseconds.
fn cpu_ms(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|it| it.parse::<u64>().unwrap());
    ticks.sum::<u64>() * 10
}

/// Presses two keys in turn, and measures how long each takes to be seen.
fn pressed(tmux: &Tmux, what: &str, keys: [(&str, &str); 2]) {
    let mut took = Vec::new();
    let (began, used) = (Instant::now(), cpu_ms(tmux.pid()));
    for (key, shown) in keys.into_iter().cycle().take(40) {
        let began = Instant::now();
        tmux.press(&[key]);
        tmux.shows(shown);
        took.push(began.elapsed());
    }
    took.sort();
    println!(
        "{what}: from a key to the screen, with what tmux takes: median {:?}, longest {:?}; \
         processor {} ms of {} ms",
        took[20],
        took[39],
        cpu_ms(tmux.pid()) - used,
        began.elapsed().as_millis()
    );
}

#[test]
fn a_thousand_running_tasks_are_measured() {
    if std::env::var_os("LEGWORK_MEASURE_TOP").is_none() {
        return;
    }
    let scratch = Scratch::with(Times::at_most(Duration::from_secs(1200)));
    let mut wire = Wire::initialized(&scratch);
    let (began, mut ids) = (Instant::now(), Vec::new());
    for number in 0..TASKS {
        let cmd = if number < PRINTING {
            format!("while sleep 1; do echo line of {number}; done")
        } else {
            format!("exec sleep 10000 # number {number}")
        };
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
        let told = wire.tool("ExecCommand", &input);
        let id = told.lines().find_map(|line| line.strip_prefix("Task: "));
        ids.push(id.unwrap_or_else(|| panic!("{told}")).to_owned());
    }
    println!("{TASKS} tasks started in {:?}", began.elapsed());
    let began = Instant::now();
    let Some(tmux) = Tmux::top(&scratch, (120, 40), &[]) else { return };
    tmux.shows("1000 running, 1,000 tasks");
    println!("first screen after {:?}", began.elapsed());
    pressed(&tmux, "the keys are shown and hidden", [("?", "select a task"), ("z", "/ filter")]);
    pressed(&tmux, "first and last", [("G", "line of 0"), ("g", "number 999")]);
    let (used, began) = (cpu_ms(tmux.pid()), Instant::now());
    std::thread::sleep(Duration::from_secs(10));
    println!("looking on for {:?}: processor {} ms", began.elapsed(), cpu_ms(tmux.pid()) - used);
    let status = fs::read_to_string(format!("/proc/{}/status", tmux.pid())).unwrap();
    println!("memory: {}", status.lines().find(|line| line.starts_with("VmHWM:")).unwrap());
    // All of them end at once.
    let used = cpu_ms(tmux.pid());
    let stopped = scratch.legwork("stop").args(&ids).output().unwrap();
    tmux.shows("0 running, 1,000 tasks");
    println!("1,000 ends ({}): processor {} ms", stopped.status, cpu_ms(tmux.pid()) - used);
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
}
