//! A warden in the engine's hands: idle and ready for a command, or busy with one.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_warden::{
    protocol::{EndCause, FromWarden, Order, RunCopies, Spec, ToWarden, encode},
    sandbox::{Enforcement, Profile},
};

use super::{Inheritance, channel::Channel};
use crate::{
    model::sandbox::Wanted,
    platform::{BorrowedFd, Signal},
};

/// How long a warden may take to make a sandbox, on a machine that refuses one kind after another.
const CONFINE: Duration = Duration::from_secs(30);

/// The grace of a stop that no caller chose.
pub(crate) const DROP_GRACE: Duration = Duration::from_millis(500);

/// A warden, ready to be given a command.
#[derive(Debug)]
pub(crate) struct Warden {
    pub name: String,
    pub channel: Channel,
    /// The task whose outcome is committed, which the warden has not been told yet.
    owed: Option<String>,
    /// The task that somebody waits for, unless it was promoted: letting go of it stops its
    /// command. That happens when the event loop ends, and with it everybody who could wait.
    attended: Option<(String, Arc<AtomicBool>)>,
    /// Whether it was forked for this engine, and so has its environment and limits.
    pub ours: bool,
    /// What it has a sandbox ready for.
    pub confined: Option<Wanted>,
    /// By which profile.
    profile: Option<Arc<Profile>>,
    /// The copies of its next command, which is then its last; none of any other.
    pub copies: Option<RunCopies>,
    /// Whether it was made ready for one command only.
    pub once: bool,
    /// The place of the engine that it was forked for, if that has ended.
    _inheritance: Option<Inheritance>,
}

impl Warden {
    /// A warden that was forked for this engine.
    pub(crate) fn forked(name: String, channel: Channel) -> Self {
        Self {
            name,
            channel,
            owed: None,
            attended: None,
            ours: true,
            confined: None,
            profile: None,
            copies: None,
            once: false,
            _inheritance: None,
        }
    }

    /// A warden that another engine has left behind.
    pub(crate) fn adopted(name: String, channel: Channel, inheritance: Inheritance) -> Self {
        Self {
            name,
            channel,
            owed: None,
            attended: None,
            ours: false,
            confined: None,
            profile: None,
            copies: None,
            once: false,
            _inheritance: Some(inheritance),
        }
    }

    /// Starts a command. What the warden is owed goes along, so that it wakes up once and not
    /// twice.
    pub(crate) async fn start(
        &mut self,
        mut spec: Spec,
        with: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        if let (Some(sandbox), Some(copies)) = (&mut spec.sandbox, self.copies.take()) {
            sandbox.copies = copies;
        }
        let mut frames = self.take_owed()?;
        frames.extend(encode(&ToWarden::Start(Box::new(spec))).map_err(io::Error::other)?);
        self.channel.send_frames(&frames, with).await
    }

    /// Whether it has a sandbox of just this profile ready.
    pub(crate) fn is_confined_by(&self, wanted: Wanted, profile: &Arc<Profile>) -> bool {
        self.confined == Some(wanted)
            && self.profile.as_ref().is_some_and(|own| Arc::ptr_eq(own, profile))
    }

    /// Confines its commands from now on; says how far that goes on this machine.
    pub(crate) async fn confine(
        &mut self,
        wanted: Wanted,
        profile: &Arc<Profile>,
    ) -> io::Result<Enforcement> {
        (self.confined, self.profile) = (None, None);
        let mut frames = self.take_owed()?;
        let order = ToWarden::Confine(Box::new(Profile::clone(profile)));
        frames.extend(encode(&order).map_err(io::Error::other)?);
        self.channel.send_frames(&frames, &[]).await?;
        match tokio::time::timeout(CONFINE, self.channel.receive_of_warden()).await {
            Ok(Ok(FromWarden::Confined(enforcement))) => {
                (self.confined, self.profile) = (Some(wanted), Some(profile.clone()));
                Ok(enforcement)
            }
            Ok(Ok(FromWarden::StartFailed(failure))) => {
                Err(io::Error::from_raw_os_error(failure.errno))
            }
            Ok(Ok(_)) => Err(io::Error::other("the warden answered something else")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Somebody waits for its task, until that is promoted or over.
    pub(crate) fn attend(&mut self, task: &str, promoted: Arc<AtomicBool>) {
        self.attended = Some((task.to_owned(), promoted));
    }

    /// Its task is over.
    pub(crate) fn set_free(&mut self) {
        self.attended = None;
    }

    /// The outcome of its task is committed: it is told with its next command, or when it is let
    /// go.
    pub(crate) fn owe_committed(&mut self, task: &str) {
        self.owed = Some(task.to_owned());
    }

    fn take_owed(&mut self) -> io::Result<Vec<u8>> {
        let committed = |task| ToWarden::Order { task, order: Order::Committed };
        let frame = self.owed.take().map(|task| encode(&committed(task))).transpose();
        Ok(frame.map_err(io::Error::other)?.unwrap_or_default())
    }

    /// The order to stop a command that nobody can wait for any longer.
    fn take_stop(&mut self) -> Option<Vec<u8>> {
        let (task, promoted) = self.attended.take()?;
        let order = Order::Stop {
            signal: Signal::TERM.as_raw(),
            grace_ms: u64::try_from(DROP_GRACE.as_millis()).unwrap_or(u64::MAX),
            because: EndCause::Stopped,
        };
        let waited_for = !promoted.load(Ordering::Relaxed);
        waited_for.then(|| encode(&ToWarden::Order { task, order }).ok()).flatten()
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // Untold, it would store what is in the ledger already. The socket has room for so little.
        let mut frames = self.take_owed().unwrap_or_default();
        frames.extend(self.take_stop().into_iter().flatten());
        if !frames.is_empty() {
            self.channel.send_at_once(&frames);
        }
    }
}
