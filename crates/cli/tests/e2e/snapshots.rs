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
fn every_field_with_a_default_has_it_in_the_schema_and_in_all_formats() {
    let format = |format: &str| -> Value {
        serde_json::from_str(&output(&["tools", "--format", format])).unwrap()
    };
    let tools = format("mcp")["tools"].clone();
    let [openai, anthropic, gemini] = ["openai", "anthropic", "gemini"].map(format);
    let mut defaults = 0;
    for (number, tool) in tools.as_array().unwrap().iter().enumerate() {
        let name = tool["name"].as_str().unwrap();
        for (field, property) in tool["inputSchema"]["properties"].as_object().unwrap() {
            let said = property["description"].as_str().unwrap();
            let path = format!("/properties/{field}");
            let others = [
                openai[number]["function"]["parameters"].pointer(&path),
                anthropic[number]["input_schema"].pointer(&path),
                gemini["functionDeclarations"][number]["parameters"].pointer(&path),
            ];
            for other in others.map(Option::unwrap) {
                assert_eq!(other["description"], *said, "{name} {field}");
                assert_eq!(other["minimum"], property["minimum"], "{name} {field}");
                assert_eq!(other["maximum"], property["maximum"], "{name} {field}");
                assert_eq!(other["maxItems"], property["maxItems"], "{name} {field}");
            }
            let Some(default) = property.get("default") else { continue };
            defaults += 1;
            let word = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            assert!(said.ends_with(&format!(" Default: {word}.")), "{name} {field}: {said}");
            let [openai, anthropic, gemini] = others.map(|it| it.unwrap().get("default"));
            assert_eq!((openai, anthropic, gemini), (None, Some(default), Some(default)));
        }
    }
    let of = |tool: usize, field: &str| &tools[tool]["inputSchema"]["properties"][field]["default"];
    assert_eq!(of(0, "duplicate_policy"), "reuse_running");
    assert_eq!((of(0, "login"), of(0, "tty")), (&Value::Bool(true), &Value::Bool(false)));
    assert_eq!(
        (of(0, "yield_time_ms"), of(0, "max_output_tokens")),
        (&10_000.into(), &8_000.into())
    );
    assert_eq!((of(7, "args"), of(7, "timeout")), (&serde_json::json!([]), &60.into()));
    assert_eq!(defaults, 20);
}

#[test]
fn the_authors_warnings_and_advice_stand_where_a_model_reads_them() {
    let tools: Value = serde_json::from_str(&output(&["tools", "--json"])).unwrap();
    let of = |name: &str, part: &str| {
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        tool[part].as_str().unwrap().replace('\n', " ")
    };
    let [exec, execute, run] = ["ExecCommand", "execute_command", "run_shell_command"];
    for (text, advice) in [
        (of(exec, "description"), "Pass no `status` and no `task_handle`"),
        (of(exec, "instructions"), "Leave `yield_time_ms` out"),
        (
            of(execute, "instructions"),
            "Relative   paths in `command` and `args` begin there: mind it",
        ),
        (of(execute, "instructions"), "Give one to whatever may hang"),
        (of(execute, "instructions"), "Put complex logic into a script file"),
        (of(run, "instructions"), "A non-zero `exitCode`, or text on `stderr`, may be a failure"),
    ] {
        assert!(text.contains(advice), "{advice}: {text}");
    }
    let wait = &tools[0]["input_schema"]["properties"]["yield_time_ms"]["description"];
    assert!(wait.as_str().unwrap().contains("Set it only on purpose."), "{wait}");
}

/// What a session costs once, before anything is called.
#[test]
fn tools_and_instructions_stay_small() {
    let default = ["ExecCommand,TaskList,TaskStatus,TaskOutput,TaskInput,TaskStop,TaskWait"];
    let size = |arguments: &[&str]| {
        output(&[&["tools", "--tools"], &default[..], arguments].concat()).len()
    };
    let tools: Value =
        serde_json::from_str(&output(&["tools", "--tools", default[0], "--format", "mcp"]))
            .unwrap();
    assert!(tools.to_string().len() < 10_000, "{}", tools.to_string().len());
    assert!(size(&["--instructions"]) < 4_000, "{}", size(&["--instructions"]));
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
