//! The engines of this machine: which one a warden belongs to, whether it lives, and when one has
//! ended.
//!
//! An engine knows more of its commands than anybody else: it may have heard of an end that it has
//! not committed yet when the warden dies. So whoever finds a dead warden leaves it to the engine,
//! for as long as that lives. A warden's name begins with its engine's mark; the engine holds a
//! lock on the file of that name, which the kernel lets go when the engine ends, however that
//! comes.
//!
//! Whoever takes over what an engine has left running takes over its lock, too
//! ([`Owners::inherit`]): so there is one heir, everybody knows that there is one, and its own end
//! is told like any other.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::watch, task::AbortHandle, time::sleep};

use crate::{
    id,
    inotify::{Inotify, ReadFlags, WatchFlags},
    model::place::place_of,
    place::Inheritance,
    presence::{Presence, RELEASE_MS, SPARE, is_here},
    state::make_private,
};

/// What stands between an engine's mark and the rest of a warden's name.
const SEPARATOR: char = '-';

/// Characters of a mark.
const MARK_CHARS: usize = 13;

/// How often to look where the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// An engine that leaves removes its file, or gives it the name under which the next finds it.
const LEAVES: WatchFlags = WatchFlags::DELETE.union(WatchFlags::MOVED_FROM);
const LEFT: ReadFlags = ReadFlags::DELETE.union(ReadFlags::MOVED_FROM);

/// An engine's mark and its lock; dropping it is the engine's end.
#[derive(Debug)]
pub(super) struct Owner {
    mark: String,
    /// None of an engine that is on another machine, where its lock is.
    _presence: Option<Presence>,
}

impl Owner {
    /// Takes a new mark in the folder of the engines, which is made.
    pub(super) fn new(engines: &Path) -> io::Result<Self> {
        make_private(engines)?;
        let mut mark = id::random("").map_err(io::Error::other)?;
        mark.truncate(MARK_CHARS);
        let presence = Presence::take_new(&engines.join(&mark))?;
        let presence = presence.ok_or_else(|| io::Error::other("the mark is taken"))?;
        Ok(Self { mark, _presence: Some(presence) })
    }

    /// The mark.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// A name for a new warden.
    pub(super) fn name(&self) -> io::Result<String> {
        let rest = id::random("").map_err(io::Error::other)?;
        Ok(format!("{}{SEPARATOR}{rest}", self.mark))
    }

    /// Whether a warden was forked for this engine.
    fn has_forked(&self, warden: &str) -> bool {
        mark(warden) == Some(&self.mark)
    }
}

/// The mark of the engine that a warden was forked for, wherever the warden is.
fn mark(warden: &str) -> Option<&str> {
    let name = place_of(warden).map_or(warden, |(_, name)| name);
    name.split_once(SEPARATOR).map(|(mark, _)| mark)
}

/// Whether a file in the folder of the engines is of one that has ended.
pub(super) fn is_left_behind(file: &Path) -> bool {
    !is_here(file)
}

/// The engines of a state folder: this one, those that it has taken the place of, and the ends of
/// others.
#[derive(Debug)]
pub(super) struct Owners {
    engines: PathBuf,
    own: OnceLock<Owner>,
    /// What this engine has inherited, by the marks of those who left it.
    inherited: Mutex<HashMap<String, Weak<Presence>>>,
    ends: watch::Sender<u64>,
    /// Who watches for ends, once anybody waits for one.
    watcher: Mutex<Option<AbortHandle>>,
}

impl Owners {
    pub(super) fn new(engines: PathBuf) -> Self {
        Self {
            engines,
            own: OnceLock::new(),
            inherited: Mutex::default(),
            ends: watch::Sender::new(0),
            watcher: Mutex::default(),
        }
    }

    /// Those of a machine on which this engine is not itself.
    pub(super) fn for_engine(engines: PathBuf, mark: &str) -> Self {
        let owners = Self::new(engines);
        let _ = owners.own.set(Owner { mark: mark.to_owned(), _presence: None });
        owners
    }

    /// The mark of this engine, which its wardens carry.
    pub(super) fn own(&self) -> io::Result<&Owner> {
        if let Some(owner) = self.own.get() {
            return Ok(owner);
        }
        let owner = Owner::new(&self.engines)?;
        Ok(self.own.get_or_init(|| owner))
    }

    /// Whether the engine lives that this warden was forked for, or another one in its place.
    pub(super) fn is_owned(&self, warden: &str) -> bool {
        mark(warden).is_some_and(|mark| is_here(&self.engines.join(mark)))
    }

    /// Takes the place of the engine that a warden was forked for; none if that lives, or has an
    /// heir.
    pub(super) fn inherit(&self, warden: &str) -> Option<Inheritance> {
        if self.own.get().is_some_and(|own| own.has_forked(warden)) {
            return Some(Inheritance::default());
        }
        // From a time in which engines had no marks.
        let Some(mark) = mark(warden) else { return Some(Inheritance::default()) };
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(presence) = inherited.get(mark).and_then(Weak::upgrade) {
            return Some(Inheritance(Some(presence)));
        }
        let path = self.engines.join(mark);
        // A look first: the try alone would be told to everybody as the end of somebody.
        if is_here(&path) {
            return None;
        }
        let presence = Arc::new(Presence::take(&path).ok()??);
        inherited.retain(|_, presence| presence.strong_count() > 0);
        inherited.insert(mark.to_owned(), Arc::downgrade(&presence));
        Some(Inheritance(Some(presence)))
    }

    /// Counts the ends of engines, from now on.
    pub(super) fn ends(&self) -> watch::Receiver<u64> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if watcher.as_ref().is_none_or(AbortHandle::is_finished) {
            // From here on none is missed.
            let watch = Watch::begin(self.engines.clone());
            let watching = tokio::spawn(tell_ends(watch, self.ends.clone()));
            *watcher = Some(watching.abort_handle());
        }
        self.ends.subscribe()
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        let watcher = self.watcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = watcher.take() {
            watcher.abort();
        }
    }
}

/// Tells of the ends of engines.
async fn tell_ends(mut watch: Watch, ends: watch::Sender<u64>) {
    loop {
        watch.end().await;
        ends.send_modify(|count| *count += 1);
    }
}

/// A watch on the folder of the engines.
#[derive(Debug)]
struct Watch {
    engines: PathBuf,
    /// None where the kernel does not tell.
    inotify: Option<Inotify>,
}

impl Watch {
    fn begin(engines: PathBuf) -> Self {
        let begin = || {
            make_private(&engines)?;
            let inotify = Inotify::new()?;
            let ends = WatchFlags::CLOSE_WRITE | LEAVES | WatchFlags::ONLYDIR;
            inotify.add(&engines, ends)?;
            Ok(inotify)
        };
        let complain = |error: &io::Error| {
            // Where no system of this kind tells, that is as it should be.
            if error.kind() != io::ErrorKind::Unsupported {
                tracing::warn!(%error, "engines that have ended are looked for every two seconds");
            }
        };
        let inotify = begin().inspect_err(complain).ok();
        Self { engines, inotify }
    }

    /// Waits until an engine may have ended.
    async fn end(&mut self) {
        loop {
            let Some(inotify) = &self.inotify else { return sleep(LOOK_EVERY).await };
            let (mut left, mut closed) = (false, Vec::new());
            let read = match inotify.changed().await {
                Ok(()) => inotify.read(|change| match change.name {
                    // Who leaves takes this name, and who comes takes it away.
                    Some(name) if name == SPARE => {}
                    Some(name) if !change.flags.intersects(LEFT) => {
                        closed.push(self.engines.join(name));
                    }
                    // It has taken its leave, or so many have that nobody can name them.
                    _ => left = true,
                }),
                Err(error) => Err(error),
            };
            if let Err(error) = read {
                tracing::warn!(%error, "engines that have ended are looked for every two seconds");
                self.inotify = None;
            }
            for pause_ms in RELEASE_MS {
                sleep(Duration::from_millis(pause_ms)).await;
                let before = closed.len();
                closed.retain(|path| is_here(path));
                left |= closed.len() < before;
                if closed.is_empty() {
                    break;
                }
            }
            if left {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_warden_is_owned_for_as_long_as_its_engine_or_an_heir_lives() {
        let scratch = tempfile::tempdir().unwrap();
        let [dead, one, two] = [(); 3].map(|()| Owners::new(scratch.path().to_owned()));
        let (warden, other) =
            (dead.own().unwrap().name().unwrap(), one.own().unwrap().name().unwrap());
        assert_ne!(warden, other);
        assert!(one.is_owned(&warden) && two.is_owned(&other) && !one.is_owned("ofnobody-x"));
        assert!(one.inherit(&warden).is_none(), "it lives");
        assert!(one.inherit(&other).is_some(), "its own");
        drop(dead);
        assert!(!one.is_owned(&warden));
        let estate = one.inherit(&warden).unwrap();
        let again = one.inherit(&warden).unwrap();
        assert!(two.is_owned(&warden) && two.inherit(&warden).is_none(), "there is one heir");
        drop(estate);
        assert!(two.inherit(&warden).is_none(), "it still has something of it");
        drop(again);
        assert!(two.inherit(&warden).is_some(), "and then another one");
    }

    #[tokio::test]
    async fn every_end_is_told_and_no_beginning() {
        let scratch = tempfile::tempdir().unwrap();
        let here = Owners::new(scratch.path().to_owned());
        let mut ends = here.ends();
        let other = Owners::new(scratch.path().to_owned());
        let warden = other.own().unwrap().name().unwrap();
        assert!(here.inherit(&warden).is_none());
        // As somebody who opens it for another reason.
        drop(fs_open(&scratch.path().join(mark(&warden).unwrap())));
        assert!(timeout(Duration::from_millis(500), ends.changed()).await.is_err());
        let begin = Instant::now();
        drop(other);
        timeout(Duration::from_secs(5), ends.changed()).await.unwrap().unwrap();
        // The end of an heir is an end.
        let heir = Owners::new(scratch.path().to_owned());
        let estate = heir.inherit(&warden).unwrap();
        ends.mark_unchanged();
        drop(estate);
        timeout(Duration::from_secs(5), ends.changed()).await.unwrap().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        drop(here);
        assert!(ends.changed().await.is_err(), "nobody tells any more");
    }

    fn fs_open(path: &Path) -> std::fs::File {
        std::fs::OpenOptions::new().write(true).open(path).unwrap()
    }
}
