//! The versions of an engine's tasks: one for each configuration that was read.
//!
//! Every call takes the current one once and goes by it. The files are looked at then, and read
//! again when they have changed. While one of them is broken, the version of before stays, with a
//! judge that refuses everything: what runs goes on, and can be looked at, waited for and stopped.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::Tasks;
use crate::{
    error::{ErrorKind, ToolError},
    judge::{config::Config, files::ConfigFiles},
    model::Trust,
    store::audit::AuditEntry,
    threads::in_thread,
};

/// Makes a version of another, of what was read. It may look at the disk.
type MakeVersion = dyn Fn(&Tasks, Config) -> Tasks + Send + Sync;

/// The versions of an engine's tasks.
pub(crate) struct Versions {
    latest: Mutex<Latest>,
    /// Held while the files are read: what was read later counts.
    reading: tokio::sync::Mutex<()>,
    make: Arc<MakeVersion>,
}

struct Latest {
    tasks: Arc<Tasks>,
    /// None where nothing is read again.
    files: Option<Arc<ConfigFiles>>,
    /// Callers of which trust are expected, if a server waits for them.
    expected: Option<Trust>,
}

/// The latest version for somebody who keeps no engine alive, but what a run keeps.
#[derive(Debug, Clone)]
pub(crate) struct LatestTasks {
    versions: Weak<Versions>,
    own: Weak<Tasks>,
}

impl LatestTasks {
    /// The latest version; none if nobody has any.
    pub(super) fn upgrade(&self) -> Option<Arc<Tasks>> {
        let latest = self.versions.upgrade().map(|versions| versions.latest());
        latest.or_else(|| self.own.upgrade())
    }
}

impl Tasks {
    /// A way to the latest version that keeps nothing alive.
    pub(crate) fn downgrade(self: &Arc<Self>) -> LatestTasks {
        LatestTasks { versions: self.versions.clone(), own: Arc::downgrade(self) }
    }

    /// The version by which something is judged now: this one, unless the configuration has
    /// changed.
    pub(super) async fn current(self: &Arc<Self>) -> Arc<Self> {
        match self.versions.upgrade() {
            Some(versions) => versions.current().await,
            None => self.clone(),
        }
    }

    /// The same tasks while the configuration cannot be used.
    fn broken(&self, why: ToolError) -> Self {
        Self { judge: self.judge.broken(why), ..self.clone() }
    }
}

impl Versions {
    /// These tasks first, and then those that are made of the files when they have changed.
    pub(crate) fn new(
        tasks: Tasks,
        files: Option<ConfigFiles>,
        make: impl Fn(&Tasks, Config) -> Tasks + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|versions| {
            let tasks = Arc::new(Tasks { versions: versions.clone(), ..tasks });
            let latest = Latest { tasks, files: files.map(Arc::new), expected: None };
            let reading = tokio::sync::Mutex::default();
            Self { latest: Mutex::new(latest), reading, make: Arc::new(make) }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest version, for what judges nothing and starts nothing.
    pub(crate) fn latest(&self) -> Arc<Tasks> {
        self.lock().tasks.clone()
    }

    /// Makes each version ready for callers of this trust from now on.
    pub(crate) fn expect(&self, trust: Trust) {
        self.lock().expected = Some(trust);
    }

    /// The version of the files as they are now.
    pub(crate) async fn current(&self) -> Arc<Tasks> {
        let files = self.lock().files.clone();
        if let Some(files) = files
            && files.may_have_changed().await
        {
            // Rare, and large: the way of most calls stays short.
            Box::pin(self.read_again()).await;
        }
        self.latest()
    }

    async fn read_again(&self) {
        let _turn = self.reading.lock().await;
        let (before, known) = {
            let latest = self.lock();
            let Some(known) = latest.files.clone() else { return };
            (latest.tasks.clone(), known)
        };
        let (old, version_of) = (before.clone(), self.make.clone());
        let reading = move || {
            let files = known.read_again();
            let changed = files.changed_since(&known);
            let made = (!changed.is_empty()).then(|| match files.config() {
                Ok(config) => version_of(&old, config),
                Err(error) => old.broken(error.into()),
            });
            (files, changed, made)
        };
        let Some((files, changed, made)) = in_thread(reading).await else {
            // It panicked there; the next call tries again.
            self.lock().tasks = Arc::new(before.broken(unread()));
            return;
        };
        let made = made.map(Arc::new);
        let expected = {
            let mut latest = self.lock();
            latest.files = Some(Arc::new(files));
            latest.tasks = made.clone().unwrap_or_else(|| before.clone());
            latest.expected
        };
        if let Some(made) = made {
            note(&made, &changed).await;
            take_over(&before, &made, expected);
        }
    }
}

fn unread() -> ToolError {
    ToolError::new(ErrorKind::ConfigurationInvalid, "the configuration could not be read")
        .hint("make the same call again")
}

/// Tells of a version, once: the log of a server and the audit log.
async fn note(tasks: &Tasks, changed: &[String]) {
    let (files, problem) = (changed.join(", "), tasks.judge.check().err());
    let problem = problem.map(|error| error.message);
    match &problem {
        None => tracing::info!(files, "the configuration has changed and was read"),
        Some(problem) => tracing::error!(files, "no command may start: {problem}"),
    }
    let verdict = if problem.is_some() { "broken" } else { "read" };
    let entry = AuditEntry::new("configuration").own("verdict", verdict);
    tasks.store.note(entry.with("files", files).with("reason", problem)).await;
}

/// Makes a place ready if it is a new one, and lets go of what waits at the old one.
fn take_over(old: &Tasks, new: &Arc<Tasks>, expected: Option<Trust>) {
    if Arc::ptr_eq(&old.place, &new.place) {
        return;
    }
    let (old, new) = (old.place.clone(), new.clone());
    tokio::spawn(async move {
        old.close().await;
        if let Some(trust) = expected
            && let Err(error) = new.place.warm_up(new.judge.wanted(trust)).await
        {
            tracing::warn!(%error, "nothing is made ready for the next command");
        }
    });
}

impl fmt::Debug for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Versions")
    }
}
