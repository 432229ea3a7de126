//! Tasks: most of it is what the tools do, with the id in the path.

use std::time::Instant;

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use legwork::{LiveResources, Outcome, Status, TaskFilter, TraceSpan};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::{
    realms::{caller, may_call},
    refusal::{HttpRefusal, answer, failed},
    request_id,
    routes::{Call, Handled},
};
use crate::{log, traces};

/// Tasks on a page, if nothing is said.
const PAGE: u32 = 50;

/// Most tasks on a page.
const PAGE_MAX: u32 = 500;

/// The fields of the list's query.
pub(in crate::http) const LIST: &[(&str, &str, &str)] = &[
    ("status", "string", "Only tasks of these statuses, separated by commas"),
    ("workspace", "string", "Only tasks of this workspace, and of those inside of it"),
    ("since_ms", "integer", "Only tasks that started at this time or later, in ms since 1970"),
    ("before", "string", "The next page: only tasks that started before the one of this id"),
    ("limit", "integer", "Tasks on a page: 1 to 500, 50 by default"),
];

/// The fields of the query about output.
pub(in crate::http) const OUTPUT: &[(&str, &str, &str)] = &[
    ("after", "string", "A cursor: only what was printed after it"),
    ("stream", "string", "both, stdout or stderr"),
    ("view", "string", "log or screen"),
    ("max_output_tokens", "integer", "Most tokens of output"),
    ("block", "boolean", "Wait for output or the end; false by default"),
    ("timeout_ms", "integer", "How long to wait"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    status: Option<String>,
    workspace: Option<String>,
    since_ms: Option<i64>,
    before: Option<String>,
    limit: Option<u32>,
}

pub(in crate::http) async fn list(call: Call) -> Handled {
    let wanted: Listing = call.query()?;
    let limit = wanted.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(HttpRefusal::invalid(format!("`limit` must be 1 to {PAGE_MAX}")));
    }
    let mut statuses = Vec::new();
    for name in wanted.status.iter().flat_map(|names| names.split(',')) {
        let Some(status) = Status::from_name(name) else {
            let known = Status::ALL.map(Status::as_str).join(", ");
            return Err(HttpRefusal::invalid(format!("the statuses are: {known}")));
        };
        statuses.push(status);
    }
    let (engine, own) = (call.standing.engine(), call.standing.workspace.clone());
    // Whoever is confined sees its workspace alone, whatever it asks for.
    let is_other = wanted.workspace.is_some() && own.is_some() && wanted.workspace != own;
    if is_other {
        return Err(HttpRefusal::forbidden("the token is confined to another workspace"));
    }
    if let Some(before) = &wanted.before
        && let Err(error) = engine.task_here(before).await
    {
        return Ok(failed(&error));
    }
    let filter = TaskFilter {
        statuses,
        exact: own.is_some(),
        workspace: own.or(wanted.workspace),
        since_ms: wanted.since_ms,
        before: wanted.before,
    };
    match engine.tasks_matching(filter, limit).await {
        Err(error) => Ok(failed(&error)),
        Ok((tasks, total)) => {
            let mask = engine.mask();
            let is_full = tasks.len() == limit as usize;
            let next = tasks.last().filter(|_| is_full).map(|task| task.task_id.to_string());
            let tasks: Vec<_> = tasks.into_iter().map(|task| task.masked(&mask)).collect();
            let page = json!({ "total": total, "tasks": tasks, "next_before": next });
            Ok(answer(StatusCode::OK, &page))
        }
    }
}

pub(in crate::http) async fn start(call: Call) -> Handled {
    let input: Value = call.body()?;
    tool(call, "ExecCommand", input).await
}

/// What `TaskStatus` says of a task, and beside it what people want to know: the record as in the
/// list, whether it takes input, what it uses or has used, the processes that it left behind, and
/// whether it is a trial whose changes are kept.
pub(in crate::http) async fn one(call: Call) -> Handled {
    let input = with_id(&call, Map::new());
    let (engine, id) = (call.standing.engine().clone(), call.id.clone());
    let mut status = match tool_result(call, "TaskStatus", input).await? {
        Ok(status) => status,
        Err(refused) => return Ok(refused),
    };
    let looked = async {
        let mut observer = engine.observe(engine.task_here(&id).await?).await?;
        let report = observer.report().await?;
        let uses = observer.resources().await?;
        Ok((observer.task().clone(), report, uses))
    };
    let (task, report, uses) = match looked.await {
        Ok(looked) => looked,
        Err(error) => return Ok(failed(&error)),
    };
    let mask = engine.mask();
    let left = engine.background_processes(&task).into_iter();
    let left: Vec<Value> =
        left.map(|(pid, command)| json!({ "pid": pid, "command": mask.text(&command) })).collect();
    let takes_input = !task.status.is_final() && report.is_some_and(|report| report.takes_input);
    if let Value::Object(fields) = &mut status {
        fields.insert("resources".into(), resources(task.outcome.as_ref(), uses));
        fields.insert("record".into(), json!(task.masked(&mask)));
        fields.insert("takes_input".into(), takes_input.into());
        fields.insert("processes".into(), left.into());
        fields.insert("trial".into(), engine.trial(&id).await.is_ok().into());
    }
    Ok(answer(StatusCode::OK, &status))
}

/// What a command has used, or uses now; null where nobody has measured it.
fn resources(outcome: Option<&Outcome>, now: Option<LiveResources>) -> Value {
    match (outcome, now) {
        (Some(outcome), _) => json!(outcome.resources),
        (None, Some(now)) => json!({
            "cpu_user_us": now.user_us,
            "cpu_system_us": now.system_us,
            "memory_bytes": now.memory_bytes,
            "processes": now.processes,
        }),
        (None, None) => Value::Null,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    after: Option<String>,
    stream: Option<String>,
    view: Option<String>,
    max_output_tokens: Option<u64>,
    block: Option<bool>,
    timeout_ms: Option<u64>,
}

pub(in crate::http) async fn output(call: Call) -> Handled {
    let Reading { after, stream, view, max_output_tokens, block, timeout_ms } = call.query()?;
    let input = json!({
        "task_id": call.id,
        "after": after,
        "stream": stream,
        "view": view,
        "max_output_tokens": max_output_tokens,
        "block": block.unwrap_or(false),
        "timeout_ms": timeout_ms,
    });
    tool(call, "TaskOutput", input).await
}

pub(in crate::http) async fn input(call: Call) -> Handled {
    let input = with_id(&call, call.body()?);
    tool(call, "TaskInput", input).await
}

pub(in crate::http) async fn stop(call: Call) -> Handled {
    let input = with_id(&call, call.body()?);
    tool(call, "TaskStop", input).await
}

pub(in crate::http) async fn wait(call: Call) -> Handled {
    let mut fields: Map<String, Value> = call.body()?;
    fields.insert("task_ids".into(), json!([call.id]));
    tool(call, "TaskWait", Value::Object(fields)).await
}

fn with_id(call: &Call, mut fields: Map<String, Value>) -> Value {
    fields.insert("task_id".into(), call.id.as_str().into());
    Value::Object(fields)
}

/// The span of a request that calls a tool.
fn begin_span(call: &Call, tool: &str) -> TraceSpan {
    let (method, route) = (&call.method, call.route);
    let name = || format!("{method} {route}");
    let mut span = traces::begin(|| traces::parent_in(&call.headers), name);
    span.set("http.request.method", || method.to_string());
    span.set("http.route", || route);
    span.set("network.protocol.name", || "http");
    traces::of_tool(&mut span, tool);
    span
}

/// Calls a tool, as the token may; its result is the answer.
async fn tool(call: Call, name: &str, input: Value) -> Handled {
    let called = tool_result(call, name, input).await?;
    Ok(called.map_or_else(|refused| refused, |result| answer(StatusCode::OK, &result)))
}

/// Calls a tool, as the token may: its result, or the answer that says why there is none.
async fn tool_result(
    call: Call,
    name: &str,
    input: Value,
) -> Result<Result<Value, Response<Body>>, HttpRefusal> {
    let (token, standing) = (&call.holder.token, &call.standing);
    if !may_call(token, standing.engine(), name) {
        return Err(HttpRefusal::forbidden(format!("the token may not call {name}")));
    }
    let (mut by, began) = (caller(&call.holder), Instant::now());
    let mut span = begin_span(&call, name);
    by.trace = span.trace();
    let called = standing.client.call(name, input, &by).await;
    call.face.metrics.call(name, &called);
    log::called(request_id::of(&call.headers), &by.name, name, &called, began);
    traces::answered(&mut span, &called);
    if let Some(error) = called.error() {
        let refused = failed(error);
        span.set("http.response.status_code", || i64::from(refused.status().as_u16()));
        return Ok(Err(refused));
    }
    span.set("http.response.status_code", || 200);
    let mut envelope = serde_json::to_value(called.envelope()).unwrap_or_default();
    Ok(Ok(envelope.get_mut("result").map(Value::take).unwrap_or_default()))
}
