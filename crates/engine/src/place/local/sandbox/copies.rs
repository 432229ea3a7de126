//! Sandboxes whose commands see folders as copies: made ahead, and given to one command.

use std::{io, sync::Arc};

use legwork_warden::{
    protocol::RunCopies,
    sandbox::{Enforcement, Profile},
};

use super::{Sandboxing, outside::OutsideAhead, trial::TrialAhead};
use crate::{
    id::TaskId,
    model::sandbox::Wanted,
    place::{PlaceError, Sandbox},
    state::reserve,
    threads::in_thread,
};

/// Which of its folders a command sees as copies, and what else it is confined to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CopiesFor {
    /// All that it may write: it is only tried.
    Trial(Wanted),
    /// The home folder: its layer is kept, and seen by the next.
    Home(Wanted),
}

/// The layers of such a command to come. What is not used is removed.
#[derive(Debug)]
pub(crate) enum CopiesAhead {
    Trial(TrialAhead),
    Home(OutsideAhead),
}

impl CopiesFor {
    pub(crate) fn wanted(self) -> Wanted {
        match self {
            Self::Trial(wanted) | Self::Home(wanted) => wanted,
        }
    }

    /// The error of copies that cannot be had.
    pub(crate) fn refused(self, why: &str) -> PlaceError {
        match self {
            Self::Trial(_) => PlaceError::NoCopies(why.to_owned()),
            Self::Home(_) => PlaceError::NoLayer(why.to_owned()),
        }
    }
}

impl Sandboxing {
    /// Makes the layers of a command that this warden will run, and the profile of its sandbox.
    pub(crate) async fn prepare_copies(
        self: &Arc<Self>,
        copies: CopiesFor,
        profile: &Arc<Profile>,
        warden: &str,
    ) -> Result<(Profile, CopiesAhead), PlaceError> {
        let (sandboxing, profile, warden) = (self.clone(), profile.clone(), warden.to_owned());
        let made = in_thread(move || {
            // Copies can fill the disk: then there is room to discard them.
            reserve::keep(&sandboxing.state);
            match copies {
                CopiesFor::Trial(_) => {
                    let made = sandboxing.prepare_trial(&profile, &warden);
                    made.map(|(profile, ahead)| (profile, CopiesAhead::Trial(ahead)))
                }
                CopiesFor::Home(_) => {
                    let made = sandboxing.prepare_layer(&profile, &warden);
                    made.map(|(profile, ahead)| (profile, CopiesAhead::Home(ahead)))
                }
            }
        });
        made.await.unwrap_or_else(cut)
    }

    /// Gives such layers to a command that begins now; none if they do not fit any more.
    pub(crate) async fn use_copies(
        self: &Arc<Self>,
        ahead: CopiesAhead,
        id: &TaskId,
        warden: &str,
    ) -> Result<Option<RunCopies>, PlaceError> {
        let (sandboxing, id, warden) = (self.clone(), id.clone(), warden.to_owned());
        let used = in_thread(move || match ahead {
            CopiesAhead::Trial(mut ahead) => {
                let bytes_max = Some(sandboxing.settings.trial_bytes_max);
                let begun = sandboxing.begin_trial(&mut ahead, &id)?;
                Ok(begun.then(|| RunCopies { places: ahead.copies(), bytes_max }))
            }
            CopiesAhead::Home(mut ahead) => {
                let begun = sandboxing.begin_layer(&mut ahead, &id, &warden)?;
                let copies = |left| RunCopies { places: ahead.copies(), bytes_max: Some(left) };
                Ok(begun.map(copies))
            }
        });
        used.await.unwrap_or_else(cut)
    }

    /// The sandbox of such a command as this machine makes it; an error if it has no copies.
    pub(crate) fn with_copies(
        &self,
        copies: CopiesFor,
        enforcement: Enforcement,
    ) -> Result<Arc<Sandbox>, PlaceError> {
        match copies {
            CopiesFor::Trial(wanted) => self.tried(wanted, enforcement),
            CopiesFor::Home(wanted) => self.layered(wanted, enforcement),
        }
    }
}

fn cut<T>() -> Result<T, PlaceError> {
    Err(io::Error::other("it was cut off").into())
}
