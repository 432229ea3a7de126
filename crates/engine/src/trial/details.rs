//! What of a change is not seen by its kind: modes, owners, attributes and times, in a few words.

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::changes::{ChangeKind, TriedChange};

/// What differs about a file besides its content and its mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OtherDifferences {
    /// User and group, before and now.
    pub owner: Option<[(u32, u32); 2]>,
    /// Extended attributes or access lists.
    pub attributes: bool,
    /// When its content was changed, though it is the same.
    pub time: bool,
}

impl OtherDifferences {
    pub(super) const NONE: Self = Self { owner: None, attributes: false, time: false };
}

/// The bits of a mode that `chmod` sets.
const BITS: u32 = 0o7777;

/// A new file is told with its mode if it has one of these bits: it can be executed, others can
/// write it, or it lends its owner's rights. Of a folder the last two.
const NOTABLE_FILE: u32 = 0o7113;
const NOTABLE_FOLDER: u32 = 0o6002;

impl TriedChange {
    /// The mode before, if something was there.
    pub fn mode_before(&self) -> Option<u32> {
        self.before.map(|mark| mark.mode & BITS)
    }

    /// The mode now, unless it is gone.
    pub fn mode(&self) -> Option<u32> {
        self.after.map(|mark| mark.mode & BITS)
    }

    /// What a person has to know of it besides its kind: another mode or owner, what it was before.
    /// In words, none of which comes from the command.
    pub fn details(&self) -> Vec<String> {
        let kind = |mode: u32| FileType::from_raw_mode(mode);
        match (self.before, self.after) {
            (Some(before), Some(after)) if kind(before.mode) != kind(after.mode) => {
                vec![format!("was {}", with_article(kind(before.mode)))]
            }
            (Some(before), Some(after)) => self.differences(before.mode & BITS, after.mode & BITS),
            (None, Some(after)) => {
                let bits = match kind(after.mode) {
                    FileType::RegularFile => after.mode & NOTABLE_FILE,
                    FileType::Directory => after.mode & NOTABLE_FOLDER,
                    _ => 0,
                };
                if bits == 0 { Vec::new() } else { vec![format!("mode {:o}", after.mode & BITS)] }
            }
            (_, None) => Vec::new(),
        }
    }

    /// The same in one text; empty if there is nothing.
    pub(super) fn detail(&self) -> String {
        self.details().join(", ")
    }

    fn differences(&self, before: u32, after: u32) -> Vec<String> {
        let mut all = Vec::new();
        if before != after {
            all.push(format!("mode {before:o} -> {after:o}"));
        }
        if let Some([(user, group), (new_user, new_group)]) = self.other.owner {
            all.push(format!("owner {user}:{group} -> {new_user}:{new_group}"));
        }
        if self.other.attributes {
            all.push("attributes".to_owned());
        }
        // Who changes a file changes its time.
        if self.other.time && self.kind == ChangeKind::Touched && all.is_empty() {
            all.push("time".to_owned());
        }
        all
    }
}

fn with_article(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a link",
        _ => "neither file nor folder",
    }
}
