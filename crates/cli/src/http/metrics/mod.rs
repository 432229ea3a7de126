//! `/metrics`: numbers for Prometheus.
//!
//! Calls, starts, commits, wardens and limits are those of this server. Tasks, output, questions
//! and verdicts are those of the whole state folder since this server began, whichever process
//! they come from. Every label has its values from a short list. To count is to add to an atomic;
//! all else is done when somebody looks.

mod counters;
mod page;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    http::{StatusCode, header},
    response::IntoResponse,
};
use legwork::{
    Answer, EndedBy, Engine, ErrorKind, Event, EventKind, Interest, Meters, RecordSizes, Registry,
    Reply, Status, TaskFilter, Timings, ToolError, WardenCount, gate::Decision,
};
use legwork_warden::sandbox::SandboxLayer;
use serde_json::Value;

use self::{
    counters::{CounterGrid, CounterRow},
    page::{MetricsPage, label},
};
use super::{
    refusal::failed,
    routes::{Call, Handled},
};
use crate::{log, traces};

/// Most bytes of the audit log that one look takes in; the next one goes on.
const AUDIT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The result of a call without an error.
const SUCCESS: &str = "success";

/// The statuses that tasks end with.
const ENDS: [Status; 4] =
    [Status::Completed, Status::Failed, Status::Cancelled, Status::Interrupted];

/// Why tasks end otherwise than by themselves.
const CAUSES: [&str; 12] = [
    EndedBy::Timeout.as_str(),
    EndedBy::Stopped.as_str(),
    EndedBy::Abandoned.as_str(),
    EndedBy::CpuLimit.as_str(),
    EndedBy::OomKilled.as_str(),
    EndedBy::FileSizeLimit.as_str(),
    EndedBy::LayerLimit.as_str(),
    EndedBy::StoppedByScheduler.as_str(),
    "spawn_failed",
    "warden_lost",
    "exit_record_damaged",
    "reboot",
];

/// Upper bounds of what a person takes to answer.
const PATIENCE: &[Duration] = &[
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
    Duration::from_secs(900),
    Duration::from_secs(3600),
    Duration::from_secs(4 * 3600),
    Duration::from_secs(24 * 3600),
];

/// What is counted.
#[derive(Debug)]
pub(super) struct Metrics {
    /// By tool and result.
    calls: CounterGrid,
    /// By class of the HTTP status.
    requests: CounterRow,
    wrong_tokens: AtomicU64,
    /// By the limit that was reached.
    limits: CounterRow,
    started: AtomicU64,
    /// By status.
    ended: CounterRow,
    /// By what ended them.
    cut_short: CounterRow,
    /// By stream.
    output: CounterRow,
    /// How long questions were open.
    allowed: Timings,
    denied: Timings,
    expired: Timings,
    /// Events that were missed, so that numbers are too low.
    lagged: AtomicU64,
    /// By verdict.
    verdicts: CounterRow,
    audit: Mutex<AuditPlace>,
}

/// A limit of the HTTP face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpLimit {
    /// Connections at once.
    Connections,
    /// Requests of a token at once.
    Requests,
    /// Sessions of a token.
    Sessions,
    /// Bytes of a body.
    BodyBytes,
    /// The time that a body may take.
    BodyTime,
}

impl HttpLimit {
    const ALL: [Self; 5] =
        [Self::Connections, Self::Requests, Self::Sessions, Self::BodyBytes, Self::BodyTime];

    fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Requests => "requests_of_token",
            Self::Sessions => "sessions_of_token",
            Self::BodyBytes => "body_bytes",
            Self::BodyTime => "body_time",
        }
    }
}

/// How far the audit log was read.
#[derive(Debug)]
struct AuditPlace {
    path: PathBuf,
    at: u64,
}

/// The class of a status as a label.
fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

impl Metrics {
    /// Counts from now on.
    pub(super) fn new(audit: &Path, registry: &Registry) -> Self {
        let at = audit.metadata().map_or(0, |found| found.len());
        let kinds = ErrorKind::ALL.map(ErrorKind::as_str);
        let results: Vec<&str> = [SUCCESS].into_iter().chain(kinds).collect();
        let asked = || Timings::new(PATIENCE);
        Self {
            calls: CounterGrid::new(registry.definitions().map(|tool| tool.name), &results),
            requests: CounterRow::new(["1xx", "2xx", "3xx", "4xx", "5xx"]),
            wrong_tokens: AtomicU64::new(0),
            limits: CounterRow::new(HttpLimit::ALL.map(HttpLimit::as_str)),
            started: AtomicU64::new(0),
            ended: CounterRow::new(ENDS.map(Status::as_str)),
            cut_short: CounterRow::new(CAUSES),
            output: CounterRow::new(["stdout", "stderr"]),
            allowed: asked(),
            denied: asked(),
            expired: asked(),
            lagged: AtomicU64::new(0),
            verdicts: CounterRow::new(["allow", "ask", "deny"]),
            audit: Mutex::new(AuditPlace { path: audit.to_owned(), at }),
        }
    }

    /// Counts the answer to a call.
    pub(super) fn call(&self, tool: &str, answer: &Answer) {
        self.calls.add(tool, answer.failure().map_or(SUCCESS, ErrorKind::as_str));
    }

    pub(super) fn request(&self, status: StatusCode) {
        self.requests.add(class(status), 1);
    }

    pub(super) fn wrong_token(&self) {
        self.wrong_tokens.fetch_add(1, Relaxed);
    }

    /// Counts a request that met a limit.
    pub(super) fn limit(&self, limit: HttpLimit) {
        self.limits.add(limit.as_str(), 1);
    }

    /// Counts what happens on the state folder; never ends. While somebody reads them the engine
    /// keeps the newest events, so that a client that comes back misses none.
    pub(super) async fn follow(&self, engine: &Engine) {
        let Ok(mut events) = engine.events(None, Interest::Changes).await else {
            return std::future::pending().await;
        };
        loop {
            match events.next().await {
                Err(_) => {
                    self.lagged.fetch_add(1, Relaxed);
                    tracing::warn!("events were missed: some tasks are not in this log");
                }
                Ok(event) => {
                    self.happened(&event);
                    log::happened(&event);
                }
            }
        }
    }

    fn happened(&self, event: &Event) {
        let since = |opened_at_ms: i64| {
            let waited_ms = event.at_ms.saturating_sub(opened_at_ms);
            Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0))
        };
        match &event.what {
            EventKind::TaskStarted { .. } => _ = self.started.fetch_add(1, Relaxed),
            EventKind::TaskEnded { status, reason, stdout_bytes, stderr_bytes, .. } => {
                self.ended.add(status.as_str(), 1);
                if let Some(reason) = reason {
                    self.cut_short.add(reason, 1);
                }
                self.output.add("stdout", *stdout_bytes);
                self.output.add("stderr", *stderr_bytes);
            }
            EventKind::QuestionAnswered { decision: Reply::Deny, opened_at_ms, .. } => {
                self.denied.note(since(*opened_at_ms));
            }
            EventKind::QuestionAnswered { opened_at_ms, .. } => {
                self.allowed.note(since(*opened_at_ms));
            }
            EventKind::QuestionExpired { opened_at_ms, .. } => {
                self.expired.note(since(*opened_at_ms));
            }
            _ => {}
        }
    }

    /// Counts the verdicts that were noted since the last look.
    fn look_at_audit(&self) -> io::Result<()> {
        let mut place = self.audit.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = match File::open(&place.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() < place.at {
            // Another one stands in its place.
            place.at = 0;
        }
        file.seek(SeekFrom::Start(place.at))?;
        let mut lines = BufReader::new(file);
        let (mut line, mut read) = (Vec::new(), 0);
        while read < AUDIT_BYTES_MAX {
            line.clear();
            let count = lines.read_until(b'\n', &mut line)? as u64;
            if line.last() != Some(&b'\n') {
                break;
            }
            read += count;
            place.at += count;
            let entry: Value = serde_json::from_slice(&line).unwrap_or_default();
            if entry.get("event").and_then(Value::as_str) != Some("verdict") {
                continue;
            }
            let verdict = entry.get("verdict").cloned().map(serde_json::from_value::<Decision>);
            match verdict {
                Some(Ok(Decision::Allow)) => self.verdicts.add("allow", 1),
                Some(Ok(Decision::Ask)) => self.verdicts.add("ask", 1),
                Some(Ok(Decision::Deny)) => self.verdicts.add("deny", 1),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What is looked at when somebody asks.
#[derive(Debug, Default)]
struct Seen {
    running: u64,
    questions: u64,
    sizes: RecordSizes,
    wardens: WardenCount,
    missing_layers: Vec<String>,
    began_at_ms: i64,
}

/// The numbers as they are now.
pub(super) async fn scrape(call: Call) -> Handled {
    let (engine, metrics) = (call.standing.engine(), call.face.metrics.clone());
    let own = engine.clone();
    let looked = tokio::task::spawn_blocking(move || {
        if let Err(error) = metrics.look_at_audit() {
            tracing::warn!("the audit log cannot be read: {error}");
        }
        own.record_sizes()
    });
    let sizes = looked.await.unwrap_or_default();
    let counted = async {
        let (_, running) = engine.tasks_matching(TaskFilter::open(), 1).await?;
        let questions = engine.approvals().await?.len() as u64;
        Ok::<_, ToolError>((running, questions))
    };
    let (running, questions) = match counted.await {
        Ok(counted) => counted,
        Err(error) => return Ok(failed(&error)),
    };
    let began_at_ms = call.face.began_at_ms;
    let mut seen = Seen { running, questions, sizes, began_at_ms, ..Seen::default() };
    for service in call.face.realms.all().await {
        let wardens = service.engine().wardens();
        seen.wardens.ready += wardens.ready;
        seen.wardens.confined += wardens.confined;
        seen.wardens.busy += wardens.busy;
        seen.missing_layers.extend(service.engine().missing_layers());
    }
    let text = call.face.metrics.render(&call.face.realms.meters, &seen);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

impl Metrics {
    fn render(&self, meters: &Meters, seen: &Seen) -> String {
        let mut page = MetricsPage::default();
        self.render_server(&mut page, seen);
        self.render_tasks(&mut page, seen);
        self.render_questions(&mut page, seen);
        self.render_limits(&mut page, meters);
        render_machine(&mut page, meters, seen);
        page.0
    }

    fn render_server(&self, page: &mut MetricsPage, seen: &Seen) {
        let version = label("version", env!("CARGO_PKG_VERSION"));
        page.gauges("build_info", "Version of this server.", [(version, 1)]);
        let began = seen.began_at_ms.max(0) / 1000;
        let help = "When this server began, in seconds since 1970.";
        page.gauge("start_time_seconds", help, began);
        let calls = self.calls.counted().map(|(tool, result, count)| {
            (format!("{},{}", label("tool", tool), label("result", result)), count)
        });
        page.counters("calls_total", "Calls of tools, by result.", calls);
        let help = "HTTP requests, by class of status.";
        page.counters("http_requests_total", help, labelled("code", &self.requests));
        let help = "Requests with a wrong, revoked or expired token.";
        page.counter("wrong_tokens_total", help, self.wrong_tokens.load(Relaxed));
        let spans = traces::counts().map(|counts| {
            let counts =
                [("sent", &counts.sent), ("dropped", &counts.dropped), ("failed", &counts.failed)];
            counts.map(|(result, count)| (label("result", result), count.load(Relaxed)))
        });
        let help = "Spans of traces, by result; none where nothing is traced.";
        page.counters("trace_spans_total", help, spans.into_iter().flatten());
    }

    fn render_tasks(&self, page: &mut MetricsPage, seen: &Seen) {
        let help = "Verdicts on commands, of all processes on the state folder.";
        page.counters("verdicts_total", help, labelled("verdict", &self.verdicts));
        let help = "Tasks that started, of all processes on the state folder.";
        page.counter("tasks_started_total", help, self.started.load(Relaxed));
        let help = "Tasks that ended, by status.";
        page.counters("tasks_ended_total", help, labelled("status", &self.ended));
        let help = "Tasks that did not end by themselves, by reason.";
        page.counters("tasks_cut_short_total", help, labelled("reason", &self.cut_short));
        let help = "Bytes that ended tasks had printed.";
        page.counters("output_bytes_total", help, labelled("stream", &self.output));
        page.gauge("tasks_running", "Tasks that have not ended.", seen.running);
        let help = "Times that events were missed, so that counts of tasks are too low.";
        page.counter("events_lagged_total", help, self.lagged.load(Relaxed));
    }

    fn render_questions(&self, page: &mut MetricsPage, seen: &Seen) {
        page.gauge("questions_open", "Questions that wait for an answer.", seen.questions);
        let results =
            [("allowed", &self.allowed), ("denied", &self.denied), ("expired", &self.expired)];
        let results = results.map(|(result, timings)| (label("result", result), timings));
        let help = "How long questions were open until they were answered or expired.";
        page.timings("question_wait_seconds", help, results);
    }

    fn render_limits(&self, page: &mut MetricsPage, meters: &Meters) {
        let refused = [("tasks_max", &meters.refused_for_tasks)];
        let refused = refused.map(|(name, count)| (label("limit", name), count.load(Relaxed)));
        let help = "Requests and commands that were refused because a limit was reached.";
        let limits = labelled("limit", &self.limits).into_iter().chain(refused);
        page.counters("limit_refusals_total", help, limits);
        let waits = [
            ("calls_at_once", &meters.waits_for_place),
            ("unread_answers", &meters.waits_for_reader),
        ];
        let waits = waits.map(|(name, count)| (label("limit", name), count.load(Relaxed)));
        let help = "Calls that had to wait for their turn because a limit was reached.";
        page.counters("limit_waits_total", help, waits);
    }
}

/// What the engines and their files are doing.
fn render_machine(page: &mut MetricsPage, meters: &Meters, seen: &Seen) {
    let bare = |timings| [(String::new(), timings)];
    let help = "Time from the decision that a command may run until a warden has it.";
    page.timings("task_start_seconds", help, bare(&meters.starts));
    let help = "Time to record a start or an end in the daybook.";
    page.timings("daybook_write_seconds", help, bare(&meters.daybook));
    let help = "Time to commit to the ledger.";
    page.timings("ledger_commit_seconds", help, bare(&meters.ledger));
    let sizes = [
        ("ledger", seen.sizes.ledger_bytes),
        ("ledger_log", seen.sizes.ledger_log_bytes),
        ("daybook", seen.sizes.daybook_bytes),
        ("audit_log", seen.sizes.audit_bytes),
    ];
    let sizes = sizes.map(|(file, bytes)| (label("file", file), bytes));
    page.gauges("record_file_bytes", "Lengths of the files that records are kept in.", sizes);
    let help = "Tasks that this server took over from a process that had ended.";
    page.counter("adoptions_total", help, meters.adoptions.load(Relaxed));
    let connections =
        [("made", meters.connections.made()), ("refused", meters.connections.refused())];
    let connections = connections.map(|(result, count)| (label("result", result), count));
    let help = "Connections by name of commands that are over.";
    page.counters("connections_total", help, connections);
    let bytes = [("out", &meters.connection_bytes_out), ("in", &meters.connection_bytes_in)];
    let bytes = bytes.map(|(way, count)| (label("direction", way), count.load(Relaxed)));
    let help = "Bytes that commands have sent and received over connections by name.";
    page.counters("connection_bytes_total", help, bytes);
    let wardens = [("ready", seen.wardens.ready), ("busy", seen.wardens.busy)];
    let wardens = wardens.map(|(state, count)| (label("state", state), count));
    page.gauges("wardens", "Wardens that wait for a command, and that have one.", wardens);
    let help = "Wardens that wait for a command with a sandbox prepared.";
    page.gauge("sandboxes_ready", help, seen.wardens.confined);
    let is_missing = |layer: &str| seen.missing_layers.iter().any(|missing| missing == layer);
    let layers = SandboxLayer::ALL.map(SandboxLayer::as_str);
    let layers = layers.map(|layer| (label("layer", layer), u8::from(is_missing(layer))));
    let help = "1 for each layer that sandboxes on this machine lack.";
    page.gauges("sandbox_layer_missing", help, layers);
}

fn labelled(name: &str, row: &CounterRow) -> Vec<(String, u64)> {
    row.all().map(|(value, count)| (label(name, value), count)).collect()
}
