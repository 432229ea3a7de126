//! `legwork post`: works for an engine at another place, over stdin and stdout.

use std::process::ExitCode;

use crate::{arguments::PostOptions, render::complain};

pub(crate) async fn post(options: PostOptions) -> ExitCode {
    let served = match (&options.task, &options.order) {
        (Some(task), Some(order)) => {
            legwork::serve_job(task, order, options.state, options.in_environment).await
        }
        _ => legwork::serve_post(options.state).await,
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}
