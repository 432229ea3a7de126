//! `/metrics`: the numbers that were counted, in a text that Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use serde_json::json;

use super::{Serving, token};
use crate::common::{Scratch, eventually};

/// The samples by name and labels. Every line is a comment of a known kind or a sample of a family
/// that was announced, once. Sums of times have no place here: they are no whole numbers.
fn samples(text: &str) -> BTreeMap<String, u64> {
    let sample = regex::Regex::new(
        r#"^(legwork_[a-z_]+?)(_bucket|_count|_sum)?(\{[a-z_]+="[^"\\]*"(,[a-z_]+="[^"\\]*")*\})? [0-9.]+$"#,
    );
    let sample = sample.unwrap();
    let (mut found, mut families) = (BTreeMap::new(), BTreeMap::new());
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(kind != "histogram" || name.ends_with("_seconds"), "{line}");
        } else if !line.starts_with("# HELP ") {
            let parts = sample.captures(line).unwrap_or_else(|| panic!("no sample: {line}"));
            let kind = families.get(&parts[1]).unwrap_or_else(|| panic!("no family: {line}"));
            assert_eq!(kind == "histogram", parts.get(2).is_some(), "{line}");
            let (name, count) = line.rsplit_once(' ').unwrap();
            assert!(seen.insert(name.to_owned()), "{line} twice");
            found.extend(count.parse().map(|count| (name.to_owned(), count)));
        }
    }
    assert!(text.ends_with('\n'));
    found
}

/// What a server has counted.
fn scrape(serving: &Serving, viewer: &str) -> BTreeMap<String, u64> {
    let reply = serving.get("/metrics", viewer);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4"));
    samples(&reply.body)
}

#[test]
fn calls_tasks_output_and_verdicts_are_counted() {
    let scratch = Scratch::new();
    scratch.result("echo before");
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let viewer = token(&scratch, "scraper", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let first = scrape(&serving, &viewer);
    assert_eq!(first["legwork_tasks_started_total"], 0, "what was before does not count");
    assert_eq!(first["legwork_verdicts_total{verdict=\"allow\"}"], 0);
    let run = |cmd: &str| {
        let input = json!({ "cmd": cmd, "login": false });
        serving.post("/api/v1/tasks", &operator, &input)
    };
    run("printf 12345").good();
    run("printf 123 >&2; exit 1").good();
    run(" ");
    let kept = json!({ "cmd": "sleep 600", "login": false, "yield_time_ms": 0 });
    serving.post("/api/v1/tasks", &operator, &kept).good();
    serving.get("/api/v1/tasks", "lwt_wrong");
    // From another process.
    scratch.result("printf 1234567");
    let counted = eventually("all is counted", || {
        let counted = scrape(&serving, &viewer);
        (counted["legwork_tasks_ended_total{status=\"completed\"}"] == 2).then_some(counted)
    });
    let expected = [
        ("calls_total{tool=\"ExecCommand\",result=\"success\"}", 3),
        ("calls_total{tool=\"ExecCommand\",result=\"invalid_tool_input\"}", 1),
        ("tasks_started_total", 4),
        ("tasks_ended_total{status=\"failed\"}", 1),
        ("tasks_running", 1),
        ("verdicts_total{verdict=\"allow\"}", 4),
        ("verdicts_total{verdict=\"deny\"}", 0),
        ("output_bytes_total{stream=\"stdout\"}", 12),
        ("output_bytes_total{stream=\"stderr\"}", 3),
        ("questions_open", 0),
        ("wrong_tokens_total", 1),
        ("events_lagged_total", 0),
        ("task_start_seconds_count", 3),
        ("task_start_seconds_bucket{le=\"+Inf\"}", 3),
        ("wardens{state=\"busy\"}", 1),
        ("adoptions_total", 0),
    ];
    for (name, count) in expected {
        assert_eq!(counted[&format!("legwork_{name}")], count, "{name}");
    }
    // Of our own three starts and two ends, and of whatever the ledger was asked to keep.
    assert_eq!(counted["legwork_daybook_write_seconds_count"], 5);
    assert!(counted["legwork_ledger_commit_seconds_count"] > 0);
    for file in ["ledger", "daybook", "audit_log"] {
        assert!(counted[&format!("legwork_record_file_bytes{{file=\"{file}\"}}")] > 0, "{file}");
    }
}

#[test]
fn tasks_that_did_not_end_by_themselves_are_counted_by_reason() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    // From another process.
    let mut slow = scratch.legwork("run");
    slow.args(["--timeout", "100ms", "--", "sleep", "600"]).output().unwrap();
    let kept = json!({ "cmd": "sleep 600", "login": false, "yield_time_ms": 0 });
    let kept = serving.post("/api/v1/tasks", &operator, &kept).good();
    let id = kept["task_handle"]["task_id"].as_str().unwrap();
    serving.post(&format!("/api/v1/tasks/{id}/stop"), &operator, &json!({})).good();
    let name = |reason: &str| format!("legwork_tasks_cut_short_total{{reason=\"{reason}\"}}");
    eventually("both are counted", || {
        let counted = scrape(&serving, &operator);
        (counted[&name("timeout")] == 1 && counted[&name("stopped")] == 1).then_some(())
    });
    assert_eq!(scrape(&serving, &operator)[&name("oom_killed")], 0);
}

#[test]
fn a_question_is_counted_with_the_time_that_it_was_open() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let policy = "[[rule]]\nid = \"ask\"\nprogram = \"date\"\ndecision = \"ask\"\n";
    let mut command = scratch.guarded("serve", "guarded", Some(policy));
    command.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn(command);
    let asked = json!({ "cmd": "date", "login": false });
    assert_eq!(serving.post("/api/v1/tasks", &operator, &asked).kind(), "approval_unavailable");
    assert_eq!(scrape(&serving, &operator)["legwork_questions_open"], 1);
    let open = serving.get("/api/v1/questions", &operator).good();
    let id = open["questions"][0]["approval_id"].as_str().unwrap();
    let path = format!("/api/v1/questions/{id}/answer");
    serving.post(&path, &operator, &json!({ "decision": "deny" })).good();
    let name = |result: &str| format!("legwork_question_wait_seconds_count{{result=\"{result}\"}}");
    let counted = eventually("the answer is counted", || {
        let counted = scrape(&serving, &operator);
        (counted[&name("denied")] == 1).then_some(counted)
    });
    let within = "legwork_question_wait_seconds_bucket{result=\"denied\",le=\"900\"}";
    assert_eq!((counted[within], counted[&name("allowed")]), (1, 0));
}

#[test]
fn a_task_that_was_taken_over_is_counted() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let first = Serving::start(&scratch, &[]);
    let kept = json!({ "cmd": "sleep 600", "login": false, "yield_time_ms": 0 });
    first.post("/api/v1/tasks", &operator, &kept).good();
    first.end(Signal::KILL);
    let second = Serving::start(&scratch, &[]);
    eventually("the task has another server", || {
        (scrape(&second, &operator)["legwork_adoptions_total"] == 1).then_some(())
    });
}

#[test]
fn a_limit_that_was_reached_is_counted_by_its_name() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let mut command = scratch.guarded("serve", "open", Some("[limits]\ntasks_max = 1\n"));
    command.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn(command);
    let long = json!({ "cmd": " ".repeat(5 * 1024 * 1024) });
    assert_eq!(serving.post("/api/v1/tasks", &operator, &long).status, 413);
    let kept = |time: u32| {
        let input = json!({ "cmd": format!("sleep {time}"), "login": false, "yield_time_ms": 0 });
        serving.post("/api/v1/tasks", &operator, &input)
    };
    kept(600).good();
    assert_eq!(kept(601).status, 429);
    let counted = scrape(&serving, &operator);
    let name = |limit: &str| format!("legwork_limit_refusals_total{{limit=\"{limit}\"}}");
    assert_eq!((counted[&name("body_bytes")], counted[&name("tasks_max")]), (1, 1));
    assert_eq!(counted[&name("connections")], 0);
    assert_eq!(counted["legwork_limit_waits_total{limit=\"calls_at_once\"}"], 0);
}
