//! Reports of repairs in a state folder: what was damaged, and what was done about it.

use serde::Serialize;

use super::aside::SetAside;

/// Most ids of lost tasks that are told.
pub(crate) const LOST_TOLD: usize = 20;

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
    /// Tasks that were read from the old one.
    pub salvaged: u64,
    /// Tasks that were found in folders only.
    pub from_folders: u64,
    /// Tasks of which no more than an id is known.
    pub lost: Vec<String>,
    /// Where the damaged files are now, in the state folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

impl Rebuilt {
    /// What a person should know, in one line.
    pub fn message(&self) -> String {
        let Self { why, salvaged, from_folders, lost, set_aside } = self;
        let mut text = format!(
            "the ledger {why}. It was rebuilt: {salvaged} tasks from the old one, {from_folders} from their folders"
        );
        match (lost.len(), set_aside) {
            // The process that missed it had it open, and has lost nothing.
            (0, None) if *salvaged > 0 => {}
            (0, None) => text.push_str("; tasks that had no folder are lost"),
            (0, Some(_)) => text.push_str("; others that had no folder may be lost"),
            (count, _) => {
                let shown: Vec<&str> = lost.iter().take(LOST_TOLD).map(String::as_str).collect();
                let more = if count > LOST_TOLD { ", …" } else { "" };
                text.push_str(&format!("; {count} are lost: {}{more}", shown.join(", ")));
            }
        }
        if let Some(name) = set_aside {
            text.push_str(&format!(". The old one is {name}"));
        }
        text
    }
}
