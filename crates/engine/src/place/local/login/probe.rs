//! Probes logins: runs them as any command is run, by a warden, in the same sandbox, but not as
//! tasks.
//!
//! They are in no list, since nobody asked for them: the script is ours, and the profile is one
//! that a granted command has just read. Whatever a look leaves running or stored is taken away
//! with it.

use std::{fs, os::fd::AsFd, path::PathBuf, sync::Arc, time::Duration};

use legwork_gate::Level;
use legwork_warden::{
    folder::Stream,
    protocol::{
        self, EndCause, Environment, FromWarden, KeptOutput, Order, RunEnd, Spec, ToWarden,
    },
    record::CommandEnd,
};
use tokio::time::timeout;

use super::{
    Logins, Shown,
    complaints::are_of_sandbox,
    key::{Login, Shell},
    state::{LoginState, STDERR, script},
    text::may_do_more,
};
use crate::{
    id,
    place::{MEMORY_BYTES_MAX, Warden},
    state::REMOVED,
};

/// How long a login may take to be of any use here.
const WALL_MS_MAX: u64 = 20_000;

/// How long its end is waited for; its warden ends it long before.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two looks are so far apart: whoever puts the time into a variable is found out.
const APART: Duration = Duration::from_millis(1100);

/// A look without an engine is of no use.
const ORPHAN_TTL_MS: u64 = 1_000;

/// More than this is not printed by a shell that is to be replaced.
const PRINTED_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What was seen of one start of a shell.
struct SeenLogin {
    state: LoginState,
    /// What it threw by its dice.
    random: Vec<u8>,
    /// What it said of files that the sandbox did not let it write.
    complaints: Vec<u8>,
}

/// What a look printed.
pub(super) struct Printed {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Logins {
    /// The environment that does the same as this login, none at the slightest doubt.
    pub(super) async fn prove(self: &Arc<Self>, login: &Login, shell: Shell) -> Shown {
        let login_argv = login.argv("-lc", script(shell));
        let first = self.state_of(login, &login_argv, &login.environment).await?;
        self.pause(APART).await?;
        let second = self.state_of(login, &login_argv, &login.environment).await?;
        if first.complaints == second.complaints {
            self.hear_again(login, &first.complaints).await;
        }
        let dice_are_loaded = shell == Shell::Bash && first.random == second.random;
        let is_same = first.state == second.state && first.complaints == second.complaints;
        if !is_same || dice_are_loaded {
            return None;
        }
        let shown = self.look(login, &login.argv("-lvc", ":"), &login.environment).await?;
        if may_do_more(shell, &without(&shown.stderr, &first.complaints)) {
            return None;
        }
        let environment = first.state.environment(shell);
        let argv = shell.without_profile(&login_argv);
        let replaced = self.state_of(login, &argv, &environment).await?;
        let is_proved = replaced.state == first.state && replaced.complaints.is_empty();
        is_proved.then(|| Arc::new(environment))
    }

    /// The state of a shell that is started so.
    async fn state_of(
        self: &Arc<Self>,
        login: &Login,
        argv: &[Vec<u8>],
        environment: &Environment,
    ) -> Option<SeenLogin> {
        let printed = self.look(login, argv, environment).await?;
        let complaints = printed.stderr.strip_suffix(STDERR)?;
        let confined = login.wanted.level != Level::None;
        let are_harmless = complaints.is_empty() || confined && are_of_sandbox(complaints);
        if !are_harmless {
            return None;
        }
        let (state, random) = LoginState::read(&printed.stdout)?;
        Some(SeenLogin { state, random, complaints: complaints.to_vec() })
    }

    /// Runs the shell; none unless it ended by itself, well, and left nothing behind.
    pub(super) async fn look(
        self: &Arc<Self>,
        login: &Login,
        argv: &[Vec<u8>],
        environment: &Environment,
    ) -> Option<Printed> {
        let (mut warden, sandbox) = self.pool.ready(login.wanted).await.ok()?;
        // What an engine that is killed leaves of it is nobody's, and removed with the rest.
        let task = id::random(REMOVED).ok()?;
        let spec = Spec {
            task: task.clone(),
            program: login.program.as_os_str().as_encoded_bytes().to_vec(),
            argv: argv.to_vec(),
            environment: environment.clone(),
            stdin: protocol::StdinSource::Null,
            outputs: protocol::OutputRoute::Separate,
            memory_bytes_max: MEMORY_BYTES_MAX,
            wall_ms_max: Some(WALL_MS_MAX),
            limits: login.limits,
            orphan_ttl_ms: ORPHAN_TTL_MS,
            sandbox: sandbox.map(|sandbox| self.sandboxing.sandboxed(&sandbox)),
            stderr_preamble: Vec::new(),
            note: Vec::new(),
        };
        warden.start(spec, &[login.workdir.as_fd()]).await.ok()?;
        let ended = timeout(PATIENCE, self.end_of_look(&mut warden, &task)).await.ok()??;
        let is_clean = ended.reusable && ended.record.end == CommandEnd::Exited(0);
        let (is_clean, reusable) = (is_clean && ended.record.ended_by.is_none(), ended.reusable);
        let printed = self.take_printed(&task, ended.kept);
        if reusable {
            warden.owe_committed(&task);
            self.pool.give_back(warden);
        } else {
            end_all(&mut warden, &task).await;
        }
        let _ = fs::remove_dir_all(self.kept(&task));
        printed.filter(|_| is_clean)
    }

    /// Waits for the end of a look, and brings it about when the engine ends.
    async fn end_of_look(&self, warden: &mut Warden, task: &str) -> Option<RunEnd> {
        loop {
            let message = tokio::select! {
                message = warden.channel.receive(task) => Some(message.ok()?),
                () = self.closed() => None,
            };
            match message {
                Some(FromWarden::Ended(ended)) => return Some(*ended),
                Some(FromWarden::StartFailed(_)) => return None,
                Some(_) => {}
                None => {
                    end_all(warden, task).await;
                    let _ = fs::remove_dir_all(self.kept(task));
                    return None;
                }
            }
        }
    }

    /// Where what a look prints is kept if it takes long.
    fn kept(&self, task: &str) -> PathBuf {
        self.state.path().join("tasks").join(task)
    }

    /// What was printed, wherever it is kept.
    fn take_printed(&self, task: &str, kept: KeptOutput) -> Option<Printed> {
        if let KeptOutput::Memory { stdout, stderr, .. } = kept {
            return Some(Printed { stdout, stderr });
        }
        let stream = |stream: Stream| {
            let path = self.kept(task).join(stream.file_name());
            // A stream that brought nothing has no file.
            let bytes = fs::metadata(&path).map_or(0, |data| data.len());
            (bytes <= PRINTED_BYTES_MAX).then(|| fs::read(&path).unwrap_or_default())
        };
        Some(Printed { stdout: stream(Stream::Stdout)?, stderr: stream(Stream::Stderr)? })
    }
}

/// A text without the lines of another.
fn without(text: &[u8], lines: &[u8]) -> Vec<u8> {
    let of_other = |line: &&[u8]| !lines.split(|byte| *byte == b'\n').any(|other| other == *line);
    let kept = text.split(|byte| *byte == b'\n').filter(of_other);
    kept.collect::<Vec<_>>().join(&b'\n')
}

/// Ends whatever a look has left, and lets go of its warden.
async fn end_all(warden: &mut Warden, task: &str) {
    let order = |order| ToWarden::Order { task: task.to_owned(), order };
    let signal = rustix::process::Signal::KILL.as_raw();
    let stop = Order::Stop { signal, grace_ms: 0, because: EndCause::Stopped };
    if warden.channel.send(&order(stop)).await.is_err() {
        return;
    }
    let stopped = async {
        loop {
            match warden.channel.receive(task).await {
                Ok(FromWarden::Stopped { .. }) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    let _ = timeout(super::CLOSING, stopped).await;
    let _ = warden.channel.send(&order(Order::Committed)).await;
}
