//! The tokens that count now: read anew whenever their file has changed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use data_encoding::HEXLOWER;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    mcp::Sessions,
    realms::Standing,
    tokens::{Token, TokenFile, digest},
};
use crate::{
    platform::{FileWatch, Stamp},
    render::{now_ms, say},
};

/// Most requests of one token that are worked on at once.
const REQUESTS_MAX: usize = 512;

/// Most answers of one token at once that are written bit by bit, for as long as it likes.
const STREAMS_MAX: usize = 256;

/// How long the wall clock is trusted to go on as it does: a stream looks at it again after this.
const CLOCK_TRUSTED: Duration = Duration::from_secs(30);

/// A token that counts, for as long as it does.
pub(super) struct Holder {
    pub token: Token,
    digest: [u8; 32],
    /// Cancelled when the token is revoked.
    pub revoked: CancellationToken,
    /// Places for its requests.
    pub places: Arc<Semaphore>,
    /// Places for those of them whose answers do not end by themselves.
    pub streams: Arc<Semaphore>,
    /// What it stands on, once it has come.
    pub standing: OnceCell<Arc<Standing>>,
    /// Its sessions of MCP, once it has one.
    pub sessions: OnceCell<Sessions>,
    /// What it has started.
    pub known: legwork::Session,
}

impl Holder {
    pub(super) fn new(token: Token) -> Option<Self> {
        let digest = HEXLOWER.decode(token.sha256.as_bytes()).ok()?.try_into().ok()?;
        let revoked = CancellationToken::new();
        let [places, streams] =
            [REQUESTS_MAX, STREAMS_MAX].map(|most| Arc::new(Semaphore::new(most)));
        let (standing, sessions) = (OnceCell::new(), OnceCell::new());
        let known = legwork::Session::default();
        Some(Self { token, digest, revoked, places, streams, standing, sessions, known })
    }

    /// The holder of a session with this token: all that it may be, until this time at most, and
    /// with its places: sessions do not make more of them.
    pub(super) fn session(&self, end_ms: i64) -> Self {
        let mut token = self.token.clone();
        token.expires_at_ms = Some(token.expires_at_ms.map_or(end_ms, |own| own.min(end_ms)));
        let revoked = self.revoked.child_token();
        let (places, streams) = (self.places.clone(), self.streams.clone());
        let (standing, sessions) = (OnceCell::new(), OnceCell::new());
        let known = self.known.clone();
        Self { token, digest: self.digest, revoked, places, streams, standing, sessions, known }
    }

    /// Whether it is neither revoked nor expired.
    pub(super) fn counts(&self) -> bool {
        !self.revoked.is_cancelled() && !self.token.is_expired(now_ms())
    }

    /// Waits until the token is revoked or expires; holds nothing of this.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let (revoked, end) = (self.revoked.clone(), self.token.expires_at_ms);
        async move {
            tokio::select! {
                () = revoked.cancelled() => {}
                () = expired(end) => {}
            }
        }
    }
}

/// Waits until the wall clock shows this time.
async fn expired(end_ms: Option<i64>) {
    let Some(end_ms) = end_ms else { return std::future::pending().await };
    while let Ok(left @ 1..) = u64::try_from(end_ms.saturating_sub(now_ms())) {
        // The clock may be set in the meantime.
        tokio::time::sleep(Duration::from_millis(left).min(CLOCK_TRUSTED)).await;
    }
}

/// The holders of tokens.
pub(super) struct Keyring {
    file: TokenFile,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The state of the file that was read; none before the first time, too.
    stamp: Option<Stamp>,
    holders: Vec<Arc<Holder>>,
}

impl Keyring {
    pub(super) fn new(file: TokenFile) -> Self {
        let keyring = Self { file, known: Mutex::default() };
        keyring.refresh();
        keyring
    }

    /// How many tokens there are.
    pub(super) fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).holders.len()
    }

    /// The workspaces that tokens are confined to.
    pub(super) fn workspaces(&self) -> Vec<PathBuf> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.holders.iter().filter_map(|holder| holder.token.workspace.clone()).collect()
    }

    /// The holder of a token, if it counts now.
    pub(super) fn holder(&self, secret: &str) -> Option<Arc<Holder>> {
        self.refresh();
        let sought = digest(secret);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // All are compared, and each as a whole: the time tells nothing of where they differ.
        let mut found = None;
        for holder in &known.holders {
            if is_equal(&holder.digest, &sought) {
                found = Some(holder.clone());
            }
        }
        found.filter(|holder| holder.counts())
    }

    /// Reads the file if it has changed. A file that cannot be read lets nobody in.
    pub(super) fn refresh(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.file.stamp();
        if stamp == known.stamp {
            return;
        }
        known.stamp = stamp;
        let tokens = self.file.read().unwrap_or_else(|problem| {
            say(&format!("legwork: no token counts until this is corrected: {problem}"));
            Vec::new()
        });
        let before = std::mem::take(&mut known.holders);
        known.holders = tokens
            .into_iter()
            .filter_map(|token| {
                let same = before.iter().find(|holder| holder.token == token);
                same.cloned().or_else(|| Holder::new(token).map(Arc::new))
            })
            .collect();
        for gone in before.iter().filter(|it| !known.holders.iter().any(|now| Arc::ptr_eq(it, now)))
        {
            gone.revoked.cancel();
        }
    }

    /// Looks at the file whenever something is written beside it, so that a token that is revoked
    /// ends its open streams, too; never ends.
    pub(super) async fn watch(&self) {
        let folder = self.file.path().parent().unwrap_or(Path::new("."));
        let Ok(watch) = FileWatch::of_folder(folder) else {
            // Requests look for themselves.
            return std::future::pending().await;
        };
        loop {
            if watch.changed().await.is_err() {
                return std::future::pending().await;
            }
            self.refresh();
        }
    }
}

/// Whether two hashes are equal, in a time that does not depend on where they differ.
pub(super) fn is_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differing = one.iter().zip(other).fold(0, |bits, (one, other)| bits | (one ^ other));
    std::hint::black_box(differing) == 0
}
