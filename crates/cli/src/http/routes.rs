//! The table of routes: the router, the roles and the `OpenAPI` document come from it.

use std::{future::Future, pin::Pin, sync::Arc};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{RawPathParams, Request, State},
    http::{Extensions, HeaderMap, Method, Response, StatusCode, Uri, request::Parts},
    response::IntoResponse,
    routing::{MethodFilter, MethodRouter, on},
};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    HttpFace, api, events,
    keyring::Holder,
    mcp, metrics, openapi,
    realms::Standing,
    refusal::{HttpRefusal, failed},
    signin, terminal,
    tokens::TokenRole::{self, Agent, Operator, Viewer},
};

/// A request that was let in.
pub(super) struct Call {
    pub face: Arc<HttpFace>,
    pub holder: Arc<Holder>,
    pub standing: Arc<Standing>,
    /// The path with a name in the place of its id.
    pub route: &'static str,
    /// The id in the path, where it has one.
    pub id: String,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub extensions: Extensions,
    pub body: Bytes,
}

impl Call {
    /// The fields of the query.
    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, HttpRefusal> {
        let query = axum::extract::Query::<T>::try_from_uri(&self.uri);
        query.map(|query| query.0).map_err(|error| HttpRefusal::invalid(error.body_text()))
    }

    /// The body, which is JSON; nothing counts as an empty object.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, HttpRefusal> {
        let text: &[u8] = if self.body.trim_ascii().is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(text)
            .map_err(|error| HttpRefusal::invalid(format!("the body is not as expected: {error}")))
    }
}

/// What a handler brings.
pub(super) type Handled = Result<Response<Body>, HttpRefusal>;

type HandlerFuture = Pin<Box<dyn Future<Output = Handled> + Send>>;

/// What a route takes besides the id in its path.
pub(super) enum Input {
    Nothing,
    /// Fields of the query, with their types and what they are.
    Query(&'static [(&'static str, &'static str, &'static str)]),
    /// The input of a tool, without the id of its task.
    Tool(&'static str),
    /// JSON of this schema.
    Json(fn() -> Value),
}

/// A route.
pub(super) struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// Who may use it.
    pub roles: &'static [TokenRole],
    /// Whether it tells of all workspaces, so that a token that is confined to one may not use it.
    pub everywhere: bool,
    pub summary: &'static str,
    pub input: Input,
    filter: MethodFilter,
    handler: fn(Call) -> HandlerFuture,
}

/// Makes a route of an async function.
macro_rules! route {
    ($method:ident $path:literal, $roles:expr, $everywhere:expr, $input:expr, $handler:path,
     $summary:literal) => {
        Route {
            method: stringify!($method),
            filter: MethodFilter::$method,
            path: $path,
            roles: &$roles,
            everywhere: $everywhere,
            summary: $summary,
            input: $input,
            handler: |call| Box::pin($handler(call)),
        }
    };
}

const ALL: [TokenRole; 3] = [Operator, Agent, Viewer];

/// Every route that needs a token, in the order of the document.
pub(super) const ROUTES: &[Route] = &[
    route!(GET "/api/v1/tasks", ALL, false, Input::Query(api::tasks::LIST), api::tasks::list,
        "List tasks, newest first"),
    route!(POST "/api/v1/tasks", [Operator, Agent], false, Input::Tool("ExecCommand"),
        api::tasks::start, "Run a command; what takes long becomes a task"),
    route!(GET "/api/v1/tasks/{id}", ALL, false, Input::Nothing, api::tasks::one,
        "Show a task"),
    route!(GET "/api/v1/tasks/{id}/output", ALL, false, Input::Query(api::tasks::OUTPUT),
        api::tasks::output, "Read a task's output, from a cursor on"),
    route!(GET "/api/v1/tasks/{id}/follow", ALL, false, Input::Nothing, api::follow::open,
        "Follow a task's output as lines of JSON: the newest of it, then what comes"),
    route!(GET "/api/v1/tasks/{id}/raw/stdout", [Operator], false, Input::Nothing,
        api::raw::stdout, "Download stdout, or a terminal's bytes, unmasked; takes a Range"),
    route!(GET "/api/v1/tasks/{id}/raw/stderr", [Operator], false, Input::Nothing,
        api::raw::stderr, "Download stderr, unmasked; takes a Range"),
    route!(POST "/api/v1/tasks/{id}/input", [Operator, Agent], false, Input::Tool("TaskInput"),
        api::tasks::input, "Send input to a task, or resize its terminal"),
    route!(GET "/api/v1/tasks/{id}/terminal", ALL, false, Input::Nothing, terminal::open,
        "Attach to a task's terminal, over a WebSocket"),
    route!(POST "/api/v1/tasks/{id}/stop", [Operator, Agent], false, Input::Tool("TaskStop"),
        api::tasks::stop, "Stop a task and every process that it started"),
    route!(POST "/api/v1/tasks/{id}/wait", [Operator, Agent], false, Input::Tool("TaskWait"),
        api::tasks::wait, "Wait for a task to end, or for another condition"),
    route!(GET "/api/v1/questions", [Operator, Viewer], false, Input::Nothing,
        api::questions::list, "List the questions that wait for an answer"),
    route!(GET "/api/v1/questions/{id}", [Operator, Viewer], false, Input::Nothing,
        api::questions::one, "Show a question"),
    route!(POST "/api/v1/questions/{id}/answer", [Operator], false,
        Input::Json(api::questions::answer_schema), api::questions::answer,
        "Answer a question; the first answer counts"),
    route!(GET "/api/v1/trials", [Operator, Viewer], false, Input::Nothing, api::trials::list,
        "List the trials: commands that ran on a copy, newest first"),
    route!(GET "/api/v1/trials/{id}/changes", [Operator, Viewer], false,
        Input::Query(api::trials::CHANGES), api::trials::changes,
        "Show what a trial would change: its files, and the difference"),
    route!(POST "/api/v1/trials/{id}/apply", [Operator], false,
        Input::Json(api::trials::apply_schema), api::trials::apply,
        "Apply what a trial changed, all of it or some paths"),
    route!(POST "/api/v1/trials/{id}/discard", [Operator], false, Input::Nothing,
        api::trials::discard, "Forget what a trial changed; its task stays"),
    route!(POST "/api/v1/policy/check", ALL, false, Input::Json(api::policy::schema),
        api::policy::check, "Judge a command by the rules, without running it"),
    route!(GET "/api/v1/audit", [Operator, Viewer], true, Input::Query(api::audit::LIST),
        api::audit::list, "Read the audit log, newest first"),
    route!(GET "/api/v1/audit/verify", [Operator, Viewer], true, Input::Nothing,
        api::audit::verify, "Check that no line of the audit log was changed or removed"),
    route!(GET "/api/v1/machine", [Operator, Viewer], true, Input::Nothing,
        api::machine::show, "Show versions, disk usage and the sandbox of this machine"),
    route!(GET "/api/v1/machine/doctor", [Operator], true, Input::Nothing,
        api::machine::doctor, "Check this machine, the configuration and the state folder"),
    route!(GET "/api/v1/events", ALL, false, Input::Query(events::QUERY), events::stream,
        "Follow what happens to tasks and questions, as server-sent events"),
    route!(POST "/api/v1/session", ALL, false, Input::Json(signin::schema), signin::sign_in,
        "Sign in to the page with a token, or with the code of a link"),
    route!(GET "/api/v1/session", ALL, false, Input::Nothing, signin::show,
        "Show who is signed in, or whose token this is"),
    route!(DELETE "/api/v1/session", ALL, false, Input::Nothing, signin::sign_out,
        "Sign out of the page"),
    route!(POST "/api/v1/session/tickets", ALL, false, Input::Json(signin::ticket_schema),
        signin::ticket, "Make a ticket that reads an address once, as `?ticket=`, within a minute"),
    route!(GET "/api/v1/openapi.json", ALL, false, Input::Nothing, openapi::document,
        "This document"),
    route!(POST "/mcp", [Operator, Agent], false, Input::Nothing, mcp::exchange,
        "MCP, Streamable HTTP: a message of the client"),
    route!(GET "/mcp", [Operator, Agent], false, Input::Nothing, mcp::exchange,
        "MCP, Streamable HTTP: messages of the server to a session"),
    route!(DELETE "/mcp", [Operator, Agent], false, Input::Nothing, mcp::exchange,
        "MCP, Streamable HTTP: the end of a session"),
    route!(GET "/metrics", [Operator, Viewer], true, Input::Nothing, metrics::scrape,
        "Numbers for Prometheus"),
];

/// The routes, with their roles kept.
pub(super) fn router(face: &Arc<HttpFace>) -> Router {
    let mut router = Router::new();
    let mut paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
    paths.dedup();
    for path in paths {
        let here = ROUTES.iter().filter(|route| route.path == path);
        let methods = here.fold(MethodRouter::new(), |methods, route| {
            methods.merge(on(route.filter, move |state, holder, params, request| {
                admitted(route, state, holder, params, request)
            }))
        });
        router = router.route(path, methods.fallback(wrong_method));
    }
    router.fallback(nothing_here).with_state(face.clone())
}

/// Lets a request through to the handler of a route, if its token may use that.
async fn admitted(
    route: &'static Route,
    State(face): State<Arc<HttpFace>>,
    Extension(holder): Extension<Arc<Holder>>,
    params: RawPathParams,
    request: Request,
) -> Response<Body> {
    let role = holder.token.role;
    if !route.roles.contains(&role) {
        let message = format!("a token of the role {} may not do this", role.as_str());
        return HttpRefusal::forbidden(message).into_response();
    }
    let opened =
        holder.standing.get_or_try_init(async || face.realms.of(&holder.token).await.map(Arc::new));
    let standing = match opened.await {
        Ok(standing) => standing.clone(),
        Err(error) => return failed(&error),
    };
    if route.everywhere && standing.workspace.is_some() {
        let message = "a token that is confined to a workspace may not do this";
        return HttpRefusal::forbidden(message).into_response();
    }
    let id = params.iter().find(|(name, _)| *name == "id");
    let id = id.map(|(_, id)| id.to_owned()).unwrap_or_default();
    let (parts, body) = request.into_parts();
    // The door has collected it.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let ended = holder.ended();
    let Parts { method, uri, headers, extensions, .. } = parts;
    let route_path = route.path;
    let call = Call {
        face,
        holder,
        standing,
        route: route_path,
        id,
        method,
        uri,
        headers,
        extensions,
        body,
    };
    let handled = tokio::select! {
        handled = (route.handler)(call) => handled,
        // What it waited for is stopped, as if its caller had left.
        () = ended => Err(HttpRefusal::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "the token was revoked or has expired",
        )),
    };
    handled.unwrap_or_else(IntoResponse::into_response)
}

async fn nothing_here(request: Request) -> Response<Body> {
    let message = format!("there is nothing at {}", request.uri().path());
    HttpRefusal::new(StatusCode::NOT_FOUND, "not_found", message).into_response()
}

async fn wrong_method(request: Request) -> Response<Body> {
    let message = format!("{} is not possible here", request.method());
    HttpRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message).into_response()
}

/// What is said of a route in the document.
impl Route {
    pub(super) fn role_names(&self) -> Value {
        json!(self.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>())
    }
}
