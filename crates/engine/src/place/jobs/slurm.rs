//! Slurm, through its own programs: `sbatch`, `squeue`, `scancel`, `srun`, `scontrol`.
//!
//! A job is our post, which finds what it is told in its own batch script; so nothing has to be
//! shared, and nothing stands on a command line. Where somebody waits for the command and there is
//! room now, `srun` starts the same post ([`super::srun`]): a batch job waits for the controller's
//! next turn. Whichever it was, a task gets one job: the second way is tried only where the
//! first has certainly started nothing.

use std::{
    collections::HashSet,
    ffi::OsString,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::timeout};

use super::{
    driver::{Driver, JobEnd, JobSeen, JobState, JobWish, NotSubmitted, Words, best},
    programs::run,
    srun::{self, Tried},
};
use crate::{id::TaskId, place::Soon};

/// What the name of a job begins with; the task's id follows.
const NAME: &str = "legwork-";

/// How long a question to the controller may take.
const ANSWER: Duration = Duration::from_secs(15);

/// How long a submission may take: a controller that is being restarted is waited for.
const SUBMIT: Duration = Duration::from_secs(60);

/// How much later than ours the scheduler's time limit is.
const BACKSTOP_MINUTES: u64 = 2;

/// Memory for the post, the spawner and the warden.
const OUR_MEMORY_MEGABYTES: u64 = 64;

/// What `squeue` and `sacct` print of a job.
const FIELDS: &str = "%i|%T|%N|%j|%r";

/// What `sbatch` says when it cannot know whether a job was taken.
const UNKNOWN: [&str; 9] = [
    "Unable to contact",
    "timed out",
    "Socket",
    "Connection",
    "Communication",
    "Zero Bytes",
    "Unexpected message",
    "Message",
    "standby",
];

/// How long `srun` may be silent before it is looked whether its job runs.
const SILENCE: Duration = Duration::from_secs(3);

/// How long after its task is over and forgotten a job is looked for that may be left, and how long
/// after that again where the controller does not answer.
const LEFT: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// The cluster that this machine belongs to.
#[derive(Debug, Clone)]
pub(super) struct Slurm {
    /// The user's arguments for `sbatch`.
    options: Vec<String>,
    /// Whether a job may depend on an `srun` that lives on: not before that is known.
    is_quick: Arc<AtomicBool>,
    /// Tells when a job that `srun` has started begins or ends.
    news: watch::Sender<()>,
    /// The tasks that this engine has submitted, and of which no second job can be left: their jobs
    /// end by themselves.
    submitted: Arc<Mutex<HashSet<TaskId>>>,
}

impl Slurm {
    pub(super) fn new(options: Vec<String>) -> Self {
        let news = watch::channel(()).0;
        Self { options, is_quick: Arc::default(), news, submitted: Arc::default() }
    }

    async fn submitted(&self, wish: JobWish) -> Result<(), NotSubmitted> {
        self.ours().insert(wish.task.clone());
        if wish.is_awaited && self.is_quick.load(Ordering::Relaxed) {
            match self.started_at_once(&wish).await {
                Tried::Begun => return Ok(()),
                Tried::NoJob(said) => tracing::debug!(task_id = %wish.task, said, "not at once"),
                Tried::Unknown(said) => return Err(NotSubmitted::Unknown(said)),
            }
        }
        self.queued(wish).await
    }

    fn ours(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.submitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `srun` start a job, if there is room now.
    async fn started_at_once(&self, wish: &JobWish) -> Tried {
        let order = format!("{}\n", wish.order);
        let mut tried = match srun::start(&self.quick_words(wish), order, self.news.clone()) {
            Ok(tried) => tried,
            Err(error) => return Tried::NoJob(error.to_string()),
        };
        let mut looks = SUBMIT.as_secs() / SILENCE.as_secs();
        let tried = loop {
            match timeout(SILENCE, &mut tried).await {
                Ok(tried) => break tried.unwrap_or_else(|_| Tried::Unknown("cut off".into())),
                Err(_) if looks == 0 => break Tried::Unknown("srun says nothing".into()),
                Err(_) => looks -= 1,
            }
            // What the node does before it starts a job takes a while in some places.
            if let Ok(Some(JobSeen { state: JobState::Running, .. })) = self.find(&wish.task).await
            {
                break Tried::Begun;
            }
        };
        match tried {
            Tried::NoJob(said) if is_unclear(&said) => {
                // A job may have been given to an `srun` that has not heard of it: it is empty, and
                // may yet come.
                let _ = self.cancelled(&wish.task).await;
                self.ours().remove(&wish.task);
                Tried::NoJob(said)
            }
            // It does not like its arguments, and the controller has never heard of such a job.
            Tried::Unknown(said)
                if srun::dislikes_arguments(&said)
                    && matches!(self.find(&wish.task).await, Ok(None)) =>
            {
                Tried::NoJob(said)
            }
            tried => tried,
        }
    }

    /// Gives a batch job to the controller.
    async fn queued(&self, wish: JobWish) -> Result<(), NotSubmitted> {
        let (words, script) = (self.batch_words(&wish), script(&wish));
        match run("sbatch", words, script, SUBMIT).await {
            Ok(printed) if printed.is_success => Ok(()),
            Ok(printed) if is_unclear(&printed.stderr) => {
                Err(NotSubmitted::Unknown(printed.said()))
            }
            Ok(printed) => Err(NotSubmitted::Refused(printed.said())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(NotSubmitted::Unknown(error.to_string()))
            }
            Err(error) => Err(NotSubmitted::Refused(error.to_string())),
        }
    }

    /// The arguments of `sbatch`.
    fn batch_words(&self, wish: &JobWish) -> Vec<String> {
        let mut words = self.words(wish);
        let ours = [
            "--parsable",
            "--no-requeue",
            // What a command inherits is sent to it, and not what `sbatch` happens to have.
            "--export=NIL",
            // Never the scheduler's own log.
            "--input=/dev/null",
            "--output=/dev/null",
            "--error=/dev/null",
        ];
        words.extend(ours.map(str::to_owned));
        words
    }

    /// The arguments of `srun`.
    fn quick_words(&self, wish: &JobWish) -> Vec<String> {
        let mut words = self.words(wish);
        // The command may start steps of its own: they share what this one has.
        let ours = ["--immediate=1", "--overlap", "--export=NONE", "--error=/dev/null", "--quiet"];
        words.extend(ours.map(str::to_owned));
        words.extend(["--cpu-bind=none", "--mpi=none"].map(str::to_owned));
        let (program, state) = (wish.program.display(), wish.state.display());
        words.extend([program.to_string(), "post".into(), state.to_string()]);
        words.extend(["--task", wish.task.as_str(), "--order", "-"].map(str::to_owned));
        words
    }

    /// The arguments of both. They take the last value of an option: ours go after the user's.
    fn words(&self, wish: &JobWish) -> Vec<String> {
        let mut words = self.options.clone();
        if let Some(wall) = wish.wall {
            let minutes = wall.as_secs().div_ceil(60) + BACKSTOP_MINUTES;
            words.push(format!("--time={minutes}"));
        }
        if let Some(memory) = wish.memory_bytes {
            let megabytes = memory.div_ceil(1024 * 1024) + OUR_MEMORY_MEGABYTES;
            words.push(format!("--mem={megabytes}M"));
        }
        let task = &wish.task;
        words.extend([format!("--job-name={NAME}{task}"), format!("--comment=legwork:{task}")]);
        words.extend(["--nodes=1", "--ntasks=1", "--chdir=/"].map(str::to_owned));
        words
    }

    async fn listed(&self, only: Option<&TaskId>) -> io::Result<Vec<JobSeen>> {
        let mut words: Vec<OsString> =
            ["--noheader", "-t", "all", "--me"].iter().map(OsString::from).collect();
        words.push(format!("--format={FIELDS}").into());
        words.extend(only.map(|task| format!("--name={NAME}{task}").into()));
        let printed = run("squeue", words, String::new(), ANSWER).await?;
        Ok(printed.ok()?.lines().filter_map(job).collect())
    }

    async fn cancelled(&self, task: &TaskId) -> io::Result<()> {
        let name = format!("--name={NAME}{task}");
        let asked = run("scancel", ["--quiet", "--me", &name], String::new(), ANSWER).await;
        let cancelled = asked.and_then(|printed| printed.ok().map(drop));
        if cancelled.is_err() {
            // It is left in the queue, or runs.
            self.ours().remove(task);
        }
        cancelled
    }

    /// Ends what is left of a task that is over.
    async fn clear_left(&self, task: &TaskId) {
        for pause in LEFT {
            tokio::time::sleep(pause).await;
            match self.find(task).await {
                Ok(None | Some(JobSeen { state: JobState::Ended(_), .. })) => return,
                Ok(Some(_)) if self.cancelled(task).await.is_ok() => return,
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }

    async fn checked(&self) -> io::Result<Vec<String>> {
        let shown = run("scontrol", ["show", "config"], String::new(), ANSWER).await?.ok()?;
        self.is_quick.store(is_quick(&shown), Ordering::Relaxed);
        judge(&shown)
    }
}

impl Driver for Slurm {
    fn submit(&self, wish: JobWish) -> Soon<'_, Result<(), NotSubmitted>> {
        Box::pin(self.submitted(wish))
    }

    fn find<'a>(&'a self, task: &'a TaskId) -> Soon<'a, io::Result<Option<JobSeen>>> {
        Box::pin(async move {
            let jobs = self.listed(Some(task)).await?;
            Ok(best(jobs.into_iter().filter(|job| job.task == *task)))
        })
    }

    fn cancel<'a>(&'a self, task: &'a TaskId) -> Soon<'a, io::Result<()>> {
        Box::pin(self.cancelled(task))
    }

    fn reach(&self, job: Option<&JobSeen>, program: &[OsString]) -> Words {
        let Some(job) = job else {
            let (first, rest) =
                program.split_first().map_or((None, &[][..]), |it| (Some(it.0), it.1));
            return (first.cloned().unwrap_or_default(), rest.to_vec());
        };
        let mut words: Vec<OsString> = vec![format!("--jobid={}", job.number).into()];
        // Unbuffered: otherwise bytes wait for a line to end.
        let ours = ["--overlap", "--unbuffered", "--quiet", "--nodes=1", "--ntasks=1", "--mem=0"];
        words.extend(ours.map(OsString::from));
        words.extend(["--cpu-bind=none", "--mpi=none", "--chdir=/"].map(OsString::from));
        words.extend(program.iter().cloned());
        ("srun".into(), words)
    }

    fn list(&self) -> Soon<'_, io::Result<Vec<JobSeen>>> {
        Box::pin(self.listed(None))
    }

    fn news(&self) -> Option<watch::Receiver<()>> {
        Some(self.news.subscribe())
    }

    /// A job whose `srun` was killed does not end by itself, nor one that could not be cancelled:
    /// whoever forgets its task sees to that.
    fn forget(&self, task: &TaskId) {
        if self.ours().remove(task) {
            return;
        }
        let (slurm, task) = (self.clone(), task.clone());
        tokio::spawn(async move { slurm.clear_left(&task).await });
    }

    fn check(&self) -> Soon<'_, io::Result<Vec<String>>> {
        Box::pin(self.checked())
    }
}

/// Whether one of Slurm's programs cannot know what became of what it asked.
fn is_unclear(said: &str) -> bool {
    UNKNOWN.iter().any(|word| said.contains(word))
}

/// The batch script: our post, and behind that what it is told.
fn script(wish: &JobWish) -> String {
    let quoted =
        |path: &std::path::Path| format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"));
    let (program, state) = (quoted(&wish.program), quoted(&wish.state));
    let (task, order) = (&wish.task, &wish.order);
    format!("#!/bin/sh\nexec {program} post {state} --task {task} --order \"$0\"\n{order}\n")
}

/// A job as `squeue` prints it; none if it is not one of ours.
fn job(line: &str) -> Option<JobSeen> {
    let mut fields = line.trim().splitn(5, '|');
    let mut field = || fields.next();
    let (number, state, node, name, reason) = (field()?, field()?, field()?, field()?, field()?);
    let task = TaskId::parse(name.strip_prefix(NAME)?)?;
    let state = state_of(state, reason);
    Some(JobSeen { task, number: number.to_owned(), node: node.to_owned(), state })
}

/// What a state's name says.
fn state_of(name: &str, reason: &str) -> JobState {
    let reason = Some(reason.to_owned()).filter(|reason| !matches!(reason.as_str(), "" | "None"));
    match name {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED"
        | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => JobState::Queued(reason),
        "RUNNING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT"
        | "RESIZING" => JobState::Running,
        "OUT_OF_MEMORY" => JobState::Ended(JobEnd::OutOfMemory),
        "NODE_FAIL" | "BOOT_FAIL" => JobState::Ended(JobEnd::NodeFailed),
        "CANCELLED" | "PREEMPTED" | "REVOKED" => JobState::Ended(JobEnd::Cancelled),
        "TIMEOUT" | "DEADLINE" => JobState::Ended(JobEnd::TimeLimit),
        other => JobState::Ended(JobEnd::Other(other.to_owned())),
    }
}

/// A setting, as `scontrol show config` prints it.
fn setting<'a>(shown: &'a str, name: &str) -> &'a str {
    let of = |line: &&str| line.split('=').next().is_some_and(|key| key.trim() == name);
    let line = shown.lines().find(of);
    line.and_then(|line| line.split_once('=')).map_or("", |(_, value)| value.trim())
}

/// Whether the job of an `srun` is started when it is asked for, and stays when that `srun` is
/// silent.
fn is_quick(shown: &str) -> bool {
    setting(shown, "InactiveLimit").starts_with("0 ") && !is_deferred(shown)
}

/// Whether no job is looked at before the controller's next turn.
fn is_deferred(shown: &str) -> bool {
    setting(shown, "SchedulerParameters").split(',').any(|word| word.trim() == "defer")
}

/// What a configuration lacks; an error where commands cannot be run with it.
fn judge(shown: &str) -> io::Result<Vec<String>> {
    let value = |name: &str| setting(shown, name);
    let tracking = value("ProctrackType");
    if tracking != "proctrack/cgroup" {
        return Err(io::Error::other(format!(
            "Slurm tracks processes by `{tracking}`: one that leaves its session would outlive its \
             job. Set ProctrackType=proctrack/cgroup in slurm.conf"
        )));
    }
    let mut lacks = Vec::new();
    let (select, parameters) = (value("SelectType"), value("SelectTypeParameters"));
    if !parameters.to_ascii_uppercase().contains("MEMORY") {
        lacks.push(format!(
            "memory is no consumable resource ({select}, {parameters}): Slurm holds no limit of it"
        ));
    } else if !value("TaskPlugin").contains("cgroup") {
        lacks.push("task/cgroup is not in TaskPlugin: Slurm holds no limit of memory".to_owned());
    }
    if !is_quick(shown) {
        let why = if is_deferred(shown) { "SchedulerParameters=defer" } else { "InactiveLimit" };
        lacks.push(format!(
            "{why} is set: each command is a batch job, and waits a second or more for the \
             controller's turn"
        ));
    }
    Ok(lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "t_aaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn a_job_is_known_by_its_name_whatever_its_number_is() {
        let line = format!("17|PENDING||legwork-{TASK}|Resources");
        let seen = job(&line).unwrap();
        assert_eq!((seen.task.as_str(), seen.number.as_str()), (TASK, "17"));
        assert_eq!(seen.state, JobState::Queued(Some("Resources".into())));
        for other in ["17|RUNNING|n1|legwork-x|None", "17|RUNNING|n1|mine|None", "", "slurm: error"]
        {
            assert_eq!(job(other), None, "{other}");
        }
        let run = job(&format!("18|RUNNING|n1|legwork-{TASK}|None")).unwrap();
        assert_eq!((run.state.clone(), run.node.as_str()), (JobState::Running, "n1"));
        assert_eq!(best([seen, run.clone()].into_iter()), Some(run));
    }

    #[test]
    fn every_end_has_its_word() {
        let reason = |name| match state_of(name, "None") {
            JobState::Ended(end) => end.reason(),
            other => panic!("{other:?}"),
        };
        assert_eq!(reason("OUT_OF_MEMORY"), "out_of_memory");
        assert_eq!(reason("NODE_FAIL"), "node_failed");
        assert_eq!(reason("CANCELLED"), "cancelled_by_scheduler");
        assert_eq!(reason("TIMEOUT"), "scheduler_time_limit");
        assert_eq!(reason("FAILED"), "scheduler_failed");
    }

    #[test]
    fn a_cluster_that_lets_processes_escape_is_refused_and_a_missing_limit_is_named() {
        let shown = |tracking, memory| {
            format!(
                "ProctrackType           = proctrack/{tracking}\nSelectType = select/cons_tres\n\
                 SelectTypeParameters    = {memory}\nTaskPlugin = task/cgroup\n\
                 InactiveLimit           = 0 sec\nSchedulerParameters = bf_interval=1\n"
            )
        };
        assert_eq!(judge(&shown("cgroup", "CR_CORE_MEMORY")).unwrap(), [""; 0]);
        assert!(judge(&shown("cgroup", "CR_CORE")).unwrap()[0].contains("memory"));
        assert!(judge(&shown("linuxproc", "CR_CORE")).unwrap_err().to_string().contains("cgroup"));
        let plain = shown("cgroup", "CR_CORE_MEMORY");
        assert!(is_quick(&plain));
        for (from, to) in [("= 0 sec", "= 60 sec"), ("bf_interval=1", "bf_interval=1,defer")] {
            let slow = plain.replace(from, to);
            assert!(!is_quick(&slow), "{slow}");
            assert!(judge(&slow).unwrap()[0].contains("batch job"), "{slow}");
        }
    }

    #[test]
    fn nothing_of_an_order_stands_on_a_command_line() {
        let wish = JobWish {
            task: TaskId::parse(TASK).unwrap(),
            program: "/a b/legwork".into(),
            state: "/s".into(),
            order: "SECRET".into(),
            wall: Some(Duration::from_secs(61)),
            memory_bytes: Some(1),
            is_awaited: true,
        };
        let slurm = Slurm::new(vec!["--time=1".into()]);
        let quick = slurm.quick_words(&wish);
        assert!(quick.ends_with(&["--order".to_owned(), "-".to_owned()]), "{quick:?}");
        assert!(!quick.iter().any(|word| word.contains("SECRET")));
        let words = slurm.batch_words(&wish);
        assert_eq!(words.first().unwrap(), "--time=1");
        assert!(words.contains(&"--time=4".to_owned()) && words.contains(&"--mem=65M".to_owned()));
        assert!(!words.iter().any(|word| word.contains("SECRET")));
        let script = script(&wish);
        let expected = format!(
            "#!/bin/sh\nexec '/a b/legwork' post '/s' --task {TASK} --order \"$0\"\nSECRET\n"
        );
        assert_eq!(script, expected);
    }
}
