//! The record of a trial, and files of JSON that are there as a whole or not at all.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::id::TaskId;

/// What is known of a trial besides its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Its task.
    pub task_id: TaskId,
    /// The workspace that it ran in.
    #[serde(with = "lossless")]
    pub workspace: PathBuf,
    /// The folders that it saw as copies.
    pub(super) layers: Vec<LayerRecord>,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// By the clock of the file system: what was changed later was changed underneath.
    pub(super) began: FileTime,
    /// What was brought over so far: these paths, and all below them.
    #[serde(with = "lossless_list")]
    pub applied: Vec<PathBuf>,
}

/// A folder of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    pub number: usize,
    #[serde(with = "lossless")]
    pub place: PathBuf,
}

impl LayerRecord {
    pub(super) fn new(number: usize, place: &Path) -> Self {
        Self { number, place: place.to_owned() }
    }
}

/// A time of the file system, in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FileTime(pub i64, pub i64);

impl FileTime {
    /// Now, by the clock that changes of files are stamped with: by that of a file of our own. It
    /// is looked at before it is changed again, since then the stamp is finer than a tick of the
    /// kernel, and later changes of other files come after it.
    pub(super) fn of_now(folder: &Path) -> io::Result<Self> {
        let file = folder.join(".now");
        fs::write(&file, "")?;
        fs::metadata(&file)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        let found = fs::metadata(&file)?;
        fs::remove_file(&file)?;
        Ok(Self(found.ctime(), found.ctime_nsec()))
    }
}

/// Reads a file of JSON.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other)
}

/// Puts a file in the place of another at once; it is on the disk when this returns.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    write_new(path, value)?.sync_all()?;
    fs::rename(path.with_extension(NEW), path)?;
    sync_folder_of(path)
}

/// The same, on the disk some time later: after a power cut the file may be missing or empty.
pub(super) fn write_json_soon<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    write_new(path, value)?;
    fs::rename(path.with_extension(NEW), path)
}

/// What a file is called until it takes the place of another.
pub(super) const NEW: &str = "new";

fn write_new(path: &Path, value: &impl Serialize) -> io::Result<fs::File> {
    let mut options = fs::File::options();
    options.create(true).write(true).truncate(true).mode(0o600);
    let mut file = options.open(path.with_extension(NEW))?;
    file.write_all(&serde_json::to_vec(value).map_err(io::Error::other)?)?;
    Ok(file)
}

/// Removes a file; it is gone from the disk when this returns.
pub(super) fn remove_synced(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_folder_of(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// A path in JSON: a text, or its bytes where it is none.
pub(super) mod lossless {
    use std::{
        ffi::OsString,
        os::unix::ffi::{OsStrExt, OsStringExt},
        path::{Path, PathBuf},
    };

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    pub(super) enum PathForm {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn form(path: &Path) -> PathForm {
        match path.to_str() {
            Some(text) => PathForm::Text(text.to_owned()),
            None => PathForm::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }

    pub(super) fn path(form: PathForm) -> PathBuf {
        match form {
            PathForm::Text(text) => text.into(),
            PathForm::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        form(path).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        PathForm::deserialize(from).map(path)
    }
}

/// The same for several.
pub(super) mod lossless_list {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::lossless::{PathForm, form, path};

    pub(crate) fn serialize<S: Serializer>(
        paths: &[PathBuf],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let forms: Vec<PathForm> = paths.iter().map(|path| form(path)).collect();
        forms.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let forms = Vec::<PathForm>::deserialize(from)?;
        Ok(forms.into_iter().map(path).collect())
    }
}
