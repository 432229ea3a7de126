//! Pages of the reference that are made: from the program's help and tools, and from the enums of
//! the library.

use std::{fmt::Write, process::Command};

use serde_json::Value;

use super::{
    page::Page,
    settle,
    source::{Item, variants},
};
use crate::common::{program, text};

/// Pages that are made: these, and those that other tests make.
const GENERATED: [&str; 5] = [
    "docs/reference/errors.md",
    "docs/reference/events.md",
    "docs/reference/results.md",
    "docs/faults.md",
    "docs/attacks.md",
];

/// Whether a page repeats words that others are responsible for.
pub fn is_generated(name: &str) -> bool {
    GENERATED.contains(&name)
}

/// How a page is written anew.
const REMARK: &str = "\
`LEGWORK_UPDATE_DOCS=1 cargo test -p legwork-cli --test e2e book` updates this page.";

fn output(arguments: &[&str]) -> String {
    let output = Command::new(program()).args(arguments).env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// The verbs that a help text lists.
fn verbs(help: &str) -> Vec<&str> {
    let (_, rest) = help.split_once("\nCommands:\n").unwrap_or_default();
    let listed = rest.lines().take_while(|line| !line.is_empty());
    // Lines that go on with a description are indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").collect()
}

/// Adds the help of a verb, and of those below it.
fn describe(page: &mut String, words: &[&str]) {
    let help = output(&[words, &["--help"]].concat());
    let name = words.join(" ");
    let title = format!("legwork {name}");
    write!(page, "\n## {}\n\n```text\n{}\n```\n", title.trim_end(), help.trim_end()).unwrap();
    for verb in verbs(&help) {
        describe(page, &[words, &[verb]].concat());
    }
}

#[test]
fn the_page_of_commands_is_the_help_of_every_verb() {
    let mut page = format!(
        "# Command line\n\nThe output of `legwork --help` and of `legwork VERB --help` for each verb. {REMARK}\n\
         [Exit codes](exit-codes.md) have a page of their own.\n"
    );
    describe(&mut page, &[]);
    assert!(page.contains("\n## legwork mcp\n") && page.contains("\n## legwork audit verify\n"));
    settle("docs/reference/commands.md", &page);
}

/// The type of an input, with its choices.
fn kind(property: &Value) -> String {
    let kind = property["type"].as_str().unwrap_or("any");
    let kind = match property["items"]["type"].as_str() {
        Some(item) => format!("{kind} of {item}s"),
        None => kind.to_owned(),
    };
    match property["enum"].as_array() {
        Some(choices) => choices.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", "),
        None => kind,
    }
}

/// Rows for the inputs of a schema, with those inside of others behind them.
fn inputs(page: &mut String, schema: &Value, within: &str) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required.iter().any(|it| it == name) { "yes" } else { "" };
        let meaning = property["description"].as_str().unwrap_or_default().replace('\n', " ");
        let meaning = meaning.replace('|', "\\|");
        writeln!(page, "| `{within}{name}` | {} | {needed} | {meaning} |", kind(property)).unwrap();
        inputs(page, property, &format!("{within}{name}."));
    }
}

#[test]
fn the_page_of_tools_is_the_registry() {
    let tools: Value = serde_json::from_str(&output(&["tools", "--json"])).unwrap();
    let mut page = format!(
        "# Tools\n\nThe tools as `legwork tools --json` describes them: description, input, and the\n\
         instructions that a model gets. [Receipts](receipts.md) shows what they answer. {REMARK}\n\n\
         `legwork mcp` offers `ExecCommand` and the task tools; `--tools all`, or a list of names, offers\n\
         others. No tool accepts a field that is not listed here.\n"
    );
    for tool in tools.as_array().unwrap() {
        let text = |name: &str| tool[name].as_str().unwrap_or_default();
        write!(page, "\n## {}\n\n{}\n\n", text("name"), text("description")).unwrap();
        page.push_str("| input | type | required | meaning |\n|---|---|---|---|\n");
        inputs(&mut page, &tool["input_schema"], "");
        write!(page, "\nInstructions:\n\n```text\n{}\n```\n", text("instructions").trim()).unwrap();
    }
    settle("docs/reference/tools.md", &page);
}

/// What whoever gets an error can do, by its kind.
fn advice(kind: &str) -> &'static str {
    match kind {
        "invalid_tool_input" => "Correct the field that `details` names",
        "execution_root_violation" => "Choose a folder in the workspace, or add it to `roots`",
        "workdir_not_found" => "Choose a folder that exists",
        "command_spawn_failed" => "Choose a program that is installed, or give its full path",
        "command_denied" => "Do without it: a rule of the user denies it",
        "command_substitution_denied" => "Run the inner command first, then use what it printed",
        "approval_refused" => "Do without it: a person said no, perhaps with a note",
        "approval_unavailable" => "Let a person run `legwork approve ID`, then call again",
        "approval_expired" => "Call again when somebody is there to answer",
        "unknown_tool" => "Choose a tool of the list",
        "unknown_task" => "Find the id with `TaskList` or `legwork ps`",
        "unknown_approval" => "Find the id with `legwork approvals`",
        "limit_exceeded" => "Wait until a task has ended, or raise the limit",
        "state_unavailable" => "`details.reason` says why: see below",
        "sandbox_unavailable" => "`legwork doctor` shows what this machine lacks",
        "configuration_invalid" => "Fix the line that the message names",
        "command_failed" => "Library only: read the outcome",
        "input_refused" => "Library only: start the task with an open stdin or a terminal",
        "changed_underneath" => "Apply other paths, or discard the trial and try again",
        "tool_execution_failed" => "Read the message; `LEGWORK_LOG=debug` tells more",
        other => panic!("say what can be done about {other}"),
    }
}

fn table(page: &mut String, items: &[Item]) {
    page.push_str("\n| name | meaning |\n|---|---|\n");
    for Item { name, meaning, .. } in items {
        writeln!(page, "| `{name}` | {meaning} |").unwrap();
    }
}

#[test]
fn the_page_of_errors_has_every_kind() {
    let mut page = format!(
        "# Errors\n\nA call that fails answers with an error: `kind`, `message`, `details`, `recovery_hint` and\n\
         `retryable`. A command that exits with another code than 0, dies by a signal or runs into its timeout is\n\
         not an error but a [result](results.md). {REMARK}\n\n\
         | kind | meaning | what to do |\n|---|---|---|\n"
    );
    for Item { name, meaning, .. } in variants("ErrorKind") {
        let known = serde_json::from_value::<legwork::ErrorKind>(name.clone().into());
        assert!(known.is_ok(), "{name}");
        writeln!(page, "| `{name}` | {meaning} | {} |", advice(&name)).unwrap();
    }
    page.push_str(
        "\n`retryable` is true where the same call can succeed later.\n\n\
         ## Reasons of `state_unavailable`\n",
    );
    table(&mut page, &variants("StateProblem"));
    settle("docs/reference/errors.md", &page);
}

#[test]
fn the_page_of_events_has_every_kind() {
    let mut page = format!(
        "# Events\n\n`Engine::events` of the library is one ordered stream of what happens on a state folder, in all\n\
         processes. An event is a JSON object: `cursor`, `at_ms`, `workspace` where it is known, `event` with one\n\
         of these names, and its fields. {REMARK}\n\n\
         | event | fields | meaning |\n|---|---|---|\n"
    );
    for Item { name, meaning, fields } in variants("EventKind") {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
        writeln!(page, "| `{name}` | {} | {meaning} |", fields.join(", ")).unwrap();
    }
    page.push_str(
        "\n`output_grew` and `waiting_for_input` come only to a reader that asks for `Interest::Live`. A reader\n\
         that is too slow gets `Lagged` instead of a gap that it does not notice. [Embedding the\n\
         library](../embedding.md) shows how to read the stream.\n",
    );
    settle("docs/reference/events.md", &page);
}

#[test]
fn the_page_of_results_has_every_name() {
    let mut page = format!(
        "# Statuses, reasons, flags\n\nThe names that results, `legwork ps`, `legwork show` and the audit log use. {REMARK}\n\n\
         ## Status of a task\n"
    );
    let sections = [
        ("Status", ""),
        ("EndedBy", "## `ended_by`: what ended the command, if it did not end by itself"),
        ("Flag", "## `flags`: other facts about a result"),
        ("Reply", "## Answers to a question"),
    ];
    for (name, title) in sections {
        if !title.is_empty() {
            write!(page, "\n{title}\n").unwrap();
        }
        table(&mut page, &variants(name));
    }
    for item in variants("Status") {
        assert!(legwork::Status::from_name(&item.name).is_some(), "{}", item.name);
    }
    settle("docs/reference/results.md", &page);
}

/// The first sentence of a page, for the list of pages.
fn first_sentence(page: &Page) -> String {
    let prose = page.prose();
    let is_text = |part: &&str| !part.starts_with(['#', '|', '-', '<']) && !part.contains("```");
    let first = prose.split("\n\n").find(|part| !part.trim().is_empty() && is_text(part));
    let line = first.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let (sentence, _) = line.split_once(". ").unwrap_or((line.trim_end_matches(['.', ':']), ""));
    sentence.to_owned()
}

#[test]
fn the_index_for_models_has_every_page() {
    let contents = Page::read("docs/SUMMARY.md");
    let mut index = "# Legwork\n\n> Legwork runs commands for AI agents on Linux: one program, `legwork`, that is an MCP \
                     server and a command line, and one Rust library. It judges each command, runs it in a sandbox, \
                     keeps its output and answers with a short receipt.\n"
        .to_owned();
    for line in contents.text.lines() {
        if let Some(title) = line.strip_prefix("# ").filter(|title| *title != "Summary") {
            write!(index, "\n## {title}\n\n").unwrap();
        }
        let Some((_, link)) = line.split_once("](") else { continue };
        let link = link.trim_end_matches(')');
        let page = Page::read(&format!("docs/{link}"));
        if !index.contains("\n## ") {
            index.push_str("\n## Start\n\n");
        }
        writeln!(index, "- [{}]({link}): {}", page.title(), first_sentence(&page)).unwrap();
    }
    settle("docs/llms.txt", &index);
}
