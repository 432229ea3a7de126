//! ACP (Agent Client Protocol): stands between an editor and its agent, and runs the agent's
//! commands.
//!
//! In ACP the editor is the client, and `terminal/*` are methods that the *client* serves to the
//! agent: whoever wants to run an agent's commands has to stand on the editor's side. So `legwork
//! acp -- AGENT` is the agent for the editor and the editor for the agent. It passes every message
//! on as it is, but for these:
//!
//! - `terminal/*` of the agent is answered here, on the engine: judged, confined, recorded;
//! - a question about a command goes to the person at the editor, as `session/request_permission`;
//! - `initialize` tells the agent that there are terminals, also where the editor has none;
//! - a terminal that the agent shows in the editor becomes the text of its output, since the editor
//!   does not know it.
//!
//! An agent that runs commands by itself, without asking its client for a terminal, is not seen.

mod asking;
mod desk;
mod embedded;
mod terminal;
mod wire;

use std::{
    io,
    os::fd::OwnedFd,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rmcp::transport::stdio_pipes;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{io::BufReader, net::unix::pipe, time::timeout};

use self::{
    desk::Desk,
    wire::{LineWriter, next_line},
};
use crate::{
    OUR_FAILURE,
    arguments::{AcpOptions, StatePlace},
    render::{NOT_FOUND, say},
    signals::{Caught, ENDING},
};

/// How long the agent may take to end when its input has ended, and after SIGTERM.
const FAREWELL: Duration = Duration::from_secs(5);

/// Proxies until the agent or the editor ends; the exit code is the agent's.
pub(crate) async fn serve(options: AcpOptions) -> ExitCode {
    legwork_warden::keep_heap();
    let mut signals = Caught::new(&ENDING);
    let agent = match Agent::start(&options.agent) {
        Ok(agent) => agent,
        Err(error) => {
            let name = options.agent.first().map(|name| name.to_string_lossy().into_owned());
            say(&format!("legwork: cannot start {}: {error}", name.unwrap_or_default()));
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            return ExitCode::from(if is_missing { NOT_FOUND } else { OUR_FAILURE });
        }
    };
    let (from_editor, to_editor) = stdio_pipes();
    let desk = Arc::new(Desk::new(
        StatePlace { workspace: options.workspace, state: options.state },
        options.rules,
        options.trust.trust(),
        LineWriter::new(Box::new(to_editor)),
        LineWriter::new(Box::new(agent.input)),
    ));
    let mut from_editor = BufReader::new(from_editor);
    let mut from_agent = BufReader::new(agent.output);
    let editor = async {
        while let Some(line) = next_line(&mut from_editor).await? {
            desk.take_from_editor(line).await?;
        }
        io::Result::Ok(())
    };
    let agents = async {
        while let Some(line) = next_line(&mut from_agent).await? {
            desk.take_from_agent(line).await?;
        }
        io::Result::Ok(())
    };
    tokio::pin!(agents);
    let ended = tokio::select! {
        ended = &mut agents => ended,
        ended = editor => {
            // The editor has left: the agent hears it by the end of its input, and may say more.
            desk.end_of_editor().await;
            let _ = timeout(FAREWELL, &mut agents).await;
            ended
        }
        _ = signals.next() => {
            desk.end_of_editor().await;
            Ok(())
        }
    };
    if let Err(error) = ended {
        say(&format!("legwork: acp: {error}"));
    }
    desk.end().await;
    code(agent.process.end().await)
}

fn code(status: io::Result<ExitStatus>) -> ExitCode {
    let code = status.ok().and_then(|status| status.code());
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::from(OUR_FAILURE), ExitCode::from)
}

/// The agent's process and its pipes; its stderr is ours.
struct Agent {
    process: Process,
    input: pipe::Sender,
    output: pipe::Receiver,
}

impl Agent {
    fn start(words: &[std::ffi::OsString]) -> io::Result<Self> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::other("no program was given"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let missing = || io::Error::other("its pipes are missing");
        let input: OwnedFd = child.stdin.take().ok_or_else(missing)?.into();
        let output: OwnedFd = child.stdout.take().ok_or_else(missing)?.into();
        let process = Process(child);
        let input = pipe::Sender::from_owned_fd(input)?;
        Ok(Self { process, input, output: pipe::Receiver::from_owned_fd(output)? })
    }
}

/// A process that does not outlive us.
struct Process(Child);

impl Process {
    /// Waits for its end: by itself, after SIGTERM, then by SIGKILL.
    async fn end(mut self) -> io::Result<ExitStatus> {
        // By its descriptor nobody else is signalled, however soon it is waited for.
        let agent = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty())?;
        let mut waiting = tokio::task::spawn_blocking(move || self.0.wait());
        for signal in [Signal::TERM, Signal::KILL] {
            if let Ok(ended) = timeout(FAREWELL, &mut waiting).await {
                return ended.map_err(io::Error::other)?;
            }
            let _ = pidfd_send_signal(&agent, signal);
        }
        waiting.await.map_err(io::Error::other)?
    }
}
