//! This machine and this server, in numbers.

use axum::http::StatusCode;
use legwork::TaskFilter;
use serde_json::json;

use super::super::{
    refusal::{answer, failed},
    routes::{Call, Handled},
};
use crate::commands::doctor::diagnose;

pub(in crate::http) async fn show(call: Call) -> Handled {
    let engine = call.standing.engine();
    let looked = async {
        let usage = engine.usage().await?;
        let sandbox = engine.protection(call.holder.token.trust).await?;
        let (_, running) = engine.tasks_matching(TaskFilter::open(), 1).await?;
        let open = engine.approvals().await?.len();
        Ok((usage, sandbox, running, open))
    };
    Ok(match looked.await {
        Err(error) => failed(&error),
        Ok((usage, sandbox, running, open)) => {
            let (wardens, sizes) = (engine.wardens(), engine.record_sizes());
            let machine = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "began_at_ms": call.face.began_at_ms,
                "workspace": engine.workspace().display().to_string(),
                "state": engine.state().path().display().to_string(),
                "usage": usage,
                "sandbox": *sandbox,
                "wardens": { "ready": wardens.ready, "busy": wardens.busy },
                "tasks_running": running,
                "questions_open": open,
                "audit_bytes": sizes.audit_bytes,
            });
            answer(StatusCode::OK, &machine)
        }
    })
}

/// Tries out what `legwork doctor` tries out, one request at a time.
pub(in crate::http) async fn doctor(call: Call) -> Handled {
    let _alone = call.face.examining.lock().await;
    let found = diagnose(&call.face.realms.place, &call.face.realms.rules).await;
    Ok(answer(StatusCode::OK, &found.json()))
}
