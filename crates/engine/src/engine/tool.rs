//! What a tool is, and the registry that knows tools by name.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use legwork_gate::Manners;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Answer, Engine, Success};
use crate::{
    error::{ErrorKind, ToolError},
    model::Caller,
};

/// What a tool is, as models, clients and people are told.
#[derive(Debug, Clone, Serialize)]
pub struct Definition {
    /// The name by which it is called.
    pub name: &'static str,
    /// The capability family that it belongs to.
    pub family: &'static str,
    /// A category for people.
    pub category: &'static str,
    /// Words to find it by.
    pub tags: &'static [&'static str],
    /// One paragraph for a model.
    pub description: &'static str,
    /// JSON schema of the input.
    pub input_schema: Value,
    /// What a model is told about using it well.
    pub instructions: &'static str,
    /// Whether it only looks, and changes nothing.
    #[serde(skip)]
    pub read_only: bool,
    /// Whether a model is offered it by default; the others have to be asked for by name.
    #[serde(skip)]
    pub by_default: bool,
    /// How it shares the calls that a server works on at once.
    #[serde(skip)]
    pub turn: Turn,
    /// How it wants its commands to be judged.
    #[serde(skip)]
    pub manners: Manners,
    /// Whether its command is a program with arguments, and not a script for a shell.
    #[serde(skip)]
    pub takes_argv: bool,
    /// The shell that its scripts are for; the user's own where absent.
    #[serde(skip)]
    pub shell: Option<&'static str>,
    /// Whether its text for a model is the JSON of its result and nothing else.
    #[serde(skip)]
    pub text_is_json: bool,
    /// Whether its command can run at another place, named by the field `place` of its input. The
    /// field is offered where there are several.
    #[serde(skip)]
    pub takes_place: bool,
}

impl Definition {
    /// A tool that changes things, may wait, and is offered by default; the other fields can be
    /// set.
    pub fn new(name: &'static str, description: &'static str, input_schema: Value) -> Self {
        Self {
            name,
            family: "local_environment",
            category: "System Execution",
            tags: &[],
            description,
            input_schema,
            instructions: "",
            read_only: false,
            by_default: true,
            turn: Turn::default(),
            manners: Manners::default(),
            takes_argv: false,
            shell: None,
            text_is_json: false,
            takes_place: false,
        }
    }
}

/// How a tool shares the calls that a server works on at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Turn {
    /// It may wait for long, and takes one of a bounded number of places.
    #[default]
    Waits,
    /// It only looks or types, and waits for no place; but for a client that reads its answers.
    Looks,
    /// It stops something, and waits for nothing.
    Stops,
}

/// A future that a tool returns.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Success, ToolError>> + Send + 'a>>;

/// A tool.
pub trait Tool: Send + Sync {
    /// What it is.
    fn definition(&self) -> &Definition;
    /// Does it.
    fn call<'a>(&'a self, engine: &'a Engine, input: Value, caller: &'a Caller) -> ToolFuture<'a>;
    /// Renders a result for a model, from the result alone.
    fn render(&self, result: &Value) -> String;
}

/// The tools by name.
#[derive(Clone, Default)]
pub struct Registry {
    tools: Vec<Arc<dyn Tool>>,
}

impl Registry {
    /// Adds a tool; it takes the place of one with the same name.
    pub fn add(&mut self, tool: impl Tool + 'static) {
        self.tools.retain(|known| known.definition().name != tool.definition().name);
        self.tools.push(Arc::new(tool));
    }

    /// Keeps only the tools of these names; an unknown name is given back.
    pub fn keep(&mut self, names: &[&str]) -> Result<(), String> {
        if let Some(unknown) = names.iter().find(|name| self.get(name).is_none()) {
            return Err((*unknown).to_owned());
        }
        self.tools.retain(|tool| names.contains(&tool.definition().name));
        Ok(())
    }

    /// What the tools are, in the order in which they were added.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.tools.iter().map(|tool| tool.definition())
    }

    /// Keeps only the tools that a model is offered by default: one way to run a command, and what
    /// follows from it. Three ways to run a command would only confuse it.
    pub fn keep_default(&mut self) {
        self.tools.retain(|tool| tool.definition().by_default);
    }

    /// Whether a tool of this name does more than look.
    pub(super) fn changes_something(&self, name: &str) -> bool {
        self.get(name).is_some_and(|tool| !tool.definition().read_only)
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.iter().find(|tool| tool.definition().name == name).map(AsRef::as_ref)
    }

    /// Calls a tool by name.
    pub async fn call(&self, engine: &Engine, name: &str, input: Value, caller: &Caller) -> Answer {
        let Some(tool) = self.get(name) else {
            let known: Vec<&str> = self.definitions().map(|definition| definition.name).collect();
            let error =
                ToolError::new(ErrorKind::UnknownTool, format!("there is no tool `{name}`"))
                    .detail("tool_name", name)
                    .hint(format!("the tools are: {}", known.join(", ")));
            return Answer::failed(&engine.mask().text(name), engine.told(error));
        };
        // Here all that tools say goes out: no secret passes.
        match tool.call(engine, input, caller).await {
            Ok(success) => Answer::succeeded(tool, engine.mask(), success),
            Err(error) => Answer::failed(name, engine.told(error)),
        }
    }
}

/// A tool that offers a choice of places.
struct AtPlaces {
    tool: Arc<dyn Tool>,
    definition: Definition,
}

impl Tool for AtPlaces {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn call<'a>(&'a self, engine: &'a Engine, input: Value, caller: &'a Caller) -> ToolFuture<'a> {
        self.tool.call(engine, input, caller)
    }

    fn render(&self, result: &Value) -> String {
        self.tool.render(result)
    }
}

impl Registry {
    /// Offers a choice of places, where a tool can run its command at another one.
    pub(super) fn offer_places(&mut self, names: &[&str], default: &str) {
        for tool in self.tools.iter_mut().filter(|tool| tool.definition().takes_place) {
            let mut definition = tool.definition().clone();
            let meaning = format!("The place to run at. Default: {default}.");
            let field = json!({ "description": meaning, "enum": names, "type": "string" });
            if let Some(fields) = definition.input_schema.get_mut("properties")
                && let Some(fields) = fields.as_object_mut()
            {
                fields.insert("place".into(), field);
            }
            *tool = Arc::new(AtPlaces { tool: tool.clone(), definition });
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.definitions().map(|definition| definition.name);
        formatter.debug_list().entries(names).finish()
    }
}
