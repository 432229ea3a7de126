//! `/api/v1`: tasks from their start to their end, and what is known of them.

use serde_json::{Value, json};

use super::{Serving, bearer, token};
use crate::common::{Scratch, by_system, eventually};

struct Stage {
    // Before the scratch place, which must be left empty.
    serving: Serving,
    scratch: Scratch,
    operator: String,
}

impl Stage {
    fn new() -> Self {
        let scratch = Scratch::new();
        let operator = token(&scratch, "me", &["--role", "operator"]);
        let serving = Serving::start(&scratch, &[]);
        Self { serving, scratch, operator }
    }

    fn get(&self, path: &str) -> Value {
        self.serving.get(&format!("/api/v1/{path}"), &self.operator).good()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.serving.post(&format!("/api/v1/{path}"), &self.operator, body).good()
    }

    fn run(&self, cmd: &str) -> Value {
        self.post("tasks", &json!({ "cmd": cmd, "login": false }))
    }
}

#[test]
fn a_command_from_its_start_to_its_end() {
    let stage = Stage::new();
    let ran = stage.run("echo out; echo err >&2; exit 3");
    assert_eq!((&ran["disposition"], &ran["exit_status"]), (&json!("completed"), &json!(3)));
    assert_eq!((&ran["stdout_preview"], &ran["stderr_preview"]), (&json!("out"), &json!("err")));
    // One that stays.
    let script = "while read line; do echo got $line; done; echo end";
    let input = json!({
        "cmd": script, "login": false, "yield_time_ms": 0, "accepts_input": true,
    });
    let started = stage.post("tasks", &input);
    let task = started["task_handle"]["task_id"].as_str().unwrap().to_owned();
    let at = |what: &str| format!("tasks/{task}{what}");
    assert_eq!(stage.get(&at(""))["task"]["status"], "running");
    let typed = stage.post(&at("/input"), &json!({ "input": "one\n" }));
    assert_eq!(typed["accepted_input"], true);
    let until = json!({ "until": { "output_matches": "got one" }, "timeout_ms": 30_000 });
    assert_eq!(stage.post(&at("/wait"), &until)["met"], true);
    let first = stage.get(&at("/output"));
    assert_eq!(first["output_preview"], "got one");
    // From a cursor on, only what is new; and a second look without one is the same as the first.
    let cursor = first["next_cursor"].as_str().unwrap();
    stage.post(&at("/input"), &json!({ "input": "two\n" }));
    let until = json!({ "until": { "output_matches": "got two" }, "timeout_ms": 30_000 });
    assert_eq!(stage.post(&at("/wait"), &until)["met"], true);
    let next = stage.get(&at(&format!("/output?after={cursor}&block=true")));
    assert_eq!(next["output_preview"], "got two\n");
    assert_eq!(stage.get(&at("/output"))["output_preview"], "got one\ngot two");
    stage.post(&at("/input"), &json!({ "eof": true }));
    let ended = stage.post(&at("/wait"), &json!({ "timeout_ms": 30_000 }));
    assert_eq!(ended["met"], true, "{ended:#}");
    assert_eq!(stage.get(&at(""))["task"]["exit_status"], 0);
    // One that is stopped.
    let started = stage.post("tasks", &json!({ "cmd": "sleep 600", "yield_time_ms": 0 }));
    let task = started["task_handle"]["task_id"].as_str().unwrap();
    let stopped = stage.post(&format!("tasks/{task}/stop"), &json!({}));
    assert_eq!(stopped["stop_requested"], true, "{stopped:#}");
    assert_eq!(stage.get(&format!("tasks/{task}"))["task"]["status"], "cancelled");
}

#[test]
fn the_list_is_filtered_and_paged() {
    let stage = Stage::new();
    let ids: Vec<String> = (0..7)
        .map(|number| {
            let ran = stage.run(&format!("exit {}", number % 2));
            ran["task_id"].as_str().unwrap().to_owned()
        })
        .collect();
    let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
    let of = |listed: &Value| -> Vec<String> {
        let tasks = listed["tasks"].as_array().unwrap().iter();
        tasks.map(|task| task["task_id"].as_str().unwrap().to_owned()).collect()
    };
    let (mut all, mut query) = (Vec::new(), "tasks?limit=3".to_owned());
    loop {
        let page = stage.get(&query);
        assert_eq!(page["total"], 7);
        all.extend(of(&page));
        let Some(next) = page["next_before"].as_str() else { break };
        query = format!("tasks?limit=3&before={next}");
    }
    assert_eq!(all, newest_first);
    let failed = stage.get("tasks?status=failed,running");
    assert_eq!((of(&failed).len(), &failed["total"]), (3, &json!(3)));
    let oldest = format!("tasks?status=failed&before={}", ids[1]);
    assert_eq!(of(&stage.get(&oldest)), Vec::<String>::new());
}

#[test]
fn mistakes_are_told_in_the_shape_of_the_tools_errors() {
    let stage = Stage::new();
    let ask = |path: &str| {
        let reply = stage.serving.get(&format!("/api/v1/{path}"), &stage.operator);
        (reply.status, reply.kind())
    };
    for path in ["tasks?limit=0", "tasks?limit=x", "tasks?status=odd", "tasks?color=red"] {
        assert_eq!(ask(path), (400, "invalid_request".into()), "{path}");
    }
    assert_eq!(ask("tasks/t_none"), (404, "unknown_task".into()));
    assert_eq!(ask("questions/a_none"), (404, "unknown_approval".into()));
    assert_eq!(ask("nothing"), (404, "not_found".into()));
    let post = |body: &Value| {
        let reply = stage.serving.post("/api/v1/tasks", &stage.operator, body);
        (reply.status, reply.kind())
    };
    assert_eq!(post(&json!({ "cmd": " " })), (400, "invalid_tool_input".into()));
    assert_eq!(post(&json!({ "command": "ls" })), (400, "invalid_tool_input".into()));
    assert_eq!(post(&json!([1])), (400, "invalid_tool_input".into()));
}

#[test]
fn rules_the_audit_log_and_the_machine() {
    let stage = Stage::new();
    let checked = stage.post("policy/check", &json!({ "command": "ls | wc -l" }));
    assert_eq!(checked["verdict"], "allow", "{checked:#}");
    let ran = stage.run("echo audited");
    let task = ran["task_id"].as_str().unwrap();
    let entries = eventually("its outcome is noted", || {
        let log = stage.get(&format!("audit?task_id={task}"));
        let entries = log["entries"].as_array().unwrap().clone();
        (entries.len() == 2).then_some(entries)
    });
    // Newest first.
    assert_eq!(entries[0]["event"], "outcome");
    assert_eq!(
        (&entries[1]["event"], &entries[1]["asked_by"]),
        (&json!("verdict"), &json!("token me"))
    );
    assert_eq!(stage.get("audit?verdict=deny")["entries"], json!([]));
    let machine = stage.get("machine");
    assert_eq!(machine["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(machine["usage"]["tasks"], 1);
    let folder = stage.scratch.state.path().canonicalize().unwrap();
    assert_eq!(machine["state"], folder.to_str().unwrap());
}

#[test]
fn raw_output_comes_whole_or_in_ranges() {
    let stage = Stage::new();
    let ran = stage.run("printf 0123456789; printf 'key ghp_%036d' 1 >&2");
    let task = ran["task_id"].as_str().unwrap();
    let get = |stream: &str, more: &[(&'static str, &str)]| {
        let mut headers = vec![super::bearer(&stage.operator)];
        headers.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let path = format!("/api/v1/tasks/{task}/raw/{stream}");
        stage.serving.connect().send("GET", &path, &headers, "")
    };
    let whole = get("stdout", &[]);
    assert_eq!((whole.status, whole.body.as_str()), (200, "0123456789"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert!(whole.header("content-disposition").unwrap().starts_with("attachment"));
    let tag = whole.header("etag").unwrap();
    let part = get("stdout", &[("Range", "bytes=2-5"), ("If-Range", tag)]);
    assert_eq!((part.status, part.body.as_str()), (206, "2345"));
    assert_eq!(part.header("content-range"), Some("bytes 2-5/10"));
    let other = get("stdout", &[("Range", "bytes=2-5"), ("If-Range", "\"another\"")]);
    assert_eq!((other.status, other.body.as_str()), (200, "0123456789"));
    let beyond = get("stdout", &[("Range", "bytes=10-")]);
    assert_eq!((beyond.status, beyond.kind().as_str()), (416, "no_such_range"));
    assert_eq!(beyond.header("content-range"), Some("bytes */10"));
    // It is exact, which is why an agent and a viewer cannot have it.
    assert!(get("stderr", &[]).body.contains("ghp_0000"));
    assert!(!ran["stderr_preview"].as_str().unwrap().contains("ghp_0000"));
}

#[test]
fn long_raw_output_costs_its_client_alone() {
    let stage = Stage::new();
    let megabytes = 64;
    let ran = stage.run(&format!("head -c {megabytes}M /dev/zero | tr '\\0' x"));
    let task = ran["task_id"].as_str().unwrap();
    let path = format!("/api/v1/tasks/{task}/raw/stdout");
    let peak = || -> u64 {
        let status = format!("/proc/{}/status", stage.serving.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = peak();
    // One that does not read, and one that does.
    let mut idle = stage.serving.connect();
    idle.request("GET", &path, &[super::bearer(&stage.operator)], "");
    assert_eq!(idle.head().unwrap().status, 200);
    let whole = stage.serving.get(&path, &stage.operator);
    assert_eq!(whole.body.len(), megabytes << 20);
    assert!(whole.body.bytes().all(|byte| byte == b'x'));
    let grown = peak() - before;
    assert!(grown < 16 * 1024, "{grown} KiB for {megabytes} MiB");
}

#[test]
fn the_doctor_and_the_check_of_the_audit_log() {
    let stage = Stage::new();
    stage.run("true");
    let started = || crate::common::children(stage.serving.child.id());
    let before = started();
    let found = stage.get("machine/doctor");
    assert_eq!(found["healthy"], true, "{found:#}");
    let names: Vec<&str> = found["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    let forks = by_system("spawner", "warden");
    assert_eq!(names, ["configuration", "state", "ledger", "disk", forks, "command"]);
    eventually("what it started is gone", || (started() == before).then_some(()));
    let whole = stage.get("audit/verify");
    assert_eq!((&whole["whole"], &whole["problem"]), (&json!(true), &Value::Null), "{whole:#}");
    assert!(whole["lines"].as_u64().unwrap() >= 2);
    // Somebody changes a line.
    let log = stage.scratch.state.path().join("audit.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("true", "fals", 1)).unwrap();
    let broken = stage.get("audit/verify");
    assert_eq!(broken["whole"], false);
    assert!(broken["problem"].as_str().unwrap().contains("was changed or damaged"), "{broken:#}");
    std::fs::write(&log, text).unwrap();
}

#[test]
fn a_client_that_leaves_takes_its_command_with_it() {
    let stage = Stage::new();
    let pid = stage.scratch.file("pid");
    let cmd = format!("echo $$ > {pid}; exec sleep 600");
    let body = json!({ "cmd": cmd, "login": false, "yield_time_ms": 600_000 }).to_string();
    let mut wire = stage.serving.connect();
    wire.request("POST", "/api/v1/tasks", &[super::bearer(&stage.operator)], &body);
    let pid = crate::common::announced_line(&pid);
    drop(wire);
    eventually("it is stopped", || (!crate::common::is_alive(pid)).then_some(()));
}

#[test]
fn output_is_followed_as_it_comes_with_colours_and_without_secrets() {
    let stage = Stage::new();
    let viewer = token(&stage.scratch, "viewer", &["--role", "viewer"]);
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let cmd = format!(
        "printf '\\033[31mred\\033[0m {secret}\\n'; echo err >&2; until [ -e go ]; do sleep 0.02; \
         done; echo last; exit 3"
    );
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
    let started = stage.post("tasks", &input);
    let id = started["task_handle"]["task_id"].as_str().unwrap();
    let mut wire = stage.serving.connect();
    let path = format!("/api/v1/tasks/{id}/follow");
    wire.request("GET", &path, &[bearer(&viewer)], "");
    assert_eq!(wire.head().unwrap().header("content-type"), Some("application/x-ndjson"));
    let mut heard = String::new();
    let mut opened = false;
    while let Some(chunk) = wire.chunk() {
        heard.push_str(&chunk);
        if !opened && heard.contains("red") && heard.contains("err") {
            // It was told before the end.
            assert!(!heard.contains("last"), "{heard}");
            std::fs::write(stage.scratch.file("go"), "").unwrap();
            opened = true;
        }
    }
    let lines: Vec<Value> = heard.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |stream: &str| -> String {
        let texts = lines.iter().filter(|line| line["stream"] == stream);
        texts.map(|line| line["text"].as_str().unwrap()).collect()
    };
    assert_eq!(of("stderr"), "err\n");
    let stdout = of("stdout");
    assert!(stdout.starts_with("\u{1b}[31mred\u{1b}[0m [masked:"), "{stdout}");
    assert!(stdout.ends_with("\nlast\n") && !heard.contains(secret), "{heard}");
    assert_eq!(lines.last(), Some(&json!({ "ended": "failed", "exit_status": 3 })));
    // The record of the same task.
    let one = stage.get(&format!("tasks/{id}"));
    assert_eq!((&one["record"]["status"], &one["takes_input"]), (&json!("failed"), &json!(false)));
    assert!(one["resources"]["cpu_user_us"].is_u64(), "{one:#}");
    assert!(one["resources"]["memory_peak_bytes"].as_u64().unwrap() > 100_000, "{one:#}");
    assert_eq!(one["resources"], one["record"]["outcome"]["resources"]);
}
