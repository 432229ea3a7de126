//! The verdict on a command, as it would be judged for this token; nothing is run.

use axum::http::StatusCode;
use legwork::{Tool, gate::Decision};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{
    realms::may_call,
    refusal::{HttpRefusal, answer, failed},
    routes::{Call, Handled},
};
use crate::commands::policy::rule_id;

pub(in crate::http) fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "command": { "type": "string", "description": "A shell script" },
            "argv": {
                "type": "array",
                "items": { "type": "string" },
                "description": "A program and its arguments, for a tool that takes these",
            },
            "tool": { "type": "string", "description": "The tool that would be called" },
        },
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    command: Option<String>,
    argv: Option<Vec<String>>,
    tool: Option<String>,
}

pub(in crate::http) async fn check(call: Call) -> Handled {
    let asked: Asked = call.body()?;
    let engine = call.standing.engine();
    let name = asked.tool.as_deref().unwrap_or("ExecCommand");
    let definition = engine.registry().get(name).map(Tool::definition);
    let Some(definition) = definition.filter(|_| may_call(&call.holder.token, engine, name)) else {
        return Err(HttpRefusal::invalid(format!("the token knows no tool `{name}`")));
    };
    let takes_argv = definition.takes_argv;
    let mut checker = match engine.checker(name, call.holder.token.trust).await {
        Ok(checker) => checker,
        Err(error) => return Ok(failed(&error)),
    };
    let judged = match (asked.command, asked.argv) {
        (Some(command), None) if !takes_argv => checker.script(&command),
        (None, Some(argv)) if takes_argv => checker.argv(argv),
        _ => {
            let wanted = if takes_argv { "argv" } else { "command" };
            return Err(HttpRefusal::invalid(format!("{name} takes `{wanted}`, and that alone")));
        }
    };
    let is_asked = judged.verdict == Decision::Ask;
    let proposal = is_asked.then(|| checker.proposal(&rule_id(&judged))).flatten();
    let mut described = serde_json::to_value(&judged).unwrap_or_default();
    if let Value::Object(fields) = &mut described {
        fields.insert("parts".into(), json!(checker.parts()));
        fields.insert("proposed_rule".into(), json!(proposal));
        fields.insert("tool".into(), name.into());
        fields.insert("trust".into(), json!(checker.trust()));
        fields.insert("workspace".into(), checker.workdir().display().to_string().into());
        fields.insert("sandbox".into(), checker.confinement().into());
    }
    Ok(answer(StatusCode::OK, &described))
}
