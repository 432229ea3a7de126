//! Reports of repairs in a state folder: what was damaged, and what was done about it.

use serde::Serialize;

use super::aside::SetAside;

/// Something in the state folder that was damaged, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// The ledger was rebuilt.
    Rebuilt(Rebuilt),
    /// Something stood in the place of a file or a folder.
    SetAside(SetAside),
}

impl Repair {
    /// What a person should know, in one line.
    pub fn message(&self) -> String {
        match self {
            Self::Rebuilt(rebuilt) => rebuilt.message(),
            Self::SetAside(moved) => moved.message(),
        }
    }
}

/// What a rebuild found and made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rebuilt {
    /// What was wrong with the ledger.
    pub why: String,
    /// Tasks that were found in the daybook.
    pub from_daybook: u64,
    /// Tasks that were found in folders only.
    pub from_folders: u64,
    /// Where the old file is now, in the state folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

impl Rebuilt {
    /// What a person should know, in one line.
    pub fn message(&self) -> String {
        let Self { why, from_daybook, from_folders, set_aside } = self;
        let old = set_aside.as_ref().map(|name| format!(". The old one is {name}"));
        format!(
            "the ledger {why}. It was rebuilt: {from_daybook} tasks from its daybook, {from_folders} from their \
             folders. Finished tasks and questions that only the old one had are lost; the audit log names \
             them{}",
            old.unwrap_or_default()
        )
    }
}
