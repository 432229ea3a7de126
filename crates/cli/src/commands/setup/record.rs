//! What setup has done to a file, kept in the state folder with the file as it was before, so that
//! it can be undone.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    files::{is_absent, make_folders, replace},
    table::SetupPart,
};

/// The folder of the records, in the state folder.
pub(super) const FOLDER: &str = "setup";

/// The record of one file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileRecord {
    pub file: PathBuf,
    /// Whether it was there before; as it was then it is kept beside the record.
    pub existed: bool,
    /// The digest of what was written: if the file still has it, nobody else has changed it.
    pub written: String,
    /// The folders that were made for it, the innermost first.
    pub folders: Vec<PathBuf>,
    /// What was put in.
    pub made: Vec<MadeChange>,
    /// Whether the copy is the file without anything of ours.
    pub whole: bool,
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MadeChange {
    pub part: SetupPart,
    pub at: Vec<String>,
    /// The value that was there before.
    pub previous: Option<Value>,
    /// How many of the keys were there before: what is empty below them goes, too.
    pub existed: usize,
}

/// Where the records of a state folder are.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(super) fn of(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }

    /// The name that a file's record has, readable and its own.
    fn stem(file: &Path) -> String {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let digest = digest(&file.display().to_string());
        format!("{}-{}", name.trim_start_matches('.'), digest.get(..12).unwrap_or_default())
    }

    /// Where the file is kept as it was before.
    pub(super) fn copy(&self, file: &Path) -> PathBuf {
        self.folder.join(format!("{}.before", Self::stem(file)))
    }

    fn record(&self, file: &Path) -> PathBuf {
        self.folder.join(format!("{}.json", Self::stem(file)))
    }

    /// The files of all records.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts
            .filter_map(|text| Some(serde_json::from_str::<FileRecord>(&text).ok()?.file))
            .collect()
    }

    /// The record of a file; none if there is none that can be read.
    pub(super) fn find(&self, file: &Path) -> Option<FileRecord> {
        let text = fs::read_to_string(self.record(file)).ok()?;
        let record: FileRecord = serde_json::from_str(&text).ok()?;
        Some(record).filter(|record| record.file == file)
    }

    /// The file as it was before, for a record.
    pub(super) fn before(&self, record: &FileRecord) -> io::Result<String> {
        fs::read_to_string(self.copy(&record.file))
    }

    /// Keeps a file as it is before the first change of it.
    pub(super) fn keep_copy(&self, file: &Path, text: &str) -> io::Result<()> {
        make_folders(&self.folder, true)?;
        write(&self.copy(file), text)
    }

    /// Keeps a record.
    pub(super) fn keep(&self, record: &FileRecord) -> io::Result<()> {
        make_folders(&self.folder, true)?;
        write(&self.record(&record.file), &serde_json::to_string_pretty(record)?)
    }

    /// Forgets a file.
    pub(super) fn forget(&self, file: &Path) -> io::Result<()> {
        for path in [self.record(file), self.copy(file)] {
            match fs::remove_file(path) {
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        // The last one takes the folder along.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let was = super::files::read(path)?;
    replace(path, was.as_deref(), text, true).map(|_| ())
}

pub(super) fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}
