//! `legwork post`: works for an engine at another place, over stdin and stdout.

use std::process::ExitCode;

use crate::{arguments::PostOptions, render::complain};

pub(crate) async fn post(options: PostOptions) -> ExitCode {
    match legwork::serve_post(options.state).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}
