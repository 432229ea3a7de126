//! `legwork policy`: prints the verdict on a command and the rule that would change it. Runs
//! nothing.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
    path::PathBuf,
    process::ExitCode,
};

use legwork::{
    Checker, Config, Engine, ErrorKind, HeldRule, Options, Registry, Tool, ToolError, Trust,
    gate::{Checked, Decision, Refusal, read},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::remedy;
use crate::{
    OUR_FAILURE,
    arguments::{PolicyCheckOptions, PolicyCircumstances, PolicyTestOptions, PolicyVerb},
    hints,
    render::{DENIED, complain, complain_of, print, print_json},
    style::{Style, folded_prose, from_home},
};

pub(crate) async fn policy(verb: PolicyVerb) -> ExitCode {
    let (circumstances, tool) = match &verb {
        PolicyVerb::Check(options) => (&options.circumstances, Some(options.tool.clone())),
        PolicyVerb::Test(options) => (&options.circumstances, None),
    };
    let mut bench = match Bench::open(circumstances, &[]) {
        Ok(bench) => bench,
        Err(error) => return complain_of(&error),
    };
    match verb {
        PolicyVerb::Check(options) => {
            check_verb(&mut bench, &options, &tool.unwrap_or_default()).await
        }
        PolicyVerb::Test(options) => test_verb(&mut bench, &options).await,
    }
}

/// What texts are judged by: an engine as a server has it, but with a state folder of its own that
/// nothing is left of.
struct Bench {
    engine: Engine,
    trust: Trust,
    /// One for each tool that was asked about.
    checkers: HashMap<String, Checker>,
    /// Removed at the end.
    state: TempDir,
}

impl Bench {
    /// Opens it with more files of rules than the circumstances name.
    fn open(circumstances: &PolicyCircumstances, more: &[PathBuf]) -> Result<Self, ToolError> {
        let workspace = workspace(circumstances);
        let config = circumstances.rules.with(more).config(&workspace)?;
        for ignored in config.policy.ignored() {
            eprintln!("note: {ignored}");
        }
        let state =
            tempfile::Builder::new().prefix("legwork-check-").tempdir().map_err(|error| {
                let problem = format!("cannot create a temporary folder: {error}");
                ToolError::new(ErrorKind::StateUnavailable, problem)
            })?;
        let mut options = Options::configured(workspace, config);
        options.state = Some(state.path().to_owned());
        options.hint = hints::of;
        options.for_the_user = hints::for_the_user;
        let engine = Engine::open_with(options, Registry::builtin())?;
        let trust = circumstances.trust.trust();
        Ok(Self { engine, trust, checkers: HashMap::new(), state })
    }

    async fn checker(&mut self, tool: &str) -> Result<&mut Checker, String> {
        if !self.checkers.contains_key(tool) {
            let made = self.engine.checker(tool, self.trust).await;
            let made = made.map_err(|error| error.to_string())?;
            self.checkers.insert(tool.to_owned(), made);
        }
        self.checkers.get_mut(tool).ok_or_else(|| "no checker".to_owned())
    }

    /// Judges a text as the tool would get it.
    async fn judged(&mut self, tool: &str, text: &str) -> Result<Checked, String> {
        let definition = self.engine.registry().get(tool).map(Tool::definition);
        let takes_argv = definition.is_some_and(|definition| definition.takes_argv);
        let checker = self.checker(tool).await?;
        if !takes_argv {
            return Ok(checker.script(text));
        }
        let argv: Vec<String> = serde_json::from_str(text)
            .map_err(|_| format!("{tool} takes a JSON list: the program and its arguments"))?;
        Ok(checker.argv(argv))
    }

    /// The rules that would allow each part of a text that is asked about.
    async fn proposals(&mut self, tool: &str, text: &str) -> Result<String, String> {
        let whole = self.judged(tool, text).await?;
        let checker = self.checker(tool).await?;
        if let Some(rule) = checker.proposal(&rule_id(&whole)) {
            return Ok(rule);
        }
        let mut rules = String::new();
        for command in read(text).commands {
            let part = text.get(command.span.start..command.span.end).unwrap_or_default();
            let judged = checker.script(part);
            let rule = checker.proposal(&rule_id(&judged));
            if let Some(rule) = rule.filter(|_| judged.verdict == Decision::Ask) {
                rules.push_str(&format!("{rule}\n"));
            }
        }
        Ok(rules)
    }

    /// In which circumstances a tool's texts are judged.
    async fn circumstances(&mut self, tool: &str) -> Result<Value, String> {
        let checker = self.checker(tool).await?;
        Ok(json!({
            "trust": checker.trust(),
            "workspace": checker.workdir().display().to_string(),
            "sandbox": checker.confinement(),
            "sandbox_whole": checker.is_whole(),
        }))
    }
}

async fn check_verb(bench: &mut Bench, options: &PolicyCheckOptions, tool: &str) -> ExitCode {
    if options.batch {
        return batch(bench, tool).await;
    }
    if let Some(connect) = &options.connect {
        return check_connection(bench, connect, options.json).await;
    }
    let text = options.command.as_deref().unwrap_or_default();
    if text.trim().is_empty() {
        return complain("the command is empty: there is nothing to check");
    }
    let judged = bench.judged(tool, text).await;
    let around = bench.circumstances(tool).await;
    let held = bench.engine.held_rules(bench.trust).await.unwrap_or_default();
    let parts = bench.checker(tool).await.map(|checker| checker.parts()).unwrap_or_default();
    let (checked, around) = match (judged, around) {
        (Ok(checked), Ok(around)) => (checked, around),
        (Err(problem), _) | (_, Err(problem)) => return complain(&problem),
    };
    let printed = if options.json {
        let mut described = described(&checked);
        if let Value::Object(fields) = &mut described {
            fields.insert("parts".into(), json!(parts));
            fields.insert("circumstances".into(), around);
            if !held.is_empty() {
                fields.insert("held".into(), json!(held));
            }
        }
        print_json(&described)
    } else {
        let change = change(bench, options, tool, text, &checked).await;
        let mut told = format!("{}{}\n", explained(&checked, text), told(&around));
        if let Some(change) = change {
            told.push_str(&format!("\n{change}"));
        }
        let told = format!("{told}{}", holds(&held));
        print(&folded_prose(&told, Style::of_stdout()))
    };
    match checked.verdict {
        Decision::Allow => printed,
        Decision::Ask | Decision::Deny => ExitCode::from(DENIED),
    }
}

/// Prints the verdict on a connection by name.
async fn check_connection(bench: &Bench, connect: &str, json: bool) -> ExitCode {
    let parts = connect.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts else {
        return complain("name a host and a port, such as pypi.org:443");
    };
    let checked = match bench.engine.check_connection(bench.trust, host, port).await {
        Ok(checked) => checked,
        Err(error) => return complain_of(&error),
    };
    let printed = if json {
        print_json(&json!(checked))
    } else {
        let verdict = checked.verdict.as_str();
        let mut told = format!(
            "{verdict}  {}:{}\nreason: {}\nrule:   {}\n",
            checked.host, checked.port, checked.reason, checked.rule
        );
        if checked.verdict != Decision::Allow && checked.rule == "network-names" {
            let name = legwork::name_pattern(&checked.host, checked.port);
            let addition = format!("[[connect]]\ndecision = \"allow\"\nname = \"{name}\"\n");
            let change = remedy::addition(&addition).replacen("or add", "To allow it, add", 1);
            told.push_str(&format!("\n{change}"));
        }
        print(&folded_prose(&told, Style::of_stdout()))
    };
    match checked.verdict {
        Decision::Allow => printed,
        Decision::Ask | Decision::Deny => ExitCode::from(DENIED),
    }
}

/// The TOML that would change a verdict other than allow, and its file; nothing where none would.
async fn change(
    bench: &mut Bench,
    options: &PolicyCheckOptions,
    tool: &str,
    text: &str,
    checked: &Checked,
) -> Option<String> {
    let circumstances = &options.circumstances;
    match checked.verdict {
        Decision::Allow => None,
        Decision::Deny => {
            let given = &circumstances.rules.policy;
            let files = Config::files(&workspace(circumstances), given);
            remedy::denied(&checked.explanation.rule, &files)
        }
        Decision::Ask => {
            let rules = bench.proposals(tool, text).await.ok()?;
            // Only what was seen to change it is shown.
            let file = bench.state.path().join("proposal.toml");
            std::fs::write(&file, &rules).ok()?;
            let mut changed = Bench::open(circumstances, &[file]).ok()?;
            let allowed = changed.judged(tool, text).await.ok()?.verdict == Decision::Allow;
            if allowed && !rules.is_empty() {
                return Some(remedy::addition(&rules).replacen("or add", "To allow it, add", 1));
            }
            let none = "No rule can allow it as it is written: it has to be approved when it runs.";
            Some(format!("{none}\n"))
        }
    }
}

/// The folder whose project file counts.
fn workspace(circumstances: &PolicyCircumstances) -> PathBuf {
    circumstances.workspace.clone().unwrap_or_else(|| ".".into())
}

/// How the rules on programs are held here, for a person.
fn holds(held: &[HeldRule]) -> String {
    if held.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nrules on programs, and what enforces them here:\n");
    for rule in held {
        let holds: Vec<&str> = rule.held.iter().map(|hold| hold.as_str()).collect();
        let only = if holds.len() == 1 { " only" } else { "" };
        let shown = crate::render::one_line(&rule.rule, 60);
        out.push_str(&format!(
            "  {} {shown}: {}{only}\n",
            rule.decision.as_str(),
            holds.join(", ")
        ));
    }
    out
}

/// The circumstances, for a person.
fn told(around: &Value) -> String {
    let of = |name: &str| around.get(name).and_then(Value::as_str).unwrap_or_default();
    let whole = around.get("sandbox_whole").and_then(Value::as_bool).unwrap_or(false);
    let sandbox = of("sandbox");
    let missing = if whole || sandbox.starts_with("none") {
        ""
    } else {
        " (layers are missing here: legwork doctor)"
    };
    let workspace = from_home(of("workspace"));
    format!("judged for: {} in {workspace}, sandbox {sandbox}{missing}", of("trust"))
}

/// A name for a rule that allows what was judged.
pub(crate) fn rule_id(checked: &Checked) -> String {
    let program = checked.runs.first().map_or("command", String::as_str);
    let name: String = program.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    format!("allow-{name}")
}

/// The verdict for a person: every simple command, then what decided and why.
fn explained(checked: &Checked, text: &str) -> String {
    let name = checked.verdict.as_str();
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
    if let Some(Refusal { construct, offset, reason }) = unread(checked, text) {
        out.push_str(&format!("not understood: {reason} (`{construct}` at byte {offset})\n"));
    }
    out
}

/// The first thing in a script that could not be read, where the reason of the verdict does not
/// name it.
fn unread(checked: &Checked, text: &str) -> Option<Refusal> {
    let is_told = checked.explanation.rule == "not-understood";
    read(text).refusal.filter(|_| !checked.understood && !is_told)
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
async fn batch(bench: &mut Bench, tool: &str) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut complete = true;
    for line in io::stdin().lock().split(b'\n') {
        let Ok(line) = line else { return complain("cannot read stdin") };
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = answer(bench, tool, &line).await;
        complete &= answer.get("verdict").is_some();
        // Whoever asks line by line waits for the answer.
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return ExitCode::SUCCESS;
        }
    }
    let flushed = out.flush().is_ok();
    ExitCode::from(if complete && flushed { 0 } else { OUR_FAILURE })
}

async fn answer(bench: &mut Bench, tool: &str, line: &[u8]) -> Value {
    let asked: Asked = match serde_json::from_slice(line) {
        Ok(asked) => asked,
        Err(error) => return json!({ "id": null, "error": format!("not a question: {error}") }),
    };
    let tool = asked.tool.as_deref().unwrap_or(tool);
    // The rules may be others by now.
    bench.checkers.clear();
    let text = match &asked.input {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match bench.judged(tool, &text).await {
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
async fn test_verb(bench: &mut Bench, options: &PolicyTestOptions) -> ExitCode {
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
        let (got, reason) = match bench.judged(&case.tool, &case.input).await {
            Ok(checked) => (checked.verdict.as_str().to_owned(), checked.reason),
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
