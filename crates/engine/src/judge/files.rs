//! The files of the configuration: which there are, what they say, and whether that has changed.
//!
//! A running engine looks at them before each judgement: a few numbers of the file system for each
//! file, also where there is none yet. Only what differs is read again, in a thread. A file that
//! was written just before it was read is read again next time whatever its numbers are, because a
//! second write in the same moment does not have to change them. Many programs save a file by
//! emptying or removing it first: while it may be empty or gone for that reason it is waited for.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use legwork_gate::Origin;

use super::config::{Config, ConfigError, Guarding, is_absent, usual_files};
use crate::{
    plain_file::{read_text, read_text_itself},
    platform::{FileStamp, is_remote, stamp},
    threads::in_thread,
};

/// Numbers of a file that was written this long before it was read say nothing: some file systems
/// count in whole seconds, and one in two.
const RACY: Duration = Duration::from_secs(2);

/// A file that was written this long ago may be written still.
const SETTLED: Duration = Duration::from_millis(20);

/// Most reads of a file that is written all the time.
const TRIES: usize = 5;

/// A file that was emptied or removed this long ago may get its new text still.
const EMPTIED: Duration = Duration::from_millis(250);

/// Most reads of a file that may be without its text.
const TRIES_UNSETTLED: usize = 20;

/// The files that a configuration was read from, with what they said.
///
/// An engine whose [`Options`](crate::Options) have them reads them again when they change.
#[derive(Debug, Clone)]
pub struct ConfigFiles {
    workspace: PathBuf,
    guarding: Guarding,
    files: Vec<ConfigFile>,
}

/// One of them, whether it exists or not.
#[derive(Debug, Clone)]
struct ConfigFile {
    origin: Origin,
    path: PathBuf,
    /// Its stamp when it was read; none where that is not looked at again: a pipe has nothing more
    /// to say.
    found: Option<Found>,
    /// Set if it may be on another machine, which may not answer.
    is_remote: bool,
    /// Set if it can have changed although its stamp is the same.
    is_racy: bool,
    text: Result<Option<String>, Unread>,
}

/// The stamp of a file, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    File(FileStamp),
    /// It cannot be looked at.
    Hidden(io::ErrorKind),
}

/// The error of a file that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unread {
    kind: io::ErrorKind,
    errno: Option<i32>,
    text: String,
}

impl ConfigFiles {
    /// Reads all files that count for a workspace.
    pub(super) fn read(workspace: &Path, given: &[PathBuf], guarding: Guarding) -> Self {
        let usual = usual_files(workspace);
        let given = given.iter().map(|path| (Origin::Given, path.clone()));
        let files = usual.into_iter().chain(given);
        let files = files.map(|(origin, path)| ConfigFile::read(origin, &path)).collect();
        Self { workspace: workspace.to_owned(), guarding, files }
    }

    /// The configuration that they make together.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let mut texts = Vec::new();
        for file in &self.files {
            match &file.text {
                Ok(Some(text)) => texts.push((file.origin, file.path.clone(), text.clone())),
                Ok(None) => {}
                Err(unread) => {
                    return Err(ConfigError::File {
                        path: file.path.clone(),
                        source: unread.error(),
                    });
                }
            }
        }
        let mut config = Config::of(&texts, self.guarding)?;
        // Whoever may write one of these decides; one that is not there yet is told of here all the
        // same.
        let deciding = self.files.iter().filter(|file| file.origin != Origin::System);
        config.sandbox.deciding.extend(deciding.map(|file| file.path.clone()));
        config.files = Some(self.clone());
        Ok(config)
    }

    /// Looks whether they may say something else by now.
    pub(crate) async fn may_have_changed(&self) -> bool {
        if self.files.iter().any(|file| file.is_racy) {
            return true;
        }
        if !self.files.iter().any(|file| file.is_remote) {
            return self.are_found_otherwise();
        }
        // A server that does not answer must not hold up the rest.
        let files = self.clone();
        in_thread(move || files.are_found_otherwise()).await.unwrap_or(true)
    }

    fn are_found_otherwise(&self) -> bool {
        self.files.iter().any(ConfigFile::is_found_otherwise)
    }

    /// Reads again what may have changed. What is being written is waited for, but not for long.
    pub(crate) fn read_again(&self) -> Self {
        let files = self.files.iter().map(ConfigFile::read_again).collect();
        Self { workspace: self.workspace.clone(), guarding: self.guarding, files }
    }

    /// The names of those that say something else than before.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<String> {
        let pairs = self.files.iter().zip(&before.files);
        let changed = pairs.filter(|(now, before)| now.text != before.text);
        changed.map(|(now, _)| now.path.display().to_string()).collect()
    }
}

impl ConfigFile {
    /// Reads a file as it was at one moment, and not when it was emptied to be written.
    fn read(origin: Origin, path: &Path) -> Self {
        let first = Self::read_once(origin, path.to_owned());
        let mut read = first.clone();
        for _ in 1..TRIES_UNSETTLED {
            if !read.is_unsettled() {
                return read;
            }
            thread::sleep(SETTLED);
            read = Self::read_once(origin, path.to_owned());
        }
        // Where its clock is ahead of ours, it is young for long.
        if !read.is_unsettled() || (read.found == first.found && !read.is_found_otherwise()) {
            return read;
        }
        let error = io::Error::new(io::ErrorKind::ResourceBusy, "it is being written all the time");
        Self { is_racy: true, text: Err(Unread::because(error)), ..read }
    }

    /// True if it was written while it was read, or may be empty only for a moment.
    fn is_unsettled(&self) -> bool {
        let is_empty = self.text.as_ref().is_ok_and(|text| text.as_deref() == Some(""));
        let is_young =
            || matches!(self.found, Some(Found::File(it)) if it.is_younger_than(EMPTIED));
        self.is_found_otherwise() || is_empty && is_young()
    }

    fn read_once(origin: Origin, path: PathBuf) -> Self {
        let found = Found::at(origin, &path);
        let is_stream = || path.metadata().is_ok_and(|it| !it.is_file() && !it.is_dir());
        if origin == Origin::Given && is_stream() {
            // It can be read once.
            let text = std::fs::read_to_string(&path).map(Some).map_err(Unread::because);
            return Self { origin, path, found: None, is_remote: false, is_racy: false, text };
        }
        let read = match origin {
            // A project's file may be a command's work.
            Origin::Project => read_text_itself(&path),
            _ => read_text(&path),
        };
        let text = match read {
            Ok(text) => Ok(Some(text)),
            // What is named has to be there.
            Err(error) if origin != Origin::Given && is_absent(&error) => Ok(None),
            Err(error) => Err(Unread::because(error)),
        };
        let is_young = matches!(found, Found::File(stamp) if stamp.is_younger_than(RACY));
        let (is_remote, is_racy) = (is_remote(&path), is_young || text.is_err());
        Self { origin, path, found: Some(found), is_remote, is_racy, text }
    }

    fn is_found_otherwise(&self) -> bool {
        self.found.is_some_and(|found| found != Found::at(self.origin, &self.path))
    }

    fn read_again(&self) -> Self {
        if !self.is_racy && !self.is_found_otherwise() {
            return self.clone();
        }
        let mut read = Self::read(self.origin, &self.path);
        let was_there = matches!(self.text, Ok(Some(_)));
        let gone_at = Instant::now();
        while was_there && matches!(read.text, Ok(None)) && gone_at.elapsed() < EMPTIED {
            thread::sleep(SETTLED);
            read = Self::read(self.origin, &self.path);
        }
        for _ in 1..TRIES {
            let may_be_written = read.text != self.text
                && matches!(read.found, Some(Found::File(it)) if it.is_younger_than(SETTLED));
            if !may_be_written {
                break;
            }
            thread::sleep(SETTLED);
            read = Self::read(self.origin, &self.path);
        }
        read
    }
}

impl Found {
    fn at(origin: Origin, path: &Path) -> Self {
        match stamp(path, origin != Origin::Project) {
            Ok(stamp) => Self::File(stamp),
            Err(error) if is_absent(&error) => Self::Nothing,
            Err(error) => Self::Hidden(error.kind()),
        }
    }
}

impl Unread {
    #[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
    fn because(error: io::Error) -> Self {
        Self { kind: error.kind(), errno: error.raw_os_error(), text: error.to_string() }
    }

    fn error(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The files of a folder, as the user's and the project's.
    fn files(folder: &Path) -> ConfigFiles {
        let usual = [(Origin::User, "user.toml"), (Origin::Project, ".legwork.toml")];
        let files = usual.map(|(origin, name)| ConfigFile::read(origin, &folder.join(name))).into();
        ConfigFiles { workspace: folder.to_owned(), guarding: Guarding::default(), files }
    }

    /// The same as if they had been written long ago.
    fn old(mut files: ConfigFiles) -> ConfigFiles {
        for file in &mut files.files {
            file.is_racy = false;
        }
        files
    }

    #[tokio::test]
    async fn what_is_written_removed_replaced_or_linked_anew_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let mut known = old(files(scratch.path()));
        assert!(!known.may_have_changed().await);
        let mut step = async |what: &str, change: &dyn Fn()| {
            change();
            assert!(known.may_have_changed().await, "{what}");
            let now = old(known.read_again());
            let changed = now.changed_since(&known).len();
            known = now;
            assert!(!known.may_have_changed().await, "{what}");
            changed
        };
        let text = "ask = \"never\"\n";
        assert_eq!(step("a new file", &|| fs::write(path("user.toml"), text).unwrap()).await, 1);
        let longer = || fs::write(path("user.toml"), format!("{text}\n")).unwrap();
        assert_eq!(step("a longer file", &longer).await, 1);
        let replace = || {
            fs::write(path("other"), text).unwrap();
            fs::rename(path("other"), path("user.toml")).unwrap();
        };
        assert_eq!(step("a file in its place", &replace).await, 1);
        assert_eq!(step("the same text", &replace).await, 0);
        let link = |target: &str| {
            std::os::unix::fs::symlink(target, path("new")).unwrap();
            fs::rename(path("new"), path("user.toml")).unwrap();
        };
        fs::write(path("one"), "orphan_ttl_ms = 1").unwrap();
        fs::write(path("two"), "orphan_ttl_ms = 2").unwrap();
        assert_eq!(step("a link", &|| link("one")).await, 1);
        assert_eq!(step("a link that is turned", &|| link("two")).await, 1);
        let behind = || fs::write(path("two"), "orphan_ttl_ms = 33").unwrap();
        assert_eq!(step("what is behind a link", &behind).await, 1);
        let project = || fs::write(path(".legwork.toml"), "").unwrap();
        assert_eq!(step("a project's file", &project).await, 1);
        assert_eq!(step("none", &|| fs::remove_file(path("user.toml")).unwrap()).await, 1);
    }

    #[tokio::test]
    async fn what_was_written_just_before_is_read_again_although_its_numbers_are_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("user.toml");
        fs::write(&path, "orphan_ttl_ms = 1").unwrap();
        let mut known = files(scratch.path());
        assert!(known.may_have_changed().await, "it is young");
        assert_eq!(known.read_again().changed_since(&known), Vec::<String>::new());
        fs::write(&path, "orphan_ttl_ms = 2").unwrap();
        // As on a file system whose clock has not ticked since.
        known.files[0].found = Some(Found::at(Origin::User, &path));
        let now = known.read_again();
        assert_eq!(now.changed_since(&known), [path.display().to_string()]);
        assert_eq!(now.config().unwrap().orphan_ttl, Some(Duration::from_millis(2)));
    }

    #[test]
    fn what_was_emptied_just_now_is_not_believed_to_be_empty() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("user.toml");
        let read = || ConfigFile::read(Origin::User, &path);
        fs::write(&path, "ask = \"never\"").unwrap();
        fs::write(&path, "").unwrap();
        let empty = read();
        assert_eq!(empty.text, Ok(Some(String::new())));
        let Some(Found::File(stamp)) = empty.found else { panic!("{empty:?}") };
        assert!(!stamp.is_younger_than(EMPTIED), "it could still have got its text");
    }

    #[test]
    fn a_file_that_is_gone_may_be_put_back_for_a_while() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("user.toml");
        fs::write(&path, "ask = \"never\"").unwrap();
        let known = ConfigFile::read(Origin::User, &path);
        let removed_at = Instant::now();
        fs::remove_file(&path).unwrap();
        let gone = known.read_again();
        assert_eq!(gone.text, Ok(None));
        assert!(removed_at.elapsed() >= EMPTIED, "it could still have been put back");
    }

    #[test]
    fn what_was_written_while_it_was_read_is_read_again() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("user.toml");
        fs::write(&path, "ask = \"never\"").unwrap();
        let read = ConfigFile::read_once(Origin::User, path.clone());
        assert!(!read.is_unsettled());
        fs::write(&path, "ask = \"unless-trusted\"").unwrap();
        assert!(read.is_unsettled());
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_it_until_it_can() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("user.toml");
        fs::create_dir(&path).unwrap();
        let known = files(scratch.path());
        let error = known.config().unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "\nask = 5").unwrap();
        let broken = known.read_again();
        let error = broken.config().unwrap_err().to_string();
        assert!(error.contains("user.toml:2:"), "{error}");
        fs::write(&path, "ask = \"never\"").unwrap();
        assert!(broken.read_again().config().is_ok());
        // A project's link leads nowhere: it may be a command's work.
        std::os::unix::fs::symlink(&path, scratch.path().join(".legwork.toml")).unwrap();
        let linked = known.read_again();
        assert!(linked.config().unwrap_err().to_string().contains(".legwork.toml"));
    }
}
