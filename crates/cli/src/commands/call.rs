//! `legwork call`: one tool call.

use std::{io::Read, process::ExitCode, time::Duration};

use legwork::{Answer, Caller, ToolError};
use serde_json::Value;

use crate::{
    arguments::CallOptions,
    render::{complain, error_code, print, print_json},
    signals,
};

/// How long the command may take to end by itself when we are asked to end.
const GRACE: Duration = Duration::from_millis(400);

/// Most bytes of input that are read.
const INPUT_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(crate) async fn call(options: CallOptions) -> ExitCode {
    let text = match options.input.as_str() {
        "-" => {
            let mut text = String::new();
            match std::io::stdin()
                .take(INPUT_BYTES_MAX)
                .read_to_string(&mut text)
            {
                Ok(_) => text,
                Err(error) => return complain(&format!("stdin: {error}")),
            }
        }
        given => given.to_owned(),
    };
    let answer = match serde_json::from_str::<Value>(&text) {
        Err(error) => Answer::failed(&options.tool, ToolError::unparsable(&options.tool, &error)),
        Ok(input) => match options.place.open() {
            Err(error) => Answer::failed(&options.tool, error),
            Ok(engine) => {
                let caller = Caller::operator("call");
                tokio::select! {
                    answer = engine.call(&options.tool, input, &caller) => answer,
                    signal = signals::asked_to_end() => {
                        engine.stop_all(GRACE).await;
                        return ExitCode::from(128 + signal);
                    }
                }
            }
        },
    };
    let printed = if options.json {
        print_json(answer.envelope())
    } else {
        print(&format!("{}\n", answer.receipt().trim_end_matches('\n')))
    };
    match answer.error() {
        Some(error) => ExitCode::from(error_code(error.kind)),
        None => printed,
    }
}
