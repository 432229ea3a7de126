//! Docker, with a container for each task: our post is what runs in it. This program and the folder
//! of posts are mounted, the program read-only, the workspace at its own path.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    driver::{Driver, JobEnd, JobSeen, JobState, JobWish, NotSubmitted, Words},
    folder::JobFolder,
    programs::run,
};
use crate::{id::TaskId, place::Soon};

/// What a container is found by; the task's id is its value.
const LABEL: &str = "legwork.task";

/// What the name of a container begins with: a second one of the same name is refused.
const NAME: &str = "legwork-";

/// How long the daemon may take to answer.
const ANSWER: Duration = Duration::from_secs(15);

/// How long it may take to start a container.
const SUBMIT: Duration = Duration::from_secs(60);

/// Memory for the post, the spawner and the warden.
const OUR_MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// Containers of an image.
#[derive(Debug)]
pub(super) struct Containers {
    image: String,
    options: Vec<String>,
    /// What is mounted at its own path.
    folders: Vec<PathBuf>,
}

impl Containers {
    pub(super) fn new(image: String, options: Vec<String>, folders: Vec<PathBuf>) -> Self {
        Self { image, options, folders }
    }

    /// What is mounted, and then the image. The program is in the folder of posts, unless the user
    /// has named one.
    fn mounted(&self, words: &mut Vec<OsString>, program: &Path) {
        for folder in &self.folders {
            let shown = folder.display();
            words.extend(["--volume".into(), format!("{shown}:{shown}").into()]);
        }
        let shown = program.display();
        words.extend(["--volume".into(), format!("{shown}:{shown}:ro").into()]);
        words.extend(["--entrypoint".into(), program.as_os_str().to_owned()]);
    }

    async fn submitted(&self, wish: JobWish) -> Result<(), NotSubmitted> {
        let refused = |error: io::Error| NotSubmitted::Refused(error.to_string());
        let order = JobFolder::new(&wish.state, &wish.task).path().join("order");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written =
            options.open(&order).and_then(|mut file| file.write_all(wish.order.as_bytes()));
        written.map_err(refused)?;
        let mut words: Vec<OsString> = ["run", "--detach"].map(OsString::from).to_vec();
        words.extend(self.options.iter().map(OsString::from));
        words.push(format!("--name={NAME}{}", wish.task).into());
        words.push(format!("--label={LABEL}={}", wish.task).into());
        words.push("--restart=no".into());
        if let Some(memory) = wish.memory_bytes {
            words.push(format!("--memory={}", memory + OUR_MEMORY_BYTES).into());
        }
        self.mounted(&mut words, &wish.program);
        words.extend([self.image.as_str().into(), "post".into(), wish.state.into_os_string()]);
        words.extend(["--task", wish.task.as_str(), "--order"].map(OsString::from));
        words.push(order.into_os_string());
        match run("docker", words, String::new(), SUBMIT).await {
            Ok(printed) if printed.is_success => Ok(()),
            // What the daemon has refused it says; whether a container was made is seen by a look.
            Ok(printed) => match self.find(&wish.task).await {
                Ok(None) => Err(NotSubmitted::Refused(printed.said())),
                Ok(Some(JobSeen { state: JobState::Ended(_), .. })) => {
                    let _ = self.cancelled(&wish.task).await;
                    Err(NotSubmitted::Refused(printed.said()))
                }
                _ => Err(NotSubmitted::Unknown(printed.said())),
            },
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(NotSubmitted::Unknown(error.to_string()))
            }
            Err(error) => Err(refused(error)),
        }
    }

    async fn listed(&self) -> io::Result<Vec<JobSeen>> {
        let words = [
            "ps",
            "--all",
            "--no-trunc",
            "--filter",
            &format!("label={LABEL}"),
            "--format",
            &format!("{{{{.ID}}}}|{{{{.State}}}}|{{{{.Label \"{LABEL}\"}}}}|{{{{.Status}}}}"),
        ];
        let printed = run("docker", words, String::new(), ANSWER).await?.ok()?;
        Ok(printed.lines().filter_map(container).collect())
    }

    async fn cancelled(&self, task: &TaskId) -> io::Result<()> {
        let name = format!("{NAME}{task}");
        let printed = run("docker", ["rm", "--force", &name], String::new(), ANSWER).await?;
        if !printed.is_success && printed.stderr.contains("No such container") {
            return Ok(());
        }
        printed.ok().map(drop)
    }
}

impl Driver for Containers {
    fn submit(&self, wish: JobWish) -> Soon<'_, Result<(), NotSubmitted>> {
        Box::pin(self.submitted(wish))
    }

    fn cancel<'a>(&'a self, task: &'a TaskId) -> Soon<'a, io::Result<()>> {
        Box::pin(self.cancelled(task))
    }

    fn reach(&self, job: Option<&JobSeen>, program: &[OsString]) -> Words {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(job) = job {
            words.extend(["exec".into(), "-i".into(), OsString::from(&job.number)]);
            words.extend(program.iter().cloned());
            return ("docker".into(), words);
        }
        words.extend(["run", "--rm", "-i"].map(OsString::from));
        words.extend(self.options.iter().map(OsString::from));
        if let Some((first, rest)) = program.split_first() {
            self.mounted(&mut words, Path::new(first));
            words.push(OsString::from(&self.image));
            words.extend(rest.iter().cloned());
        }
        ("docker".into(), words)
    }

    fn list(&self) -> Soon<'_, io::Result<Vec<JobSeen>>> {
        Box::pin(self.listed())
    }

    /// A container that has ended stays until it is removed.
    fn forget(&self, task: &TaskId) {
        let name = format!("{NAME}{task}");
        tokio::spawn(async move {
            drop(run("docker", ["rm", "--force", &name], String::new(), ANSWER).await);
        });
    }
}

/// A container as `docker ps` prints it.
fn container(line: &str) -> Option<JobSeen> {
    let mut fields = line.splitn(4, '|');
    let (number, state, task) = (fields.next()?, fields.next()?, fields.next()?);
    let status = fields.next().unwrap_or_default();
    let state = match state {
        "created" => JobState::Queued(None),
        "running" | "paused" | "restarting" | "removing" => JobState::Running,
        // The kernel's last word, whoever was behind it.
        _ if status.contains("(137)") => JobState::Ended(JobEnd::Other("killed".into())),
        other => JobState::Ended(JobEnd::Other(other.to_owned())),
    };
    let (number, node) = (number.to_owned(), String::new());
    Some(JobSeen { task: TaskId::parse(task)?, number, node, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_label() {
        let task = "t_aaaaaaaaaaaaaaaaaaaaaaaaaa";
        let seen = container(&format!("c0ffee|running|{task}|Up 2 seconds")).unwrap();
        assert_eq!((seen.task.as_str(), seen.state), (task, JobState::Running));
        let ended = container(&format!("c0ffee|exited|{task}|Exited (137) 2 s ago")).unwrap();
        assert_eq!(ended.state, JobState::Ended(JobEnd::Other("killed".into())));
        assert_eq!(container("c0ffee|running||Up"), None);
    }
}
