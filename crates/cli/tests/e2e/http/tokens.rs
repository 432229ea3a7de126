//! Tokens: who comes in, as what, and until when.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use super::{
    Serving, bearer,
    events::{Following, run},
    token, token_verb,
};
use crate::{
    common::{Scratch, announced_line, eventually, is_alive, parts, text},
    harness::clock::MovableClock,
};

fn file(scratch: &Scratch) -> std::path::PathBuf {
    scratch.state.path().join("tokens.json")
}

#[test]
fn a_token_is_printed_once_and_only_its_hash_is_kept() {
    let scratch = Scratch::new();
    let secret = token(&scratch, "ci", &["--role", "agent", "--expires", "30d"]);
    assert!(secret.starts_with("lwt_") && secret.len() == 56, "{secret}");
    let kept = fs::read_to_string(file(&scratch)).unwrap();
    assert!(!kept.contains(&secret) && kept.contains("sha256"), "{kept}");
    assert_eq!(file(&scratch).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let listed = token_verb(&scratch, &["list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let first = &listed["tokens"][0];
    assert_eq!((&first["name"], &first["role"]), (&json!("ci"), &json!("agent")));
    assert_eq!(first["trust"], "trusted_integration");
    assert!(first["sha256"].is_null());
    // A name is one token's.
    let (code, _, said) = parts(&token_verb(&scratch, &["add", "ci", "--role", "viewer"]));
    assert!(code == Some(125) && said.contains("there is a token `ci` already"), "{said}");
    let (code, _, said) = parts(&token_verb(&scratch, &["revoke", "nobody"]));
    assert!(code == Some(125) && said.contains("there is no token `nobody`"), "{said}");
    let (_, shown, _) = parts(&token_verb(&scratch, &["list"]));
    assert!(shown.contains("in 29d") || shown.contains("in 30d"), "{shown}");
}

#[test]
fn a_token_that_a_command_shows_is_masked() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let agent = token(&scratch, "ci", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let link = format!("http://localhost:7117/#code={operator}");
    fs::write(scratch.file("auth"), format!("{link}\n{operator}\n")).unwrap();
    let command = format!("cat auth; echo '{operator}' >&2; echo token: '{operator}'");
    let ran = serving.post("/api/v1/tasks", &agent, &json!({ "cmd": command, "login": false }));
    ran.good();
    let tasks = serving.get("/api/v1/tasks", &agent);
    let task = tasks.good()["tasks"][0]["task_id"].as_str().unwrap().to_owned();
    let outputs = ["output", "follow"]
        .map(|view| serving.get(&format!("/api/v1/tasks/{task}/{view}"), &agent).body);
    let audit = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    let refused = serving.get(&format!("/api/v1/tasks/{operator}"), &agent).body;
    for shown in [&ran.body, &tasks.body, &audit].into_iter().chain(&outputs) {
        assert!(shown.contains("[masked:legwork_token]"), "{shown}");
    }
    for shown in [&ran.body, &tasks.body, &audit, &refused].into_iter().chain(&outputs) {
        assert!(!shown.contains(&operator), "{shown}");
    }
}

#[test]
fn nobody_comes_in_without_a_token() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let reply = serving.connect().send("GET", "/api/v1/tasks", &[], "");
    assert_eq!((reply.status, reply.kind().as_str()), (401, "unauthorized"));
    let challenge = reply.header("www-authenticate").unwrap().to_owned();
    let url = format!("{}/.well-known/oauth-protected-resource", serving.address);
    assert_eq!(challenge, format!("Bearer realm=\"legwork\", resource_metadata=\"{url}\""));
    let metadata =
        serving.connect().send("GET", "/.well-known/oauth-protected-resource/mcp", &[], "");
    assert_eq!(metadata.good()["resource"], format!("{}/mcp", serving.address));
    assert_eq!(metadata.good()["bearer_methods_supported"], json!(["header"]));
    // Anything but the token, as it is, in its place.
    let half = &operator[..operator.len() - 1];
    let wrong = [
        format!("Bearer {half}"),
        format!("Bearer {operator}x"),
        format!("Basic {operator}"),
        "Bearer ".into(),
        operator.clone(),
    ];
    for header in wrong {
        let reply =
            serving.connect().send("GET", "/api/v1/tasks", &[("Authorization", header)], "");
        assert_eq!(reply.status, 401);
    }
    assert!(serving.said().contains("wrong token from 127.0.0.1"), "{}", serving.said());
    assert!(!serving.said().contains(half), "{}", serving.said());
    let twice = [bearer(&operator), bearer(&operator)];
    assert_eq!(serving.connect().send("GET", "/api/v1/tasks", &twice, "").status, 401);
    // Not in the address, even beside the header.
    for path in [
        format!("/api/v1/tasks?access_token={operator}"),
        format!("/api/v1/tasks?x={operator}"),
        "/api/v1/tasks?token=x".into(),
    ] {
        let reply = serving.get(&path, &operator);
        assert_eq!(reply.status, 400, "{path}");
        assert!(!reply.body.contains(&operator));
    }
    assert_eq!(serving.get("/api/v1/tasks", &operator).status, 200);
    let invalid = serving.get("/api/v1/tasks", "lwt_no");
    assert!(invalid.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));
}

#[test]
fn revocation_takes_effect_at_once_also_for_what_is_connected() {
    let scratch = Scratch::new();
    let (stays, goes) = (
        token(&scratch, "stays", &["--role", "viewer"]),
        token(&scratch, "goes", &["--role", "viewer"]),
    );
    let serving = Serving::start(&scratch, &[]);
    let open = |secret: &str| {
        let mut stream = serving.connect();
        stream.request("GET", "/api/v1/events", &[bearer(secret)], "");
        assert_eq!(stream.head().unwrap().status, 200);
        assert!(stream.chunk().unwrap().contains("event: following"));
        stream
    };
    let (mut staying, mut going) = (open(&stays), open(&goes));
    // A command that is waited for under another one.
    let agent = token(&scratch, "agent", &["--role", "agent"]);
    let pid = scratch.file("pid");
    let cmd = format!("echo $$ > {pid}; exec sleep 600");
    let body = json!({ "cmd": cmd, "login": false, "yield_time_ms": 600_000 }).to_string();
    let mut waiting = serving.connect();
    waiting.request("POST", "/api/v1/tasks", &[bearer(&agent)], &body);
    let pid = announced_line(&pid);
    assert!(token_verb(&scratch, &["revoke", "agent"]).status.success());
    assert_eq!(waiting.read().status, 401);
    eventually("it is stopped", || (!is_alive(pid)).then_some(()));
    assert!(token_verb(&scratch, &["revoke", "goes"]).status.success());
    // Its stream ends, and is not cut.
    while let Some(chunk) = going.chunk() {
        assert!(chunk.contains("id: "), "{chunk}");
    }
    assert_eq!(serving.get("/api/v1/tasks", &goes).status, 401);
    assert_eq!(serving.get("/api/v1/tasks", &stays).status, 200);
    scratch.result("true");
    let heard =
        eventually("it goes on", || staying.chunk().filter(|chunk| chunk.contains("task_started")));
    assert!(heard.contains("id: "), "{heard}");
    // One that is added counts at once, too.
    let late = token(&scratch, "late", &["--role", "viewer"]);
    assert_eq!(serving.get("/api/v1/tasks", &late).status, 200);
}

#[test]
fn an_expired_token_ends_by_the_wall_clock() {
    let scratch = Scratch::new();
    let serving = Serving::start(&scratch, &[]);
    let short = token(&scratch, "short", &["--role", "viewer", "--expires", "2s"]);
    let mut stream = serving.connect();
    stream.request("GET", "/api/v1/events", &[bearer(&short)], "");
    assert_eq!(stream.head().unwrap().status, 200);
    assert!(stream.chunk().is_some());
    assert_eq!(stream.chunk(), None, "its stream has ended");
    eventually("it expires", || (serving.get("/api/v1/tasks", &short).status == 401).then_some(()));
    assert!(text(&token_verb(&scratch, &["list"]).stdout).contains("expired"));
}

#[test]
fn a_clock_that_jumps_ends_a_token_or_gives_it_back_and_touches_no_other() {
    let scratch = Scratch::new();
    let Some(clock) = MovableClock::new(&scratch) else { return };
    let short = token(&scratch, "short", &["--role", "viewer", "--expires", "1h"]);
    let lasting = token(&scratch, "lasting", &["--role", "operator"]);
    let mut command = scratch.legwork("serve");
    clock.give_to(command.args(["--listen", "127.0.0.1:0"]));
    let serving = Serving::spawn(command);
    let status = |token: &str| serving.get("/api/v1/tasks", token).status;
    assert_eq!((status(&short), status(&lasting)), (200, 200));
    let mut following = Following::open(&serving, &lasting, "", None);
    following.next();
    clock.set("+2h");
    assert_eq!((status(&short), status(&lasting)), (401, 200));
    // Commands are not ended by it, and those who listen go on.
    let ran = run(&serving, &lasting, "true");
    following.until_end_of(&ran);
    clock.set("-1d");
    assert_eq!((status(&short), status(&lasting)), (200, 200));
    let ran = run(&serving, &lasting, "true");
    following.until_end_of(&ran);
    clock.set("+0");
    assert_eq!((status(&short), status(&lasting)), (200, 200));
}

#[test]
fn a_file_that_others_can_use_or_that_is_damaged_lets_nobody_in() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let status = || serving.get("/api/v1/tasks", &operator).status;
    assert_eq!(status(), 200);
    fs::set_permissions(file(&scratch), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(status(), 401);
    assert!(serving.said().contains("chmod 600"), "{}", serving.said());
    fs::set_permissions(file(&scratch), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(status(), 200);
    let whole = fs::read_to_string(file(&scratch)).unwrap();
    fs::write(file(&scratch), &whole[..whole.len() / 2]).unwrap();
    assert_eq!(status(), 401);
    fs::write(file(&scratch), &whole).unwrap();
    assert_eq!(status(), 200);
    fs::remove_file(file(&scratch)).unwrap();
    assert_eq!(status(), 401);
}

#[test]
fn a_link_in_the_place_of_a_file_of_tokens_leads_nowhere() {
    let scratch = Scratch::new();
    token(&scratch, "first", &["--role", "viewer"]);
    let victim = scratch.file("victim");
    fs::write(&victim, "kept").unwrap();
    let beside = |suffix: &str| scratch.state.path().join(format!("tokens.json{suffix}"));
    std::os::unix::fs::symlink(&victim, beside(".new")).unwrap();
    token(&scratch, "second", &["--role", "viewer"]);
    fs::remove_file(beside(".lock")).unwrap();
    std::os::unix::fs::symlink(&victim, beside(".lock")).unwrap();
    let (code, _, said) = parts(&token_verb(&scratch, &["add", "third", "--role", "viewer"]));
    assert_eq!(code, Some(125), "{said}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
}

#[test]
fn a_file_of_tokens_of_another_user_lets_nobody_in() {
    // Only root can give a file away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    std::os::unix::fs::chown(file(&scratch), Some(65534), None).unwrap();
    let serving = Serving::start(&scratch, &[]);
    assert_eq!(serving.get("/api/v1/tasks", &operator).status, 401);
    assert!(serving.said().contains("belongs to another user"), "{}", serving.said());
}
