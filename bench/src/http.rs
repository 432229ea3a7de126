//! The same call over HTTP: one kept connection, many at once, sessions that do nothing.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Barrier,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    measure::{median, memory_kb, micros, minimum, percentile, spawn},
    report::Report,
    workloads::TRUE,
};

/// A server, and the token of an operator.
struct HttpServer {
    child: Child,
    address: String,
    token: String,
    _state: TempDir,
}

impl HttpServer {
    fn start(legwork: &Path) -> Self {
        let state = TempDir::new().unwrap();
        let mut token = Command::new(legwork);
        token.args(["token", "add", "bench", "--role", "operator", "--state"]).arg(state.path());
        let token = token.stderr(Stdio::null()).output().unwrap();
        let mut server = Command::new(legwork);
        server.args(["serve", "--listen", "127.0.0.1:0", "--mode", "open", "--workspace", "/tmp"]);
        server.arg("--state").arg(state.path()).stdout(Stdio::piped());
        let mut child = server.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().trim_start_matches("http://").to_owned();
        let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
        Self { child, address, token, _state: state }
    }

    fn connect(&self) -> HttpClient {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let head = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", self.address, self.token);
        HttpClient { stream: BufReader::new(stream), head }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A kept connection.
struct HttpClient {
    stream: BufReader<TcpStream>,
    head: String,
}

impl HttpClient {
    /// Runs a command and waits for its end.
    fn run(&mut self, cmd: &str) -> Value {
        let body = json!({ "cmd": cmd, "shell": "/bin/sh", "login": false,
            "duplicate_policy": "start_new" });
        let (status, _, body) = self.post("/api/v1/tasks", "", &body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Reads events, with what tasks print, until one has ended; says how many there were.
    fn follow_to_an_end(mut self, begun: &Barrier) -> u64 {
        let request = format!("GET /api/v1/events?live=true HTTP/1.1\r\n{}\r\n", self.head);
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut line, mut events, mut is_waiting) = (String::new(), 0, true);
        loop {
            line.clear();
            assert!(self.stream.read_line(&mut line).unwrap() > 0, "the stream was closed");
            if line.starts_with("event:") {
                events += 1;
                if is_waiting {
                    begun.wait();
                    is_waiting = false;
                }
                if line.contains("task_ended") {
                    return events;
                }
            }
        }
    }

    /// Opens an MCP session.
    fn initialize(&mut self) {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } } });
        let accept = "Accept: application/json, text/event-stream\r\n";
        let (status, headers, _) = self.post("/mcp", accept, &body);
        assert!(status == 200 && headers.contains("mcp-session-id"), "{status} {headers}");
    }

    fn post(&mut self, path: &str, more: &str, body: &Value) -> (u16, String, String) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\n{}{more}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.stream.read_line(&mut head).unwrap() > 0, "closed: {head}");
        }
        let head = head.to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = Vec::new();
        match length {
            Some(length) => {
                body.resize(length.trim().parse().unwrap(), 0);
                self.stream.read_exact(&mut body).unwrap();
            }
            None => self.chunks(&mut body),
        }
        (status, head, String::from_utf8(body).unwrap())
    }

    fn chunks(&mut self, body: &mut Vec<u8>) {
        loop {
            let mut size = String::new();
            self.stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).unwrap();
            if size == 0 {
                return;
            }
            body.extend(chunk.into_iter().take(size));
        }
    }
}

pub fn http(legwork: &Path, quick: bool, report: &mut Report) {
    let server = HttpServer::start(legwork);
    kept_connection(&server, quick, report);
    many_at_once(&server, quick, report);
    idle_sessions(legwork, quick, report);
    fan_out(legwork, quick, report);
}

fn kept_connection(server: &HttpServer, quick: bool, report: &mut Report) {
    let rounds = if quick { 300 } else { 3000 };
    let mut client = server.connect();
    for _ in 0..50 {
        client.run("true");
        spawn(&TRUE);
    }
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(micros(|| drop(client.run("true"))));
        raw.push(micros(|| spawn(&TRUE)));
    }
    report.curve("HTTP", &ours);
    report.curve("raw", &raw);
    let what = "call over a kept HTTP connection";
    report.compare(&format!("{what}, p50"), median(&ours), median(&raw), "us", "1.5");
    report.compare(&format!("{what}, minimum"), minimum(&ours), minimum(&raw), "us", "");
    let (high, raw_high) = (percentile(&ours, 0.99), percentile(&raw, 0.99));
    report.compare(&format!("{what}, p99"), high, raw_high, "us", "");
}

fn many_at_once(server: &HttpServer, quick: bool, report: &mut Report) {
    let (width, each) = (256, if quick { 4 } else { 16 });
    let begun = std::time::Instant::now();
    thread::scope(|scope| {
        for _ in 0..width {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..each {
                    client.run("true");
                }
            });
        }
    });
    let rate = f64::from(width * each) / begun.elapsed().as_secs_f64();
    report.note("calls/s over HTTP, 256 connections at a time", rate, "1/s", "");
}

/// Many who watch while a task prints a lot.
fn fan_out(legwork: &Path, quick: bool, report: &mut Report) {
    let (readers, bytes) = if quick { (20, 10_000_000) } else { (200, 100_000_000) };
    let server = HttpServer::start(legwork);
    let flood = format!("head -c {bytes} /dev/zero");
    let mut client = server.connect();
    client.run("true");
    let alone = (0..3).map(|_| micros(|| drop(client.run(&flood)))).collect::<Vec<_>>();
    let before = memory_kb(server.child.id(), "status", "VmRSS:");
    let begun = Barrier::new(readers + 1);
    let (watched, events) = thread::scope(|scope| {
        let following: Vec<_> = (0..readers)
            .map(|_| scope.spawn(|| server.connect().follow_to_an_end(&begun)))
            .collect();
        begun.wait();
        let watched = micros(|| drop(client.run(&flood)));
        let events = following.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>();
        (watched, events)
    });
    let grown = memory_kb(server.child.id(), "status", "VmRSS:") - before;
    let what = format!("{} MB printed, {readers} readers of events", bytes / 1_000_000);
    report.compare(&format!("{what}, against none"), watched, minimum(&alone), "us", "");
    report.note(&format!("{what}: memory of each"), grown / readers as f64, "kB", "");
    report.note(&format!("{what}: events told to each"), events as f64 / readers as f64, "", "");
}

fn idle_sessions(legwork: &Path, quick: bool, report: &mut Report) {
    let sessions = if quick { 100 } else { 1000 };
    let server = HttpServer::start(legwork);
    let memory = || memory_kb(server.child.id(), "status", "VmRSS:");
    let begun = || {
        let mut client = server.connect();
        client.initialize();
        client
    };
    // What the first one needs, the others find.
    begun();
    thread::sleep(Duration::from_millis(200));
    let before = memory();
    for _ in 0..sessions {
        // A session outlives its connection.
        drop(begun());
    }
    let without = memory();
    let kept: Vec<HttpClient> = (0..sessions).map(|_| begun()).collect();
    let with = memory();
    let each = |grown: f64| grown / f64::from(sessions);
    report.note("memory of an idle MCP session over HTTP", each(without - before), "kB", "64");
    report.note("the same with a kept connection", each(with - without), "kB", "");
    drop(kept);
}
