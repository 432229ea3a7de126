//! Starts a command, in a sandbox if it is to have one.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use super::WardenProcess;
use crate::{
    failpoint::Failpoint,
    linux::run::CommandRun,
    protocol::{FromWarden, Spec, StartFailure, StartStage, StdinSource},
};

pub(super) fn sandbox_failure(error: &io::Error) -> StartFailure {
    StartFailure { stage: StartStage::Sandbox, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

impl WardenProcess<'_> {
    pub(super) fn start(&mut self, place: usize, spec: Spec) {
        let Some(owner) = self.peers.get_mut(place) else {
            return;
        };
        Failpoint::WardenBeforeStart.pass();
        let workdir = owner.take_descriptor();
        let stdin = if spec.stdin == StdinSource::Given { owner.take_descriptor() } else { None };
        let task = spec.task.clone();
        let started = match workdir {
            Some(workdir) => self.begin(spec, workdir.as_fd(), stdin.as_ref().map(AsFd::as_fd)),
            None => Err(StartFailure { stage: StartStage::Descriptors, errno: libc::EBADF }),
        };
        match started {
            Ok(run) => {
                Failpoint::WardenAfterStart.pass();
                self.run = Some(run);
                self.childless = false;
                self.greet_again(place);
            }
            Err(failure) => {
                if let Some(owner) = self.peers.get_mut(place) {
                    owner.tell(&task, FromWarden::StartFailed(failure));
                }
                self.sandboxes.prepare();
            }
        }
    }

    /// Starts a command, in a sandbox if it is to be in one.
    fn begin(
        &mut self,
        spec: Spec,
        workdir: BorrowedFd<'_>,
        stdin: Option<BorrowedFd<'_>>,
    ) -> Result<CommandRun, StartFailure> {
        let Some(sandbox) = &spec.sandbox else {
            return CommandRun::start(self.setup, &mut self.limiter, spec, workdir, stdin, None);
        };
        let names = sandbox.names.clone();
        let (artifacts, copies) = (&sandbox.artifacts, &sandbox.copies.places);
        let ready = self.sandboxes.take(artifacts, copies);
        let ready = ready.map_err(|error| sandbox_failure(&error))?;
        // It was agreed upon with certain protections: not with fewer.
        let entered = if ready.enforces(&sandbox.enforced) {
            CommandRun::start(self.setup, &mut self.limiter, spec, workdir, stdin, Some(&ready))
        } else {
            Err(StartFailure { stage: StartStage::Sandbox, errno: libc::EPERM })
        };
        match entered {
            Ok(_) => self.sandboxes.entered(ready, names),
            Err(_) => self.sandboxes.discard(ready),
        }
        entered
    }
}
