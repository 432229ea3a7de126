//! JSON schemas of the tools' inputs, in the plain form that every client understands.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// Keys that some clients choke on, or that say nothing here.
const UNWANTED: [&str; 3] = ["$schema", "title", "format"];

/// The schema of an input type: one object, no references, no null unions.
pub(super) fn of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        // What the type's own comment says is for readers of the code.
        object.remove("description");
        let fields = object.get_mut("properties").and_then(Value::as_object_mut);
        fields.into_iter().flat_map(Map::values_mut).for_each(tell_default);
    }
    schema
}

/// The same with another description of a field, which differs between systems.
pub(super) fn with<T: JsonSchema>(field: &str, description: &str) -> Value {
    let mut schema = of::<T>();
    if let Some(field) = schema.pointer_mut(&format!("/properties/{field}/description")) {
        *field = description.into();
    }
    schema
}

/// Says the default in the description, too: some clients and forms have no word for it.
fn tell_default(field: &mut Value) {
    let default = match &field["default"] {
        Value::Null => return,
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    if let Some(Value::String(description)) = field.get_mut("description") {
        description.push_str(&format!(" Default: {default}."));
    }
}

fn simplify(value: &mut Value) {
    match value {
        Value::Object(object) => simplify_object(object),
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

fn simplify_object(object: &mut Map<String, Value>) {
    // Inside `properties` the keys are names of fields, not words of the schema language.
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    object.retain(|key, _| !UNWANTED.contains(&key.as_str()));
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("enum") {
        choices.retain(|choice| !choice.is_null());
    }
    merge_single_choice(object);
    merge_enumeration(object);
}

/// A union with null is the other half, once null is taken out.
fn merge_single_choice(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.get_mut("anyOf") else {
        return;
    };
    choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
    if let [Value::Object(only)] = choices.as_slice() {
        let mut only = only.clone();
        only.remove("description");
        object.remove("anyOf");
        object.extend(only);
        simplify_object(object);
    }
}

/// A union of constants is an enumeration.
fn merge_enumeration(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.get("oneOf") else {
        return;
    };
    let constants: Option<Vec<Value>> =
        choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(constants) = constants {
        object.remove("oneOf");
        object.insert("type".into(), "string".into());
        object.insert("enum".into(), constants.into());
    }
}
