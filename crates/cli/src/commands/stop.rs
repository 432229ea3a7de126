//! `legwork stop`: ends tasks and everything that they started.

use std::process::ExitCode;

use legwork::gate::units::shown_ms;
use serde_json::json;

use super::tool;
use crate::{OUR_FAILURE, arguments::StopOptions, progress::waiting, render::complain_of};

pub(crate) async fn stop(options: StopOptions) -> ExitCode {
    let engine = match options.state.with_tasks() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    let ids = match tool::ids(&engine, &options.tasks).await {
        Ok(ids) => ids,
        Err(error) => return complain_of(&error),
    };
    let mut complete = true;
    for id in ids {
        let input =
            json!({ "task_id": id, "signal": options.signal, "grace_ms": options.grace_ms });
        let grace = shown_ms(options.grace_ms);
        let what = format!("legwork: stopping {id}; killed after {grace}");
        let stopping = tool::call(&engine, "TaskStop", input, options.json);
        match waiting(&what, stopping).await {
            // The others are stopped all the same.
            Err(_) => complete = false,
            Ok(stopped) => complete &= *stopped.field("survivors") == json!([]),
        }
    }
    ExitCode::from(if complete { 0 } else { OUR_FAILURE })
}
