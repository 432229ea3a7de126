//! A cluster of a test's own: a controller and two nodes on this machine, with keys, ports and
//! folders of their own.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    common::{Scratch, children, eventually, has_program, is_alive, program, signal, text},
    places::There,
};

/// One at a time: jobs of two clusters would share their control groups.
static ALONE: Mutex<()> = Mutex::new(());

/// The nodes.
pub const NODES: [&str; 2] = ["n1", "n2"];

/// A cluster.
pub struct Cluster {
    munged: Child,
    controller: Option<Child>,
    nodes: [Option<Child>; 2],
    folder: TempDir,
    /// Whether the nodes see the folder of posts of the machine that submits.
    is_shared: bool,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts one; none where that cannot be done, which is said.
    pub fn start() -> Option<Self> {
        Self::with(true)
    }

    /// The same with nodes that see another folder of posts.
    pub fn unshared() -> Option<Self> {
        Self::with(false)
    }

    fn with(is_shared: bool) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skips::skip("only root can start a cluster");
            return None;
        }
        let all = ["slurmctld", "slurmd", "munged"];
        let is_here = has_program("sh", &["-c", "command -v sbatch squeue scancel srun scontrol"]);
        if !is_here || !all.iter().all(|name| has_program(name, &["-V"])) {
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = TempDir::with_prefix("lws").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let munged = munged(folder.path());
        fs::write(folder.path().join("slurm.conf"), configuration(folder.path())).unwrap();
        fs::write(folder.path().join("cgroup.conf"), control_groups()).unwrap();
        let mut cluster = Self {
            munged,
            controller: None,
            nodes: [None, None],
            folder,
            is_shared,
            _alone: alone,
        };
        cluster.start_controller();
        for node in 0..NODES.len() {
            cluster.start_node(node);
        }
        let idle = || {
            let said = cluster.ask("sinfo", &["--noheader", "--Node", "--format=%T"]);
            (text(&said.stdout) == "idle\nidle\n").then_some(())
        };
        eventually("both nodes are idle", idle);
        Some(cluster)
    }

    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// What tells Slurm's programs of this cluster.
    pub fn variables(&self) -> [(&'static str, String); 1] {
        [("SLURM_CONF", self.file("slurm.conf"))]
    }

    /// Asks one of Slurm's programs.
    pub fn ask(&self, program: &str, words: &[&str]) -> Output {
        Command::new(program).args(words).envs(self.variables()).output().unwrap()
    }

    /// The numbers of the jobs that run or wait.
    pub fn jobs(&self) -> Vec<String> {
        let said = self.ask("squeue", &["--noheader", "--format=%i"]);
        text(&said.stdout).lines().map(str::to_owned).collect()
    }

    fn daemon(&self, name: &str, words: &[&str]) -> Child {
        let mut command = Command::new(name);
        command.args(words).envs(self.variables());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    pub fn start_controller(&mut self) {
        self.controller = Some(self.daemon("slurmctld", &["-D"]));
        eventually("the controller answers", || {
            self.ask("scontrol", &["ping"]).status.success().then_some(())
        });
    }

    /// Kills the controller, as a power cut would.
    pub fn kill_controller(&mut self) {
        let mut controller = self.controller.take().unwrap();
        controller.kill().unwrap();
        controller.wait().unwrap();
    }

    /// Ends the controller in its own time: it saves what it knows.
    pub fn stop_controller(&mut self) {
        let mut controller = self.controller.take().unwrap();
        signal(controller.id(), Signal::TERM);
        controller.wait().unwrap();
    }

    pub fn start_node(&mut self, node: usize) {
        let name = NODES[node];
        self.nodes[node] = Some(if self.is_shared {
            self.daemon("slurmd", &["-D", "-N", name])
        } else {
            // Another folder stands where the one of this machine is.
            let (here, there) = (self.file("posts"), self.file(&format!("posts-{name}")));
            for folder in [&here, &there] {
                fs::create_dir_all(folder).unwrap();
            }
            let script = format!("mount --bind {there} {here} && exec slurmd -D -N {name}");
            self.daemon("unshare", &["--mount", "sh", "-c", &script])
        });
    }

    /// Kills the daemon of a node; its jobs go on.
    pub fn kill_node(&mut self, node: usize) {
        let mut daemon = self.nodes[node].take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// The processes that hold the steps of jobs on a node.
    pub fn step_daemons(&self, node: usize) -> Vec<u32> {
        // They write to the log of their node.
        let log = self.file(&format!("node.log-{}", NODES[node]));
        let of_node = |pid: &u32| {
            let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
            let mut targets = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
            targets.any(|target| target == Path::new(&log))
        };
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name.trim() == "slurmstepd").then_some(pid)
        });
        all.filter(of_node).collect()
    }

    /// Loses a node: its daemon, and those of its steps.
    pub fn lose_node(&mut self, node: usize) {
        let steps = self.step_daemons(node);
        self.kill_node(node);
        for pid in steps.into_iter().filter(|pid| is_alive(*pid)) {
            signal(pid, Signal::KILL);
        }
    }

    /// Does what an operator does: a controller that was killed starts some jobs a second time,
    /// and takes nodes that refuse that out of service (`Duplicate jobid`).
    pub fn resume_nodes(&self) {
        let said = self.ask("sinfo", &["--noheader", "--Node", "--format=%N %T"]);
        for line in text(&said.stdout).lines() {
            let Some((node, state)) = line.split_once(' ') else { continue };
            let is_lost =
                NODES.iter().position(|it| *it == node).is_some_and(|at| self.nodes[at].is_none());
            if state.starts_with("drain") && !is_lost {
                let update = ["update", &format!("NodeName={node}"), "State=RESUME"];
                self.ask("scontrol", &update);
            }
        }
    }

    /// The folder of posts.
    pub fn posts(&self) -> String {
        self.file("posts")
    }

    /// The section of a place with arguments for `sbatch`.
    pub fn place(&self, options: &[&str]) -> String {
        format!(
            "[place.there]\nkind = \"slurm\"\nprogram = {:?}\nstate = {:?}\noptions = {options:?}\n",
            program(),
            self.posts(),
        )
    }
}

impl There for Cluster {
    fn configuration(&self, _scratch: &Scratch) -> String {
        self.place(&[])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.controller.is_some() {
            let _ = self.ask("scancel", &["--quiet", "--me", "--signal=KILL", "--full"]);
            let _ = self.ask("scancel", &["--quiet", "--me"]);
        }
        let steps: Vec<u32> = (0..NODES.len()).flat_map(|node| self.step_daemons(node)).collect();
        for daemon in self.nodes.iter_mut().chain([&mut self.controller]).flatten() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for pid in steps.into_iter().filter(|pid| is_alive(*pid)) {
            let below = children(pid);
            for pid in below.into_iter().chain([pid]).filter(|pid| is_alive(*pid)) {
                signal(pid, Signal::KILL);
            }
        }
        let _ = self.munged.kill();
        let _ = self.munged.wait();
    }
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts what signs messages; it insists on a user of its own.
fn munged(folder: &Path) -> Child {
    let own = folder.join("munge");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(own.join("key"), [7; 128]).unwrap();
    fs::set_permissions(own.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let id = |flag: &str| -> u32 {
        let said = Command::new("id").args([flag, "munge"]).output().unwrap();
        text(&said.stdout).trim().parse().unwrap()
    };
    let (user, group) = (id("-u"), id("-g"));
    for path in [own.clone(), own.join("key")] {
        chown(path, Some(user), Some(group)).unwrap();
    }
    let option = |name: &str, file: &str| format!("--{name}={}", own.join(file).display());
    let daemon = Command::new("setpriv")
        .args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".into()])
        .args(["munged", "--foreground", "--num-threads=2"])
        .args([option("key-file", "key"), option("socket", "socket"), option("pid-file", "pid")])
        .args([option("log-file", "log"), option("seed-file", "seed")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("munged listens", || own.join("socket").exists().then_some(()));
    daemon
}

fn configuration(folder: &Path) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim().split('.').next().unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    fs::create_dir(at("state")).unwrap();
    // Numbers that no other cluster has: control groups are named after them.
    let first_job = 1000 * (u32::from(port()) + 1);
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
         SlurmctldPort={}\nAuthType=auth/munge\nAuthInfo=socket={}\nCredType=cred/munge\n\
         StateSaveLocation={}\nSlurmdSpoolDir={}-%n\nSlurmctldPidFile={}\nSlurmdPidFile={}-%n\n\
         SlurmctldLogFile={}\nSlurmdLogFile={}-%n\nProctrackType=proctrack/cgroup\n\
         TaskPlugin=task/cgroup\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core_Memory\nReturnToService=2\nDefMemPerCPU=240\n\
         SlurmdTimeout=15\nKillWait=5\n\
         JobRequeue=0\nMaxJobCount=20000\nMpiDefault=none\nFirstJobId={first_job}\n\
         SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1\n\
         SlurmdParameters=config_overrides\n",
        port(),
        at("munge/socket"),
        at("state"),
        at("spool"),
        at("controller.pid"),
        at("node.pid"),
        at("controller.log"),
        at("node.log"),
    );
    for node in NODES {
        text.push_str(&format!(
            "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=64 \
             RealMemory=16000\n",
            port()
        ));
    }
    text.push_str("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP LLN=YES\n");
    text
}

fn control_groups() -> String {
    let version = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { 2 } else { 1 };
    format!("CgroupPlugin=cgroup/v{version}\nCgroupAutomount=no\nConstrainRAMSpace=yes\n")
}
