//! The processes below the warden: finding them all, and signalling none but them.
//!
//! Identity is a pidfd that was opened first and checked afterwards: a process whose parent is in
//! the tree *after* its pidfd was opened is one of ours, whoever had its number before.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::{self, Read},
    os::fd::{AsRawFd, OwnedFd},
    ptr,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

/// Most passes of a freeze; each pass can only find what was forked during the one before.
const FREEZE_PASSES_MAX: usize = 64;

/// Most passes of a search that stops nobody: a tree that forks as fast as it can is never known
/// whole.
const SEARCH_PASSES_MAX: usize = 4;

/// One process below the warden.
#[derive(Debug)]
struct Member {
    pid: Pid,
    pidfd: OwnedFd,
    /// Its parent when it was found.
    parent: u32,
}

/// Whether nothing is below this process, or only what `ours` says and nothing below that.
pub(super) fn is_empty_but(ours: impl Fn(u32) -> bool) -> bool {
    let root = std::process::id();
    // Ours have one thread each, as this process has. Whoever loses its parent becomes a child of
    // one of them before that parent is gone, so two looks are enough to see that nobody is left.
    let is_alone = |pid| children_of_thread(pid).is_some_and(|below| below.is_empty());
    let all_ours = children_of_thread(root)
        .is_some_and(|children| children.into_iter().all(|pid| ours(pid) && is_alone(pid)));
    if all_ours {
        return true;
    }
    for _ in 0..SEARCH_PASSES_MAX {
        let mut walk = Walk::default();
        walk.pass(&mut |_| {});
        walk.members.retain(|member| !ours(number(member.pid)));
        if walk.members.is_empty() && walk.lost.is_empty() {
            return true;
        }
        // A dead child of our own has yet to be collected, which is when this is asked again.
        if walk.members.iter().any(|it| it.parent == root || !is_zombie(number(it.pid))) {
            return false;
        }
        // One has just died below an init. Its children have become the init's, which was perhaps
        // read before.
        std::thread::yield_now();
    }
    false
}

/// Pids of all live descendants of this process, in ascending order.
pub(super) fn descendants() -> Vec<u32> {
    let mut pids: Vec<u32> = Walk::whole()
        .members
        .iter()
        .map(|member| number(member.pid))
        .filter(|pid| !is_zombie(*pid))
        .collect();
    pids.sort_unstable();
    pids
}

/// Sends these signals, one after the other, to every descendant, parents first; returns who was
/// told.
///
/// All are found before the first is told: the children of one that ends get another parent, and a
/// search that goes on meanwhile would miss them.
pub(super) fn signal_all(signals: &[Signal]) -> Told {
    let members = Walk::whole().members;
    send(signals, &members);
    let by_pid = members.into_iter().map(|member| (number(member.pid), member.pidfd));
    Told { living: by_pid.collect() }
}

/// Whoever has been sent the signal of a stop, for as long as it lives.
///
/// The end of each is an event: what one had forked before the signal reached it is an orphan from
/// then on, and the kernel tells of that end alone. For a grandchild, and for all that an init
/// collects, the warden would otherwise learn of nothing.
#[derive(Debug, Default)]
pub(super) struct Told {
    living: HashMap<u32, OwnedFd>,
}

impl Told {
    /// Each becomes readable when its process has ended, and its children have another parent.
    pub(super) fn ends(&self) -> impl Iterator<Item = &OwnedFd> {
        self.living.values()
    }

    /// Forgets who has ended. Sends these signals to whoever has not been told and has lost its
    /// parent, and to everything below that: it was forked while the others were told. What a
    /// living parent has started since is that parent's to end.
    pub(super) fn signal_orphans(&mut self, signals: &[Signal], init: Option<Pid>) {
        self.living.retain(|_, pidfd| !has_ended(pidfd));
        let mut parents = HashSet::from([std::process::id()]);
        parents.extend(init.map(number));
        let mut orphans = Walk::whole().members;
        // Parents come first.
        orphans.retain(|member| {
            let pid = number(member.pid);
            let is_orphan = parents.contains(&member.parent)
                && !self.living.contains_key(&pid)
                && !has_ended(&member.pidfd);
            if is_orphan {
                parents.insert(pid);
            }
            is_orphan
        });
        send(signals, &orphans);
        self.living.extend(orphans.into_iter().map(|one| (number(one.pid), one.pidfd)));
    }
}

/// Whether the process has ended, collected or not.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut interest = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut interest, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn send(signals: &[Signal], members: &[Member]) {
    for signal in signals {
        for member in members {
            let _ = pidfd_send_signal(&member.pidfd, *signal);
        }
    }
}

/// What is known of a process of the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pub pid: u32,
    pub group: u32,
    state: char,
}

impl Process {
    /// Whether it was stopped, by a signal or by a debugger.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// All live descendants.
pub(super) fn processes() -> Vec<Process> {
    let mut walk = Walk::default();
    walk.pass(&mut |_| {});
    let known = walk.members.iter().filter_map(|member| {
        let pid = number(member.pid);
        let stat = stat(pid).ok().flatten()?;
        let Stat { state, group, .. } = stat;
        (!stat.is_dead()).then_some(Process { pid, group, state })
    });
    known.collect()
}

/// Time on processors of all descendants, with what each has collected of its own children.
pub(super) fn cpu_time() -> Duration {
    let Living { user, system, .. } = resources(|_| false);
    user + system
}

/// What the live descendants use.
#[derive(Debug, Default)]
pub(super) struct Living {
    /// Time on processors, with what each has collected of its own children.
    pub user: Duration,
    pub system: Duration,
    /// Resident memory; what they share is counted for each.
    pub memory_bytes: u64,
    pub processes: u64,
}

/// What all descendants use but those of ours.
pub(super) fn resources(ours: impl Fn(u32) -> bool) -> Living {
    let mut walk = Walk::default();
    walk.pass(&mut |_| {});
    let mut living = Living::default();
    let pids = walk.members.iter().map(|member| number(member.pid)).filter(|pid| !ours(*pid));
    for stat in pids.filter_map(|pid| stat(pid).ok().flatten()) {
        living.user += time_of(stat.user_ticks);
        living.system += time_of(stat.system_ticks);
        living.memory_bytes += stat.resident_pages * rustix::param::page_size() as u64;
        living.processes += u64::from(!stat.is_dead());
    }
    living
}

fn time_of(ticks: u64) -> Duration {
    Duration::from_micros(ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Whether a descendant holds one of these sockets.
pub(super) fn holds_socket(inodes: &[u64]) -> bool {
    let links: HashSet<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    descendants().into_iter().any(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        descriptors
            .filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok())
            .any(|target| target.to_str().is_some_and(|target| links.contains(target)))
    })
}

/// Sends these signals to every descendant in this session.
pub(super) fn signal_session(leader: Pid, signals: &[Signal]) {
    let mut members = Walk::whole().members;
    members.retain(|member| {
        let session = stat(number(member.pid)).ok().flatten().map(|stat| stat.session);
        session == Some(number(leader))
    });
    send(signals, &members);
}

/// Stops every descendant before it looks at its children, until no new one turns up; then kills
/// all.
pub(super) fn freeze_and_kill() {
    freeze_and_kill_but(&HashSet::new());
}

/// The same, but spares these processes and everything below them.
pub(super) fn freeze_and_kill_but(spared: &HashSet<u32>) {
    let mut walk = Walk { spared: spared.clone(), ..Walk::default() };
    walk.passes(FREEZE_PASSES_MAX, &mut |member| {
        let _ = pidfd_send_signal(&member.pidfd, Signal::STOP);
    });
    send(&[Signal::KILL], &walk.members);
}

/// Everything found so far, over several passes.
#[derive(Debug, Default)]
struct Walk {
    members: Vec<Member>,
    /// Where in `members` a pid stands.
    known: HashMap<u32, usize>,
    /// Not visited.
    spared: HashSet<u32>,
    /// Those that were read as children and were gone before they could be opened.
    lost: HashSet<u32>,
}

impl Walk {
    /// Everything below the warden, as far as that can be known.
    fn whole() -> Self {
        let mut walk = Self::default();
        walk.passes(SEARCH_PASSES_MAX, &mut |_| {});
        walk
    }

    /// Visits the tree until nobody new turns up.
    fn passes(&mut self, passes_max: usize, meet: &mut dyn FnMut(&Member)) {
        for _ in 0..passes_max {
            let known = self.members.len() + self.lost.len();
            self.pass(meet);
            if self.members.len() + self.lost.len() == known {
                break;
            }
        }
    }

    /// Visits the tree once, from the warden down; `meet` sees each new member before its children
    /// are read.
    fn pass(&mut self, meet: &mut dyn FnMut(&Member)) {
        let root = std::process::id();
        let parents = if has_children_files(root) { None } else { Some(all_parents()) };
        let children = |pid: u32| match &parents {
            None => children_of(pid),
            Some(map) => map.get(&pid).cloned().unwrap_or_default(),
        };
        let mut waiting = vec![root];
        let mut seen = HashSet::from([root]);
        while let Some(parent) = waiting.pop() {
            for pid in children(parent) {
                if self.spared.contains(&pid) || !seen.insert(pid) {
                    continue;
                }
                if !self.known.contains_key(&pid) {
                    let Some(member) = self.open_member(pid, parent, root) else {
                        self.lost.insert(pid);
                        continue;
                    };
                    meet(&member);
                    self.known.insert(pid, self.members.len());
                    self.members.push(member);
                }
                waiting.push(pid);
            }
        }
    }

    /// Opens a process that was read as a child of `parent`, and checks that it is one of the tree.
    fn open_member(&self, pid: u32, parent: u32, root: u32) -> Option<Member> {
        let handle = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let pidfd = pidfd_open(handle, PidfdFlags::empty()).ok()?;
        let now = parent_of(pid)?;
        // Its parent may have died in between: then it is a child of the subreaper, that is, of us.
        // Otherwise the parent's number must still be that of the member that we know.
        let ours = now == root
            || (now == parent
                && self
                    .known
                    .get(&parent)
                    .and_then(|place| self.members.get(*place))
                    .is_some_and(Member::holds_its_number));
        ours.then_some(Member { pid: handle, pidfd, parent: now })
    }
}

impl Member {
    /// Whether the process has not been collected yet, so that its number is nobody else's.
    fn holds_its_number(&self) -> bool {
        // SAFETY: signal 0 only asks; the descriptor is a live pidfd and no pointer is passed.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_raw_fd(),
                0,
                ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        answer == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    }
}

/// Whether `/proc` numbers processes as the system calls do.
///
/// With the `/proc` of another pid namespace the tree cannot be known, and strangers would be
/// signalled.
pub(super) fn is_knowable() -> bool {
    let own = fs::read_link("/proc/self").ok();
    own.is_some_and(|own| own.to_str() == Some(&std::process::id().to_string()))
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_pid().cast_unsigned()
}

fn has_children_files(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/task/{pid}/children")).unwrap_or(false)
}

/// Children of a process: each of its threads has its own.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .filter_map(Result::ok)
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// The children of a process that has one thread; none if they cannot be read at once.
fn children_of_thread(pid: u32) -> Option<Vec<u32>> {
    let mut buffer = [0; 512];
    let mut file = File::open(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let bytes = file.read(&mut buffer).ok().filter(|bytes| *bytes < buffer.len())?;
    let text = str::from_utf8(buffer.get(..bytes)?).ok()?;
    text.split_ascii_whitespace().map(|pid| pid.parse().ok()).collect()
}

/// For kernels without the `children` files: every parent with its children.
fn all_parents() -> HashMap<u32, Vec<u32>> {
    let mut map: HashMap<u32, Vec<u32>> = HashMap::new();
    let Ok(entries) = fs::read_dir("/proc") else {
        return map;
    };
    for entry in entries.filter_map(Result::ok) {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(pid) = pid
            && let Some(parent) = parent_of(pid)
        {
            map.entry(parent).or_default().push(pid);
        }
    }
    map
}

/// The beginning of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy)]
struct Stat {
    state: char,
    parent: u32,
    group: u32,
    session: u32,
    /// Time on processors, its own and that of the children it has collected.
    user_ticks: u64,
    system_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Reads the fields after the command's name, which may hold anything.
fn stat(pid: u32) -> io::Result<Option<Stat>> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    let text = String::from_utf8_lossy(&text);
    let Some((_, fields)) = text.rsplit_once(") ") else {
        return Ok(None);
    };
    let mut fields = fields.split(' ');
    let state = fields.next().and_then(|field| field.chars().next());
    let mut number = || fields.next().and_then(|field| field.parse().ok());
    let (parent, group, session) = (number(), number(), number());
    // From the 14th field on: four of time, six others, the memory.
    let mut fields = fields.skip(7).map(|field| field.parse().unwrap_or(0));
    let mut number = || fields.next().unwrap_or(0);
    let [user, system, user_of_children, system_of_children] = [(); 4].map(|()| number());
    let resident_pages = fields.nth(6).unwrap_or(0);
    Ok(state.zip(parent).zip(group.zip(session)).map(|((state, parent), (group, session))| Stat {
        state,
        parent,
        group,
        session,
        user_ticks: user + user_of_children,
        system_ticks: system + system_of_children,
        resident_pages,
    }))
}

fn parent_of(pid: u32) -> Option<u32> {
    stat(pid).ok().flatten().map(|stat| stat.parent)
}

fn is_zombie(pid: u32) -> bool {
    stat(pid).ok().flatten().is_some_and(|stat| stat.is_dead())
}
