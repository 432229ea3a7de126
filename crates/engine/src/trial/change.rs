//! What a change of a trial is: which file, what happened to it, and what it was before.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    details::OtherDifferences,
    kinds::{ChangeKind, ChangedFile},
    record::lossless,
    tree::FileMark,
};
use crate::model::trusted::is_run_by_tools;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedChange {
    /// Where.
    #[serde(with = "lossless")]
    pub path: PathBuf,
    /// What.
    pub kind: ChangeKind,
    /// Of what.
    pub file: ChangedFile,
    /// How long it is now; how long it was if it is gone.
    pub bytes: u64,
    /// The layer that it is in.
    pub(super) layer: usize,
    /// What stood there when the trial was first looked at.
    pub(super) before: Option<FileMark>,
    /// What the trial has there, unless it is gone: nothing else is brought over.
    pub(super) after: Option<FileMark>,
    /// Whether that was changed while the trial ran, by somebody else.
    pub(super) stale: bool,
    /// What else differs of the two.
    pub(super) other: OtherDifferences,
}

impl TriedChange {
    /// Whether it makes something run: a program or script that could not be executed before or
    /// with more rights, or a file by which tools run programs.
    pub(super) fn runs_or_is_trusted(&self) -> bool {
        const EXECUTED: u32 = 0o111;
        const AS_ITS_OWNER: u32 = 0o6000;
        let is_file = self.file == ChangedFile::File;
        let mode = |mark: Option<FileMark>| mark.map_or(0, |mark| mark.mode);
        let (before, after) = (mode(self.before), mode(self.after));
        let came = |bits: u32| is_file && after & bits != 0 && before & bits == 0;
        let is_folder = self.file == ChangedFile::Folder;
        came(EXECUTED) || came(AS_ITS_OWNER) || !is_folder && is_run_by_tools(&self.path)
    }
}

/// The changes of a trial, in the order of their paths: what is in a folder comes after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedChanges {
    /// All of them.
    pub all: Vec<TriedChange>,
}

impl TriedChanges {
    /// The changes at a path and below it.
    pub(super) fn within(&self, path: &Path) -> &[TriedChange] {
        let begin = self.all.partition_point(|change| change.path.as_path() < path);
        let rest = self.all.get(begin..).unwrap_or_default();
        // What is in a folder comes right after it.
        let length = rest.partition_point(|change| change.path.starts_with(path));
        rest.get(..length).unwrap_or_default()
    }

    /// Whether it is known of each what the trial has there.
    pub(super) fn is_marked(&self) -> bool {
        self.all.iter().all(|it| it.kind == ChangeKind::Removed || it.after.is_some())
    }

    /// How many of one kind; folders count only where nothing is in them.
    pub fn count(&self, kind: ChangeKind) -> usize {
        self.listed().filter(|change| change.kind == kind).count()
    }

    /// Those that a person is shown, first what runs or is trusted, then those in the workspace: of
    /// caches there may be many, and lists have an end.
    pub fn listed_from(&self, workspace: &Path) -> Vec<&TriedChange> {
        let mut all: Vec<&TriedChange> = self.listed().collect();
        all.sort_by_key(|it| (!it.runs_or_is_trusted(), !it.path.starts_with(workspace)));
        all
    }

    /// Those that a person is shown: a folder is left out where something in it is listed.
    pub fn listed(&self) -> impl Iterator<Item = &TriedChange> {
        let next = self.all.iter().skip(1).map(Some).chain([None]);
        self.all.iter().zip(next).filter_map(|(change, next)| {
            let covers = |next: &TriedChange| {
                change.file == ChangedFile::Folder
                    && next.kind == change.kind
                    && next.path.starts_with(&change.path)
            };
            (!next.is_some_and(covers)).then_some(change)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changes_at_and_below_a_path_stand_together_and_are_found() {
        let change = |path: &str| TriedChange {
            path: path.into(),
            kind: ChangeKind::Removed,
            file: ChangedFile::File,
            bytes: 0,
            layer: 0,
            before: None,
            after: None,
            stale: false,
            other: OtherDifferences::NONE,
        };
        let mut all: Vec<TriedChange> =
            ["/w/b", "/w/a.c", "/w/a/b", "/w/a-b", "/w/a", "/w/a/b/c", "/w/a/a"].map(change).into();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        let changes = TriedChanges { all };
        let within = |path: &str| {
            let found = changes.within(Path::new(path)).iter();
            found.map(|it| it.path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(within("/w/a"), ["/w/a", "/w/a/a", "/w/a/b", "/w/a/b/c"]);
        assert_eq!(within("/w/a/b/"), ["/w/a/b", "/w/a/b/c"]);
        assert_eq!(within("/w/b"), ["/w/b"]);
        assert_eq!(within("/").len(), 7);
        assert!(within("/w/aa").is_empty() && within("/x").is_empty());
    }
}
