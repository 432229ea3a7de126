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
pub(crate) mod links;
mod listen;
mod mcp;
mod metrics;
mod openapi;
mod opener;
mod page;
mod realms;
mod refusal;
pub(crate) mod request_id;
mod request_log;
mod resumption;
mod routes;
mod signin;
mod terminal;
mod tls;
pub(crate) mod tokens;

use std::{
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use legwork::hide_from_commands;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) use self::listen::Listen;
use self::{
    attempts::Attempts,
    connection::{ConnectionPlace, attend},
    door::Door,
    hosts::Hosts,
    keyring::Keyring,
    links::LinkDesk,
    listen::{Accepted, Listener},
    metrics::Metrics,
    realms::Realms,
    signin::SignIns,
    tls::Tls,
    tokens::TokenFile,
};
use crate::{
    arguments::ServeOptions,
    log,
    platform::stderr_file,
    render::{complain, complain_of, now_ms, print, say},
    signals::{Caught, ENDING},
    traces,
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
    sign_ins: SignIns,
    attempts: Attempts,
    /// Room for the bytes of bodies.
    bodies: Arc<Semaphore>,
    /// A proxy stands in front of us, and what it says of its clients is believed.
    behind_proxy: bool,
    /// What connections come over, in the words of OpenTelemetry.
    transport: &'static str,
    /// What makes connections private, where we do that ourselves.
    tls: Option<Tls>,
    /// How long a connection may be silent.
    idle: Duration,
    /// Cancelled when the server ends.
    closing: CancellationToken,
    metrics: Arc<Metrics>,
    /// Held by a request that examines this machine or the whole audit log.
    examining: tokio::sync::Mutex<()>,
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
    traces::start();
    let (listener, tls) = match listen(&options).await {
        Ok(opened) => opened,
        Err(problem) => return complain(&problem),
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    // Before a sandbox is made.
    let log_file = stderr_file();
    log_file.iter().cloned().for_each(hide_from_commands);
    let realms = match Realms::open(options.place, options.rules).await {
        Ok(realms) => realms,
        Err(error) => return complain_of(&error),
    };
    log::keep_secrets_of(realms.own.engine());
    let state = realms.own.engine().state().path().to_owned();
    let audit = realms.own.engine().state().audit();
    let metrics = Metrics::new(&audit, realms.own.engine().registry());
    let tokens = TokenFile::new(options.token_file.as_deref(), &state);
    let face = Arc::new(HttpFace {
        realms,
        keyring: Keyring::new(tokens),
        hosts: Hosts::new(&options.listen, &options.allow_host),
        sign_ins: SignIns::new(),
        attempts: Attempts::default(),
        bodies: Arc::new(Semaphore::new(door::BODIES_BYTES_MAX)),
        behind_proxy: options.behind_proxy,
        transport: options.listen.transport(),
        tls,
        idle: options.idle_timeout,
        closing: CancellationToken::new(),
        metrics: Arc::new(metrics),
        examining: tokio::sync::Mutex::default(),
        structured: options.structured,
        began_at_ms: now_ms(),
    });
    if let Some(file) = &log_file {
        warn_of_log(&face, file);
    }
    let page = |own| listener.page(scheme, options.behind_proxy, &options.allow_host, own);
    let desk = LinkDesk::open(&face, page, options.open, &state);
    let address = listener.address(scheme);
    print(&format!("{address}\n"));
    tracing::info!(address, version = env!("CARGO_PKG_VERSION"), "serving");
    if face.keyring.count() == 0 {
        say("There are no tokens yet: `legwork token add NAME --role operator` makes one");
    }
    let door = Arc::new(Door { face: face.clone(), routes: routes::router(&face) });
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::select! {
        () = accept_all(&door, &listener, &places, &mut connections) => {}
        () = face.keyring.watch() => {}
        () = desk.attend(&face) => {}
        () = face.metrics.follow(face.realms.own.engine()) => {}
        _ = signals.next() => {}
    }
    // From here on nobody can come in.
    drop(listener);
    leave(&face, connections, &places, &mut signals).await;
    ExitCode::SUCCESS
}

/// Says it if the file of our stderr lies where commands write: they cannot read it now, but could
/// when this server has ended.
fn warn_of_log(face: &HttpFace, file: &Path) {
    let mut workspaces = face.keyring.workspaces();
    workspaces.push(face.realms.own.engine().workspace().to_owned());
    if let Some(workspace) = workspaces.iter().find(|it| file.starts_with(it)) {
        say(&format!(
            "legwork: stderr goes to {}, in the workspace {}: send it to a file outside of every \
             workspace, since commands may read this one when the server has ended",
            file.display(),
            workspace.display()
        ));
    }
}

/// Lets those go who are here: what is waited for ends, and its answers leave.
async fn leave(
    face: &HttpFace,
    mut connections: JoinSet<()>,
    places: &Semaphore,
    signals: &mut Caught,
) {
    tracing::info!("ending");
    face.closing.cancel();
    let until = Instant::now() + FAREWELL;
    let farewell = async {
        for service in face.realms.all().await {
            service.end(FAREWELL).await;
        }
        while connections.join_next().await.is_some() {}
        // What has become a WebSocket holds its place, too.
        let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
        let _ = places.acquire_many(all).await;
    };
    tokio::select! {
        _ = tokio::time::timeout(FAREWELL, farewell) => {}
        // A second word is not waited for.
        _ = signals.next() => {}
    }
    traces::flush(until.saturating_duration_since(Instant::now()));
}

/// Listens, with TLS where that is asked for.
async fn listen(options: &ServeOptions) -> Result<(Listener, Option<Tls>), String> {
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(_), Some(_)) if matches!(options.listen, Listen::Unix(_)) => {
            return Err(
                "a unix socket has no TLS: nobody else can read what goes through it".into()
            );
        }
        (Some(certificate), Some(key)) => Some(Tls::open(certificate.clone(), key.clone())?),
        _ => None,
    };
    let protected = options.behind_proxy || tls.is_some();
    Ok((Listener::open(&options.listen, protected).await?, tls))
}

/// Accepts connections; never ends.
async fn accept_all(
    door: &Arc<Door>,
    listener: &Listener,
    places: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
) {
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
        let (place, turned_away) = match places.clone().try_acquire_owned() {
            Ok(place) => (Some(ConnectionPlace::new(place)), None),
            Err(_) => (None, turned_away.clone().acquire_owned().await.ok()),
        };
        let door = door.clone();
        connections.spawn(async move {
            let _turned_away = turned_away;
            match stream {
                Accepted::Tcp(stream) => match &door.face.tls {
                    None => attend(door, stream, peer, place).await,
                    Some(tls) => {
                        // A client that does not come to an agreement is no matter of ours.
                        let greeted = tokio::select! {
                            greeted = tls.greet(stream, door.face.idle) => greeted,
                            () = door.face.closing.cancelled() => None,
                        };
                        if let Some(stream) = greeted {
                            attend(door, stream, peer, place).await;
                        }
                    }
                },
                Accepted::Unix(stream) => attend(door, stream, peer, place).await,
            }
        });
    }
}
