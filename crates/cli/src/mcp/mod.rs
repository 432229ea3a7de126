//! MCP: the tools as a server of any transport, and the one over stdin and stdout. All knowledge of
//! rmcp's types is in this folder, but for its transport over HTTP (`http/mcp`).

mod asking;
mod backlog;
#[cfg(unix)]
mod hang_up;
#[cfg(windows)]
#[path = "hang_up_windows.rs"]
mod hang_up;
mod server;
mod transport;

use std::{
    io::IsTerminal as _,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use legwork::Service;
use rmcp::{ServiceExt, transport::stdio_pipes};
use tokio_util::sync::CancellationToken;

pub(crate) use self::server::{Offer, Server, Tally};
use crate::{
    arguments::McpOptions,
    log,
    mcp::{backlog::Backlog, transport::StdioTransport},
    render::{complain, complain_of, say},
    signals::{Caught, ENDING},
    traces,
};

/// How long the farewell may take when the client has closed our stdin: commands may end by
/// themselves.
const CLOSED: Duration = Duration::from_secs(5);

/// How long it may take after a signal: whoever sends one may kill us soon.
const SIGNALLED: Duration = Duration::from_millis(100);

/// Serves until the client closes our stdin.
pub(crate) async fn serve(options: McpOptions) -> ExitCode {
    legwork_warden::keep_heap();
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        say("legwork: this speaks MCP on stdin, for an agent; you want `legwork setup`");
    }
    // Before anything is started, so that none falls between.
    let mut signals = Caught::new(&ENDING);
    traces::start();
    let tools = match options.guard.offered() {
        Ok(tools) => tools,
        Err(problem) => return complain(&problem),
    };
    let engine = match options.place.open_to_run(tools, &options.guard.rules) {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    log::keep_secrets_of(&engine);
    let trust = options.guard.trust.trust();
    let service = match Service::begin(engine, trust).await {
        Ok(service) => service,
        Err(error) => return complain_of(&error),
    };
    let gone = CancellationToken::new();
    let (reader, writer) = stdio_pipes();
    let client = service.client();
    let backlog = Arc::new(Backlog::new(writer, client.clone(), gone.clone()));
    let transport = StdioTransport::new(reader, backlog, gone.clone());
    let engine = service.engine().clone();
    let server = match Offer::new(engine, options.structured, trust, None).await {
        Ok(offer) => Server::new(offer, client, legwork::Session::default()),
        Err(problem) => return complain(&problem),
    };
    service.note_session(server.session());
    let connection = async {
        match server.serve(transport).await {
            Ok(running) => running.waiting().await.map(drop).map_err(|error| error.to_string()),
            // A client that leaves before it says anything has done nothing wrong.
            Err(_) if gone.is_cancelled() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    };
    tokio::pin!(connection);
    let patience = tokio::select! {
        ended = &mut connection => {
            // There may be commands whose calls rmcp gave up.
            service.end(CLOSED).await;
            traces::flush(CLOSED);
            return told(ended);
        }
        () = gone.cancelled() => CLOSED,
        _ = signals.next() => SIGNALLED,
    };
    // rmcp would wait for the calls under way; they are to be stopped at once, and their answers to
    // leave if somebody still reads them.
    let until = Instant::now() + patience;
    let farewell = service.end(patience);
    tokio::pin!(farewell);
    let ended = tokio::select! {
        ended = &mut connection => {
            farewell.await;
            ended
        }
        () = &mut farewell => Ok(()),
        // A second word is not waited for.
        _ = signals.next() => Ok(()),
    };
    traces::flush(until.saturating_duration_since(Instant::now()));
    told(ended)
}

fn told(ended: Result<(), String>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => complain(&format!("the MCP connection ended: {problem}")),
    }
}
