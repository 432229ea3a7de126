//! Turns the tables of this crate, which people read and write as TOML, into Rust: then nothing is
//! read when the program starts, and a mistake in a table is one that the compiler finds.

use std::{collections::BTreeMap, env, error::Error, fmt::Write as _, fs, path::Path};

use toml::{Table, Value};

/// A list of entries that are found by the names of programs.
struct List {
    file: &'static str,
    key: &'static str,
    /// The type of an entry.
    of: &'static str,
    /// The field with the names of its programs.
    names: &'static str,
}

const LISTS: [List; 4] = [
    List { file: "wrappers", key: "wrapper", of: "Wrapper", names: "names" },
    List { file: "dangerous", key: "danger", of: "Danger", names: "programs" },
    List { file: "arguments", key: "program", of: "Arguments", names: "names" },
    List { file: "harmless", key: "harmless", of: "Harmless", names: "programs" },
];

/// Fields that are of an enum, with what they are where an entry says nothing.
const ENUMS: [(&str, &str); 2] = [("then", "Then::Program"), ("empty", "Empty::Nothing")];

/// Fields that an entry may leave open.
const OPTIONAL: [&str; 2] = ["operands_max", "reads"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=data");
    let mut code = String::new();
    for list in &LISTS {
        write_list(&mut code, list, &read(list.file)?)?;
    }
    write_struct(&mut code, "PATHS", "Paths", read("dangerous")?.get("paths"));
    write_struct(&mut code, "PLAIN", "Plain", read("arguments")?.get("plain"));
    write_map(&mut code, "SHORT_FORMS", "Text", &read("short_forms")?);
    write_map(&mut code, "SETS", "TextList", &read("names")?);
    fs::write(Path::new(&env::var("OUT_DIR")?).join("tables.rs"), code)?;
    Ok(())
}

/// A file of `data/`.
fn read(name: &str) -> Result<Table, Box<dyn Error>> {
    let path = format!("data/{name}.toml");
    Ok(toml::from_str(&fs::read_to_string(&path)?).map_err(|error| format!("{path}: {error}"))?)
}

/// `static KEY: List<Of>`: the entries, and the index of each under each of its names, sorted.
fn write_list(code: &mut String, list: &List, file: &Table) -> Result<(), Box<dyn Error>> {
    let List { key, of, names, .. } = list;
    let entries = file.get(*key).and_then(Value::as_array).ok_or("there is no list")?;
    let entries: Vec<&Table> = entries.iter().filter_map(Value::as_table).collect();
    let mut fields = BTreeMap::new();
    // The names are in the index alone.
    let others = entries.iter().copied().flatten().filter(|(field, _)| field != names);
    for (field, value) in others {
        fields.entry(field.as_str()).or_insert_with(|| unsaid(field, value));
    }
    let mut index = Vec::new();
    writeln!(code, "static {}: List<{of}> = List {{ entries: &[", key.to_uppercase())?;
    for (at, entry) in entries.iter().enumerate() {
        let said = |(field, unsaid): (&&str, &String)| {
            let value = entry.get(*field).map_or_else(|| unsaid.clone(), |it| written(field, it));
            format!("{field}: {value}")
        };
        let said: Vec<String> = fields.iter().map(said).collect();
        writeln!(code, "    {of} {{ {} }},", said.join(", "))?;
        let named = entry.get(*names).and_then(Value::as_array).ok_or("an entry has no names")?;
        index.extend(named.iter().filter_map(Value::as_str).map(|name| (name, at)));
    }
    index.sort_unstable();
    writeln!(code, "], names: &{index:?} }};")?;
    Ok(())
}

/// `static NAME: Of`: one entry.
fn write_struct(code: &mut String, name: &str, of: &str, entry: Option<&Value>) {
    let fields = entry.and_then(Value::as_table).into_iter().flatten();
    let fields: Vec<String> =
        fields.map(|(field, value)| format!("{field}: {}", written(field, value))).collect();
    *code += &format!("static {name}: {of} = {of} {{ {} }};\n", fields.join(", "));
}

/// `static NAME: Map<Of>`: values under names, sorted.
fn write_map(code: &mut String, name: &str, of: &str, file: &Table) {
    let sorted: BTreeMap<&String, &Value> = file.iter().collect();
    let pairs: Vec<String> =
        sorted.iter().map(|(key, value)| format!("({key:?}, {})", written(key, value))).collect();
    *code += &format!("static {name}: Map<{of}> = &[{}];\n", pairs.join(", "));
}

/// What a field is where an entry says nothing of it.
fn unsaid(field: &str, value: &Value) -> String {
    if let Some((_, unsaid)) = ENUMS.iter().find(|(name, _)| *name == field) {
        return (*unsaid).to_owned();
    }
    let unsaid = match value {
        _ if OPTIONAL.contains(&field) => "None",
        Value::Array(_) => "&[]",
        Value::Boolean(_) => "false",
        Value::Integer(_) => "0",
        _ => "\"\"",
    };
    unsaid.to_owned()
}

/// The value of a field, as Rust writes it.
fn written(field: &str, value: &Value) -> String {
    if let Some((_, unsaid)) = ENUMS.iter().find(|(name, _)| *name == field)
        && let (Some((of, _)), Some(text)) = (unsaid.split_once("::"), value.as_str())
    {
        let (first, rest) = text.split_at(1);
        return format!("{of}::{}{rest}", first.to_uppercase());
    }
    let plain = plain(value);
    if OPTIONAL.contains(&field) { format!("Some({plain})") } else { plain }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(plain).collect();
            format!("&[{}]", values.join(", "))
        }
        Value::String(text) => format!("{text:?}"),
        Value::Boolean(said) => said.to_string(),
        Value::Integer(number) => number.to_string(),
        other => format!("compile_error!(\"no field is {}\")", other.type_str()),
    }
}
