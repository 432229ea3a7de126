//! The `OpenAPI` document, made from the table of routes and from the tools' own schemas.

use axum::http::StatusCode;
use legwork::{Engine, Tool};
use serde_json::{Map, Value, json};

use super::{
    refusal::answer,
    routes::{Call, Handled, Input, ROUTES, Route},
};

pub(super) async fn document(call: Call) -> Handled {
    Ok(answer(StatusCode::OK, &described(call.standing.engine())))
}

fn described(engine: &Engine) -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(methods) = path {
            methods.insert(route.method.to_lowercase(), operation(route, engine));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Legwork",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Tasks, output, questions, rules and the audit log of a Legwork server.",
        },
        "security": [{ "token": [] }, { "session": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": { "type": "apiKey", "in": "header", "name": "X-Legwork" },
            },
            "schemas": { "Error": error_schema() },
        },
    })
}

/// One route of the document.
fn operation(route: &Route, engine: &Engine) -> Value {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        parameters.push(json!({
            "name": "id", "in": "path", "required": true, "schema": { "type": "string" },
        }));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "x-roles": route.role_names(),
        "x-all-workspaces": route.everywhere,
        "responses": {
            "default": {
                "description": "An error",
                "content": { "application/json": {
                    "schema": { "$ref": "#/components/schemas/Error" },
                } },
            },
        },
    });
    if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
        if route.path.ends_with("/terminal") {
            let what = "A WebSocket: bytes of the terminal, and JSON messages";
            responses.insert("101".into(), json!({ "description": what }));
        } else {
            let result = json!({ "description": "The result", "content": result(route) });
            responses.insert("200".into(), result);
        }
        if route.path.contains("/raw/") {
            responses.insert("206".into(), json!({ "description": "The part that was wanted" }));
        }
    }
    let mut body = None;
    match &route.input {
        Input::Nothing => {}
        Input::Query(fields) => parameters.extend(fields.iter().map(|(name, kind, what)| {
            json!({
                "name": name, "in": "query", "description": what, "schema": { "type": kind },
            })
        })),
        Input::Tool(name) => body = tool_schema(engine, name),
        Input::Json(schema) => body = Some(schema()),
    }
    if let Value::Object(fields) = &mut operation {
        if !parameters.is_empty() {
            fields.insert("parameters".into(), parameters.into());
        }
        if let Some(schema) = body {
            let content = json!({ "application/json": { "schema": schema } });
            fields.insert("requestBody".into(), json!({ "required": true, "content": content }));
        }
    }
    operation
}

/// What a route answers with.
fn result(route: &Route) -> Value {
    match route.path {
        "/api/v1/events" => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
        "/mcp" => json!({
            "application/json": { "schema": { "type": "object" } },
            "text/event-stream": { "schema": { "type": "string" } },
        }),
        path if path.ends_with("/follow") => {
            json!({ "application/x-ndjson": { "schema": { "type": "string" } } })
        }
        path if path.contains("/raw/") => json!({ "application/octet-stream": {} }),
        "/metrics" => json!({ "text/plain": { "schema": { "type": "string" } } }),
        _ => json!({ "application/json": { "schema": { "type": "object" } } }),
    }
}

/// A name that is the route's alone: `get_tasks_id_output`.
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1");
    let words = path.split(['/', '.']).map(|word| word.trim_matches(['{', '}']));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("{}_{}", route.method.to_lowercase(), words.join("_"))
}

/// The schema of a tool's input, without what the path says already.
fn tool_schema(engine: &Engine, name: &str) -> Option<Value> {
    let mut schema = engine.registry().get(name).map(Tool::definition)?.input_schema.clone();
    for field in ["task_id", "task_ids"] {
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.remove(field);
        }
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|name| name != field);
        }
    }
    Some(schema)
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["kind", "message", "retryable"],
            "properties": {
                "kind": { "type": "string" },
                "message": { "type": "string" },
                "details": { "type": "object" },
                "recovery_hint": { "type": "string" },
                "retryable": { "type": "boolean" },
            },
        } },
    })
}
