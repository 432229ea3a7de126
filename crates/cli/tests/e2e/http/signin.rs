//! Signing in to the page: links, cookies, and what a browser is told.

use std::{fs, os::unix::fs::PermissionsExt, slice::from_ref};

use rustix::process::Signal;
use serde_json::json;

use super::{Reply, Serving, bearer, link, serve_link, token, token_verb};
use crate::{
    common::{Scratch, eventually, program, text},
    task_verbs::Person,
};

type Header = (&'static str, String);

/// The code of a new link.
fn code(scratch: &Scratch) -> String {
    link(scratch).split_once("/#code=").unwrap().1.to_owned()
}

fn exchange(serving: &Serving, code: &str, headers: &[Header]) -> Reply {
    let body = json!({ "code": code }).to_string();
    serving.connect().send("POST", "/api/v1/session", headers, &body)
}

/// The session that begins with an answer, as the page brings it. No cookie comes with it.
#[track_caller]
fn session(reply: &Reply) -> Header {
    let secret = reply.good()["secret"].as_str().unwrap().to_owned();
    assert_eq!(reply.header("set-cookie"), None, "{reply:?}");
    ("X-Legwork", secret)
}

#[test]
fn a_link_signs_in_once() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let code = code(&scratch);
    // Not for a page of another site, and not for who guesses.
    let evil = ("Origin", "http://evil.example".to_owned());
    assert_eq!(exchange(&serving, &code, &[evil]).status, 403);
    let wrong = exchange(&serving, &code[..50], &[]);
    assert_eq!((wrong.status, wrong.kind().as_str()), (401, "unauthorized"));
    assert_eq!(serving.connect().send("POST", "/api/v1/session", &[], "no").status, 401);
    let in_address = format!("/?code={code}");
    assert_eq!(serving.connect().send("GET", &in_address, &[], "").status, 400);
    let signed_in = exchange(&serving, &code, &[]);
    assert_eq!(signed_in.good()["role"], "operator");
    let session = session(&signed_in);
    assert_eq!(exchange(&serving, &code, &[]).status, 401, "it is spent");
    let who = serving.connect().send("GET", "/api/v1/session", from_ref(&session), "");
    assert_eq!(who.good()["name"], "of the page");
    let run = json!({ "cmd": "true", "login": false }).to_string();
    serving.connect().send("POST", "/api/v1/tasks", from_ref(&session), &run).good();
    // Who brought the task is said.
    let tasks = serving.connect().send("GET", "/api/v1/tasks", from_ref(&session), "").good();
    assert_eq!(tasks["tasks"][0]["asked_by"], "token of the page");
    assert_eq!(serving.connect().send("GET", "/api/v1/audit", from_ref(&session), "").status, 200);
    // A code is no token, and neither is the secret of a session.
    assert_eq!(serving.get("/api/v1/tasks", &code).status, 401);
    assert_eq!(serving.get("/api/v1/tasks", &session.1).status, 401);
}

#[test]
fn links_are_for_whoever_asks_and_for_a_terminal_and_in_no_file() {
    let scratch = Scratch::new();
    let none = serve_link(&scratch);
    assert_eq!(none.status.code(), Some(125));
    assert!(text(&none.stderr).contains("start `legwork serve`"), "{none:?}");
    let serving = Serving::start(&scratch, &[]);
    let (first, second) = (link(&scratch), link(&scratch));
    assert_ne!(first, second);
    for link in [&second, &first] {
        let (base, code) = link.split_once("/#code=").unwrap();
        let host = base.strip_prefix("http://").unwrap().to_owned();
        let port = serving.address.rsplit(':').next().unwrap();
        assert!(host.starts_with("lw-") && host.ends_with(&format!(".localhost:{port}")), "{host}");
        let origin = ("Origin", base.to_owned());
        session(&exchange(&serving, code, &[("Host", host), origin]));
    }
    // A pipe, which may end in a file, has none; neither has a log.
    assert!(serving.said().contains("`legwork serve link` prints a link"), "{}", serving.said());
    assert!(!serving.said().contains("lwt_"), "{}", serving.said());
    // A person at a terminal is shown one; what an agent reads of that terminal has no code.
    let other = Scratch::new();
    let state = other.state.path().display();
    let serve = format!("exec {} serve --listen 127.0.0.1:0 --state {state}", program());
    let person = Person::types(&serve);
    let screen = person.sees("=[masked:legwork_token]");
    assert!(screen.contains("Sign in once, within 10 minutes: http://lw-"), "{screen}");
    assert!(!screen.contains("lwt_"), "{screen}");
    person.sends(&json!({ "key": "ctrl-c" }));
    person.leaves_with(0);
    // Whoever had the port meanwhile had the page's origin: the next start has another one.
    drop(serving);
    assert_eq!(serve_link(&scratch).status.code(), Some(125), "it has ended");
    let again = Serving::start(&scratch, &["--log-format", "json"]);
    let host = |link: &str| link.split_once(".localhost:").unwrap().0.to_owned();
    assert_ne!(host(&link(&scratch)), host(&first));
    assert!(!again.said().contains("lwt_"), "{}", again.said());
    // One that was killed is no server any more.
    again.end(Signal::KILL);
    assert_eq!(serve_link(&scratch).status.code(), Some(125));
}

#[test]
fn commands_cannot_read_what_the_server_says_on_stderr() {
    let scratch = Scratch::new();
    let agent = token(&scratch, "ci", &["--role", "agent"]);
    let log = scratch.file("serve.err");
    let mut command = scratch.guarded("serve", "guarded", None);
    command.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn_with_stderr(command, fs::File::create(&log).unwrap());
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("send it to a file outside of every workspace"), "{said}");
    let run = json!({ "cmd": "cat serve.err; cat < serve.err; cp serve.err copy; cat copy; true" });
    let ran = serving.post("/api/v1/tasks", &agent, &run).good();
    assert!(!ran.to_string().contains("serve link"), "{ran}");
}

#[test]
fn a_link_has_the_name_and_the_scheme_that_browsers_use() {
    for (more, expected) in [
        (&["--allow-host", "laptop.local"][..], "http://laptop.local:PORT"),
        (&["--allow-host", "laptop.local:8443"], "http://laptop.local:8443"),
        (&["--behind-proxy", "--allow-host", "legwork.example"], "https://legwork.example"),
    ] {
        let scratch = Scratch::new();
        let serving = Serving::start(&scratch, more);
        let port = serving.address.rsplit(':').next().unwrap();
        let expected = format!("{}/#code=lwt_", expected.replace("PORT", port));
        let link = link(&scratch);
        assert!(link.starts_with(&expected), "{link}");
    }
    let scratch = Scratch::new();
    let socket = format!("unix:{}", scratch.file("socket"));
    let mut command = scratch.legwork("serve");
    command.args(["--listen", &socket]);
    let _serving = Serving::spawn(command);
    let refused = serve_link(&scratch);
    assert!(text(&refused.stderr).contains("--behind-proxy --allow-host"), "{refused:?}");
}

#[test]
fn the_secret_of_a_session_counts_in_its_header_and_in_no_cookie() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let session = session(&exchange(&serving, &code(&scratch), &[]));
    let secret = &session.1;
    let get = |headers: &[Header]| serving.connect().send("GET", "/api/v1/tasks", headers, "");
    assert_eq!(get(from_ref(&session)).status, 200);
    for cookie in [format!("legwork={secret}"), secret.clone()] {
        let cookie = ("Cookie", cookie);
        assert_eq!(get(from_ref(&cookie)).status, 401);
        let once = get(&[cookie, ("X-Legwork", "1".into())]);
        assert_eq!(once.status, 401);
        assert!(once.body.contains("sign in again"), "{once:?}");
    }
    // A token beside it is what counts.
    assert_eq!(get(&[session.clone(), bearer("lwt_wrong")]).status, 401);
    // A WebSocket has no header of its own: it brings the secret as a subprotocol.
    let task = scratch.promote("cat", &json!({ "tty": true }));
    let attach = |more: &[Header]| {
        let upgrade = [
            ("Connection", "Upgrade".into()),
            ("Upgrade", "websocket".into()),
            ("Sec-WebSocket-Version", "13".into()),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==".into()),
        ];
        let mut wire = serving.connect();
        let path = format!("/api/v1/tasks/{task}/terminal");
        wire.request("GET", &path, &[&upgrade, more].concat(), "");
        wire.head().unwrap()
    };
    let protocols = |text: String| ("Sec-WebSocket-Protocol", text);
    assert_eq!(attach(&[]).status, 401);
    assert_eq!(attach(&[protocols("legwork".into())]).status, 401);
    assert_eq!(attach(&[protocols("legwork, lwt_wrong".into())]).status, 401);
    let attached = attach(&[protocols(format!("legwork, {secret}"))]);
    assert_eq!(attached.status, 101);
    assert_eq!(attached.header("sec-websocket-protocol"), Some("legwork"));
}

#[test]
fn a_ticket_reads_one_address_once() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let session = session(&exchange(&serving, &code(&scratch), &[]));
    let run = json!({ "cmd": "echo bytes", "login": false }).to_string();
    serving.connect().send("POST", "/api/v1/tasks", from_ref(&session), &run).good();
    let tasks = serving.connect().send("GET", "/api/v1/tasks", from_ref(&session), "").good();
    let task = tasks["tasks"][0]["task_id"].as_str().unwrap();
    let path = format!("/api/v1/tasks/{task}/raw/stdout");
    let ticket = || {
        let wanted = json!({ "path": path }).to_string();
        let address = "/api/v1/session/tickets";
        let made = serving.connect().send("POST", address, from_ref(&session), &wanted).good();
        made["ticket"].as_str().unwrap().to_owned()
    };
    let read = |method: &str, path: &str, ticket: &str| {
        serving.connect().send(method, &format!("{path}?ticket={ticket}"), &[], "")
    };
    let once = ticket();
    assert_eq!(read("GET", &path, &once).body, "bytes\n");
    assert_eq!(read("GET", &path, &once).status, 401, "it is spent");
    assert_eq!(read("GET", "/api/v1/tasks", &ticket()).status, 401, "it is for another address");
    assert_eq!(read("POST", &path, &ticket()).status, 401, "it reads");
    let late = ticket();
    serving.connect().send("DELETE", "/api/v1/session", from_ref(&session), "").good();
    assert_eq!(read("GET", &path, &late).status, 401, "it ends with its session");
}

#[test]
fn signing_out_ends_the_session_with_its_streams() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let session = session(&exchange(&serving, &code(&scratch), &[]));
    let mut stream = serving.connect();
    stream.request("GET", "/api/v1/events", from_ref(&session), "");
    assert_eq!(stream.head().unwrap().status, 200);
    let out = serving.connect().send("DELETE", "/api/v1/session", from_ref(&session), "");
    assert_eq!(out.good()["signed_out"], true);
    while stream.chunk().is_some() {}
    assert_eq!(serving.connect().send("GET", "/api/v1/tasks", &[session], "").status, 401);
}

#[test]
fn a_session_of_a_token_is_no_more_than_the_token_and_ends_with_it() {
    let scratch = Scratch::new();
    let viewer = token(&scratch, "viewer", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let signed_in = serving.post("/api/v1/session", &viewer, &json!({}));
    assert_eq!(signed_in.good()["role"], "viewer");
    let session = session(&signed_in);
    let send =
        |method: &str, path: &str| serving.connect().send(method, path, from_ref(&session), "{}");
    let tasks = "/api/v1/tasks";
    assert_eq!((send("GET", tasks).status, send("POST", tasks).status), (200, 403));
    let direct = serving.connect().send("DELETE", "/api/v1/session", &[bearer(&viewer)], "");
    assert_eq!(direct.status, 400);
    assert!(token_verb(&scratch, &["revoke", "viewer"]).status.success());
    let ended = send("GET", tasks);
    assert_eq!(ended.status, 401);
    assert!(ended.body.contains("that you signed in with was revoked"), "{ended:?}");
}

#[test]
fn every_answer_tells_browsers_to_run_and_show_nothing_but_our_own() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    for (path, status, kind) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/page.js", 200, "text/javascript; charset=utf-8"),
        ("/page.css", 200, "text/css; charset=utf-8"),
        ("/terminal.js", 200, "text/javascript; charset=utf-8"),
        ("/icon.svg", 200, "image/svg+xml"),
        ("/healthz", 200, "text/plain; charset=utf-8"),
        ("/api/v1/tasks", 401, "application/json"),
        ("/nothing", 401, "application/json"),
    ] {
        let reply = serving.connect().send("GET", path, &[], "");
        assert_eq!((reply.status, reply.header("content-type")), (status, Some(kind)), "{path}");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        if path == "/" {
            assert!(!reply.body.contains("<style") && !reply.body.contains("onclick"));
            assert!(!reply.body.contains("://"), "nothing of another host");
        }
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
    }
    // What is named with the hash of what is in it can be kept.
    let page = serving.connect().send("GET", "/", &[], "").body;
    let (_, named) = page.split_once("\"page.js").unwrap();
    let named = format!("/page.js{}", named.split_once('"').unwrap().0);
    let kept = serving.connect().send("GET", &named, &[], "");
    assert_eq!(kept.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(serving.connect().send("POST", "/", &[], "").status, 401);
}

#[test]
fn open_shows_the_link_to_the_browser_and_not_on_a_command_line() {
    let scratch = Scratch::new();
    let programs = scratch.workspace.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let start = || {
        let mut command = scratch.legwork("serve");
        command.args(["--listen", "127.0.0.1:0", "--open"]).env("PATH", &programs);
        Serving::spawn(command)
    };
    // Without a browser the server goes on.
    let serving = start();
    eventually("it is said", || serving.said().contains("xdg-open").then_some(()));
    assert_eq!(serving.connect().send("GET", "/healthz", &[], "").status, 200);
    drop(serving);
    let opened = scratch.file("opened");
    let script = format!("#!/bin/sh\necho \"$1\" > {opened}.new\n/bin/mv {opened}.new {opened}\n");
    fs::write(programs.join("xdg-open"), script).unwrap();
    fs::set_permissions(programs.join("xdg-open"), fs::Permissions::from_mode(0o755)).unwrap();
    let serving = start();
    let file = eventually("it is opened", || fs::read_to_string(&opened).ok());
    let file = std::path::Path::new(file.trim());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let opened = fs::read_to_string(file).unwrap();
    let code = opened.split("/#code=").nth(1).unwrap().split('"').next().unwrap();
    session(&exchange(&serving, code, &[]));
}
