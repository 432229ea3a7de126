//! Who asks for a command, and how far that caller is trusted.

use serde::{Deserialize, Serialize};
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

/// How far a caller is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The person at this machine.
    TrustedOperator,
    /// A program of that person.
    TrustedSystem,
    /// A connected service.
    TrustedIntegration,
    /// Anybody.
    UntrustedExternal,
}

impl Trust {
    /// The name in JSON and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrustedOperator => "trusted_operator",
            Self::TrustedSystem => "trusted_system",
            Self::TrustedIntegration => "trusted_integration",
            Self::UntrustedExternal => "untrusted_external",
        }
    }
}
