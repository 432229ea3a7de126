//! Signing in to the page: links, cookies, and what a browser is told.

use std::{fs, os::unix::fs::PermissionsExt, slice::from_ref};

use rustix::process::Signal;
use serde_json::json;

use super::{Reply, Serving, bearer, token, token_verb};
use crate::common::{Scratch, eventually};

type Header = (&'static str, String);

fn own() -> Header {
    ("X-Legwork", "1".into())
}

/// The code of the newest link, once there are so many.
fn code(serving: &Serving, links: usize) -> String {
    eventually("the link is printed", || {
        let said = serving.said();
        let codes: Vec<&str> = said.split("/#code=").skip(1).collect();
        let newest = codes.last().filter(|_| codes.len() == links)?;
        newest.split_once('\n').map(|(code, _)| code.to_owned())
    })
}

fn exchange(serving: &Serving, code: &str, headers: &[Header]) -> Reply {
    let body = json!({ "code": code }).to_string();
    serving.connect().send("POST", "/api/v1/session", headers, &body)
}

/// The cookie that an answer sets, as a browser sends it back.
#[track_caller]
fn cookie(reply: &Reply) -> Header {
    assert_eq!(reply.status, 200, "{reply:?}");
    let set = reply.header("set-cookie").unwrap();
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age="] {
        assert!(set.contains(attribute), "{set}");
    }
    ("Cookie", set.split(';').next().unwrap().to_owned())
}

#[test]
fn a_link_signs_in_once() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let code = code(&serving, 1);
    assert!(serving.said().contains(&format!("{}/#code={code}\n", serving.address)));
    // Not for a page of another site, and not for who guesses.
    assert_eq!(exchange(&serving, &code, &[]).status, 401);
    let evil = ("Origin", "http://localhost:1".to_owned());
    assert_eq!(exchange(&serving, &code, &[own(), evil]).status, 403);
    let wrong = exchange(&serving, &code[..50], &[own()]);
    assert_eq!((wrong.status, wrong.kind().as_str()), (401, "unauthorized"));
    assert_eq!(serving.connect().send("POST", "/api/v1/session", &[own()], "no").status, 401);
    let in_address = format!("/?code={code}");
    assert_eq!(serving.connect().send("GET", &in_address, &[], "").status, 400);
    let signed_in = exchange(&serving, &code, &[own()]);
    assert_eq!(signed_in.good()["role"], "operator");
    let cookie = cookie(&signed_in);
    assert!(!signed_in.body.contains(cookie.1.split('=').nth(1).unwrap()));
    assert_eq!(exchange(&serving, &code, &[own()]).status, 401, "it is spent");
    let who = serving.connect().send("GET", "/api/v1/session", from_ref(&cookie), "");
    assert_eq!(who.good()["name"], "of the page");
    assert_eq!(serving.connect().send("GET", "/api/v1/audit", &[cookie], "").status, 200);
    // A code is no token, and a cookie's secret is none.
    assert_eq!(serving.get("/api/v1/tasks", &code).status, 401);
}

#[test]
fn a_signal_prints_another_link() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let first = code(&serving, 1);
    crate::common::signal(serving.child.id(), Signal::USR1);
    let second = code(&serving, 2);
    assert_ne!(first, second);
    for code in [second, first] {
        cookie(&exchange(&serving, &code, &[own()]));
    }
}

#[test]
fn a_cookie_counts_for_our_own_page_alone() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let cookie = cookie(&exchange(&serving, &code(&serving, 1), &[own()]));
    let run = json!({ "cmd": "true", "login": false }).to_string();
    let start = |more: &[Header]| {
        let headers = [from_ref(&cookie), more].concat();
        serving.connect().send("POST", "/api/v1/tasks", &headers, &run)
    };
    let origin = |text: &str| ("Origin", text.to_owned());
    assert_eq!(start(&[]).kind(), "forbidden");
    assert_eq!(start(&[origin(&serving.address)]).kind(), "forbidden");
    assert_eq!(start(&[own(), origin("http://127.0.0.1:1")]).kind(), "wrong_origin");
    assert_eq!(start(&[own(), ("Sec-Fetch-Site", "cross-site".into())]).kind(), "wrong_origin");
    start(&[own(), origin(&serving.address)]).good();
    // Who brought the task is said.
    let tasks = serving.connect().send("GET", "/api/v1/tasks", from_ref(&cookie), "").good();
    assert_eq!(tasks["tasks"][0]["asked_by"], "token of the page");
    // A WebSocket has no header of its own, so it must have our origin.
    let task = scratch.promote("cat", &json!({ "tty": true }));
    let attach = |more: &[Header]| {
        let upgrade = [
            cookie.clone(),
            ("Connection", "Upgrade".into()),
            ("Upgrade", "websocket".into()),
            ("Sec-WebSocket-Version", "13".into()),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==".into()),
        ];
        let mut wire = serving.connect();
        let path = format!("/api/v1/tasks/{task}/terminal");
        wire.request("GET", &path, &[&upgrade, more].concat(), "");
        wire.head().unwrap().status
    };
    assert_eq!(attach(&[]), 403);
    assert_eq!(attach(&[origin("http://127.0.0.1:1")]), 403);
    assert_eq!(attach(&[origin(&serving.address)]), 101);
    // A token beside it is what counts.
    let both = [cookie.clone(), bearer("lwt_wrong")];
    assert_eq!(serving.connect().send("GET", "/api/v1/tasks", &both, "").status, 401);
}

#[test]
fn signing_out_ends_the_session_with_its_streams() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let cookie = cookie(&exchange(&serving, &code(&serving, 1), &[own()]));
    let mut stream = serving.connect();
    stream.request("GET", "/api/v1/events", from_ref(&cookie), "");
    assert_eq!(stream.head().unwrap().status, 200);
    let out = serving.connect().send("DELETE", "/api/v1/session", &[cookie.clone(), own()], "");
    assert_eq!(out.good()["signed_out"], true);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    while stream.chunk().is_some() {}
    assert_eq!(serving.connect().send("GET", "/api/v1/tasks", &[cookie], "").status, 401);
}

#[test]
fn a_session_of_a_token_is_no_more_than_the_token_and_ends_with_it() {
    let scratch = Scratch::new();
    let viewer = token(&scratch, "viewer", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let signed_in = serving.post("/api/v1/session", &viewer, &json!({}));
    assert_eq!(signed_in.good()["role"], "viewer");
    let cookie = cookie(&signed_in);
    let send = |method: &str, path: &str| {
        let headers = [cookie.clone(), own()];
        serving.connect().send(method, path, &headers, "{}").status
    };
    assert_eq!((send("GET", "/api/v1/tasks"), send("POST", "/api/v1/tasks")), (200, 403));
    let direct = serving.connect().send("DELETE", "/api/v1/session", &[bearer(&viewer)], "");
    assert_eq!(direct.status, 400);
    assert!(token_verb(&scratch, &["revoke", "viewer"]).status.success());
    assert_eq!(send("GET", "/api/v1/tasks"), 401);
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
    let code = code(&serving, 1);
    let link = format!("url={}/#code={code}\"", serving.address);
    assert!(fs::read_to_string(file).unwrap().contains(&link));
}
