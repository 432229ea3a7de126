//! Failpoints: places in engine, spawner and warden at which a test can let the process die as by
//! `kill -9`.
//!
//! `LEGWORK_FAILPOINT` names the one that is meant, and `LEGWORK_FAILPOINT_LOG` a file to which the
//! process adds its
//! pid and name before it dies. Only a program with debug assertions looks; in any other one
//! nothing is left of this.

macro_rules! failpoints {
    ($($(#[$meta:meta])* $point:ident = $name:literal,)*) => {
        /// A place at which a process can be made to die.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Failpoint {
            $($(#[$meta])* $point,)*
        }

        impl Failpoint {
            /// All of them, so that a test can go through every one.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// What it is called in `LEGWORK_FAILPOINT`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

failpoints! {
    /// Engine: it has a warden, and the ledger knows nothing of the task.
    EngineBeforeRow = "engine-before-row",
    /// Engine: the entry of the daybook that registers the task is half written.
    EngineInRegistration = "engine-in-registration",
    /// Engine: the task is in the ledger, its warden knows nothing of it.
    EngineAfterRow = "engine-after-row",
    /// Engine: the warden has been told to start.
    EngineAfterStart = "engine-after-start",
    /// Engine: the task is in the ledger, and its scheduler knows nothing of it.
    EngineBeforeSubmission = "engine-before-submission",
    /// Engine: `srun` was started, and has no order yet.
    EngineStartedSrun = "engine-started-srun",
    /// Engine: `srun` has its order, and nobody has heard what comes of it.
    EngineOrderedSrun = "engine-ordered-srun",
    /// Engine: a scheduler has the task, and nobody here has heard its answer.
    EngineAfterSubmission = "engine-after-submission",
    /// Engine: it has heard of the end, the ledger has not.
    EngineHeardEnd = "engine-heard-end",
    /// Engine: the entry of the daybook that records the outcome is half written.
    EngineInOutcome = "engine-in-outcome",
    /// Engine: the outcome is committed, and neither in the audit log nor told to anybody.
    EngineAfterOutcome = "engine-after-outcome",
    /// Engine: the warden is about to be told that the outcome is committed.
    EngineBeforeFarewell = "engine-before-farewell",
    /// Engine: in the transaction that posts the daybook to the ledger.
    EngineInPosting = "engine-in-posting",
    /// Engine: the ledger has what the daybook has, and nobody was told.
    EngineAfterPosting = "engine-after-posting",
    /// Engine: a new daybook is written, and the old one in its place.
    EngineBeforeNewDaybook = "engine-before-new-daybook",
    /// Engine: about to ask for the ownership of a warden.
    EngineBeforeAdoption = "engine-before-adoption",
    /// Engine: it owns the warden of another engine, and has not begun to listen.
    EngineAfterAdoption = "engine-after-adoption",
    /// Engine: it has found that a warden is gone, and the row does not say so yet.
    EngineBeforeSettlement = "engine-before-settlement",
    /// Spawner: asked for a warden.
    SpawnerBeforeFork = "spawner-before-fork",
    /// Spawner: the warden lives, and the spawner has not written down that it does.
    SpawnerAfterFork = "spawner-after-fork",
    /// Warden: told to start, nothing done.
    WardenBeforeStart = "warden-before-start",
    /// Warden: the command's process is there, and nothing else is known of it.
    WardenAfterStart = "warden-after-start",
    /// Warden: the task's folder is made, and empty.
    WardenMadeFolder = "warden-made-folder",
    /// Warden: the exit record's space is reserved; there is no note of what was started.
    WardenReservedRecord = "warden-reserved-record",
    /// Warden: everything is in files, and in memory too.
    WardenFilledFolder = "warden-filled-folder",
    /// Warden: the command has ended, and nothing of that is written.
    WardenSawEnd = "warden-saw-end",
    /// Warden: a part of the exit record is written.
    WardenInRecord = "warden-in-record",
    /// Warden: the exit record is written and not synced.
    WardenWroteRecord = "warden-wrote-record",
    /// Warden: the outcome is made, and nobody has been told.
    WardenBeforeTelling = "warden-before-telling",
    /// Warden: whoever listens has been told.
    WardenAfterTelling = "warden-after-telling",
    /// Warden: told that the outcome is committed, and about to forget it.
    WardenBeforeForgetting = "warden-before-forgetting",
}

impl Failpoint {
    /// Dies here, if a test wants that.
    #[inline]
    pub fn pass(self) {
        #[cfg(debug_assertions)]
        if self.is_chosen() {
            self::chosen::die();
        }
    }

    /// Whether a test wants the process to die here.
    #[inline]
    pub fn is_chosen(self) -> bool {
        #[cfg(debug_assertions)]
        return std::env::var_os("LEGWORK_FAILPOINT").is_some_and(|name| name == self.name());
        #[cfg(not(debug_assertions))]
        false
    }
}

#[cfg(debug_assertions)]
mod chosen {
    use std::{fs, io::Write};

    /// Leaves a line in the log and dies.
    pub(super) fn die() -> ! {
        if let Some(path) = std::env::var_os("LEGWORK_FAILPOINT_LOG")
            && let Ok(mut log) = fs::File::options().append(true).create(true).open(path)
        {
            let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
            let _ = log.write_all(format!("{} {name}", std::process::id()).as_bytes());
        }
        crate::system::end_self()
    }
}
