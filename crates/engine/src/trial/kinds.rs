//! Kinds of changes and of files, the same on every system.

use serde::{Deserialize, Serialize};

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there before.
    Made,
    /// Its content, or what kind of file it is, is another one.
    Changed,
    /// It is gone.
    Removed,
    /// Only its mode, owner, attributes or time are others.
    Touched,
}

impl ChangeKind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Touched => "touched",
        }
    }

    /// The sign that stands for it in a list.
    pub fn sign(self) -> char {
        match self {
            Self::Made => '+',
            Self::Changed => '~',
            Self::Removed => '-',
            Self::Touched => '.',
        }
    }
}

/// What kind of file it is: after the trial, or before it if it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangedFile {
    /// A plain file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}
