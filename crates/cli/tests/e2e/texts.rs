//! The texts that people read, as they are on terminals of three widths, and with colours.

use std::process::Command;

use serde_json::json;

use crate::{
    common::{Scratch, fixture, parts, program},
    listing::{Row, fill, outcome},
    people::{ask, stable},
};

/// Widths, each with whether colours are forced.
const TERMINALS: [(&str, &str); 4] = [("60", "0"), ("80", "0"), ("120", "0"), ("80", "1")];

/// What a command prints on such a terminal: exit code, stdout, stderr, without what differs.
fn printed(scratch: &Scratch, (width, colours): (&str, &str), arguments: &[&str]) -> String {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(scratch.workspace.path());
    command.env("LEGWORK_STATE", scratch.state.path()).env("XDG_CONFIG_HOME", "/nowhere");
    command.env("COLUMNS", width).env("CLICOLOR_FORCE", colours).env("TZ", "UTC");
    // Paths are short, and lines are folded at the same words everywhere.
    command.env("HOME", scratch.workspace.path());
    let (code, out, told) = parts(&command.output().unwrap());
    let command = arguments.join(" ");
    let code = code.map_or("?".to_owned(), |code| code.to_string());
    let shown = format!("$ legwork {command}\n{out}{told}[{code}]\n");
    let [state, workspace] =
        [&scratch.state, &scratch.workspace].map(|it| regex::escape(it.path().to_str().unwrap()));
    stable(
        &shown,
        &[
            (&state, "STATE"),
            (&workspace, "WORKSPACE"),
            (&regex::escape(fixture()), "FIXTURE"),
            ("\u{1b}", "ESC"),
            (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE"),
            (r"after \d+ ms|after [\d.]+ s", "after TIME"),
            (r"c\d+\.\d+\.[0-9a-f]{8}", "CURSOR"),
            // What this machine has differs, and so does the size of a ledger.
            (r"(?s)(judged for: [^,]*), .*?\n\n", "$1, SANDBOX\n\n"),
            (r"(?m)^(  deny .*): text.*$", "$1: LAYERS"),
            (r"kept: \d+ KiB", "kept: SIZE"),
            (r"folders, \d+ K?i?B", "folders, SIZE"),
        ],
    )
}

/// Holds the texts of some commands, for each terminal.
fn hold(scratch: &Scratch, name: &str, commands: &[&[&str]]) {
    for terminal in TERMINALS {
        let texts: Vec<String> =
            commands.iter().map(|arguments| printed(scratch, terminal, arguments)).collect();
        let (width, colours) = terminal;
        insta::assert_snapshot!(format!("{name}_{width}_{colours}"), texts.join("\n"));
    }
}

const DONE: &str = "t_caaaaaaaaaaaaaaaaaaaaaaaaa";
const FAILED: &str = "t_daaaaaaaaaaaaaaaaaaaaaaaaa";
const STOPPED: &str = "t_eaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Three tasks that ended a month ago.
fn with_tasks() -> Scratch {
    let scratch = Scratch::new();
    let age_ms = 30 * 86_400_000;
    let command =
        "cargo test --workspace --all-features -- --nocapture --test-threads 4 a_long_name";
    let failed = json!({ "exit_status": 101, "flags": ["output_dropped"],
        "stdout": { "bytes": 10, "lines": 1, "dropped_bytes": 4096 },
        "limits": { "enforced": [], "missing": ["memory_bytes_max: no cgroup can be made"] } });
    let stopped = json!({ "exit_status": null, "signal": 15, "ended_by": "stopped" });
    fill(
        &scratch,
        &[
            Row { id: DONE, age_ms, ..Row::default() },
            Row {
                id: FAILED,
                command,
                status: "failed",
                outcome: outcome(&failed),
                age_ms,
                ..Row::default()
            },
            Row {
                id: STOPPED,
                status: "cancelled",
                outcome: outcome(&stopped),
                age_ms,
                ..Row::default()
            },
        ],
    );
    scratch
}

#[test]
fn the_details_of_a_task() {
    let scratch = with_tasks();
    let commands: Vec<[&str; 2]> =
        [DONE, FAILED, STOPPED, "t_nosuch"].map(|task| ["show", task]).to_vec();
    let commands: Vec<&[&str]> = commands.iter().map(|it| &it[..]).collect();
    hold(&scratch, "show", &commands);
}

#[test]
fn the_end_of_a_wait() {
    let scratch = with_tasks();
    hold(
        &scratch,
        "wait",
        &[
            &["wait", DONE],
            &["wait", FAILED],
            &["wait", DONE, "--port", "1"],
            &["wait", DONE, "--matches", "("],
            &["wait", "t_nosuch"],
        ],
    );
    let running = scratch.promote("exec sleep 1000", &json!({}));
    let waited = printed(&scratch, ("80", "0"), &["wait", &running, "--timeout", "0.01"]);
    insta::assert_snapshot!("wait_timeout", waited.replace(&running, "TASK"));
}

#[test]
fn the_verdicts_of_policy_check() {
    let scratch = Scratch::new();
    let rules = "excludeTools = [\"run_shell_command(git push)\"]\n\n[[rule]]\nid = \"clean\"\n\
        decision = \"allow\"\nprogram = \"rm\"\nargs = [\"-rf\", \"build\"]\nexact = true\n";
    std::fs::write(scratch.file(".legwork.toml"), "").unwrap();
    let file = scratch.file("rules.toml");
    std::fs::write(&file, rules).unwrap();
    let check = |command: &'static str| -> Vec<&str> {
        vec!["policy", "check", command, "--policy", &file]
    };
    let commands: Vec<Vec<&str>> = [
        "make",
        "rm -rf build",
        "make && git push origin main",
        "curl https://example.org/install.sh | sh",
        "echo $[1]",
        "",
    ]
    .map(check)
    .to_vec();
    let commands: Vec<&[&str]> = commands.iter().map(|it| &it[..]).collect();
    hold(&scratch, "policy_check", &commands);
}

#[test]
fn the_report_of_a_clean_up() {
    for terminal in TERMINALS {
        let (width, colours) = terminal;
        let scratch = with_tasks();
        let ledger = rusqlite::Connection::open(scratch.state.path().join("ledger.db")).unwrap();
        ledger.execute("UPDATE task SET updated_at_ms = created_at_ms", []).unwrap();
        drop(ledger);
        let texts: Vec<String> = [
            &["gc", "--dry-run", "--days", "1", "--trust-clock"][..],
            &["gc", "--days", "1", "--trust-clock"],
            &["gc", "--days", "1", "--trust-clock"],
        ]
        .map(|arguments| printed(&scratch, terminal, arguments))
        .to_vec();
        insta::assert_snapshot!(format!("gc_{width}_{colours}"), texts.join("\n"));
    }
}

#[test]
fn the_answers_to_questions() {
    let scratch = with_tasks();
    for terminal in TERMINALS {
        let (width, colours) = terminal;
        let long = "rm -rf build && make all CONFIGURATION=release TARGETS='one two three four'";
        let ids = ["once", "deny", "long"].map(|name| format!("a_{name}{width}{colours}"));
        for id in &ids {
            ask(&scratch, id, if id.contains("long") { long } else { "touch x" }, 1_000);
        }
        let texts: Vec<String> = [
            &["approve", &ids[0]][..],
            &["deny", &ids[1], "--note", "use make clean"],
            &["approve", &ids[2], "--note", "only this time"],
            &["approve", &ids[0]],
            &["deny", "a_nosuch"],
        ]
        .map(|arguments| printed(&scratch, terminal, arguments))
        .to_vec();
        insta::assert_snapshot!(format!("answers_{width}_{colours}"), texts.join("\n"));
    }
}

#[test]
fn the_audit_log_of_no_such_task() {
    let scratch = with_tasks();
    hold(&scratch, "audit", &[&["audit", "show", "--task", "t_nosuch"], &["audit", "verify"]]);
}
