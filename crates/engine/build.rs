//! Turns the tables of this crate, which people read and write as TOML, into JSON: that is read ten
//! times as fast, and every start of the program reads them.

use std::{env, error::Error, fs, path::Path};

const TABLES: &str = "data";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={TABLES}");
    let out = env::var("OUT_DIR")?;
    for entry in fs::read_dir(TABLES)? {
        let path = entry?.path();
        let Some(name) = path.file_stem().filter(|_| path.extension().is_some_and(|e| e == "toml"))
        else {
            continue;
        };
        let table: toml::Table = toml::from_str(&fs::read_to_string(&path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let json = Path::new(&out).join(name).with_extension("json");
        fs::write(json, serde_json::to_vec(&table)?)?;
    }
    Ok(())
}
