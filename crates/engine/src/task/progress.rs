//! How far a run is, and how it ended: written by its driver, read by whoever holds the run.
//!
//! Plain data: it calls nobody.

use std::sync::Arc;

use legwork_warden::protocol::{FromWarden, KeptOutput, Met, NewOutput, Report, StartFailure};

use crate::{error::ToolError, model::Outcome, output::SmallOutput};

/// How far a run is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// Goes up whenever a follower is told of new output.
    pub(super) grown: u64,
    /// What was told last.
    pub(super) growth: Option<NewOutput>,
    /// Goes up with every report.
    pub(super) reported: u64,
    pub(super) report: Option<Report>,
    /// Goes up whenever the command is found to wait for input, where somebody looks for that.
    pub(super) waited: u64,
    /// Who has it.
    pub(super) warden: Arc<str>,
    /// Whether its warden has not got it yet.
    delayed: bool,
    /// Whether it waits in a queue, and why.
    pub(super) queued: Option<InQueue>,
    /// Whether the output is known to be in the task's folder.
    pub(super) spilled: bool,
    /// Set when it is over.
    pub end: Option<Ending>,
}

/// A wait in a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct InQueue {
    /// Why, in the word of the scheduler.
    pub reason: Option<String>,
}

impl Progress {
    /// Answers who asks for a report of a command that has not been started yet.
    pub(super) fn report_nothing(&mut self) {
        self.reported += 1;
    }

    #[cfg(test)]
    pub(super) fn is_reported(&self) -> bool {
        self.reported > 0
    }

    /// Takes over what a warden says while its run goes on; says whether anybody is to be told.
    pub(super) fn hear(&mut self, message: FromWarden) -> bool {
        match message {
            FromWarden::Grew(growth) => {
                self.grown += 1;
                self.growth = Some(growth);
            }
            FromWarden::Report(report) => {
                self.reported += 1;
                self.report = Some(*report);
            }
            FromWarden::Met(Met::WaitingForInput) => self.waited += 1,
            FromWarden::Spilled(spilled) => self.spilled = spilled,
            // A stop is through and these still run: the row says so, but nobody waits for them any
            // longer.
            FromWarden::Stopped { survivors } if !survivors.is_empty() && self.end.is_none() => {
                self.end = Some(Ending::Survived(survivors));
            }
            // What only observers ask for.
            _ => return false,
        }
        true
    }

    /// Of a command that its warden gets now, or a little later.
    pub(super) fn begin(warden: &str, delayed: bool) -> Self {
        Self { warden: warden.into(), delayed, ..Self::default() }
    }

    /// Of a command that waits in a queue, or is about to be given to one.
    pub(super) fn queued(delayed: bool) -> Self {
        Self { delayed, queued: Some(InQueue::default()), ..Self::default() }
    }

    /// It waits in a queue, for this reason.
    pub(super) fn waits_for(&mut self, reason: Option<String>) {
        self.queued = Some(InQueue { reason });
    }

    /// It waits no longer.
    pub(super) fn runs(&mut self) {
        self.queued = None;
    }

    /// Its warden, or a scheduler, has got it.
    pub(super) fn handed_over(&mut self) {
        self.delayed = false;
    }

    /// Whether it no longer depends on this process that the command runs.
    pub(super) fn is_out_of_our_hands(&self) -> bool {
        !self.delayed || self.end.is_some()
    }
}

/// How a run was over.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Ended(Ended),
    NeverStarted(StartFailure),
    /// A scheduler, or the machine that it chose, has refused it.
    NotStarted(Box<ToolError>),
    /// It was stopped, and these processes could not be ended.
    Survived(Vec<u32>),
}

/// The end of a run: what is recorded of it, and its output if that is in no folder.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How it ended.
    pub outcome: Arc<Outcome>,
    pub(super) small: Option<Arc<SmallOutput>>,
}

impl Ended {
    pub(super) fn with(outcome: Outcome, small: Option<Arc<SmallOutput>>) -> Self {
        Self { outcome: Arc::new(outcome), small }
    }

    pub(super) fn lost(reason: &str) -> Self {
        Self { outcome: Arc::new(Outcome::lost(reason)), small: None }
    }
}

/// The output of a run that is in no folder.
pub(super) fn small_output(kept: KeptOutput) -> Option<Arc<SmallOutput>> {
    match kept {
        KeptOutput::Folder => None,
        KeptOutput::Memory { stdout, stderr, timeline } => {
            Some(Arc::new(SmallOutput { stdout, stderr, timeline }))
        }
    }
}
