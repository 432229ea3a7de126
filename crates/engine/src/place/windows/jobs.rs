//! Jobs, as there are none on Windows yet: no scheduler is reached from there.
//!
//! The names are those of the room on Linux. What cannot be is a type without values, so that
//! nothing here has to say what it would do with one.

use std::{convert::Infallible, io};

use legwork_warden::protocol::StartFailure;

use self::folder::Begun;
use crate::id::TaskId;

pub(crate) mod driver {
    /// Why a job was not submitted.
    #[derive(Debug)]
    pub(crate) enum NotSubmitted {
        /// There is no scheduler.
        Refused(String),
        /// It may have been, or not.
        #[expect(dead_code, reason = "nothing is submitted")]
        Unknown(String),
    }
}

pub(crate) mod folder {
    /// What came of a job.
    #[derive(Debug, PartialEq, Eq)]
    #[expect(dead_code, reason = "no job begins")]
    pub(crate) enum Begun {
        Started {},
        Refused(String),
        Withdrawn,
        Lost(String),
    }
}

/// A job, as far as it can be seen from here.
#[derive(Debug)]
#[expect(dead_code, reason = "no job is seen")]
pub(crate) enum JobLook {
    Queued(Option<String>),
    Running,
    Over,
    Unsure,
}

/// The jobs of a place: there are none.
#[derive(Debug)]
pub(crate) struct Jobs(Infallible);

impl Jobs {
    pub(crate) fn news(&self) -> Option<tokio::sync::watch::Receiver<()>> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn is_recorded(&self, _id: &TaskId) -> bool {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn said(&self, _id: &TaskId) -> (Option<Begun>, Option<StartFailure>) {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn has_begun(&self, _id: &TaskId) -> bool {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn forgotten(&self) {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn look_along(&self, _id: &TaskId) -> io::Result<JobLook> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn withdraw(&self, _id: &TaskId) -> io::Result<bool> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn cancel(&self, _id: &TaskId) -> io::Result<()> {
        match self.0 {}
    }
}
