//! `legwork call`: one tool call.

use std::{io::Read, process::ExitCode};

use legwork::{Answer, Caller, ToolError};
use serde_json::Value;

use crate::{
    arguments::CallOptions,
    render::{complain, error_code, print, print_json},
};

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
                engine
                    .call(&options.tool, input, &Caller::operator("call"))
                    .await
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
