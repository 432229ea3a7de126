//! What goes wrong around a server: clients that stall, vanish or come in crowds, a ledger that is
//! held, descriptors that run out, a second server.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    Serving, bearer,
    client::Wire,
    events::{Following, run},
    token,
};
use crate::common::{Scratch, eventually, fixture, program};

/// The memory that a process has written for itself, in kB. Clean pages are those of its program,
/// which become its own when another process of that ends.
fn private_kb(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_reader_that_stalls_costs_little_and_is_told_what_it_missed_or_misses_nothing() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let stalled: Vec<Wire> = (0..50)
        .map(|_| {
            let mut wire = serving.connect();
            wire.request("GET", "/api/v1/events?live=true", &[bearer(&operator)], "");
            assert_eq!(wire.head().unwrap().status, 200);
            wire
        })
        .collect();
    let mut brisk = Following::open(&serving, &operator, "?live=true", None);
    brisk.next();
    let before = private_kb(serving.child.id());
    let all: Vec<String> = (0..100).map(|_| run(&serving, &operator, "echo some output")).collect();
    let last = all.last().unwrap();
    // Who reads is held up by none of them.
    assert_eq!(brisk.until_end_of(last), all);
    let grown = private_kb(serving.child.id()).saturating_sub(before);
    assert!(grown < 16_000, "grown by {grown} kB");
    for wire in stalled {
        let mut late = Following::of(wire);
        assert_eq!(late.next().0, "following");
        assert_eq!(late.until_end_of(last), all);
    }
}

#[test]
fn a_connection_that_says_nothing_more_is_closed_and_one_that_only_listens_gets_its_answer() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &["--idle-timeout", "300ms"]);
    // Nothing at all, and nothing after an answer.
    assert!(serving.connect().is_closed());
    let mut quiet = serving.connect();
    assert_eq!(quiet.send("GET", "/healthz", &[], "").status, 200);
    assert!(quiet.is_closed());
    // It has closed its own half.
    let host = serving.address.strip_prefix("http://").unwrap();
    let mut half = TcpStream::connect(host).unwrap();
    half.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(half, "GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    half.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("ok\n"), "{said}");
}

#[test]
fn ten_megabytes_of_body_are_refused_whether_or_not_they_are_announced() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let before = private_kb(serving.child.id());
    for path in ["/api/v1/tasks", "/mcp"] {
        let mut announced = serving.connect();
        let headers = [bearer(&operator), ("Content-Length", "10000000".into())];
        announced.request("POST", path, &headers, "");
        announced.try_write(&vec![b' '; 10_000_000]);
        assert_eq!(announced.head().unwrap().status, 413, "{path}");
        let mut unannounced = serving.connect();
        let headers = [bearer(&operator), ("Transfer-Encoding", "chunked".into())];
        unannounced.request("POST", path, &headers, "");
        let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
        for _ in 0..153 {
            if !unannounced.try_write(&chunk) {
                break;
            }
        }
        assert_eq!(unannounced.head().unwrap().status, 413, "{path}");
    }
    let grown = private_kb(serving.child.id()).saturating_sub(before);
    assert!(grown < 24_000, "grown by {grown} kB");
}

#[test]
fn requests_of_one_token_beyond_its_limit_are_refused_and_others_are_served() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let other = token(&scratch, "other", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let gate = scratch.file("gate");
    let cmd = format!("{} wait-then-print {gate} done", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
    let started = serving.post("/api/v1/tasks", &operator, &input).good();
    let task = started["task_handle"]["task_id"].as_str().unwrap().to_owned();
    // Each waits for the same task.
    let body = json!({ "timeout_ms": 60_000 }).to_string();
    let mut waiting = Vec::new();
    let refused = loop {
        let mut wire = serving.connect();
        wire.request("POST", &format!("/api/v1/tasks/{task}/wait"), &[bearer(&operator)], &body);
        waiting.push(wire);
        if waiting.len() % 64 == 0 {
            let asked = serving.get("/api/v1/tasks", &operator);
            if asked.status != 200 {
                break asked;
            }
        }
        assert!(waiting.len() < 1024, "never refused");
    };
    assert_eq!((refused.status, refused.kind()), (429, "limit_exceeded".into()));
    assert_eq!(serving.get("/api/v1/tasks", &other).status, 200);
    fs::write(&gate, "").unwrap();
    let answers = waiting.iter_mut().map(|wire| wire.read().status).collect::<Vec<_>>();
    assert!(answers.iter().all(|status| [200, 429].contains(status)), "{answers:?}");
    assert_eq!(serving.get("/api/v1/tasks", &operator).status, 200);
}

#[test]
fn a_thousand_sessions_are_open_at_once_and_each_is_answered() {
    const SESSIONS: usize = 1000;
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let hello = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        },
    });
    let accept = ("Accept", "application/json, text/event-stream".to_owned());
    let mut wire = serving.connect();
    let mut post = |session: Option<&str>, body: &Value| {
        let mut headers = vec![bearer(&operator), accept.clone()];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session.to_owned())));
        wire.send("POST", "/mcp", &headers, &body.to_string())
    };
    let sessions: Vec<String> = (0..SESSIONS)
        .map(|number| {
            let reply = post(None, &hello);
            assert_eq!(reply.status, 200, "session {number}: {reply:?}");
            reply.header("mcp-session-id").unwrap().to_owned()
        })
        .collect();
    let before = private_kb(serving.child.id());
    for session in &sessions {
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        let reply = post(Some(session), &ping);
        assert!(reply.status == 200 && reply.body.contains("\"result\":{}"), "{reply:?}");
    }
    let grown = private_kb(serving.child.id()).saturating_sub(before);
    assert!(grown < 32_000, "grown by {grown} kB");
}

#[test]
fn a_connection_too_many_is_told_so_and_gets_in_when_another_leaves() {
    const PLACES: usize = 2048;
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &["--idle-timeout", "10m"]);
    let host = serving.address.strip_prefix("http://").unwrap().to_owned();
    let mut crowd: Vec<TcpStream> =
        (0..PLACES).map(|_| TcpStream::connect(&host).unwrap()).collect();
    let refused = serving.connect().send("GET", "/healthz", &[], "");
    assert_eq!((refused.status, refused.kind()), (503, "limit_exceeded".into()), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    // Those who are in are served.
    let mut first = crowd.swap_remove(0);
    write!(first, "GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    first.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    eventually("there is a place again", || {
        (serving.connect().send("GET", "/healthz", &[], "").status == 200).then_some(())
    });
}

#[test]
fn a_client_that_vanishes_without_a_word_is_asked_for_by_the_kernel() {
    const KEEPALIVE: &str = "02";
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let mut wire = serving.connect();
    assert_eq!(wire.send("GET", "/healthz", &[], "").status, 200);
    let port = serving.address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    // Columns: number, local address, remote address, state, queues, timer and when it goes off in
    // hundredths of a second. Until the answer is acknowledged it is another timer.
    let local = format!(":{port:04X}");
    let left = eventually("the kernel will ask for it", || {
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        let lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut ours = lines.filter(|line| line[1].ends_with(&local) && line[3] == "01");
        let (kind, left) = ours.next()?[5].split_once(':')?;
        (kind == KEEPALIVE).then(|| left.to_owned())
    });
    assert!(u64::from_str_radix(&left, 16).unwrap() <= 3_000, "{left}");
}

#[test]
fn two_servers_on_one_state_folder_see_answer_and_stop_the_same() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let [one, two] = [(); 2].map(|()| Serving::start(&scratch, &[]));
    let mut following = Following::open(&two, &operator, "", None);
    following.next();
    let input = json!({ "cmd": "sleep 600", "login": false, "yield_time_ms": 0 });
    let started = one.post("/api/v1/tasks", &operator, &input).good();
    let task = started["task_handle"]["task_id"].as_str().unwrap().to_owned();
    assert_eq!(following.next().1["task_id"], task.as_str());
    two.post(&format!("/api/v1/tasks/{task}/stop"), &operator, &json!({})).good();
    following.until_end_of(&task);
    let of_one = one.get(&format!("/api/v1/tasks/{task}"), &operator).good();
    assert_eq!(of_one["task"]["status"], "cancelled", "{of_one}");
    // One of them killed, the other one goes on.
    one.end(Signal::KILL);
    let after = run(&two, &operator, "true");
    following.until_end_of(&after);
}

#[test]
fn a_ledger_that_is_held_makes_the_server_unready_and_is_a_typed_error_for_those_who_read_it() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    run(&serving, &operator, "true");
    let holder = Connection::open(scratch.state.path().join("ledger.db")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // Commands run, also while the server itself waits for the ledger.
    run(&serving, &operator, "true");
    let mut unready = serving.connect();
    unready.request("GET", "/readyz", &[], "");
    // A list would not be the whole truth.
    let mut list = serving.connect();
    list.request("GET", "/api/v1/tasks", &[bearer(&operator)], "");
    assert_eq!(serving.connect().send("GET", "/healthz", &[], "").status, 200);
    assert_eq!(unready.read().status, 503);
    let listed = list.read();
    assert_eq!((listed.status, listed.kind()), (503, "state_unavailable".into()), "{listed:?}");
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(serving.connect().send("GET", "/readyz", &[], "").status, 200);
    assert_eq!(
        serving.get("/api/v1/tasks", &operator).good()["tasks"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn without_descriptors_nobody_comes_in_until_somebody_leaves() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let mut command = std::process::Command::new("sh");
    let serve = scratch.legwork("serve");
    command.args(["-c", "ulimit -n 80; exec \"$@\"", "sh", program()]).args(serve.get_args());
    command.args(["--listen", "127.0.0.1:0"]).current_dir(scratch.workspace.path());
    for (name, value) in serve.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let serving = Serving::spawn(command);
    let mut first = serving.connect();
    assert_eq!(first.send("GET", "/healthz", &[], "").status, 200);
    let host = serving.address.strip_prefix("http://").unwrap().to_owned();
    let crowd: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&host).unwrap()).collect();
    eventually("it says that it is short", || {
        serving.said().contains("cannot accept a connection").then_some(())
    });
    // Who is in is answered all the same.
    assert_eq!(first.send("GET", "/api/v1/tasks", &[bearer(&operator)], "").status, 200);
    drop(crowd);
    assert_eq!(serving.connect().send("GET", "/healthz", &[], "").status, 200);
    run(&serving, &operator, "true");
}

#[test]
fn bodies_of_strangers_are_small_and_all_together_have_a_limit() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let stranger = serving.connect().send("POST", "/api/v1/session", &[], &"x".repeat(2000));
    assert_eq!((stranger.status, stranger.kind().as_str()), (413, "too_large"));
    // Each is almost there, and waits for its last byte.
    let body = vec![b' '; 4 * 1024 * 1024 - 1];
    let begun: Vec<_> = (0..20)
        .map(|_| {
            let mut wire = serving.connect();
            wire.write(
                format!(
                    "POST /api/v1/policy/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
                     Authorization: Bearer {operator}\r\n\r\n",
                    body.len() + 1
                )
                .as_bytes(),
            );
            wire.try_write(&body);
            wire
        })
        .collect();
    eventually("four of them are refused", || {
        let metrics = serving.get("/metrics", &operator).body;
        let refused = metrics.lines().find_map(|line| {
            line.strip_prefix("legwork_limit_refusals_total{limit=\"body_bytes\"} ")
        });
        refused?.parse::<u32>().ok().filter(|count| *count >= 5)
    });
    // There is room again when they have left.
    drop(begun);
    eventually("there is room", || {
        let check = json!({ "command": "true", "padding": " ".repeat(100_000) });
        let reply = serving.post("/api/v1/policy/check", &operator, &check);
        (reply.status != 503).then_some(())
    });
}

#[test]
fn streams_of_a_token_have_a_limit_and_leave_room_for_requests() {
    let scratch = Scratch::new();
    let agent = token(&scratch, "ci", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let open = || {
        let mut wire = serving.connect();
        wire.request("GET", "/api/v1/events", &[bearer(&agent)], "");
        let status = wire.head().unwrap().status;
        (wire, status)
    };
    let mut streams: Vec<_> = (0..256).map(|_| open()).collect();
    assert!(streams.iter().all(|(_, status)| *status == 200));
    assert_eq!(open().1, 429);
    // A session of the token has no more.
    let session = serving.post("/api/v1/session", &agent, &json!({})).good();
    let secret = session["secret"].as_str().unwrap().to_owned();
    let more = serving.connect().send("GET", "/api/v1/events", &[("X-Legwork", secret)], "");
    assert_eq!(more.status, 429);
    assert_eq!(serving.get("/api/v1/tasks", &agent).status, 200);
    streams.pop();
    eventually("its place is free", || (open().1 == 200).then_some(()));
}
