//! What a plan for another place has to know of that: asked ahead, so that nothing waits in the
//! middle of a judgement.
//!
//! A question that was not foreseen is noted and answered with the less favourable answer; whoever
//! judges asks for what was noted and judges again, until nothing is.

use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    link::Link,
    message::{FarSeen, LookAt, PostQuestion, SeenAs},
};
use crate::place::{Folder, Look, NoProgram, Soon};

/// What is known of a place, for one plan.
#[derive(Debug)]
pub(super) struct Sight {
    link: Arc<Link>,
    seen: Mutex<HashMap<LookAt, SeenAs>>,
    /// What was asked and is not known.
    missing: Mutex<HashSet<LookAt>>,
}

impl Sight {
    /// Looks at a folder, and at programs as commands in it find them.
    pub(super) async fn survey(
        link: Arc<Link>,
        folder: PathBuf,
        programs: Vec<String>,
        paths: Vec<PathBuf>,
    ) -> io::Result<Self> {
        let seen: FarSeen = link.ask(PostQuestion::Survey { folder, programs, paths }).await?;
        let seen = Mutex::new(seen.into_iter().collect());
        Ok(Self { link, seen, missing: Mutex::default() })
    }

    fn find(&self, at: LookAt) -> Option<SeenAs> {
        let seen = lock(&self.seen).get(&at).cloned();
        if seen.is_none() {
            lock(&self.missing).insert(at);
        }
        seen
    }

    async fn ask(&self, missing: Vec<LookAt>) -> io::Result<()> {
        let seen: FarSeen = self.link.ask(PostQuestion::Look(missing)).await?;
        lock(&self.seen).extend(seen);
        Ok(())
    }
}

impl Look for Sight {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.link.hello.environment.get(name).map(OsString::from)
    }

    fn find_program(&self, name: &OsStr, workdir: &Path) -> Result<PathBuf, NoProgram> {
        let name = name.to_str().ok_or(NoProgram::Invalid)?.to_owned();
        match self.find(LookAt::Program { name, folder: workdir.to_owned() }) {
            Some(SeenAs::Program(found)) => found.map_err(NoProgram::from),
            _ => Err(NoProgram::NotFound),
        }
    }

    fn real_program(&self, program: &Path) -> Option<PathBuf> {
        match self.find(LookAt::Real(program.to_owned())) {
            Some(SeenAs::Real(real)) => real,
            _ => None,
        }
    }

    fn can_be_planted(&self, file: &Path) -> bool {
        !matches!(self.find(LookAt::Planted(file.to_owned())), Some(SeenAs::Yes(false)))
    }

    fn open_folder(&self, path: &Path) -> io::Result<Folder> {
        match self.find(LookAt::Folder(path.to_owned())) {
            Some(SeenAs::Folder(Ok(path))) => Ok(Folder { path, handle: None }),
            Some(SeenAs::Folder(Err(errno))) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn is_still_there(&self, folder: &Folder) -> bool {
        self.open_folder(&folder.path).is_ok_and(|opened| opened.path == folder.path)
    }

    fn exists(&self, path: &Path) -> bool {
        matches!(self.find(LookAt::Exists(path.to_owned())), Some(SeenAs::Yes(true)))
    }

    fn missing(&self) -> Option<Soon<'_, io::Result<()>>> {
        let missing: Vec<LookAt> = lock(&self.missing).drain().collect();
        if missing.is_empty() {
            return None;
        }
        Some(Box::pin(self.ask(missing)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
