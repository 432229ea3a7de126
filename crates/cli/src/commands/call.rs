//! `legwork call`: calls one tool, as a model would, and prints its receipt.

use std::{
    io::{self, IsTerminal as _, Read},
    process::ExitCode,
    time::Duration,
};

use legwork::{Answer, Caller, Definition, Registry, ToolError, gate::units::shown_bytes};
use serde_json::{Value, json};

use crate::{
    arguments::{CallOptions, Rules, StatePlace},
    asking, hints,
    progress::waiting,
    render::{CANCELLED, complain, complain_of, error_code, print, print_json, say},
    signals,
};

/// How long the command may take to end by itself when we are asked to end.
const GRACE: Duration = Duration::from_millis(400);

/// Most bytes of input that are read.
const INPUT_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(crate) async fn call(options: CallOptions) -> ExitCode {
    let tool = options.tool.as_str();
    let text = match read_input(&options.input) {
        Ok(text) => text,
        Err(error) => return complain(&format!("stdin: {error}")),
    };
    let registry = match options.guard.callable() {
        Ok(registry) => registry,
        Err(problem) => return complain(&problem),
    };
    let hint = registry.get(tool).map(|tool| json_hint(tool.definition()));
    let rules = &options.guard.rules;
    let answer = match (parse(&text), hint) {
        // A tool that does not exist comes before everything that may be wrong with its input.
        (Err(problem), Some(hint)) => {
            let error = ToolError::unparsable(tool, &problem);
            let general = error.recovery_hint.clone().unwrap_or_default();
            Answer::failed(tool, error.hint(format!("{hint}; {general}")))
        }
        (Err(_), None) => unknown(options.place, registry, rules, tool).await,
        (Ok(input), _) => match options.place.open(registry, rules) {
            Err(error) => not_opened(tool, error),
            Ok(engine) => {
                let mut caller = Caller::operator("call");
                caller.trust = options.guard.trust.trust();
                caller.asker = asking::person();
                let what = format!("legwork: waiting for {tool}; Ctrl-C stops it");
                let work = waiting(&what, engine.call(tool, input, &caller));
                tokio::pin!(work);
                let ended = tokio::select! {
                    answer = &mut work => Ok(answer),
                    // A question that somebody is asked is withdrawn before we go.
                    signal = signals::asked_to_end() => if asking::is_open() || asking::was_cancelled() {
                        Ok(work.await)
                    } else {
                        Err(signal)
                    },
                };
                match ended {
                    _ if asking::was_cancelled() => {
                        say("legwork: cancelled; nothing was run");
                        return ExitCode::from(CANCELLED);
                    }
                    Ok(answer) => {
                        engine.handed_over().await;
                        answer
                    }
                    Err(signal) => {
                        engine.stop_all(GRACE).await;
                        return ExitCode::from(128 + signal);
                    }
                }
            }
        },
    };
    let is_read = std::io::stdout().is_terminal();
    let printed = if options.json {
        print_json(answer.envelope())
    } else if let Some(error) = answer.error().filter(|_| is_read) {
        // A person reads it, and no model.
        complain_of(error)
    } else {
        print(&format!("{}\n", answer.receipt().trim_end_matches('\n')))
    };
    match answer.error() {
        Some(error) => ExitCode::from(error_code(error.kind)),
        None => printed,
    }
}

/// What to give instead of a text that is no JSON: the first field that a tool wants.
fn json_hint(tool: &Definition) -> String {
    let schema = &tool.input_schema;
    let first = schema.pointer("/required/0").and_then(Value::as_str);
    let is_list = |field: &str| {
        schema.pointer(&format!("/properties/{field}/type")).is_some_and(|it| it == "array")
    };
    let (example, instead) = match first {
        None => (json!({}), ""),
        Some(field @ ("cmd" | "command")) => {
            (json!({ field: "ls" }), ", while `legwork sh 'ls'` takes the command itself")
        }
        Some(field) if is_list(field) => (json!({ field: [] }), ""),
        Some(field) => (json!({ field: "…" }), ""),
    };
    format!("the input is a JSON object such as {example}{instead}")
}

async fn unknown(place: StatePlace, registry: Registry, rules: &Rules, tool: &str) -> Answer {
    match place.open(registry, rules) {
        Ok(engine) => engine.call(tool, Value::Null, &Caller::operator("call")).await,
        Err(error) => not_opened(tool, error),
    }
}

/// The answer where there is no engine to give one.
fn not_opened(tool: &str, mut error: ToolError) -> Answer {
    error.recovery_hint = hints::of(&error).or(error.recovery_hint);
    Answer::failed(tool, error)
}

/// The argument itself, or stdin; one byte past the limit is enough to know that it is too long.
fn read_input(given: &str) -> io::Result<Vec<u8>> {
    if given != "-" {
        return Ok(given.into());
    }
    let mut text = Vec::new();
    io::stdin().take(INPUT_BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(text)
}

fn parse(text: &[u8]) -> Result<Value, String> {
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(format!("the input is over the limit of {}", shown_bytes(INPUT_BYTES_MAX)));
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    serde_json::from_slice(text).map_err(|problem| format!("not JSON: {problem}"))
}
