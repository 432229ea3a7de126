//! `legwork serve`: the tools, the tasks and the questions over HTTP.
//!
//! One process and one port on the library's [`Service`]. A request passes the door
//! ([`HttpFace::answer`]): the names that it uses for this server, then its token, then its body
//! within limits; what comes after that knows whom it answers.

mod api;
mod attempts;
mod connection;
mod door;
mod events;
mod health;
mod hosts;
mod keyring;
mod listen;
mod mcp;
mod metrics;
mod openapi;
mod realms;
mod refusal;
mod resumption;
mod routes;
pub(crate) mod tokens;

use std::{process::ExitCode, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) use self::listen::Listen;
use self::{
    attempts::Attempts,
    connection::attend,
    door::Door,
    hosts::Hosts,
    keyring::Keyring,
    listen::{Accepted, Listener},
    metrics::Metrics,
    realms::Realms,
    tokens::TokenFile,
};
use crate::{
    arguments::ServeOptions,
    render::{complain, complain_of, now_ms, print, say},
    signals::{Caught, ENDING},
};

/// Most connections at once; whoever comes then is told so.
const CONNECTIONS_MAX: usize = 2048;

/// Connections above that which are told so; what comes on top of these waits in the kernel's
/// queue.
const TURNED_AWAY_MAX: usize = 64;

/// How long the farewell may take: commands that a caller waits for end, and the answers leave.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long to wait when no connection can be accepted, for want of descriptors mostly.
const BREATH: Duration = Duration::from_millis(100);

/// What every connection shares.
pub(super) struct HttpFace {
    realms: Realms,
    keyring: Keyring,
    hosts: Hosts,
    attempts: Attempts,
    /// A proxy stands in front of us, and what it says of its clients is believed.
    behind_proxy: bool,
    /// How long a connection may be silent.
    idle: Duration,
    /// Cancelled when the server ends.
    closing: CancellationToken,
    metrics: Arc<Metrics>,
    /// Whether results of MCP have the envelope, too.
    structured: bool,
    /// When the server began, in milliseconds since 1970.
    began_at_ms: i64,
}

/// Serves until a signal comes.
pub(crate) async fn serve(options: ServeOptions) -> ExitCode {
    legwork_warden::keep_heap();
    // Before anything is started, so that none falls between.
    let mut signals = Caught::new(&ENDING);
    let listener = match Listener::open(&options.listen, options.behind_proxy).await {
        Ok(listener) => listener,
        Err(problem) => return complain(&problem),
    };
    let realms = match Realms::open(options.place, options.rules).await {
        Ok(realms) => realms,
        Err(error) => return complain_of(&error),
    };
    let state = realms.own.engine().state().path().to_owned();
    let audit = realms.own.engine().state().audit();
    let tokens = TokenFile::new(options.token_file.as_deref(), &state);
    let face = Arc::new(HttpFace {
        realms,
        keyring: Keyring::new(tokens),
        hosts: Hosts::new(&options.listen, &options.allow_host),
        attempts: Attempts::default(),
        behind_proxy: options.behind_proxy,
        idle: options.idle_timeout,
        closing: CancellationToken::new(),
        metrics: Arc::new(Metrics::new(&audit)),
        structured: options.structured,
        began_at_ms: now_ms(),
    });
    print(&format!("{}\n", listener.address()));
    if face.keyring.count() == 0 {
        say("Nobody can sign in yet: `legwork token add NAME --role operator` makes a token");
    }
    let door = Arc::new(Door { face: face.clone(), routes: routes::router(&face) });
    let mut connections = JoinSet::new();
    tokio::select! {
        () = accept_all(&door, &listener, &mut connections) => {}
        () = face.keyring.watch() => {}
        () = face.metrics.follow(face.realms.own.engine()) => {}
        _ = signals.next() => {}
    }
    // From here on nobody can come in.
    drop(listener);
    face.closing.cancel();
    let farewell = async {
        for service in face.realms.all().await {
            service.end(FAREWELL).await;
        }
        while connections.join_next().await.is_some() {}
    };
    tokio::select! {
        _ = tokio::time::timeout(FAREWELL, farewell) => {}
        // A second word is not waited for.
        _ = signals.next() => {}
    }
    ExitCode::SUCCESS
}

/// Accepts connections; never ends.
async fn accept_all(door: &Arc<Door>, listener: &Listener, connections: &mut JoinSet<()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                say(&format!("legwork: cannot accept a connection: {error}"));
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let (place, crowded) = match places.clone().try_acquire_owned() {
            Ok(place) => (Some(place), false),
            Err(_) => (turned_away.clone().acquire_owned().await.ok(), true),
        };
        let door = door.clone();
        connections.spawn(async move {
            let _place = place;
            match stream {
                Accepted::Tcp(stream) => attend(door, stream, peer, crowded).await,
                Accepted::Unix(stream) => attend(door, stream, peer, crowded).await,
            }
        });
    }
}
