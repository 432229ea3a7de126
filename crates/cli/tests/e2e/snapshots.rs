//! What people and clients see, kept as it is.

use insta::{assert_json_snapshot, assert_snapshot};
use serde_json::Value;

use crate::common::{Scratch, program, text};

fn output(arguments: &[&str]) -> String {
    let output = std::process::Command::new(program())
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

#[test]
fn help() {
    assert_snapshot!("help", output(&["--help"]));
    for verb in [
        "acp",
        "setup",
        "hook",
        "mcp",
        "call",
        "run",
        "sh",
        "ps",
        "top",
        "show",
        "logs",
        "attach",
        "send",
        "stop",
        "wait",
        "tools",
        "approvals",
        "approve",
        "deny",
        "policy",
        "audit",
        "doctor",
        "gc",
        "completions",
    ] {
        assert_snapshot!(format!("help_{verb}"), output(&[verb, "--help"]));
    }
}

#[test]
fn the_registry() {
    let tools: Value = serde_json::from_str(&output(&["tools", "--json"])).unwrap();
    assert_json_snapshot!("tools", tools);
    assert_snapshot!("instructions", output(&["tools", "--instructions"]));
    for format in ["mcp", "openai", "anthropic", "gemini"] {
        let exported: Value =
            serde_json::from_str(&output(&["tools", "--format", format])).unwrap();
        assert_json_snapshot!(format!("tools_{format}"), exported);
    }
    let few = output(&["tools", "--tools", "TaskStop, ExecCommand", "--json"]);
    let few: Value = serde_json::from_str(&few).unwrap();
    assert_eq!(few.as_array().unwrap().len(), 2);
}

#[test]
fn the_schema_has_nothing_that_clients_choke_on() {
    let tools: Value = serde_json::from_str(&output(&["tools", "--json"])).unwrap();
    for tool in tools.as_array().unwrap() {
        let schema = &tool["input_schema"];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        let text = schema.to_string();
        for word in ["$schema", "\"title\"", "$ref", "\"format\"", "\"null\"", "anyOf", "oneOf"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{name} is not described");
            assert!(property["type"].is_string(), "{name} has no type");
        }
    }
    assert_eq!(tools[0]["input_schema"]["required"], serde_json::json!(["cmd"]));
}

#[test]
fn show_and_ps_for_people() {
    let scratch = Scratch::new();
    let result = scratch.result("echo hi; exit 3");
    let id = result["task_id"].as_str().unwrap();
    let shown = text(&scratch.legwork("show").arg("@").output().unwrap().stdout);
    for line in ["Status:       failed", "Exit status:  3", "Command:      echo hi; exit 3"] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    let listed = text(&scratch.legwork("ps").output().unwrap().stdout);
    let row = listed.lines().nth(1).unwrap();
    assert!(row.starts_with(&id[..6]) && row.ends_with("echo hi; exit 3"), "{row}");
    assert!(row.contains("  exit 3  "), "{row}");
    let unknown = scratch.legwork("show").arg("t_nothing").output().unwrap();
    assert_eq!(unknown.status.code(), Some(125));
    assert!(text(&unknown.stderr).contains("no task has the id `t_nothing`"));
}

#[test]
fn doctor_is_well_here() {
    let scratch = Scratch::new();
    let output = scratch.legwork("doctor").arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["healthy"], true, "{report:#}");
    let layers = report["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 10);
    assert!(layers.iter().all(|layer| layer["available"] == true || layer["reason"].is_string()));
}
