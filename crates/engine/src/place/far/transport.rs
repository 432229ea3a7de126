//! Starts a post at another place: over ssh, or in a container. Both take a line for a shell there,
//! and give its stdin and stdout.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    model::place::{PlaceReach, PlaceSettings},
    place::{
        jobs::driver::Words,
        local::{own_program, runtime_folder},
    },
    state::make_private,
    threads::begin_in_thread,
};

/// How long the connection that several engines share stays when none uses it.
const SHARED_FOR: &str = "ControlPersist=60";

/// The longest path of a folder that the socket of a shared connection fits into: the kernel takes
/// 107 bytes, and ssh adds 58.
const SOCKET_FOLDER_BYTES_MAX: usize = 46;

/// Bytes of what a transport says that are kept: the last ones.
const COMPLAINT_BYTES_MAX: usize = 2048;

/// How long the end of a transport that has failed may take.
const END: Duration = Duration::from_secs(2);

/// How long a transport may take to end that nobody listens to.
const LEASH: Duration = Duration::from_secs(10);

/// How long this program may take to be sent.
const SEND: Duration = Duration::from_secs(300);

/// Exit codes by which a shell says that there is no such program, or that it cannot be executed.
const NO_PROGRAM: [i32; 2] = [127, 126];

/// A way to a place.
#[derive(Debug)]
pub(in crate::place) struct Transport {
    settings: PlaceSettings,
    /// Where the sockets of shared connections are, if they fit anywhere.
    sockets: Option<PathBuf>,
}

/// A post that was started.
#[derive(Debug)]
pub(super) struct Started {
    pub input: OwnedFd,
    pub output: pipe::Receiver,
    pub complaints: TransportWords,
}

impl Started {
    fn of(mut child: Child) -> io::Result<Self> {
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            return Err(io::Error::other("a transport without pipes"));
        };
        let output = pipe::Receiver::from_owned_fd(output.into())?;
        Ok(Self { input: input.into(), output, complaints: TransportWords::of(child) })
    }

    /// A post that these words start.
    pub(super) fn by((program, arguments): Words) -> io::Result<Self> {
        Self::of(spawn(&program, &arguments, Stdio::piped())?)
    }
}

/// What a transport says on its stderr, and how it ends.
#[derive(Debug)]
pub(super) struct TransportWords {
    said: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    _leash: Leash,
}

/// Ends a transport that does not end by itself when nobody listens to it any more: `srun` waits
/// without end for a step that its controller has forgotten.
#[derive(Debug)]
struct Leash(Option<OwnedFd>);

impl Leash {
    fn of(child: &Child) -> Self {
        Self(pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok())
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let (Some(handle), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            sleep(LEASH).await;
            let _ = pidfd_send_signal(&handle, Signal::KILL);
        });
    }
}

impl TransportWords {
    fn of(mut child: Child) -> Self {
        let said: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (kept, stderr) = (said.clone(), child.stderr.take());
        let stderr = stderr.map(|stderr| pipe::Receiver::from_owned_fd(stderr.into()));
        let reading = tokio::spawn(async move {
            let Some(Ok(mut stderr)) = stderr else { return };
            let mut bytes = [0; 512];
            while let Ok(read @ 1..) = stderr.read(&mut bytes).await {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(bytes.get(..read).unwrap_or_default());
                let extra = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
                kept.drain(..extra);
            }
        });
        let leash = Leash::of(&child);
        // Somebody has to take note of its end, or it would stay as a dead process.
        let ended = begin_in_thread(move || child.wait());
        Self { said, reading, ended, _leash: leash }
    }

    /// How it has ended, once it has.
    async fn status(&mut self, patience: Duration) -> Option<ExitStatus> {
        timeout(patience, &mut self.ended).await.ok()?.ok()?.ok()
    }

    /// The error of a transport that has failed, in its own words where it has any.
    pub(super) async fn explain(mut self, error: &io::Error) -> io::Error {
        let status = self.status(END).await;
        // A shared connection holds the pipe open: what was said by then is enough.
        let _ = timeout(END / 10, &mut self.reading).await;
        self.reading.abort();
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        let code = status.and_then(|status| status.code());
        let kind = match code {
            Some(code) if NO_PROGRAM.contains(&code) => io::ErrorKind::NotFound,
            _ => error.kind(),
        };
        let said = if said.is_empty() { error.to_string() } else { said };
        io::Error::new(kind, said)
    }
}

impl Transport {
    pub(super) fn new(settings: PlaceSettings, state: &Path) -> Self {
        let runtime = runtime_folder();
        let folders = [Some(state.join("ssh")), runtime.map(|folder| folder.join("legwork"))];
        let fits = |folder: &PathBuf| folder.as_os_str().len() <= SOCKET_FOLDER_BYTES_MAX;
        let sockets = folders.into_iter().flatten().find(fits);
        Self { settings, sockets }
    }

    /// Starts a post.
    pub(super) fn start(&self, hash: &str) -> io::Result<Started> {
        Started::of(self.spawn(&self.post_line(hash), Stdio::piped())?)
    }

    /// Whether this program is sent there.
    pub(super) fn sends(&self) -> bool {
        self.settings.program.is_none()
    }

    /// Sends this program.
    pub(super) async fn send(&self, hash: &str) -> io::Result<()> {
        let program = own_program()?;
        let (folder, kept) = (sent_folder(hash), sent_program(hash));
        let line = format!(
            "umask 077; mkdir -p {folder} && cat > {kept}.$$ && chmod 700 {kept}.$$ && mv {kept}.$$ {kept}"
        );
        let mut child = self.spawn(&line, program.into())?;
        drop(child.stdout.take());
        let mut complaints = TransportWords::of(child);
        match complaints.status(SEND).await {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let said = complaints.explain(&io::Error::other(status.to_string())).await;
                Err(io::Error::other(format!("this program could not be sent there: {said}")))
            }
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// The line that starts a post.
    fn post_line(&self, hash: &str) -> String {
        let program = match &self.settings.program {
            Some(program) => quoted(program),
            None => sent_program(hash),
        };
        let state = self.settings.state.as_ref();
        let state = state.map(|state| format!(" {}", quoted(&state.to_string_lossy())));
        // By these a shell knows that a daemon runs it, and reads the profile of a terminal:
        // commands are run by a warden.
        let own = "unset SSH_CLIENT SSH2_CLIENT SSH_CONNECTION";
        format!("{own}; exec {program} post{}", state.unwrap_or_default())
    }

    /// Starts a shell there with a line.
    fn spawn(&self, line: &str, input: Stdio) -> io::Result<Child> {
        let (program, arguments) = self.words(line);
        spawn(program.as_ref(), &arguments, input)
    }

    /// The program to start on this side, and its arguments.
    fn words(&self, line: &str) -> (String, Vec<OsString>) {
        let mut words: Vec<OsString> = Vec::new();
        match &self.settings.reach {
            PlaceReach::Ssh { host, options } => {
                // ssh takes the first value of an option: the user's go before ours.
                words.extend(options.iter().map(OsString::from));
                let ours = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15"];
                words.extend(ours.iter().flat_map(|option| ["-o", option]).map(OsString::from));
                words.extend(self.sharing());
                words.extend(["-T", "--", host, line].map(OsString::from));
                ("ssh".into(), words)
            }
            PlaceReach::Docker { container, options } => {
                words.extend(["exec", "-i"].map(OsString::from));
                words.extend(options.iter().map(OsString::from));
                words.extend([container, "sh", "-c", line].map(OsString::from));
                ("docker".into(), words)
            }
            // What schedules is asked how it is reached.
            PlaceReach::Image { .. } | PlaceReach::Slurm { .. } => ("sh".into(), Vec::new()),
        }
    }

    /// Lets all engines of this state folder share a connection.
    fn sharing(&self) -> Vec<OsString> {
        let folder = self.sockets.as_ref().filter(|folder| make_private(folder).is_ok());
        let Some(folder) = folder else { return Vec::new() };
        let mut path = OsString::from("ControlPath=");
        path.push(folder.join("%C"));
        let options = ["ControlMaster=auto".into(), SHARED_FOR.into(), path];
        options.into_iter().flat_map(|option| ["-o".into(), option]).collect()
    }
}

/// Starts a program that passes bytes on.
fn spawn(program: &OsStr, arguments: &[OsString], input: Stdio) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A terminal's Ctrl-C is for the command, which gets it from us.
    command.process_group(0);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", program.display()));
    command.spawn().map_err(named)
}

/// The folder of a program that was sent, for a shell.
fn sent_folder(hash: &str) -> String {
    format!("\"${{XDG_CACHE_HOME:-$HOME/.cache}}/legwork/{hash}\"")
}

/// A program that was sent, for a shell.
fn sent_program(hash: &str) -> String {
    format!("{}/legwork", sent_folder(hash))
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_transport_that_hangs_is_ended_when_nobody_listens_any_more() {
        tokio::time::pause();
        let words = ("sleep".into(), vec![OsString::from("600")]);
        let Started { complaints, .. } = Started::by(words).unwrap();
        let TransportWords { ended, _leash: leash, .. } = complaints;
        drop(leash);
        // The clock stands still until all wait, and jumps then.
        sleep(LEASH * 2).await;
        tokio::time::resume();
        let ended = timeout(Duration::from_secs(20), ended).await;
        assert!(!ended.unwrap().unwrap().unwrap().success());
    }

    fn transport(reach: PlaceReach, state: &str) -> Transport {
        Transport::new(PlaceSettings::new("x", reach), Path::new(state))
    }

    #[test]
    fn the_users_options_for_ssh_go_before_ours() {
        let reach = PlaceReach::Ssh { host: "h".into(), options: vec!["-p".into(), "2".into()] };
        let (program, words) = transport(reach, &"/x".repeat(40)).words("exec y");
        assert_eq!((program.as_str(), words.first()), ("ssh", Some(&OsString::from("-p"))));
        assert_eq!(words.last(), Some(&OsString::from("exec y")));
    }

    #[test]
    fn a_word_stays_one_word() {
        let mut settings = PlaceSettings::new(
            "x",
            PlaceReach::Docker { container: "c".into(), options: Vec::new() },
        );
        settings.program = Some("/a b/it's".into());
        settings.state = Some("/s t".into());
        let line = Transport::new(settings, Path::new("/state")).post_line("h");
        assert!(line.ends_with(r"; exec '/a b/it'\''s' post '/s t'"), "{line}");
    }
}
