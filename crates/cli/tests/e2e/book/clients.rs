//! The settings that the pages give for each client start a server.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use super::page::Page;
use crate::{
    common::{Scratch, program},
    mcp::Wire,
};

/// Clients that were driven with Legwork, by the names of their chapters.
const CLIENTS: [&str; 13] = [
    "Claude Code",
    "Codex CLI",
    "Gemini CLI",
    "opencode",
    "Kilo Code CLI",
    "Qwen Code",
    "goose",
    "Copilot CLI",
    "Droid",
    "Kimi Code CLI",
    "Mistral Vibe",
    "Cline CLI",
    "Continue CLI",
];

/// The commands in settings: a program with its arguments, in one list or in two.
fn commands(settings: &Value) -> Vec<Vec<String>> {
    let words = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    match settings {
        Value::Object(fields) => match fields.get("command") {
            Some(Value::String(program)) => {
                let mut command = vec![program.clone()];
                command.extend(words(&settings["args"]));
                vec![command]
            }
            Some(list @ Value::Array(_)) => vec![words(list)],
            _ => fields.values().flat_map(commands).collect(),
        },
        Value::Array(list) => list.iter().flat_map(commands).collect(),
        _ => Vec::new(),
    }
}

/// The same of a YAML block whose lists are written as JSON has them.
fn commands_of_yaml(text: &str) -> Vec<Vec<String>> {
    let value = |line: &str, name: &str| {
        let (_, rest) = line.trim_start_matches([' ', '-']).split_once(name)?;
        Some(rest.trim().to_owned())
    };
    let program = text.lines().find_map(|line| value(line, "command:").or(value(line, "cmd:")));
    let arguments = text.lines().find_map(|line| value(line, "args:"));
    let (Some(program), Some(arguments)) = (program, arguments) else { return Vec::new() };
    let mut command = vec![program];
    command.extend(serde_json::from_str::<Vec<String>>(&arguments).unwrap());
    vec![command]
}

/// All commands of the settings on a page.
fn on(page: &Page) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for block in page.blocks() {
        let here = match block.info {
            "json" => commands(&serde_json::from_str(block.body).unwrap()),
            "toml" => commands(&toml::from_str(block.body).unwrap()),
            "yaml" => commands_of_yaml(block.body),
            _ => continue,
        };
        assert!(!here.is_empty(), "{}:{} starts nothing", page.name, block.line);
        found.extend(here);
    }
    found
}

#[test]
fn the_settings_of_every_client_start_a_server() {
    let pages = ["README.md", "docs/clients.md"].map(Page::read);
    let found: Vec<Vec<String>> = pages.iter().flat_map(on).collect();
    assert!(found.len() > CLIENTS.len(), "{found:?}");
    let unique: BTreeSet<Vec<String>> = found.into_iter().collect();
    for command in unique {
        assert_eq!(command[0], "legwork", "{command:?}");
        let scratch = Scratch::new();
        let workspace = scratch.workspace.path().to_str().unwrap();
        let mut server = Command::new(program());
        let placed = |word: &String| word.replace("${workspaceFolder}", workspace);
        server.args(command[1..].iter().map(placed)).arg("--state").arg(scratch.state.path());
        server.current_dir(workspace).env("XDG_CONFIG_HOME", scratch.state.path());
        let mut wire = Wire::spawn(server);
        let answer = wire.initialize();
        assert_eq!(answer["result"]["serverInfo"]["name"], "legwork", "{command:?}: {answer}");
    }
}

#[test]
fn every_client_that_was_driven_has_its_chapter() {
    let page = Page::read("docs/clients.md");
    for client in CLIENTS {
        assert!(page.text.contains(&format!("\n### {client}\n")), "{client}");
    }
}
