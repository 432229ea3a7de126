//! The processes of a round, known by a variable in their environment, and the killing of them.

use std::{collections::HashSet, fs, os::fd::OwnedFd, process::Command, time::Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{Dice, SETTLED};
use crate::common::{Scratch, is_alive};

/// The variable by which a process is known.
const MARK: &str = "LEGWORK_TORTURED";

/// Everything that was started for one state folder, directly or not.
pub struct Family {
    mark: String,
}

/// A process that was there a moment ago.
#[derive(Debug, Clone)]
pub struct Member {
    pub pid: u32,
    pub name: String,
}

/// What was killed.
#[derive(Debug, Default)]
pub struct Killed {
    pub pids: HashSet<u32>,
    pub names: Vec<String>,
}

impl Killed {
    pub fn note(&mut self, member: &Member) {
        self.pids.insert(member.pid);
        self.names.push(member.name.clone());
    }
}

impl Family {
    pub fn new(scratch: &Scratch) -> Self {
        Self { mark: format!("{MARK}={}", scratch.state.path().display()) }
    }

    /// Makes a process, and whatever it starts, one of the family.
    pub fn mark<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let (name, value) = self.mark.split_once('=').unwrap();
        command.env(name, value)
    }

    fn knows(&self, pid: u32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|pair| pair == self.mark.as_bytes())
    }

    /// All that live.
    pub fn members(&self) -> Vec<Member> {
        let pids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| self.knows(*pid) && is_alive(*pid))
            .filter_map(|pid| {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
                Some(Member { pid, name: name.trim().to_owned() })
            })
            .collect()
    }

    /// Those that are no processes of ours.
    pub fn commands(&self) -> Vec<Member> {
        let all = self.members().into_iter();
        all.filter(|member| !member.name.starts_with("legwork")).collect()
    }

    /// Kills a member, if it still is one.
    pub fn kill(&self, pid: u32) -> bool {
        let opened: Option<OwnedFd> = Pid::from_raw(pid.cast_signed())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Looked at after it was opened: the number may have been somebody else's before.
        let Some(pidfd) = opened.filter(|_| self.knows(pid)) else { return false };
        pidfd_send_signal(pidfd, Signal::KILL).is_ok()
    }

    /// Kills one of a kind that is picked first: there are many more of some kinds than of others.
    pub fn kill_one(&self, dice: &mut Dice, killed: &mut Killed) {
        let members = self.members();
        let mut kinds: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let Some(kind) = dice.pick(&kinds) else { return };
        let of_kind: Vec<&Member> = members.iter().filter(|member| member.name == *kind).collect();
        if let Some(victim) = dice.pick(&of_kind)
            && self.kill(victim.pid)
        {
            killed.note(victim);
        }
    }

    /// Waits until no command is left; names those that stay.
    pub fn wait_for_commands(&self) -> Vec<String> {
        Self::wait(|| self.commands())
    }

    /// Waits until nothing is left; names what stays.
    pub fn wait_for_all(&self) -> Vec<String> {
        Self::wait(|| self.members())
    }

    fn wait(look: impl Fn() -> Vec<Member>) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let left = look();
            if left.is_empty() || begin.elapsed() > SETTLED / 4 {
                return left
                    .iter()
                    .map(|member| format!("{} {}", member.pid, member.name))
                    .collect();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Ends what a failed round left.
    pub fn end(&self) {
        for member in self.members() {
            self.kill(member.pid);
        }
    }
}
