//! Who asks for a command, and how far that caller is trusted.

pub use legwork_gate::Trust;
use tokio::sync::mpsc;

use super::question::SharedAsker;

/// Who asks, and how far it is trusted.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Trust of the caller.
    pub trust: Trust,
    /// A name for people: the MCP client, the user's terminal.
    pub name: String,
    /// Where the last line of output goes while the caller waits, a few times a second.
    pub progress: Option<mpsc::Sender<String>>,
    /// How a person can be asked, if this caller can do that.
    pub asker: Option<SharedAsker>,
}

impl Caller {
    /// The operator of this machine, through the face of this name.
    pub fn operator(name: impl Into<String>) -> Self {
        Self { trust: Trust::TrustedOperator, name: name.into(), progress: None, asker: None }
    }
}
