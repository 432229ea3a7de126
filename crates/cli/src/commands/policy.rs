//! `legwork policy`: what the gate would say, without running anything.

use std::{
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use legwork::{
    Registry, Tool,
    gate::{Checked, Circumstances, Decision, Policy, Script, check, read},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    OUR_FAILURE,
    arguments::{PolicyCheckOptions, PolicyTestOptions, PolicyVerb, Rules},
    render::{DENIED, complain, print, print_json},
};

pub(crate) fn policy(verb: PolicyVerb) -> ExitCode {
    match verb {
        PolicyVerb::Check(options) => check_verb(&options),
        PolicyVerb::Test(options) => test_verb(&options),
    }
}

/// What texts are judged by.
struct Bench {
    policy: Policy,
    tools: Registry,
    /// Where they would run: some rules are for one workspace alone.
    workspace: Option<String>,
}

fn load(rules: &Rules, workspace: Option<&PathBuf>) -> Result<Bench, ExitCode> {
    let workspace = workspace.map_or(Path::new("."), PathBuf::as_path);
    match rules.config(workspace) {
        Ok(config) => {
            let real = workspace.canonicalize().ok();
            let workspace = real.and_then(|path| path.into_os_string().into_string().ok());
            Ok(Bench { policy: config.policy, tools: Registry::builtin(), workspace })
        }
        Err(error) => Err(complain(&error.to_string())),
    }
}

fn check_verb(options: &PolicyCheckOptions) -> ExitCode {
    let bench = match load(&options.rules, options.workspace.as_ref()) {
        Ok(bench) => bench,
        Err(code) => return code,
    };
    if options.batch {
        return batch(&bench, &options.tool);
    }
    let text = options.command.as_deref().unwrap_or_default();
    let checked = match bench.judged(&options.tool, text) {
        Ok(checked) => checked,
        Err(problem) => return complain(&problem),
    };
    let printed = if options.json {
        print_json(&described(&checked))
    } else {
        print(&explained(&checked, text))
    };
    match checked.verdict {
        Decision::Allow => printed,
        Decision::Ask | Decision::Deny => ExitCode::from(DENIED),
    }
}

impl Bench {
    /// Judges a text as the tool would get it.
    fn judged(&self, tool: &str, text: &str) -> Result<Checked, String> {
        let definition = self.tools.get(tool).map(Tool::definition);
        let manners = definition.map(|definition| definition.manners).unwrap_or_default();
        let around = Circumstances {
            manners,
            workspace: self.workspace.as_deref(),
            ..Circumstances::default()
        };
        if !definition.is_some_and(|definition| definition.takes_argv) {
            return Ok(check(&self.policy, tool, Script::Shell(text), around));
        }
        let argv: Vec<String> = serde_json::from_str(text)
            .map_err(|_| format!("{tool} takes a JSON list: the program and its arguments"))?;
        Ok(check(&self.policy, tool, Script::Argv(&argv), around))
    }
}

fn name(verdict: Decision) -> &'static str {
    match verdict {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}

/// The verdict for a person: every simple command, then what decided and why.
fn explained(checked: &Checked, text: &str) -> String {
    let name = name(checked.verdict);
    let mut out = format!("{name}\n\n");
    for command in read(text).commands {
        let span = command.span;
        let shown = text.get(span.start..span.end).unwrap_or_default();
        out.push_str(&format!("  {}\n", crate::render::one_line(shown, 100)));
    }
    let runs: Vec<&str> = checked.runs.iter().map(String::as_str).collect();
    out.push_str(&format!("\nruns:   {}\n", runs.join(", ")));
    out.push_str(&checked.explanation.render(text));
    out.push('\n');
    out
}

fn described(checked: &Checked) -> Value {
    let mut value = serde_json::to_value(checked).unwrap_or_default();
    if let (Value::Object(fields), Ok(Value::Object(more))) =
        (&mut value, serde_json::to_value(&checked.explanation))
    {
        for (name, field) in more {
            fields.entry(name).or_insert(field);
        }
    }
    value
}

#[derive(Debug, Deserialize)]
struct Asked {
    id: Value,
    input: Value,
    tool: Option<String>,
}

/// Answers each line of stdin with a line; succeeds when every line was answered.
fn batch(bench: &Bench, tool: &str) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut complete = true;
    for line in io::stdin().lock().split(b'\n') {
        let Ok(line) = line else { return complain("stdin cannot be read") };
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = answer(bench, tool, &line);
        complete &= answer.get("verdict").is_some();
        if writeln!(out, "{answer}").is_err() {
            return ExitCode::SUCCESS;
        }
    }
    let flushed = out.flush().is_ok();
    ExitCode::from(if complete && flushed { 0 } else { OUR_FAILURE })
}

fn answer(bench: &Bench, tool: &str, line: &[u8]) -> Value {
    let asked: Asked = match serde_json::from_slice(line) {
        Ok(asked) => asked,
        Err(error) => return json!({ "id": null, "error": format!("not a question: {error}") }),
    };
    let tool = asked.tool.as_deref().unwrap_or(tool);
    let text = match &asked.input {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match bench.judged(tool, &text) {
        Ok(checked) => {
            let mut answer = Map::new();
            answer.insert("id".into(), asked.id);
            if let Ok(Value::Object(fields)) = serde_json::to_value(&checked) {
                answer.extend(fields);
            }
            Value::Object(answer)
        }
        Err(problem) => json!({ "id": asked.id, "error": problem }),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    #[serde(default)]
    case: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    input: String,
    verdict: String,
    #[serde(default = "default_tool")]
    tool: String,
}

fn default_tool() -> String {
    "ExecCommand".into()
}

/// Runs a user's own cases, and names those that come out otherwise.
fn test_verb(options: &PolicyTestOptions) -> ExitCode {
    let bench = match load(&options.rules, options.workspace.as_ref()) {
        Ok(bench) => bench,
        Err(code) => return code,
    };
    let file = options.file.display();
    let cases: Cases = match std::fs::read_to_string(&options.file)
        .map_err(|error| error.to_string())
        .and_then(|text| toml::from_str(&text).map_err(|error| error.to_string()))
    {
        Ok(cases) => cases,
        Err(problem) => return complain(&format!("{file}: {problem}")),
    };
    let mut failed = 0;
    for case in &cases.case {
        let (got, reason) = match bench.judged(&case.tool, &case.input) {
            Ok(checked) => (name(checked.verdict).to_owned(), checked.reason),
            Err(problem) => ("error".into(), problem),
        };
        if got != case.verdict {
            failed += 1;
            print(&format!(
                "{}: expected {}, got {got}: {}\n  reason: {reason}\n",
                case.tool, case.verdict, case.input
            ));
        }
    }
    print(&format!("{} cases, {failed} failed\n", cases.case.len()));
    ExitCode::from(u8::from(failed > 0))
}
