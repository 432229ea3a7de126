//! Attempts to come in with a wrong token: slowed, and told.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::listen::HttpPeer;
use crate::render::say;

/// How long the answer to the first wrong token takes; each further one takes twice as long.
const FIRST: Duration = Duration::from_millis(100);

/// How long an answer takes at most.
const LONGEST: Duration = Duration::from_secs(5);

/// After this time without a wrong token a peer is as good as new.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Peers that are remembered at most.
const PEERS_MAX: usize = 1024;

/// A peer's attempts are told at most once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The peers that came with a wrong token.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashMap<HttpPeer, Failed>>);

#[derive(Debug)]
struct Failed {
    count: u32,
    last: Instant,
    told: Option<Instant>,
}

impl Attempts {
    /// Notes a wrong token; the answer is to wait for so long.
    pub(super) fn note(&self, peer: HttpPeer) -> Duration {
        let now = Instant::now();
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, failed| now - failed.last < FORGOTTEN);
            if peers.len() >= PEERS_MAX {
                return LONGEST;
            }
        }
        let failed = peers.entry(peer).or_insert(Failed { count: 0, last: now, told: None });
        if now - failed.last >= FORGOTTEN {
            failed.count = 0;
        }
        failed.count = failed.count.saturating_add(1);
        failed.last = now;
        if failed.told.is_none_or(|told| now - told >= TOLD_EVERY) {
            failed.told = Some(now);
            let count = failed.count;
            say(&format!("legwork: wrong token from {peer} ({count} in a row)"));
        }
        LONGEST.min(FIRST.saturating_mul(1 << (failed.count - 1).min(16)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wrong_token_waits_longer_until_the_peer_is_quiet() {
        let attempts = Attempts::default();
        let waits: Vec<u128> = (0..8).map(|_| attempts.note(HttpPeer::Local).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(attempts.note(HttpPeer::Address([127, 0, 0, 1].into())), FIRST, "another peer");
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!(attempts.note(HttpPeer::Local), FIRST);
    }
}
