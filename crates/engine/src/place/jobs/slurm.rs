//! Slurm, through its own programs: `sbatch`, `squeue`, `scancel`, `srun`, `scontrol`.
//!
//! Never `srun` for a command: its end would be the end of the command. A job is our post, which
//! finds what it is told in its own batch script; so nothing has to be shared, and nothing stands
//! on a command line.

use std::{ffi::OsString, io, time::Duration};

use super::{
    driver::{Driver, JobEnd, JobSeen, JobState, JobWish, NotSubmitted, Words, best},
    programs::run,
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
const UNKNOWN: [&str; 5] =
    ["Unable to contact", "timed out", "Socket", "Connection", "Communication"];

/// The cluster that this machine belongs to.
#[derive(Debug)]
pub(super) struct Slurm {
    /// The user's arguments for `sbatch`.
    options: Vec<String>,
}

impl Slurm {
    pub(super) fn new(options: Vec<String>) -> Self {
        Self { options }
    }

    async fn submitted(&self, wish: JobWish) -> Result<(), NotSubmitted> {
        let (words, script) = (self.words(&wish), script(&wish));
        match run("sbatch", words, script, SUBMIT).await {
            Ok(printed) if printed.is_success => Ok(()),
            Ok(printed) if UNKNOWN.iter().any(|word| printed.stderr.contains(word)) => {
                Err(NotSubmitted::Unknown(printed.said()))
            }
            Ok(printed) => Err(NotSubmitted::Refused(printed.said())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(NotSubmitted::Unknown(error.to_string()))
            }
            Err(error) => Err(NotSubmitted::Refused(error.to_string())),
        }
    }

    /// The arguments of `sbatch`. It takes the last value of an option: ours go after the user's.
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
        let ours = [
            "--parsable",
            "--no-requeue",
            "--nodes=1",
            "--ntasks=1",
            // What a command inherits is sent to it, and not what `sbatch` happens to have.
            "--export=NIL",
            "--chdir=/",
            // Never the scheduler's own log.
            "--input=/dev/null",
            "--output=/dev/null",
            "--error=/dev/null",
        ];
        words.extend(ours.map(str::to_owned));
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
        run("scancel", ["--quiet", "--me", &name], String::new(), ANSWER).await?.ok().map(drop)
    }

    async fn checked(&self) -> io::Result<Vec<String>> {
        let shown = run("scontrol", ["show", "config"], String::new(), ANSWER).await?.ok()?;
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

    fn check(&self) -> Soon<'_, io::Result<Vec<String>>> {
        Box::pin(self.checked())
    }
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

/// What a configuration lacks; an error where commands cannot be run with it.
fn judge(shown: &str) -> io::Result<Vec<String>> {
    let value = |name: &str| {
        let of = |line: &&str| line.split('=').next().is_some_and(|key| key.trim() == name);
        let line = shown.lines().find(of);
        line.and_then(|line| line.split_once('=')).map_or("", |(_, value)| value.trim())
    };
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
                 SelectTypeParameters    = {memory}\nTaskPlugin = task/cgroup\n"
            )
        };
        assert_eq!(judge(&shown("cgroup", "CR_CORE_MEMORY")).unwrap(), [""; 0]);
        assert!(judge(&shown("cgroup", "CR_CORE")).unwrap()[0].contains("memory"));
        assert!(judge(&shown("linuxproc", "CR_CORE")).unwrap_err().to_string().contains("cgroup"));
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
        };
        let words = Slurm::new(vec!["--time=1".into()]).words(&wish);
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
