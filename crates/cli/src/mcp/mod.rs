//! MCP over stdin and stdout. All knowledge of rmcp's types is in this folder.

mod asking;
mod backlog;
mod server;
mod transport;

use std::{process::ExitCode, sync::Arc, time::Duration};

use legwork::Registry;
use rmcp::{ServiceExt, transport::stdio_pipes};
use tokio_util::sync::CancellationToken;

use crate::{
    arguments::McpOptions,
    mcp::{backlog::Backlog, server::Server, transport::StdioTransport},
    render::{complain, complain_of},
    signals,
};

/// How long foreground commands may take to end by themselves when the client has gone.
const GRACE: Duration = Duration::from_millis(400);

/// How long the last answers may take to leave; a client that has gone takes none.
const FAREWELL: Duration = Duration::from_millis(500);

/// Serves until the client closes our stdin.
pub(crate) async fn serve(options: McpOptions) -> ExitCode {
    legwork_warden::keep_heap();
    let tools = match options.guard.registry(&Registry::DEFAULT.join(",")) {
        Ok(tools) => tools,
        Err(problem) => return complain(&problem),
    };
    let engine = match options.place.open(tools, &options.guard.rules) {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    // Each command takes a descriptor, and a client may have thousands under way.
    legwork_warden::raise_own_open_files();
    let trust = options.guard.trust.trust();
    if let Err(error) = engine.warm_up(trust).await {
        return complain_of(&error);
    }
    if engine.requires_protection()
        && let Err(error) = engine.protection(trust).await
    {
        return complain_of(&error);
    }
    engine.tidy_up();
    let gone = CancellationToken::new();
    let (reader, writer) = stdio_pipes();
    let backlog = Arc::new(Backlog::new(writer, gone.clone()));
    let transport = StdioTransport::new(reader, backlog.clone(), gone.clone());
    let server = match Server::new(engine.clone(), options.structured, trust, backlog) {
        Ok(server) => server,
        Err(problem) => return complain(&problem),
    };
    let service = async {
        match server.serve(transport).await {
            Ok(service) => service.waiting().await.map(drop).map_err(|error| error.to_string()),
            // A client that leaves before it says anything has done nothing wrong.
            Err(_) if gone.is_cancelled() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    };
    tokio::pin!(service);
    let left = async {
        tokio::select! {
            () = gone.cancelled() => {}
            _ = signals::asked_to_end() => {}
        }
    };
    let ended = tokio::select! {
        ended = &mut service => ended,
        () = left => {
            // rmcp would wait for the calls under way; they are to be stopped at once, and their
            // answers to leave if somebody still reads them.
            let stopped = async {
                engine.stop_all(GRACE).await;
                tokio::time::sleep(FAREWELL).await;
            };
            tokio::select! {
                ended = &mut service => ended,
                () = stopped => Ok(()),
            }
        }
    };
    // If rmcp was through first, there may be commands whose calls it gave up.
    engine.stop_all(GRACE).await;
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => complain(&format!("the MCP connection ended: {problem}")),
    }
}
