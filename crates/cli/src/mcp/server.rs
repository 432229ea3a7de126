//! The tools as an MCP server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::request::Parts;
use legwork::{
    Answer, Caller, Client, Definition, Engine, Session, TraceSpan, Trust,
    tools::{Turn, export::annotations},
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
        CompleteRequestParams, CompleteResult, ContentBlock, CustomRequest, CustomResult,
        ErrorCode, Implementation, ListPromptsRequestMethod, ListPromptsResult,
        ListResourceTemplatesRequestMethod, ListResourceTemplatesResult,
        ListResourcesRequestMethod, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ProgressToken, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};
use tracing::Level;

use super::asking::{Seal, Way, by_request};
use crate::{
    http::request_id,
    log,
    traces::{self, TraceParent},
};

/// Most characters of a client's name that are kept with its tasks.
const CLIENT_NAME_CHARS: usize = 100;

/// What a client is told that cannot stop tasks.
const ENDS_WITH_SESSION: &str =
    "Processes that a command leaves running go on until this session ends.";

/// How often a client that asked for progress hears of a command that prints nothing.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A call asks with it for the envelope beside the text, as `--structured` does for all calls: a
/// program wants data.
const STRUCTURED: &str = "legwork/structured";

/// What is served to a client, whatever the transport. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Offer {
    engine: Engine,
    structured: bool,
    trust: Trust,
    /// The tools, where they are not all of the engine's.
    tools: Option<Arc<[String]>>,
    /// Whether the person behind the client may answer questions.
    may_answer: bool,
    /// Who the client is known as, besides the name that it gives itself.
    known_as: Option<Arc<str>>,
    /// What its messages come over, in the words of OpenTelemetry.
    transport: &'static str,
    /// Told of every call that was answered.
    tally: Option<Arc<Tally>>,
    seal: Arc<Seal>,
    instructions: Arc<str>,
}

/// Counts the answers to calls of a tool.
pub(crate) type Tally = dyn Fn(&str, &Answer) + Send + Sync;

impl Offer {
    /// Offers the tools of an engine to clients of this trust.
    pub(crate) async fn new(
        engine: Engine,
        structured: bool,
        trust: Trust,
        tools: Option<Arc<[String]>>,
    ) -> Result<Self, String> {
        let seal = Arc::new(Seal::new()?);
        let (may_answer, known_as, tally) = (true, None, None);
        let instructions = "".into();
        let mut offer = Self {
            engine,
            structured,
            trust,
            tools,
            may_answer,
            known_as,
            transport: "pipe",
            tally,
            seal,
            instructions,
        };
        let mut texts: Vec<String> =
            offer.definitions().map(|tool| tool.instructions.to_owned()).collect();
        texts.extend(offer.engine.sandbox_told(trust).await.ok());
        if !offer.can_stop() {
            texts.push(ENDS_WITH_SESSION.into());
        }
        offer.instructions = texts.join("\n\n").into();
        Ok(offer)
    }

    /// The same to a client that is known as somebody, and may answer questions or not.
    pub(crate) fn to(mut self, known_as: &str, may_answer: bool, tally: Arc<Tally>) -> Self {
        (self.known_as, self.may_answer) = (Some(known_as.into()), may_answer);
        self.tally = Some(tally);
        self
    }

    /// The same to a client whose messages come over this.
    pub(crate) fn over(mut self, transport: &'static str) -> Self {
        self.transport = transport;
        self
    }

    fn offers(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }

    /// Whether the client can stop tasks.
    fn can_stop(&self) -> bool {
        self.definitions().any(|tool| tool.turn == Turn::Stops)
    }

    /// A session of a client that is offered this.
    pub(crate) fn session(&self, session: Session) -> Session {
        if self.can_stop() { session } else { session.ending_what_is_left() }
    }

    fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.engine.registry().definitions().filter(|tool| self.offers(tool.name))
    }
}

/// Serves one client.
pub(crate) struct Server {
    offer: Offer,
    client: Arc<Client>,
    /// What the client has been shown of the tasks, and which it has started.
    session: Session,
}

impl Server {
    pub(crate) fn new(offer: Offer, client: Arc<Client>, session: Session) -> Self {
        let session = offer.session(session);
        Self { offer, client, session }
    }

    /// What its client has started.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    fn tool(definition: &Definition) -> Tool {
        let schema = match &definition.input_schema {
            Value::Object(schema) => schema.clone(),
            _ => serde_json::Map::new(),
        };
        let mut tool = Tool::new(definition.name, definition.description, Arc::new(schema));
        tool.annotations = serde_json::from_value(annotations(definition)).ok();
        tool
    }

    /// The receipt, and the envelope where the server or the call wants it.
    fn result(&self, answer: &Answer, context: &RequestContext<RoleServer>) -> CallToolResult {
        let text = vec![ContentBlock::text(answer.receipt())];
        let mut result = match answer.error() {
            None => CallToolResult::success(text),
            Some(_) => CallToolResult::error(text),
        };
        let is_asked_for = || context.meta.get(STRUCTURED).and_then(Value::as_bool);
        if self.offer.structured || is_asked_for() == Some(true) {
            result.structured_content = serde_json::to_value(answer.envelope()).ok();
        }
        result
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let name = context.client_info().map(|client| client.name);
        let name: Option<String> = name.map(|name| name.chars().take(CLIENT_NAME_CHARS).collect());
        let name = name.unwrap_or_else(|| "mcp".into());
        let name = match &self.offer.known_as {
            Some(known_as) => format!("{name} ({known_as})"),
            None => name,
        };
        let mut caller = Caller::operator(name);
        caller.trust = self.offer.trust;
        caller.session = self.session.clone();
        caller
    }

    /// Calls a tool.
    async fn called(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        let engine = &self.offer.engine;
        if engine.registry().get(&name).is_none() || !self.offer.offers(&name) {
            let shown: String = name.chars().take(CLIENT_NAME_CHARS).collect();
            let problem = format!("there is no tool `{}`", engine.mask().text(&shown));
            return Err(ErrorData::invalid_params(problem, None));
        }
        let settings = engine.for_one_call().await.settings();
        let mut caller = self.caller(&context);
        caller.progress = context.meta.get_progress_token().map(|token| report(&context, token));
        if caller.progress.is_none() {
            // Nothing tells the client that the command still runs.
            caller.answer_within = Some(settings.answer_within);
        }
        let way = Way::of(&context, self.offer.may_answer && settings.elicit);
        if way == Way::Request {
            caller.asker = Some(by_request(context.peer.clone(), caller.name.clone()));
        }
        if let Err(error) = self.offer.seal.take_answer(engine, &request, &caller.name).await {
            let answer = Answer::failed(&name, error);
            return Ok(CallToolResponse::Complete(self.result(&answer, &context)));
        }
        let input = Value::Object(request.arguments.clone().unwrap_or_default());
        let mut span = begin_span(&context, &name, self.offer.transport);
        caller.trace = span.trace();
        let (shown_id, began) = (shown_id(&context), Instant::now());
        let call = self.client.call(&name, input, &caller);
        tokio::select! {
            answer = call => {
                if let Some(tally) = &self.offer.tally {
                    tally(&name, &answer);
                }
                traces::answered(&mut span, &answer);
                drop(span);
                log::called(&shown_id, &caller.name, &name, &answer, began);
                if way == Way::Retry
                    && let Some(question) = self.offer.seal.question(engine, &request, &answer).await
                {
                    return Ok(question);
                }
                Ok(CallToolResponse::Complete(self.result(&answer, &context)))
            }
            // Dropping the call stops its command.
            () = context.ct.cancelled() => {
                span.fail("cancelled");
                let (tool, duration_ms) = (&*name, log::milliseconds(began));
                tracing::info!(request_id = shown_id, tool, duration_ms, "call cancelled");
                Err(ErrorData::internal_error("cancelled", None))
            }
        }
    }
}

/// The id of a request as it is logged: over HTTP that of the HTTP request, else the client's own.
fn shown_id(context: &RequestContext<RoleServer>) -> String {
    if !tracing::enabled!(Level::INFO) {
        return String::new();
    }
    match context.extensions.get::<Parts>() {
        Some(parts) => request_id::of(&parts.headers).to_owned(),
        None => context.id.to_string().chars().take(CLIENT_NAME_CHARS).collect(),
    }
}

/// The span of a call, by OpenTelemetry's conventions for MCP. Its parent is what the message says,
/// else what the HTTP request says that the message came in.
fn begin_span(
    context: &RequestContext<RoleServer>,
    tool: &str,
    transport: &'static str,
) -> TraceSpan {
    let meta = &context.meta;
    let http = context.extensions.get::<Parts>().map(|parts| &parts.headers);
    let parent = || {
        let told = meta.get_traceparent();
        let told = told.and_then(|parent| TraceParent::read(parent, meta.get_tracestate()));
        told.or_else(|| http.and_then(traces::parent_in))
    };
    let mut span = traces::begin(parent, || format!("tools/call {tool}"));
    span.set("mcp.method.name", || "tools/call");
    if let Some(version) = span.trace().and_then(|_| context.protocol_version()) {
        span.set("mcp.protocol.version", || version.to_string());
    }
    span.set("jsonrpc.request.id", || {
        context.id.to_string().chars().take(CLIENT_NAME_CHARS).collect::<String>()
    });
    span.set("network.transport", || transport);
    let session = http.and_then(|headers| headers.get("mcp-session-id")?.to_str().ok());
    if let Some(session) = session {
        span.set("mcp.session.id", || session.to_owned());
    }
    traces::of_tool(&mut span, tool);
    span
}

/// Tells the client about progress, for as long as the returned end is held.
fn report(context: &RequestContext<RoleServer>, token: ProgressToken) -> mpsc::Sender<String> {
    let (sender, mut lines) = mpsc::channel::<String>(1);
    let client = context.peer.clone();
    tokio::spawn(async move {
        let (mut count, started) = (0.0, Instant::now());
        loop {
            let message = match timeout(HEARTBEAT, lines.recv()).await {
                Ok(Some(line)) => line,
                Ok(None) => return,
                // A client may take silence for death.
                Err(_) => format!("still running, {} s", started.elapsed().as_secs()),
            };
            count += 1.0;
            let told = ProgressNotificationParam::new(token.clone(), count).with_message(message);
            if client.notify_progress(told).await.is_err() {
                return;
            }
        }
    });
    sender
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("legwork", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(self.offer.instructions.to_string());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.offer.definitions().map(Self::tool).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // A call is ten kilobytes large, and rmcp hands it on nine times.
        Box::pin(self.called(request, context)).await
    }

    // What is not declared is refused; rmcp would answer with empty lists.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// A known method with parameters of another shape arrives here as an unknown one.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method == "tools/call" {
            let message =
                "params must be an object with `name`, a string, and `arguments`, an object";
            return Err(ErrorData::invalid_params(message, None));
        }
        let shown: String = request.method.chars().take(CLIENT_NAME_CHARS).collect();
        let message = format!("there is no method `{shown}`");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }
}
