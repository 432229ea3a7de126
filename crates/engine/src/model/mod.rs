//! The vocabulary that every room uses: plain data, without behaviour that needs a file, a process
//! or a clock.

mod caller;
pub(crate) mod limits;
pub(crate) mod network;
mod outcome;
pub(crate) mod place;
pub(crate) mod question;
mod request;
pub(crate) mod sandbox;
pub(crate) mod status;
#[cfg(target_os = "linux")]
pub(crate) mod trusted;

pub use caller::{Caller, Session, Trust};
pub use legwork_warden::network::ConnectionVerdict;
pub use network::{ConnectionCheck, ConnectionRecord, NetworkSettings};
pub use outcome::{
    Denial, EndedBy, Flag, LimitLayer, LimitsKnown, Outcome, RefusedBy, Resources, Total,
    signal_name,
};
pub(crate) use outcome::{FILES_LAYER, PROCESSES_LAYER, REFUSED_BY_PERSON, is_zero};
pub(crate) use request::purpose;
pub use request::{Confinement, DuplicatePolicy, Outputs, Program, Request, Stdin, TrialWish};
