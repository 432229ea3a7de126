//! Tells what would allow a refused command: the TOML to add, and the file to put it in.

use std::path::{Path, PathBuf};

use legwork::{Config, Engine, ErrorKind, ToolError, user_file};
use toml::{Table, Value};

use crate::{arguments::StateChoice, style::from_home};

/// What would change a refusal; none where nothing in a configuration would.
pub(super) async fn of(
    engine: &Engine,
    error: &ToolError,
    given: &[PathBuf],
    state: &StateChoice,
) -> Option<String> {
    match error.kind {
        ErrorKind::CommandDenied => {
            denied(error.text_detail("rule")?, &Config::files(engine.workspace(), given))
        }
        ErrorKind::ApprovalUnavailable | ErrorKind::ApprovalExpired => {
            let id = error.text_detail("approval_id")?;
            let open = engine.approvals().await.ok()?;
            let approval = open.into_iter().find(|open| open.approval_id == id)?;
            let named = state.as_option();
            let mut text = format!("To allow it once: legwork approve {id}{named}");
            if let Some(rule) = &approval.proposed_rule {
                text.push_str(&format!(
                    "\nTo allow it from now on: legwork approve {id} --rule{named}\n{}",
                    addition(rule)
                ));
            }
            Some(text)
        }
        _ => None,
    }
}

/// A rule, and the file that it goes into.
pub(super) fn addition(rule: &str) -> String {
    let file = user_file().map_or_else(
        || "your configuration".to_owned(),
        |path| from_home(&path.display().to_string()),
    );
    format!("or add this to {file}:\n{}\n", indented(rule))
}

/// TOML below a sentence.
fn indented(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("\n    {line}") })
        .collect()
}

/// The rule that denies, as it would have to be written to deny no longer, and its file.
pub(super) fn denied(rule: &str, files: &[PathBuf]) -> Option<String> {
    files.iter().rev().find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        let table: Table = toml::from_str(&text).ok()?;
        let asks = in_rules(rule, &table).map(|changed| ("To be asked instead", changed));
        let allows = || in_list(rule, &table).map(|changed| ("To deny it no longer", changed));
        let (purpose, changed) = asks.or_else(allows)?;
        Some(told(rule, file, purpose, &changed))
    })
}

fn told(rule: &str, file: &Path, purpose: &str, changed: &str) -> String {
    let file = from_home(&file.display().to_string());
    let changed = indented(changed);
    format!("The rule `{rule}` is in {file}. {purpose}, change it there to:\n{changed}\n")
}

/// A `[[rule]]` of this id, with another decision.
fn in_rules(id: &str, table: &Table) -> Option<String> {
    let rules = table.get("rule")?.as_array()?.iter().filter_map(Value::as_table);
    let is_it = |rule: &&Table| rule.get("id").and_then(Value::as_str) == Some(id);
    let rule = rules.into_iter().find(is_it)?;
    let mut text = String::from("[[rule]]\n");
    for (key, value) in rule {
        let ask = Value::String("ask".into());
        let value = if key == "decision" { &ask } else { value };
        text.push_str(&format!("{key} = {}\n", written(value)));
    }
    Some(text)
}

/// The list of short forms without this one.
fn in_list(form: &str, table: &Table) -> Option<String> {
    let list = table.get("excludeTools")?.as_array()?;
    let is_it = |item: &&Value| item.as_str().map(str::trim) == Some(form);
    list.iter().find(is_it)?;
    let rest = list.iter().filter(|item| !is_it(item)).cloned().collect();
    Some(format!("excludeTools = {}", written(&Value::Array(rest))))
}

/// A value as TOML; escapes of JSON are escapes there, too.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => serde_json::to_string(text).unwrap_or_default(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(written).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Table(_) => "{}".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(text: &str, rule: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        let told = denied(rule, std::slice::from_ref(&file)).unwrap_or_default();
        told.replace(&file.display().to_string(), "FILE")
    }

    #[test]
    fn a_rule_that_denies_is_shown_as_one_that_asks_with_its_file() {
        let text = "[[rule]]\nid = \"no-push\"\ndecision = \"deny\"\nprogram = \"git\"\n\
                    args = [[\"push\", \"p\\\"q\"]]\nexact = true\n";
        let told = remedy(text, "no-push");
        assert!(told.starts_with("The rule `no-push` is in FILE."), "{told}");
        for line in ["decision = \"ask\"", "args = [[\"push\", \"p\\\"q\"]]", "exact = true"] {
            assert!(told.contains(line), "{line} in {told}");
        }
        let text = "excludeTools = [\"Bash(curl)\", \"run_shell_command(rm)\"]";
        let told = remedy(text, "run_shell_command(rm)");
        assert!(told.contains("    excludeTools = [\"Bash(curl)\"]\n"), "{told}");
        assert_eq!(remedy(text, "dangerous"), "");
    }
}
