//! `/metrics`: numbers for Prometheus.
//!
//! Calls are those of this server. Tasks, output, questions and verdicts are those of the whole
//! state folder since this server began, whichever process they come from. Every label has its
//! values from a short list: tools, kinds of errors, statuses, verdicts.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{
    http::{StatusCode, header},
    response::IntoResponse,
};
use legwork::{Answer, Engine, EventKind, Interest, TaskFilter, ToolError, gate::Decision};
use serde_json::Value;

use super::{
    refusal::failed,
    routes::{Call, Handled},
};

/// Most bytes of the audit log that one look takes in; the next one goes on.
const AUDIT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What is counted.
#[derive(Debug)]
pub(super) struct Metrics {
    /// By tool and result.
    calls: Counters<(String, String)>,
    /// By the first digit of the HTTP status.
    requests: Counters<u16>,
    wrong_tokens: AtomicU64,
    started: AtomicU64,
    /// By status.
    ended: Counters<&'static str>,
    /// By stream.
    output: Counters<&'static str>,
    /// Events that were missed, so that numbers are too low.
    lagged: AtomicU64,
    /// By verdict.
    verdicts: Counters<&'static str>,
    audit: Mutex<AuditPlace>,
}

/// How far the audit log was read.
#[derive(Debug)]
struct AuditPlace {
    path: PathBuf,
    at: u64,
}

#[derive(Debug)]
struct Counters<K>(Mutex<BTreeMap<K, u64>>);

impl<K: Ord + Clone> Counters<K> {
    fn new(known: impl IntoIterator<Item = K>) -> Self {
        Self(Mutex::new(known.into_iter().map(|name| (name, 0)).collect()))
    }

    fn add(&self, name: K, more: u64) {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry(name).or_default();
        *counter = counter.saturating_add(more);
    }

    fn all(&self) -> Vec<(K, u64)> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}

impl Metrics {
    /// Counts from now on.
    pub(super) fn new(audit: &Path) -> Self {
        let at = audit.metadata().map_or(0, |found| found.len());
        let statuses = ["completed", "failed", "cancelled", "interrupted"];
        Self {
            calls: Counters::new([]),
            requests: Counters::new([2, 3, 4, 5]),
            wrong_tokens: AtomicU64::new(0),
            started: AtomicU64::new(0),
            ended: Counters::new(statuses),
            output: Counters::new(["stdout", "stderr"]),
            lagged: AtomicU64::new(0),
            verdicts: Counters::new(["allow", "ask", "deny"]),
            audit: Mutex::new(AuditPlace { path: audit.to_owned(), at }),
        }
    }

    /// Counts the answer to a call. Tools are those of the registry, kinds those of the library.
    pub(super) fn call(&self, tool: &str, answer: &Answer) {
        let result = match answer.error() {
            None => "success".to_owned(),
            Some(error) => {
                let kind = serde_json::to_value(error.kind).unwrap_or_default();
                kind.as_str().unwrap_or("error").to_owned()
            }
        };
        self.calls.add((tool.to_owned(), result), 1);
    }

    pub(super) fn request(&self, status: StatusCode) {
        self.requests.add(status.as_u16() / 100, 1);
    }

    pub(super) fn wrong_token(&self) {
        self.wrong_tokens.fetch_add(1, Relaxed);
    }

    /// Counts what happens on the state folder; never ends. While somebody reads them the engine
    /// keeps the newest events, so that a client that comes back misses none.
    pub(super) async fn follow(&self, engine: &Engine) {
        let Ok(mut events) = engine.events(None, Interest::Changes).await else {
            return std::future::pending().await;
        };
        loop {
            match events.next().await {
                Err(_) => _ = self.lagged.fetch_add(1, Relaxed),
                Ok(event) => match &event.what {
                    EventKind::TaskStarted { .. } => _ = self.started.fetch_add(1, Relaxed),
                    EventKind::TaskEnded { task_id, status, .. } => {
                        self.ended.add(status.as_str(), 1);
                        let task = engine.task(task_id.as_str()).await.ok();
                        if let Some(outcome) = task.and_then(|task| task.outcome) {
                            self.output.add("stdout", outcome.stdout.bytes);
                            self.output.add("stderr", outcome.stderr.bytes);
                        }
                    }
                    _ => {}
                },
            }
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

/// The numbers as they are now.
pub(super) async fn scrape(call: Call) -> Handled {
    let (engine, metrics) = (call.standing.engine(), call.face.metrics.clone());
    let looked = tokio::task::spawn_blocking(move || metrics.look_at_audit()).await;
    if let Ok(Err(error)) = looked {
        tracing::warn!("the audit log cannot be read: {error}");
    }
    let counted = async {
        let (_, running) = engine.tasks_matching(TaskFilter::open(), 1).await?;
        let questions = engine.approvals().await?.len() as u64;
        Ok::<_, ToolError>((running, questions))
    };
    Ok(match counted.await {
        Err(error) => failed(&error),
        Ok((running, questions)) => {
            let text = call.face.metrics.render(running, questions, call.face.began_at_ms);
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
        }
    })
}

impl Metrics {
    fn render(&self, running: u64, questions: u64, began_at_ms: i64) -> String {
        let mut page = Page::default();
        let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
        page.family("build_info", "gauge", "Version of this server.", [(version, 1)]);
        let began = began_at_ms.max(0).cast_unsigned() / 1000;
        let help = "When this server began, in seconds since 1970.";
        page.family("start_time_seconds", "gauge", help, bare(began));
        let calls =
            self.calls.all().into_iter().map(|((tool, result), count)| {
                (format!("tool=\"{tool}\",result=\"{result}\""), count)
            });
        page.family("calls_total", "counter", "Calls of tools, by result.", calls);
        let help = "HTTP requests, by class of status.";
        let classes =
            self.requests.all().into_iter().map(|(it, count)| (format!("code=\"{it}xx\""), count));
        page.family("http_requests_total", "counter", help, classes);
        let help = "Requests with a wrong, revoked or expired token.";
        page.family("wrong_tokens_total", "counter", help, bare(self.wrong_tokens.load(Relaxed)));
        let help = "Verdicts on commands, of all processes on the state folder.";
        page.family("verdicts_total", "counter", help, labelled("verdict", &self.verdicts));
        let help = "Tasks that started, of all processes on the state folder.";
        page.family("tasks_started_total", "counter", help, bare(self.started.load(Relaxed)));
        let help = "Tasks that ended, by status.";
        page.family("tasks_ended_total", "counter", help, labelled("status", &self.ended));
        let help = "Bytes that ended tasks had printed.";
        page.family("output_bytes_total", "counter", help, labelled("stream", &self.output));
        page.family("tasks_running", "gauge", "Tasks that have not ended.", bare(running));
        let help = "Questions that wait for an answer.";
        page.family("questions_open", "gauge", help, bare(questions));
        let help = "Times that events were missed, so that counts of tasks are too low.";
        page.family("events_lagged_total", "counter", help, bare(self.lagged.load(Relaxed)));
        page.0
    }
}

/// A number without labels.
fn bare(count: u64) -> [(String, u64); 1] {
    [(String::new(), count)]
}

fn labelled(label: &str, counters: &Counters<&'static str>) -> Vec<(String, u64)> {
    let named = |(name, count)| (format!("{label}=\"{name}\""), count);
    counters.all().into_iter().map(named).collect()
}

/// The text that Prometheus reads.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, u64)>,
    ) {
        self.0.push_str(&format!("# HELP legwork_{name} {help}\n# TYPE legwork_{name} {kind}\n"));
        for (labels, count) in samples {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            self.0.push_str(&format!("legwork_{name}{labels} {count}\n"));
        }
    }
}
