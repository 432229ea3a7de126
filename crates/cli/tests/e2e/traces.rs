//! Traces as a collector gets them: real OTLP, read with OpenTelemetry's own classes.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, signal},
    http::{Serving, bearer, log::call_over_mcp, token},
    mcp::Wire,
    python_client::{environment, python_is_here},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The environment is made by one test at a time.
static MAKING: Mutex<()> = Mutex::new(());

/// A collector that ends with the test.
struct Collector {
    child: Child,
    port: u16,
    spans: Receiver<Value>,
}

impl Collector {
    /// None where there is no Python to run it.
    fn start() -> Option<Self> {
        if !python_is_here() {
            return None;
        }
        let python = {
            let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
            environment("otlp", &["opentelemetry-proto==1.38.0"])
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/otlp_receiver.py");
        let mut child = Command::new(python).arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        let (sender, spans) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        Some(Self { child, port, spans })
    }

    /// The variables that name it.
    fn name_in(&self, command: &mut Command) {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", self.port));
        command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=not%20secret");
        command.env("OTEL_SERVICE_NAME", "agents");
        // So that nothing is waited for.
        command.env("OTEL_BSP_SCHEDULE_DELAY", "10");
    }

    fn next(&self) -> Value {
        self.spans.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    /// The next spans by their names; each comes once.
    fn spans(&self, count: usize) -> BTreeMap<String, Value> {
        let spans: BTreeMap<String, Value> = (0..count)
            .map(|_| self.next())
            .map(|span| (span["name"].as_str().unwrap().to_owned(), span))
            .collect();
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The spans of a command that was run, below that of its call; each within the time of the call.
#[track_caller]
fn assert_below(spans: &BTreeMap<String, Value>, call: &str, names: &[&str]) {
    for name in names {
        let (call, span) = (&spans[call], &spans[*name]);
        assert_eq!(span["parent_id"], call["span_id"], "{name}");
        assert_eq!(span["trace_id"], call["trace_id"], "{name}");
        assert_eq!(span["kind"], "SPAN_KIND_INTERNAL", "{name}");
        assert!(span["began_ns"].as_u64() <= span["ended_ns"].as_u64(), "{name}");
        assert!(call["began_ns"].as_u64() <= span["began_ns"].as_u64(), "{name}");
    }
}

#[test]
fn a_call_over_stdin_is_a_span_with_what_it_did_below_it() {
    let Some(collector) = Collector::start() else { return };
    let scratch = Scratch::new();
    let mut command = scratch.legwork("mcp");
    collector.name_in(&mut command);
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let params = json!({
        "name": "ExecCommand",
        "arguments": { "cmd": "echo s3cret-word; exit 3", "login": false },
        "_meta": { "traceparent": format!("00-{TRACE}-{PARENT}-01"), "tracestate": "a=b" },
    });
    wire.request("tools/call", &params);
    let spans = collector.spans(6);
    let call = &spans["tools/call ExecCommand"];
    let expected = json!({
        "mcp.method.name": "tools/call", "mcp.protocol.version": "2025-06-18",
        "jsonrpc.request.id": "2", "network.transport": "pipe",
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ExecCommand",
        "gen_ai.tool.type": "function",
    });
    assert_eq!(call["attributes"], expected);
    let place = ["trace_id", "parent_id", "state", "kind"].map(|name| call[name].clone());
    assert_eq!(place, [TRACE, PARENT, "a=b", "SPAN_KIND_SERVER"].map(Value::from));
    assert_eq!((&call["path"], &call["key"]), (&json!("/v1/traces"), &json!("not secret")));
    assert_eq!(call["resource"]["service.name"], "agents");
    assert_eq!(call["scope"]["name"], "legwork");
    // A command that fails is no failure of the call.
    assert_eq!(call["status"], 0);
    assert_below(&spans, "tools/call ExecCommand", &["plan", "judge", "start", "run", "settle"]);
    assert_eq!(spans["judge"]["attributes"]["legwork.verdict"], "allow");
    assert_eq!(spans["run"]["attributes"]["process.exit.code"], 3);
    assert_eq!(spans["run"]["attributes"]["legwork.task.status"], "failed");
    let task = spans["run"]["attributes"]["legwork.task.id"].as_str().unwrap();
    assert_eq!(scratch.status(task)["status"], "failed");
    assert!(!format!("{spans:?}").contains("s3cret-word"), "no text of a command");
    // One that is refused says so, and a caller who is not traced does without.
    let params = json!({
        "name": "TaskStatus", "arguments": { "task_id": "t_none" },
        "_meta": { "traceparent": format!("00-{TRACE}-{PARENT}-00") },
    });
    wire.request("tools/call", &params);
    wire.exec(&json!({ "cmd": "/nowhere/program", "shell": "/nowhere/sh", "login": false }));
    let refused = loop {
        let span = collector.next();
        assert_ne!(span["trace_id"], TRACE, "it is not to be traced: {span}");
        if span["name"] == "tools/call ExecCommand" {
            break span;
        }
    };
    assert_eq!((&refused["status"], &refused["parent_id"]), (&json!(2), &json!("")));
    assert_eq!(refused["attributes"]["error.type"], "tool_error");
    assert!(refused["attributes"]["legwork.error.kind"].is_string(), "{refused}");
}

#[test]
fn a_task_that_goes_on_has_its_run_in_the_trace_and_a_question_its_wait() {
    let Some(collector) = Collector::start() else { return };
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let policy = "[[rule]]\nid = \"ask\"\nprogram = \"date\"\ndecision = \"ask\"\n";
    let mut command = scratch.guarded("serve", "guarded", Some(policy));
    command.args(["--listen", "127.0.0.1:0"]);
    collector.name_in(&mut command);
    let serving = Serving::spawn(command);
    let kept = json!({ "cmd": "sleep 600", "login": false, "yield_time_ms": 0 });
    let headers = [bearer(&operator), ("traceparent", format!("00-{TRACE}-{PARENT}-01"))];
    let mut wire = serving.connect();
    let kept = wire.send("POST", "/api/v1/tasks", &headers, &kept.to_string()).good();
    let mut spans = collector.spans(4);
    let call = &spans["POST /api/v1/tasks"];
    assert_eq!((&call["trace_id"], &call["parent_id"]), (&json!(TRACE), &json!(PARENT)));
    let expected = json!({
        "http.request.method": "POST", "http.route": "/api/v1/tasks",
        "http.response.status_code": 200, "network.protocol.name": "http",
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ExecCommand",
        "gen_ai.tool.type": "function",
    });
    assert_eq!(call["attributes"], expected);
    let task = kept["task_handle"]["task_id"].as_str().unwrap();
    serving.post(&format!("/api/v1/tasks/{task}/stop"), &operator, &json!({})).good();
    let more = collector.spans(3);
    assert!(more.contains_key("POST /api/v1/tasks/{id}/stop"), "{more:?}");
    spans.extend(more);
    assert_below(&spans, "POST /api/v1/tasks", &["plan", "judge", "start", "run", "settle"]);
    assert_eq!(spans["run"]["attributes"]["legwork.task.id"], task);
    // Nobody is there to be asked.
    let asked = json!({ "name": "ExecCommand", "arguments": { "cmd": "date", "login": false } });
    let told = [("traceparent", format!("00-{TRACE}-{PARENT}-01"))];
    call_over_mcp(&serving, &operator, &told, &asked);
    let spans = collector.spans(4);
    let call = &spans["tools/call ExecCommand"];
    assert_eq!((&call["trace_id"], &call["parent_id"]), (&json!(TRACE), &json!(PARENT)));
    assert!(call["attributes"]["mcp.session.id"].is_string(), "{call}");
    assert_eq!(call["attributes"]["network.transport"], "tcp");
    assert_below(&spans, "tools/call ExecCommand", &["plan", "judge", "ask"]);
    assert_eq!(spans["judge"]["attributes"]["legwork.verdict"], "ask");
    assert_eq!(spans["ask"]["attributes"]["error.type"], "approval_unavailable");
    assert_eq!(spans["ask"]["status"], 2);
    let counted = serving.get("/metrics", &operator).body;
    assert!(counted.contains("legwork_trace_spans_total{result=\"dropped\"} 0\n"), "{counted}");
    assert!(!counted.contains("legwork_trace_spans_total{result=\"sent\"} 0\n"), "{counted}");
}

#[test]
fn the_last_spans_are_sent_when_the_server_ends() {
    let Some(collector) = Collector::start() else { return };
    let scratch = Scratch::new();
    let mut command = scratch.legwork("mcp");
    collector.name_in(&mut command);
    // Nothing is sent by itself.
    command.env("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire.tool("ExecCommand", &json!({ "cmd": "true", "login": false }));
    signal(wire.child.id(), Signal::TERM);
    assert!(wire.child.wait().unwrap().success());
    assert!(collector.spans(6).contains_key("tools/call ExecCommand"));
}

#[test]
fn a_collector_that_never_answers_keeps_no_call_and_no_end_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let scratch = Scratch::new();
    let mut command = scratch.legwork("mcp");
    let address = format!("http://{}", silent.local_addr().unwrap());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address).env("OTEL_BSP_SCHEDULE_DELAY", "1");
    // Fewer than there are spans.
    command.env("OTEL_BSP_MAX_QUEUE_SIZE", "4").env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1");
    // Its end would be the test's, if anybody waited for it.
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000");
    let mut wire = Wire::spawn(command);
    wire.initialize();
    for _ in 0..20 {
        wire.assert_lives();
    }
    // The exporter is at it by now.
    let (_held, _) = silent.accept().unwrap();
    signal(wire.child.id(), Signal::TERM);
    assert!(wire.child.wait().unwrap().success());
}

/// The names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(Result::unwrap);
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

#[test]
fn nothing_is_started_for_traces_and_logs_that_nobody_asked_for() {
    let scratch = Scratch::new();
    let own = ["traces", "log"];
    for wanted in [false, true] {
        let mut command = scratch.legwork("mcp");
        for signals in ["", "TRACES_"] {
            // Those of whoever runs the tests.
            command.env_remove(format!("OTEL_EXPORTER_OTLP_{signals}ENDPOINT"));
        }
        if wanted {
            command.args(["--log-format", "json"]).stderr(Stdio::null());
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
        }
        let mut wire = Wire::spawn(command);
        wire.initialize();
        wire.assert_lives();
        let started = threads(wire.child.id());
        for name in own {
            assert_eq!(started.iter().any(|it| it == name), wanted, "{name}: {started:?}");
        }
        wire.stdin.take();
        wire.child.wait().unwrap();
    }
}

#[test]
fn what_cannot_be_traced_is_said_and_the_server_serves() {
    let scratch = Scratch::new();
    let mut command = scratch.legwork("serve");
    command.args(["--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let serving = Serving::spawn(command);
    assert_eq!(serving.get("/healthz", "").status, 200);
    assert!(serving.said().contains("nothing is traced: OTEL_EXPORTER_OTLP_PROTOCOL"));
}
