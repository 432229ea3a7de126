//! What commands changed outside their workspace, in layers over the home folder, and whether that
//! is applied.

use std::path::PathBuf;

use axum::http::StatusCode;
use legwork::{ErrorKind, OutsideState, ToolError};
use serde_json::{Value, json};

use super::{
    super::{
        refusal::{HttpRefusal, answer as respond, failed},
        routes::{Call, Handled},
    },
    trials::{Meant, by, shown_changes, wanted},
};

pub(in crate::http) async fn list(call: Call) -> Handled {
    Ok(match call.standing.engine().outside().await {
        Ok(outside) => respond(StatusCode::OK, &json!({ "outside": outside })),
        Err(error) => failed(&error),
    })
}

pub(in crate::http) async fn changes(call: Call) -> Handled {
    let shown = wanted(&call)?;
    let changed = async {
        let state = meant(&call).await?;
        let engine = call.standing.engine();
        let changes = engine.outside_changes(&state.workspace, Vec::new(), shown).await?;
        let mut body = shown_changes(&changes, &state.workspace, shown.lines_max);
        body.insert("workspace".into(), json!(state.workspace));
        body.insert("home".into(), json!(state.home));
        body.insert("note".into(), json!(changes.note));
        Ok(body)
    };
    Ok(match changed.await {
        Ok(body) => respond(StatusCode::OK, &body),
        Err(error) => failed(&error),
    })
}

pub(in crate::http) async fn apply(call: Call) -> Handled {
    let (state, paths) = match chosen(&call).await? {
        Ok(chosen) => chosen,
        Err(error) => return Ok(failed(&error)),
    };
    let engine = call.standing.engine();
    Ok(match engine.apply_outside(&state.workspace, paths, &by(&call)).await {
        Ok(applied) => respond(StatusCode::OK, &applied),
        Err(error) => failed(&error),
    })
}

pub(in crate::http) async fn discard(call: Call) -> Handled {
    let (state, paths) = match chosen(&call).await? {
        Ok(chosen) => chosen,
        Err(error) => return Ok(failed(&error)),
    };
    let engine = call.standing.engine();
    Ok(match engine.discard_outside(&state.workspace, paths, &by(&call)).await {
        Ok(running) => {
            let body: Value = json!({ "id": state.id, "running": running });
            respond(StatusCode::OK, &body)
        }
        Err(error) => failed(&error),
    })
}

/// The layers that the path names, and what of them the body names.
async fn chosen(
    call: &Call,
) -> Result<Result<(OutsideState, Vec<PathBuf>), ToolError>, HttpRefusal> {
    let wanted: Meant = call.body()?;
    Ok(match meant(call).await {
        Ok(state) => {
            let paths = wanted.within(&state.home)?;
            Ok((state, paths))
        }
        Err(error) => Err(error),
    })
}

/// The layers that the path names.
async fn meant(call: &Call) -> Result<OutsideState, ToolError> {
    let all = call.standing.engine().outside().await?;
    all.into_iter().find(|state| state.id == call.id).ok_or_else(|| {
        let message = format!("nothing is kept outside a workspace under the id `{}`", call.id);
        ToolError::new(ErrorKind::UnknownTask, message)
            .hint("it may have been applied or discarded; list what is kept")
    })
}
