//! `/metrics`: the numbers that were counted, in a text that Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{Serving, token};
use crate::common::{Scratch, eventually};

/// The samples by name and labels. Every line is a comment of a known kind or a sample of a family
/// that was announced, once.
fn samples(text: &str) -> BTreeMap<String, u64> {
    let sample = regex::Regex::new(
        r#"^(legwork_[a-z_]+)(\{[a-z_]+="[^"\\]*"(,[a-z_]+="[^"\\]*")*\})? (\d+)$"#,
    );
    let sample = sample.unwrap();
    let (mut found, mut families) = (BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else if !line.starts_with("# HELP ") {
            let parts = sample.captures(line).unwrap_or_else(|| panic!("no sample: {line}"));
            assert!(families.contains(&parts[1]), "{line}");
            let (name, count) = line.rsplit_once(' ').unwrap();
            let count = count.parse().unwrap();
            assert!(found.insert(name.to_owned(), count).is_none(), "{line} twice");
        }
    }
    assert!(text.ends_with('\n'));
    found
}

#[test]
fn calls_tasks_output_and_verdicts_are_counted() {
    let scratch = Scratch::new();
    scratch.result("echo before");
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let viewer = token(&scratch, "scraper", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let scrape = || {
        let reply = serving.get("/metrics", &viewer);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4"));
        samples(&reply.body)
    };
    let first = scrape();
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
        let counted = scrape();
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
    ];
    for (name, count) in expected {
        assert_eq!(counted[&format!("legwork_{name}")], count, "{name}");
    }
}
