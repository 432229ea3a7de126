//! A job that starts at once, by `srun`. A batch job waits for the controller's next turn, which
//! comes once a second; what `srun` asks for is looked at when it is asked, and refused where there
//! is no room (`--immediate`).
//!
//! What it starts is the same post, which reads its order from stdin and prints a line when it has
//! begun and one when its command has ended. `srun` is in a process group of its own and outlives
//! the engine; the job ends with it.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
};

use legwork_warden::failpoint::Failpoint;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::unix::pipe,
    sync::{oneshot, watch},
};

use super::programs::{ClientOutput, printed};
use crate::threads::in_thread;

/// What `srun` says when it has got no job: nothing was started, and nothing will be.
const NO_JOB: [&str; 2] = ["Unable to allocate resources", "srun --help"];

/// What came of a try.
#[derive(Debug)]
pub(super) enum Tried {
    /// The post has begun.
    Begun,
    /// There is no job, and nothing was started: it may be submitted in another way.
    NoJob(String),
    /// It has ended without a word; something may have been started.
    Unknown(String),
}

/// Starts a job, if there is room; says later what came of it. Whoever waits for news is woken when
/// it begins and when it ends.
pub(super) fn start(
    words: &[String],
    order: String,
    news: watch::Sender<()>,
) -> io::Result<oneshot::Receiver<Tried>> {
    let mut command = Command::new("srun");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    let own: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    for (name, value) in &own {
        match changed(name) {
            Changed::Stays => {}
            Changed::Goes => {
                command.env_remove(name);
            }
            Changed::Becomes(name) => {
                command.env(name, value);
            }
        }
    }
    let mut child = command.spawn()?;
    Failpoint::EngineStartedSrun.pass();
    let pipes = (child.stdin.take().map(OwnedFd::from), child.stdout.take().map(OwnedFd::from));
    let (Some(input), Some(output)) = pipes else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let input = pipe::Sender::from_owned_fd(input)?;
    let output = pipe::Receiver::from_owned_fd(output)?;
    let (told, tried) = oneshot::channel();
    tokio::spawn(attend(child, (input, order), output, told, news));
    Ok(tried)
}

/// What becomes of a variable of this engine: `srun` would take those of a job that the engine runs
/// in for its own, and reads the user's defaults under other names than `sbatch`.
#[derive(Debug, PartialEq, Eq)]
enum Changed {
    Stays,
    Goes,
    Becomes(String),
}

fn changed(name: &OsStr) -> Changed {
    match name.to_str() {
        None | Some("SLURM_CONF") => Changed::Stays,
        Some(name) => match name.strip_prefix("SBATCH_") {
            Some(rest) => Changed::Becomes(format!("SLURM_{rest}")),
            None if name.starts_with("SLURM_") => Changed::Goes,
            None => Changed::Stays,
        },
    }
}

/// Gives `srun` its order, and passes on what it says until it ends.
async fn attend(
    child: Child,
    (mut input, order): (pipe::Sender, String),
    output: pipe::Receiver,
    told: oneshot::Sender<Tried>,
    news: watch::Sender<()>,
) {
    let mut told = Some(told);
    let giving = async move {
        // One that does not read says why.
        let _ = input.write_all(order.as_bytes()).await;
        drop(input);
        Failpoint::EngineOrderedSrun.pass();
    };
    let hearing = async {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(_)) = lines.next_line().await {
            if let Some(told) = told.take() {
                let _ = told.send(Tried::Begun);
            }
            news.send_replace(());
        }
    };
    tokio::join!(giving, hearing);
    let ended = in_thread(move || child.wait_with_output()).await;
    let ended = ended.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()));
    news.send_replace(());
    if let Some(told) = told {
        let _ = told.send(match ended.map(printed) {
            Ok(said) => without_a_word(&said),
            Err(error) => Tried::Unknown(error.to_string()),
        });
    }
}

/// Whether `srun` says that it cannot do what its arguments ask for; perhaps of a job that it has.
pub(super) fn dislikes_arguments(said: &str) -> bool {
    ["mutually exclusive", "fatal:"].iter().any(|word| said.contains(word))
}

/// What it means that `srun` has ended before the post has begun.
fn without_a_word(said: &ClientOutput) -> Tried {
    let is_without_job = NO_JOB.iter().any(|word| said.stderr.contains(word));
    if !said.is_success && is_without_job {
        return Tried::NoJob(said.said());
    }
    Tried::Unknown(said.said())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(stderr: &str) -> ClientOutput {
        ClientOutput { is_success: false, stdout: String::new(), stderr: stderr.to_owned() }
    }

    #[test]
    fn only_where_nothing_can_have_been_started_is_there_another_try() {
        for stderr in [
            "srun: error: Unable to allocate resources: Requested nodes are busy",
            "srun: unrecognized option '--parsable'\nTry \"srun --help\" for more information",
        ] {
            assert!(matches!(without_a_word(&said(stderr)), Tried::NoJob(_)), "{stderr}");
        }
        let exclusive = "srun: error: --exclusive and --overlap are mutually exclusive";
        assert!(matches!(without_a_word(&said(exclusive)), Tried::Unknown(_)));
        assert!(dislikes_arguments(exclusive) && !dislikes_arguments("srun: error: n1: Killed"));
        for stderr in
            ["", "srun: error: timeout waiting for task launch", "srun: error: n1: Killed"]
        {
            assert!(matches!(without_a_word(&said(stderr)), Tried::Unknown(_)), "{stderr}");
        }
    }

    #[test]
    fn a_job_that_the_engine_runs_in_is_not_taken_for_the_jobs_own() {
        let changed = |name: &str| changed(OsStr::new(name));
        assert_eq!(changed("SLURM_JOB_ID"), Changed::Goes);
        assert_eq!(changed("SLURM_CONF"), Changed::Stays);
        assert_eq!(changed("SBATCH_ACCOUNT"), Changed::Becomes("SLURM_ACCOUNT".into()));
        assert_eq!(changed("HOME"), Changed::Stays);
    }
}
