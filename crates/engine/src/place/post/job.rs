//! The post of a job: started by a scheduler for one task. It has a warden start the command, lets
//! go of that, so that an engine can take it over, and stays for as long as the warden does: its
//! end is the end of the job.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use legwork_warden::protocol::{EndCause, FromWarden, Order, Spec, StartFailure, ToWarden};
use rustix::process::{Signal, getppid};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, timeout},
};

use super::{PostError, default_folder, kernel_text, place_for, stream::in_memory};
use crate::{
    id::TaskId,
    place::{
        Channel, Folder, Local, Look, Place, Sandbox, Warden,
        jobs::{
            folder::{Begun, JobFolder},
            order::{JobOrder, STDIN},
        },
    },
    threads::begin_in_thread,
};

/// How long a warden may take to say that it has started a command, or could not.
const STARTED: Duration = Duration::from_secs(30);

/// How often it is looked whether whoever started this post is still there, and whether what a task
/// has left was taken.
const LOOK: Duration = Duration::from_millis(500);

/// How long what a task has left is kept for an engine that cannot see this machine's files.
const KEPT: Duration = Duration::from_secs(600);

/// How long it is waited for that an engine hears why nothing was started.
const HEARD: Duration = Duration::from_secs(60);

/// How long a command may take to end whose scheduler is gone.
const GRACE_MS: u64 = 2_000;

/// Variables that a scheduler sets and that a command gets from its caller all the same.
const CALLERS: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "PWD"];

/// What the names of variables begin with that tell how `srun` has started this post: a command
/// that starts steps would take them for its user's wishes.
const OF_STEP: [&str; 3] = ["SLURM_CPU_BIND", "SLURM_DISTRIBUTION", "SLURM_MPI_TYPE"];

/// The option by which the post knows that it has the environment of its order.
pub(super) const IN_ENVIRONMENT: &str = "--in-environment";

/// Runs the command of a task, as an order says that a scheduler was given: at most once, whatever
/// the scheduler does. Returns when nothing of it is left.
pub async fn serve_job(
    task: &str,
    order: &Path,
    state: Option<PathBuf>,
    is_in_environment: bool,
) -> Result<(), PostError> {
    let order_file = order;
    let (order, text) = JobOrder::read(order)?;
    let id = TaskId::parse(task).filter(|id| id.as_str() == order.spec.task);
    let id = id.ok_or_else(|| io::Error::other("the order is for another task"))?;
    let state = state.map_or_else(default_folder, Ok).map_err(io::Error::other)?;
    if !is_in_environment {
        return Err(in_environment(&order, (&id, order_file, &text), &state).into());
    }
    let folder = JobFolder::new(&state, &id);
    let tells = order_file == Path::new(STDIN);
    let job = Job { id, folder: folder.clone(), parent: getppid(), tells };
    let ran = job.run(order).await;
    folder.clear_forgotten();
    Ok(ran?)
}

/// Executes this program again, with the environment that the command is to inherit.
fn in_environment(
    order: &JobOrder,
    (id, file, text): (&TaskId, &Path, &str),
    state: &Path,
) -> io::Error {
    let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
    for (name, value) in &order.environment {
        variables.insert(name.into(), value.into());
    }
    // What the scheduler says of the job: its number, its devices.
    let from_caller = |name: &OsStr, known: &BTreeMap<OsString, OsString>| {
        CALLERS.iter().any(|caller| *caller == name) && known.contains_key(name)
    };
    let of_step = |name: &OsStr| {
        let is_one = |start: &&str| name.as_bytes().starts_with(start.as_bytes());
        file == Path::new(STDIN) && OF_STEP.iter().any(is_one)
    };
    for (name, value) in env::vars_os() {
        if !from_caller(&name, &variables) && !of_step(&name) {
            variables.insert(name, value);
        }
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0("legwork").env_clear().envs(variables).arg("post").arg(state);
    command.args(["--task", id.as_str(), "--order"]).arg(file).arg(IN_ENVIRONMENT);
    if file == Path::new(STDIN) {
        // What was read is given once more.
        match in_memory(text.as_bytes()) {
            Ok(text) => {
                command.stdin(text);
            }
            Err(error) => return error,
        }
    }
    command.exec()
}

/// A job that was started.
struct Job {
    id: TaskId,
    folder: JobFolder,
    /// Who started it.
    parent: Option<rustix::process::Pid>,
    /// Whether whoever started it reads how far it is.
    tells: bool,
}

impl Job {
    async fn run(self, order: JobOrder) -> io::Result<()> {
        // The scheduler says so to this post alone: the warden is told, and waited for.
        let mut terminated = signal(SignalKind::terminate())?;
        let prepared = place_for(&self.folder.path(), &order.opening);
        let (place, _) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return self.refuse(reason).await,
        };
        let ready = self.ready(&place, order).await;
        let (mut warden, ready) = match ready {
            Ok(ready) => ready,
            Err(reason) => return self.refuse(reason).await,
        };
        let host = kernel_text("/proc/sys/kernel/hostname").trim().to_owned();
        let begun = Begun::Started { host, warden: warden.name.clone() };
        // Whatever follows, it is begun at most once.
        let Some(held) = self.folder.claim(&begun)? else { return Ok(()) };
        self.tell("begun");
        if !self.folder.is_shared() {
            let folder = self.folder.clone();
            drop(begin_in_thread(move || folder.clear_left()));
        }
        let Ready { spec, workdir, given } = ready;
        let with = [workdir.handle.as_deref(), given.as_ref()].into_iter().flatten();
        let with: Vec<_> = with.map(AsFd::as_fd).collect();
        warden.start(spec, &with).await?;
        if let Some(failure) = self.failure(&mut warden.channel).await? {
            self.folder.fail(&failure)?;
            self.tell("ended");
            self.wait_until_heard().await;
            return Ok(());
        }
        let watched = place.dial(&warden.name).await;
        // An engine that dials it can be its owner from here on.
        drop(warden);
        if let Ok(watched) = watched {
            self.attend(watched, &mut terminated).await?;
        }
        self.tell("ended");
        self.wait_until_taken().await;
        drop(held);
        Ok(())
    }

    /// Prints a word for whoever reads how far it is.
    fn tell(&self, word: &str) {
        if self.tells {
            let mut stdout = io::stdout().lock();
            let _ = writeln!(stdout, "{word}").and_then(|()| stdout.flush());
        }
    }

    /// Says why nothing was started, unless somebody has begun.
    async fn refuse(&self, reason: String) -> io::Result<()> {
        if self.folder.claim(&Begun::Refused(reason))?.is_some() {
            self.tell("refused");
            self.wait_until_heard().await;
        }
        Ok(())
    }

    /// Waits until an engine has heard what this job says, if it cannot see that by itself.
    async fn wait_until_heard(&self) {
        let until = Instant::now() + HEARD;
        while !self.folder.is_shared() && !self.folder.is_taken() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A warden, and what it is given; or why this machine is not what was judged.
    async fn ready(&self, place: &Local, order: JobOrder) -> Result<(Warden, Ready), String> {
        let JobOrder { mut spec, workdir, given, wanted, missing, real_program, .. } = order;
        let shown = workdir.display();
        let opened = place.open_folder(&workdir).map_err(|error| format!("{shown}: {error}"))?;
        if opened.path != workdir {
            return Err(format!("{shown} leads elsewhere there"));
        }
        if let Some(judged) = real_program {
            let program = PathBuf::from(OsStr::from_bytes(&spec.program));
            let there = place.real_program(&program);
            if there.as_ref().is_some_and(|there| *there != judged) {
                return Err(format!("{} is another file there", program.display()));
            }
        }
        let ready = place.ready(wanted.into()).await.map_err(|error| error.to_string())?;
        let (warden, sandbox) = ready;
        if let Some(layer) = sandbox.as_ref().and_then(|sandbox| lacking(sandbox, &missing)) {
            return Err(format!("the sandbox there lacks a layer that was counted on: {layer}"));
        }
        if let (Some(sandboxed), Some(sandbox)) = (&mut spec.sandbox, sandbox) {
            sandboxed.enforced.clone_from(&sandbox.enforcement.enforced);
        }
        let given = given.map(|bytes| in_memory(&bytes)).transpose();
        let given = given.map_err(|error| error.to_string())?;
        Ok((warden, Ready { spec, workdir: opened, given }))
    }

    /// Waits until the command is known to have been started, or why it was not.
    async fn failure(&self, channel: &mut Channel) -> io::Result<Option<StartFailure>> {
        let task = self.id.to_string();
        channel.send(&ToWarden::Order { task, order: Order::Report }).await?;
        let answer = timeout(STARTED, channel.receive(self.id.as_str())).await;
        match answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
            FromWarden::StartFailed(failure) => Ok(Some(failure)),
            _ => Ok(None),
        }
    }

    /// Waits for the end of the warden; stops the command if whoever started this post is gone.
    async fn attend(
        &self,
        mut watched: Channel,
        terminated: &mut tokio::signal::unix::Signal,
    ) -> io::Result<()> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_stopped = false;
        loop {
            tokio::select! {
                frame = watched.next_frame() => if frame.is_err() {
                    return Ok(());
                },
                _ = terminated.recv() => self.stop(&watched).await?,
                _ = looks.tick() => if !is_stopped && getppid() != self.parent {
                    is_stopped = true;
                    self.stop(&watched).await?;
                },
            }
        }
    }

    /// Stops the command: the scheduler wants that, or is gone.
    async fn stop(&self, warden: &Channel) -> io::Result<()> {
        let because = EndCause::Scheduler;
        let order = Order::Stop { signal: Signal::TERM.as_raw(), grace_ms: GRACE_MS, because };
        warden.send(&ToWarden::Order { task: self.id.to_string(), order }).await
    }

    /// Waits until an engine has taken what the task has left, if it cannot see that by itself.
    async fn wait_until_taken(&self) {
        let left = self.folder.path().join("tasks").join(self.id.as_str());
        if self.folder.is_shared() {
            return;
        }
        let until = Instant::now() + KEPT;
        while left.exists() && Instant::now() < until && getppid() == self.parent {
            tokio::time::sleep(LOOK).await;
        }
        if !left.exists() {
            let _ = self.folder.remove();
        }
    }
}

/// What a warden is given.
struct Ready {
    spec: Spec,
    workdir: Folder,
    given: Option<OwnedFd>,
}

/// A layer that is missing here, and was not where the command was judged.
fn lacking(sandbox: &Sandbox, known: &[String]) -> Option<String> {
    let missing = sandbox.report.missing.iter().map(|missing| &missing.layer);
    missing.into_iter().find(|layer| !known.contains(layer)).cloned()
}
