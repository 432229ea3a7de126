//! The server as such: where it listens, whom it turns away, how it ends.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::json;

use super::{Serving, bearer, token};
use crate::common::{Scratch, announced, eventually, fixture, is_alive, text};

#[test]
fn health_needs_no_token_and_says_nothing_else() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let mut wire = serving.connect();
    // One connection after the other request.
    for (path, said) in [("/healthz", "ok\n"), ("/readyz", "ready\n"), ("/healthz", "ok\n")] {
        let reply = wire.send("GET", path, &[], "");
        assert_eq!((reply.status, reply.body.as_str()), (200, said));
    }
    assert!(serving.said().contains("legwork token add"), "{}", serving.said());
}

#[test]
fn a_unix_socket_is_its_owners_and_goes_with_the_server() {
    let scratch = Scratch::new();
    let path = scratch.state.path().join("http.sock");
    let listen = format!("unix:{}", path.display());
    let start = || {
        let mut command = scratch.legwork("serve");
        command.args(["--listen", &listen]);
        command
    };
    let serving = Serving::spawn(start());
    assert_eq!(serving.address, listen);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(serving.connect().send("GET", "/healthz", &[], "").status, 200);
    // A second one does not take its place.
    let second = start().output().unwrap();
    assert!(text(&second.stderr).contains("another program does already"), "{second:?}");
    assert!(serving.end(Signal::TERM).success());
    assert!(!path.exists());
    // What a killed one left behind does.
    let serving = Serving::spawn(start());
    serving.end(Signal::KILL);
    assert!(path.exists());
    Serving::spawn(start());
}

#[test]
fn an_address_that_other_machines_reach_is_refused_unless_a_proxy_stands_before_it() {
    let scratch = Scratch::new();
    let refused = scratch.legwork("serve").args(["--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(125));
    let said = text(&refused.stderr);
    assert!(said.contains("refusing to listen on 0.0.0.0:0"), "{said}");
    assert!(said.contains("--behind-proxy"), "{said}");
    let mut command = scratch.legwork("serve");
    command.args(["--listen", "0.0.0.0:0", "--behind-proxy"]);
    let serving = Serving::spawn(command);
    let address = serving.address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(super::Wire::connect(&address).send("GET", "/healthz", &[], "").status, 200);
}

#[test]
fn another_name_or_another_sites_page_is_refused_before_anything_else() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &["--allow-host", "legwork.example"]);
    let ask = |host: Option<&str>, origin: Option<&str>| {
        let mut headers = vec![bearer(&operator)];
        headers.extend(host.map(|host| ("Host", host.to_owned())));
        headers.extend(origin.map(|origin| ("Origin", origin.to_owned())));
        let reply = serving.connect().send("GET", "/api/v1/tasks", &headers, "");
        (reply.status, if reply.status == 200 { String::new() } else { reply.kind() })
    };
    assert_eq!(ask(None, None).0, 200);
    assert_eq!(ask(Some("legwork.example"), Some("https://legwork.example")).0, 200);
    assert_eq!(ask(Some("evil.example"), None), (421, "wrong_host".into()));
    assert_eq!(ask(None, Some("http://evil.example")), (403, "wrong_origin".into()));
    assert_eq!(ask(None, Some("null")), (403, "wrong_origin".into()));
}

#[test]
fn slow_and_oversized_requests_cost_their_sender_the_connection() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &["--idle-timeout", "300ms"]);
    // Headers that never end.
    let mut slow = serving.connect();
    slow.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    let told = slow.head();
    assert!(told.is_none_or(|reply| reply.status == 408));
    assert!(slow.is_closed());
    // Headers that are too long, and too many.
    let mut long = serving.connect();
    long.request("GET", "/healthz", &[("X-Long", "x".repeat(200_000))], "");
    assert_eq!(long.head().unwrap().status, 431);
    let mut many = serving.connect();
    let names: Vec<String> = (0..150).map(|number| format!("X-{number}")).collect();
    let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "x".to_owned())).collect();
    many.request("GET", "/healthz", &headers, "");
    assert_eq!(many.head().unwrap().status, 431);
    // A body that is too long, by its own word and without one.
    let mut long = serving.connect();
    let headers = [bearer(&operator), ("Content-Length", "5000000".into())];
    long.request("POST", "/api/v1/tasks", &headers, "");
    long.write(&vec![b' '; 4_300_000]);
    assert_eq!(long.head().unwrap().status, 413);
    // Whoever behaves is served all the while.
    assert_eq!(serving.get("/api/v1/tasks", &operator).status, 200);
}

#[test]
fn a_signal_ends_streams_and_waited_commands_and_tasks_go_on() {
    for with in [Signal::TERM, Signal::INT] {
        let scratch = Scratch::new();
        let operator = token(&scratch, "me", &["--role", "operator"]);
        let serving = Serving::start(&scratch, &[]);
        let (waited, kept) = (scratch.file("waited"), scratch.file("kept"));
        let start = |ready: &str, yield_time_ms: u32| {
            let cmd = format!("{} ignore-term {ready}", fixture());
            let yield_time_ms = if yield_time_ms > 0 { 60_000 } else { 0 };
            json!({ "cmd": cmd, "login": false, "yield_time_ms": yield_time_ms })
        };
        let task = serving.post("/api/v1/tasks", &operator, &start(&kept, 0)).good();
        let task = task["task_handle"]["task_id"].as_str().unwrap().to_owned();
        let kept = announced(&kept);
        let mut stream = serving.connect();
        stream.request("GET", "/api/v1/events", &[bearer(&operator)], "");
        assert_eq!(stream.head().unwrap().status, 200);
        let mut waiting = serving.connect();
        let body = start(&waited, 1).to_string();
        waiting.request("POST", "/api/v1/tasks", &[bearer(&operator)], &body);
        let waited = announced(&waited);
        assert!(serving.end(with).success());
        // The stream has its end, and is not cut.
        while let Some(chunk) = stream.chunk() {
            assert!(chunk.contains("id: "), "{chunk}");
        }
        eventually("what was waited for ends", || (!is_alive(waited)).then_some(()));
        assert!(is_alive(kept), "a task goes on");
        // Another server finds it.
        let serving = Serving::start(&scratch, &[]);
        let found = serving.get(&format!("/api/v1/tasks/{task}"), &operator).good();
        assert_eq!(found["task"]["status"], "running");
        let stop = json!({ "signal": "KILL" });
        serving.post(&format!("/api/v1/tasks/{task}/stop"), &operator, &stop).good();
        assert!(!is_alive(kept));
    }
}

#[test]
fn a_port_that_is_taken_is_said() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let port = serving.address.strip_prefix("http://").unwrap();
    let output = scratch.legwork("serve").args(["--listen", port]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("cannot listen on 127.0.0.1"), "{output:?}");
}
