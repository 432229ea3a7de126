//! Turns the tables of this crate, which people read and write as TOML, into what is read quickest:
//! the patterns of secrets, which every start of the program needs, into Rust, and the others into
//! JSON.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use toml::{Table, Value};

const TABLES: &str = "data";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={TABLES}");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    fs::write(out.join("paths.json"), serde_json::to_vec(&read("paths")?)?)?;
    fs::write(out.join("secrets.rs"), patterns(&read("secrets")?)?)?;
    Ok(())
}

/// A file of `data/`.
fn read(name: &str) -> Result<Table, Box<dyn Error>> {
    let path = format!("{TABLES}/{name}.toml");
    Ok(toml::from_str(&fs::read_to_string(&path)?).map_err(|error| format!("{path}: {error}"))?)
}

/// `static SHIPPED: [Pattern; N]`.
fn patterns(file: &Table) -> Result<String, Box<dyn Error>> {
    let patterns = file.get("pattern").and_then(Value::as_array).ok_or("there is no pattern")?;
    let mut code = format!("static SHIPPED: [Pattern; {}] = [\n", patterns.len());
    for pattern in patterns {
        let pattern = pattern.as_table().ok_or("a pattern is no table")?;
        let known = ["name", "begins", "regex", "inside", "match", "no_match"];
        if let Some(key) = pattern.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("no pattern has a `{key}`").into());
        }
        let text = |key: &str| {
            let text = pattern.get(key).and_then(Value::as_str);
            text.ok_or_else(|| format!("a pattern has no `{key}`"))
        };
        let begins = pattern.get("begins").and_then(Value::as_array).ok_or("no beginnings")?;
        let begins: Vec<&str> = begins.iter().filter_map(Value::as_str).collect();
        let inside = pattern.get("inside").and_then(Value::as_bool).unwrap_or(false);
        let fields = [
            ("name", format!("{:?}", text("name")?)),
            ("begins", format!("&{begins:?}")),
            ("regex", format!("{:?}", text("regex")?)),
            ("inside", inside.to_string()),
            ("example", format!("{:?}", text("match")?)),
            ("counterexample", format!("{:?}", text("no_match")?)),
            ("compiled", "OnceLock::new()".to_owned()),
        ];
        let fields = fields.map(|(name, value)| format!("{name}: {value}"));
        writeln!(code, "    Pattern {{ {} }},", fields.join(", "))?;
    }
    code.push_str("];\n");
    Ok(code)
}
