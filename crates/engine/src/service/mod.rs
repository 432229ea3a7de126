//! Runs a server with any face: start, limits on concurrent calls, shutdown.
//!
//! A face (MCP over stdio, HTTP, a host program) makes a [`Service`] of an engine and a [`Client`]
//! for each connection. Calls go through [`Client::call`], which keeps them within the service's
//! limits; what the face reads and writes is counted by the client, so that nobody who does not
//! read can fill our memory.
//!
//! ```no_run
//! # use legwork::{Caller, Engine, Options, Service, Trust};
//! # use serde_json::json;
//! # async fn serve() -> Result<(), legwork::ToolError> {
//! let service = Service::begin(Engine::open(Options::new("."))?, Trust::TrustedSystem).await?;
//! let client = service.client();
//! let input = json!({ "cmd": "make" });
//! let answer = client.call("ExecCommand", input, &Caller::operator("example")).await;
//! println!("{}", answer.receipt());
//! service.end(std::time::Duration::from_millis(100)).await;
//! # Ok(())
//! # }
//! ```

mod client;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Semaphore;

pub use self::client::{Client, Unread};
use crate::{
    engine::Engine,
    error::ToolError,
    model::{Session, Trust},
};

/// Most calls that are worked on at once.
const CALLS_MAX: usize = 256;

/// How long commands may take to end by themselves when the service ends; their wardens see to it.
const GRACE: Duration = Duration::from_millis(400);

/// An engine that serves clients. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    /// Places for calls that may wait.
    places: Semaphore,
    clients: Mutex<Vec<Weak<Client>>>,
    sessions: Mutex<Vec<Session>>,
}

impl Service {
    /// Makes an engine one that stays: commands start at once, tasks that lost their engine are
    /// adopted, old ones are cleaned up. Sandboxes are made ready for callers of this trust.
    ///
    /// An error if the spawner does not start, or if the machine has less protection than is
    /// required.
    pub async fn begin(engine: Engine, trust: Trust) -> Result<Self, ToolError> {
        // Each command takes a descriptor, and clients may have thousands under way.
        legwork_warden::raise_own_open_files();
        engine.warm_up(trust).await?;
        if engine.requires_protection() {
            engine.protection(trust).await?;
        }
        engine.tidy_up();
        let places = Semaphore::new(CALLS_MAX);
        let (clients, sessions) = (Mutex::default(), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { engine, places, clients, sessions }) })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// A new client: one connection of a face.
    pub fn client(&self) -> Arc<Client> {
        let client = Arc::new(Client::new(self.shared.clone()));
        let mut clients = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|known| known.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        client
    }

    /// Takes note of a session that ends with the service at the latest
    /// ([`Engine::end_session`]).
    pub fn note_session(&self, session: &Session) {
        if session.ends_what_is_left() {
            self.sessions().push(session.clone());
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Session>> {
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the sessions, stops every command that a caller still waits for, and waits until they
    /// have ended and the answers have left: as long as that takes, this long at most. Promoted
    /// tasks go on. What is not through by then is brought to its end by its warden, and recorded
    /// by whoever looks next.
    pub async fn end(&self, patience: Duration) {
        let through = async {
            let sessions = std::mem::take(&mut *self.sessions());
            let sessions_end = async {
                for session in &sessions {
                    self.engine().end_session(session).await;
                }
            };
            tokio::join!(sessions_end, self.engine().stop_all(GRACE));
            for client in self.clients() {
                client.owes_nothing().await;
            }
            self.engine().handed_over().await;
        };
        let _ = tokio::time::timeout(patience, through).await;
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        let clients = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.iter().filter_map(Weak::upgrade).collect()
    }
}
