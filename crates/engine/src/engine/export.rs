//! The tools' definitions in the forms that model providers take.

use serde_json::{Map, Value, json};

use super::Definition;

/// Words that `OpenAI`'s strict mode refuses; what they say is in the descriptions, too.
const NOT_STRICT: [&str; 2] = ["minLength", "default"];

/// Words that Gemini's schemas do not have.
const NOT_GEMINI: [&str; 1] = ["additionalProperties"];

/// A form of the definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As an MCP server lists its tools.
    Mcp,
    /// As function tools of `OpenAI`'s chat completions, in strict mode.
    OpenAi,
    /// As tools of Anthropic's messages.
    Anthropic,
    /// As function declarations of Gemini.
    Gemini,
}

/// The definitions in this form.
pub fn export<'a>(tools: impl Iterator<Item = &'a Definition>, format: Format) -> Value {
    let tools = tools.map(|tool| one(tool, format)).collect::<Vec<_>>();
    match format {
        Format::Mcp => json!({ "tools": tools }),
        Format::Gemini => json!({ "functionDeclarations": tools }),
        Format::OpenAi | Format::Anthropic => Value::Array(tools),
    }
}

fn one(tool: &Definition, format: Format) -> Value {
    let Definition { name, description, input_schema, .. } = tool;
    match format {
        Format::Mcp => json!({
            "name": name, "description": description, "inputSchema": input_schema,
            "annotations": annotations(tool),
        }),
        Format::Anthropic => {
            json!({ "name": name, "description": description, "input_schema": input_schema })
        }
        Format::OpenAi => json!({
            "type": "function",
            "function": {
                "name": name, "description": description, "strict": true,
                "parameters": strict(input_schema.clone()),
            },
        }),
        Format::Gemini => json!({
            "name": name, "description": description, "parameters": gemini(input_schema.clone()),
        }),
    }
}

/// What an MCP client is told about a tool's effects.
pub fn annotations(tool: &Definition) -> Value {
    if tool.read_only {
        json!({ "readOnlyHint": true, "openWorldHint": false })
    } else {
        json!({ "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true })
    }
}

/// Every property is required, and an optional one may be null.
fn strict(mut schema: Value) -> Value {
    if let Value::Object(object) = &mut schema {
        object.retain(|key, _| !NOT_STRICT.contains(&key.as_str()));
        if let Some(items) = object.get_mut("items") {
            *items = strict(items.take());
        }
        make_all_required(object);
    }
    schema
}

fn make_all_required(object: &mut Map<String, Value>) {
    let required: Vec<String> = object
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    for (name, property) in properties.iter_mut() {
        *property = strict(property.take());
        if !required.contains(name) {
            make_nullable(property);
        }
    }
    let names: Vec<Value> = properties.keys().cloned().map(Value::from).collect();
    object.insert("required".into(), names.into());
}

fn make_nullable(property: &mut Value) {
    let Value::Object(property) = property else { return };
    if let Some(kind) = property.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
    }
    if let Some(Value::Array(choices)) = property.get_mut("enum") {
        choices.push(Value::Null);
    }
}

/// Types are named in capitals, and nothing is said that the schema language does not have.
fn gemini(mut schema: Value) -> Value {
    if let Value::Object(object) = &mut schema {
        object.retain(|key, _| !NOT_GEMINI.contains(&key.as_str()));
        if let Some(Value::String(kind)) = object.get_mut("type") {
            *kind = kind.to_ascii_uppercase();
        }
        if let Some(items) = object.get_mut("items") {
            *items = gemini(items.take());
        }
        if let Some(Value::Object(properties)) = object.get_mut("properties") {
            for property in properties.values_mut() {
                *property = gemini(property.take());
            }
        }
    }
    schema
}
