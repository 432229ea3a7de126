//! What passes between editor and agent: which messages are answered here, which are changed.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use legwork::{Caller, Engine, ErrorKind, Registry, Service, ToolError, Trust};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    FAREWELL,
    asking::Person,
    embedded::Embedded,
    terminal::{AgentTerminal, Create},
    wire::LineWriter,
};
use crate::{
    arguments::{Rules, StatePlace},
    log,
};

/// The ids of our own requests to the editor begin with it, so that they are none of the agent's.
const OWN: &str = "legwork-";

/// Codes of JSON-RPC, and of ACP for a thing that is not there.
const INVALID_PARAMS: i64 = -32602;
const FAILED: i64 = -32603;
const NOT_THERE: i64 = -32002;

/// Most terminals that an agent has not released: each keeps the end of its output.
const TERMINALS_MAX: usize = 256;

/// Most characters of an agent's name that are kept with its tasks.
const NAME_CHARS: usize = 100;

/// Stands between an editor and an agent.
pub(super) struct Desk {
    place: StatePlace,
    rules: Rules,
    trust: Trust,
    pub editor: LineWriter,
    agent: LineWriter,
    /// One for each folder that commands run in.
    services: tokio::sync::Mutex<HashMap<PathBuf, Service>>,
    known: Mutex<Known>,
}

/// What was learnt from the messages that passed.
#[derive(Default)]
struct Known {
    /// The agent's name, as it says.
    agent: Option<String>,
    /// Requests of the editor that open a session, by their ids, with its folder.
    opening: HashMap<String, PathBuf>,
    /// The folders of sessions.
    folders: HashMap<String, PathBuf>,
    terminals: HashMap<String, Arc<AgentTerminal>>,
    embedded: Embedded,
    /// Our requests to the editor that are not answered yet.
    asked: HashMap<String, oneshot::Sender<Value>>,
    asked_count: u64,
}

impl Known {
    /// Changes an update of a session if it shows a terminal; whether it did.
    fn show_terminals(&mut self, message: &mut Value) -> bool {
        self.embedded.pass(message, &self.terminals)
    }
}

impl Desk {
    pub(super) fn new(
        place: StatePlace,
        rules: Rules,
        trust: Trust,
        editor: LineWriter,
        agent: LineWriter,
    ) -> Self {
        let (services, known) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { place, rules, trust, editor, agent, services, known }
    }

    /// Takes a line of the editor.
    pub(super) async fn take_from_editor(&self, line: Vec<u8>) -> io::Result<()> {
        let Ok(mut message) = serde_json::from_slice::<Value>(&line) else {
            return self.agent.line(&line).await;
        };
        let method = message.get("method").and_then(Value::as_str);
        match method {
            None => {
                let id = message.get("id").and_then(Value::as_str).unwrap_or_default();
                if id.starts_with(OWN) {
                    let waiting = self.known().asked.remove(id);
                    if let Some(waiting) = waiting {
                        let _ = waiting.send(message);
                    }
                    return Ok(());
                }
            }
            Some("initialize") => {
                let capabilities = message.pointer_mut("/params/clientCapabilities");
                if let Some(Value::Object(capabilities)) = capabilities {
                    capabilities.insert("terminal".into(), true.into());
                } else if let Some(Value::Object(params)) = message.get_mut("params") {
                    params.insert("clientCapabilities".into(), json!({ "terminal": true }));
                }
                return self.agent.message(&message).await;
            }
            Some("session/close" | "session/delete") => {
                let session = message.pointer("/params/sessionId").and_then(Value::as_str);
                // Nobody can ask for its terminals any more, and dropped they end.
                self.known().terminals.retain(|_, it| Some(it.session.as_str()) != session);
            }
            Some(_) => self.note_session(&message),
        }
        self.agent.line(&line).await
    }

    /// Takes a line of the agent.
    pub(super) async fn take_from_agent(self: &Arc<Self>, line: Vec<u8>) -> io::Result<()> {
        let Ok(mut message) = serde_json::from_slice::<Value>(&line) else {
            return self.editor.line(&line).await;
        };
        let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
        match method.as_deref() {
            None => self.note_answer(&message),
            Some(method) if method.starts_with("terminal/") => {
                let (desk, method) = (self.clone(), method.to_owned());
                // Some wait for long.
                tokio::spawn(async move { desk.answer(&method, &message).await });
                return Ok(());
            }
            Some("session/update") => {
                if self.known().show_terminals(&mut message) {
                    return self.editor.message(&message).await;
                }
            }
            Some(_) => {}
        }
        self.editor.line(&line).await
    }

    /// The editor says nothing more.
    pub(super) async fn end_of_editor(&self) {
        self.known().asked.clear();
        self.agent.end().await;
    }

    /// Stops every command.
    pub(super) async fn end(&self) {
        self.agent.end().await;
        let services: Vec<Service> = self.services.lock().await.drain().map(|(_, it)| it).collect();
        for service in services {
            service.end(FAREWELL).await;
        }
    }

    /// Asks the editor something; none if it does not answer.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Option<Value> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut known = self.known();
            known.asked_count += 1;
            let id = format!("{OWN}{}", known.asked_count);
            known.asked.insert(id.clone(), sender);
            id
        };
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.editor.message(&request).await.ok()?;
        answer.await.ok()
    }

    /// A terminal has ended: what shows it in the editor shows all of it.
    pub(super) async fn show_end(&self, terminal: &str) {
        let updates = {
            let known = self.known();
            known.embedded.updates(terminal, &known.terminals)
        };
        for update in updates {
            let _ = self.editor.message(&update).await;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the folder of a session that the editor opens.
    fn note_session(&self, message: &Value) {
        let text = |path: &str| message.pointer(path).and_then(Value::as_str);
        let Some(folder) = text("/params/cwd").map(PathBuf::from) else { return };
        if let Some(session) = text("/params/sessionId") {
            self.known().folders.insert(session.to_owned(), folder.clone());
        }
        if let Some(id) = message.get("id") {
            self.known().opening.insert(id.to_string(), folder);
        }
    }

    /// Notes the id of a session that the agent has opened, and the agent's name.
    fn note_answer(&self, message: &Value) {
        let mut known = self.known();
        if let Some(name) = message.pointer("/result/agentInfo/name").and_then(Value::as_str) {
            known.agent = Some(name.chars().take(NAME_CHARS).collect());
        }
        let Some(id) = message.get("id").map(Value::to_string) else { return };
        let Some(folder) = known.opening.remove(&id) else { return };
        if let Some(session) = message.pointer("/result/sessionId").and_then(Value::as_str) {
            known.folders.insert(session.to_owned(), folder);
        }
    }

    /// Answers a request about terminals.
    async fn answer(self: Arc<Self>, method: &str, message: &Value) {
        let params = message.get("params").cloned().unwrap_or_default();
        let outcome = self.handle(method, &params).await;
        // A notification wants no answer.
        let Some(id) = message.get("id") else { return };
        let answer = match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err((code, error)) => {
                let hint = error.recovery_hint.as_deref().map(|hint| format!(" ({hint})"));
                let message = format!("{}{}", error.message, hint.unwrap_or_default());
                let error = json!({ "code": code, "message": message, "data": error });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        let _ = self.agent.message(&answer).await;
    }

    async fn handle(
        self: &Arc<Self>,
        method: &str,
        params: &Value,
    ) -> Result<Value, (i64, ToolError)> {
        if method == "terminal/create" {
            return self.create(params).await;
        }
        let id = params.get("terminalId").and_then(Value::as_str).unwrap_or_default();
        let session = params.get("sessionId").and_then(Value::as_str).unwrap_or_default();
        let found = self.known().terminals.get(id).cloned();
        let Some(terminal) = found.filter(|terminal| terminal.session == session) else {
            let problem = format!("there is no terminal `{id}` in this session");
            return Err((NOT_THERE, ToolError::new(ErrorKind::UnknownTask, problem)));
        };
        match method {
            "terminal/output" => Ok(terminal.output()),
            "terminal/wait_for_exit" => Ok(terminal.exit().await),
            "terminal/kill" => {
                terminal.kill().await;
                Ok(json!({}))
            }
            "terminal/release" => {
                terminal.kill().await;
                self.show_end(id).await;
                let mut known = self.known();
                known.terminals.remove(id);
                known.embedded.forget(id);
                Ok(json!({}))
            }
            _ => {
                let problem = format!("there is no method `{method}`");
                Err((-32601, ToolError::new(ErrorKind::UnknownTool, problem)))
            }
        }
    }

    async fn create(self: &Arc<Self>, params: &Value) -> Result<Value, (i64, ToolError)> {
        let wanted = Create::read(params).map_err(|error| (INVALID_PARAMS, error))?;
        let (folder, agent) = {
            let known = self.known();
            if known.terminals.len() >= TERMINALS_MAX {
                let problem = format!("there are {TERMINALS_MAX} terminals that were not released");
                let error = ToolError::new(ErrorKind::LimitExceeded, problem);
                return Err((FAILED, error.hint("release those that have ended")));
            }
            let named = known.agent.clone().map_or_else(|| "acp".into(), |it| format!("acp: {it}"));
            (known.folders.get(&wanted.session_id).cloned(), named)
        };
        let engine = self.engine(folder.as_deref()).await.map_err(|error| (FAILED, error))?;
        let mut caller = Caller::operator(agent);
        caller.trust = self.trust;
        caller.asker = Some(Person::at(self, &wanted.session_id));
        let begun = AgentTerminal::begin(&engine, &caller, wanted, folder.as_deref()).await;
        let (terminal, ended) = begun.map_err(|error| (FAILED, error))?;
        let id = terminal.id.clone();
        self.known().terminals.insert(id.clone(), Arc::new(terminal));
        let desk = self.clone();
        let shown = id.clone();
        tokio::spawn(async move {
            let _ = ended.await;
            desk.show_end(&shown).await;
        });
        Ok(json!({ "terminalId": id }))
    }

    /// The engine for a session: of the folder that `--workspace` names, else of the session's.
    async fn engine(&self, session: Option<&Path>) -> Result<Engine, ToolError> {
        let given = self.place.workspace.clone();
        let folder = given.or_else(|| session.map(Path::to_owned)).unwrap_or_else(|| ".".into());
        let mut services = self.services.lock().await;
        if let Some(known) = services.get(&folder) {
            return Ok(known.engine().clone());
        }
        let state = self.place.state.clone();
        let place = StatePlace { workspace: Some(folder.clone()), state };
        let engine = place.open_to_run(Registry::default(), &self.rules)?;
        log::keep_secrets_of(&engine);
        let service = Service::begin(engine.clone(), self.trust).await?;
        services.insert(folder, service);
        Ok(engine)
    }
}
