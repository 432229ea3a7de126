//! Clients that others have made: the official conformance suite, the inspector's command line, the
//! TypeScript client, fastmcp. The Python client is in `python_client`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::PoisonError,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    Serving,
    node::{INSTALLING, Node},
    token,
};
use crate::{
    common::{Scratch, text},
    python_client::{environment, python_is_here},
};

/// A file of `tests/clients`.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Node with the clients. None where it cannot be had.
fn node() -> Option<Node> {
    let scripts = ["proxy.mjs", "typescript.mjs"].map(shipped);
    // `npm ci` wants to see locked what is for other systems, too.
    let npm = ["install", "--no-save", "--omit=optional"];
    Node::install("node-clients", &shipped(""), &npm, &scripts)
}

#[track_caller]
fn all_well(output: &Output) {
    let (shown, problems) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && shown.ends_with("all well\n"), "{shown}\n{problems}");
}

/// A proxy that adds a token, and ends with the test.
struct Proxy {
    child: Child,
    address: String,
}

impl Proxy {
    fn start(node: &Node, to: &str, token: &str) -> Self {
        let mut command = node.run("proxy.mjs", &[to, token]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `conformance.toml`.
#[derive(Deserialize)]
struct Expected {
    run: BTreeMap<String, BTreeSet<String>>,
    left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
struct LeftOut {
    /// For people.
    #[serde(rename = "why")]
    _why: String,
    /// A failure has one of these words.
    says: Vec<String>,
    /// Scenarios, or checks of one (`scenario/check`).
    checks: BTreeSet<String>,
}

impl Expected {
    /// Whether a failure is one that is left out.
    fn leaves_out(&self, scenario: &str, check: &Value) -> bool {
        let id = format!("{scenario}/{}", check["id"].as_str().unwrap());
        let message = check["errorMessage"].as_str().unwrap_or_default();
        self.left_out.iter().any(|left_out| {
            let is_named = [scenario, &id].iter().any(|name| left_out.checks.contains(*name));
            is_named && left_out.says.iter().any(|words| message.contains(words))
        })
    }
}

/// The scenarios that the suite has run, with their checks.
fn results(folder: &Path) -> BTreeMap<String, Vec<Value>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_scenario = entries.map(|place| {
        let name = place.file_name().unwrap().to_str().unwrap().strip_prefix("server-").unwrap();
        let scenario = name[..name.len() - "-2026-01-01T00-00-00-000Z".len()].to_owned();
        let checks = fs::read(place.join("checks.json")).unwrap();
        (scenario, serde_json::from_slice(&checks).unwrap())
    });
    of_scenario.collect()
}

/// Runs every scenario of a version of the protocol.
fn conforms_to(version: &str) {
    let Some(node) = node() else { return };
    let expected = fs::read_to_string(shipped("conformance.toml")).unwrap();
    let expected: Expected = toml::from_str(&expected).unwrap();
    let scratch = Scratch::new();
    let operator = token(&scratch, "suite", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let proxy = Proxy::start(&node, &serving.address, &operator);
    let (url, folder) = (format!("{}/mcp", proxy.address), scratch.file("results"));
    let suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let arguments = ["server", "--suite", "all", "--spec-version", version, "--url", &url];
    let mut suite = node.run(suite, &arguments);
    let ran = suite.args(["--output-dir", &folder]).output().unwrap();
    // Some of its scenarios pass if nobody answers at all.
    assert_eq!(serving.get("/readyz", &operator).status, 200, "the server is still there");

    let results = results(Path::new(&folder));
    let (mut problems, run) = (Vec::new(), &expected.run[version]);
    for scenario in run.difference(&results.keys().cloned().collect()) {
        problems.push(format!("{scenario} was not run"));
    }
    for (scenario, checks) in results {
        let failed =
            |check: &&Value| ["FAILURE", "WARNING"].contains(&check["status"].as_str().unwrap());
        let failures: Vec<&Value> = checks.iter().filter(failed).collect();
        let unexpected = failures.iter().filter(|check| !expected.leaves_out(&scenario, check));
        problems.extend(unexpected.map(|check| format!("{scenario}: {check:#}")));
        if failures.is_empty() && !run.contains(&scenario) {
            problems.push(format!("{scenario} passes and is not listed as run"));
        }
        // That its messages fit the schema is checked of every scenario, also of no messages.
        let is_of_its_own = |check: &Value| check["id"] != "wire-schema-valid";
        let mut passed = checks.iter().filter(|check| check["status"] == "SUCCESS");
        if run.contains(&scenario) && !passed.any(is_of_its_own) {
            problems.push(format!("{scenario} checked nothing"));
        }
    }
    assert!(problems.is_empty(), "{}\n{}", problems.join("\n"), text(&ran.stderr));
}

#[test]
fn the_conformance_suite_of_the_older_era() {
    conforms_to("2025-11-25");
}

#[test]
fn the_conformance_suite_of_the_newer_era() {
    conforms_to("2026-07-28");
}

#[test]
fn the_inspector_finds_nothing_wrong_with_the_tools_and_calls_one() {
    let Some(node) = node() else { return };
    let scratch = Scratch::new();
    let agent = token(&scratch, "inspector", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let url = format!("{}/mcp", serving.address);
    let header = format!("Authorization: Bearer {agent}");
    let inspect = |more: &[&str]| {
        let inspector =
            "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
        let arguments = ["--cli", "--server-url", &url, "--transport", "http", "--format", "json"];
        let mut command = node.run(inspector, &arguments);
        // It keeps what it knows in the home folder, and asks nobody to sign in.
        command.env("HOME", scratch.state.path()).arg("--stored-auth-only");
        command.args(more).output().unwrap()
    };
    for era in ["legacy", "modern"] {
        let with = ["--protocol-era", era, "--header", &header, "--method"];
        let listed = inspect(&[&with[..], &["tools/list", "--strict"]].concat());
        assert!(listed.status.success(), "{listed:?}");
        assert_eq!(text(&listed.stderr), "", "{era}");
        let tools: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 7, "{tools}");
        let input = r#"{"cmd": "echo hi; exit 3", "login": false}"#;
        let call = ["tools/call", "--tool-name", "ExecCommand", "--tool-args-json", input];
        let called = inspect(&[&with[..], &call].concat());
        let answer: Value = serde_json::from_slice(&called.stdout).unwrap();
        let told = &answer["result"]["content"][0]["text"];
        assert_eq!(told, "Process exited with code 3\n\nstdout:\nhi", "{called:?}");
    }
    // Without a token it understands what it lacks.
    let refused = inspect(&["--method", "tools/list"]);
    let problem: Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!(problem["error"]["code"], "auth_required", "{refused:?}");
}

/// Drives one package of the TypeScript client, in one era.
fn typescript(flavour: &str) {
    let Some(node) = node() else { return };
    let scratch = Scratch::new();
    let operator = token(&scratch, "typescript", &["--role", "operator"]);
    let open = Serving::start(&scratch, &[]);
    let mut command = scratch.guarded("serve", "strict", None);
    command.args(["--listen", "127.0.0.1:0"]);
    let guarded = Serving::spawn(command);
    let urls = [&open, &guarded].map(|serving| format!("{}/mcp", serving.address));
    let workspace = scratch.workspace.path().to_str().unwrap();
    let arguments = [flavour, &urls[0], &urls[1], &operator, workspace];
    all_well(&node.run("typescript.mjs", &arguments).output().unwrap());
}

#[test]
fn the_typescript_client_of_the_first_package() {
    typescript("v1");
}

#[test]
fn the_typescript_client_of_the_second_package_in_the_older_era() {
    typescript("v2-legacy");
}

#[test]
fn the_typescript_client_of_the_second_package_in_the_newer_era() {
    typescript("v2-modern");
}

#[test]
fn fastmcp_lists_and_calls() {
    if !python_is_here() {
        return;
    }
    let python = {
        let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        // The client alone; the package `fastmcp` is this one with the server's needs.
        environment("fastmcp", &["fastmcp-slim[client]==4.1.4"])
    };
    let scratch = Scratch::new();
    let agent = token(&scratch, "fastmcp", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let mut command = Command::new(python);
    command.arg(shipped("fastmcp_client.py")).arg(format!("{}/mcp", serving.address)).arg(agent);
    all_well(&command.output().unwrap());
}
