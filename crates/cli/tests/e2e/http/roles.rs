//! What each role may do, on every route that there is.

use std::fs;

use serde_json::{Value, json};

use super::{Reply, Serving, bearer, token};
use crate::common::{Scratch, eventually};

/// The routes with their roles, as the server tells them.
fn routes(serving: &Serving, secret: &str) -> Vec<(String, String, Value)> {
    let document = serving.get("/api/v1/openapi.json", secret).good();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            routes.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    routes
}

/// The head of the answer to a request that has nothing in it.
fn tried(serving: &Serving, secret: &str, method: &str, path: &str) -> Reply {
    let path = path.replace("{id}", "t_none");
    let accept = ("Accept", "application/json, text/event-stream".to_owned());
    let mut wire = serving.connect();
    wire.request(
        method,
        &path,
        &[bearer(secret), accept],
        if method == "POST" { "{}" } else { "" },
    );
    wire.head().unwrap()
}

#[test]
fn every_role_on_every_route() {
    let scratch = Scratch::new();
    let workspace = scratch.workspace.path().to_str().unwrap();
    let roles = ["operator", "agent", "viewer"];
    let free = roles.map(|role| token(&scratch, role, &["--role", role]));
    let confined = roles.map(|role| {
        let name = format!("{role}-here");
        token(&scratch, &name, &["--role", role, "--workspace", workspace])
    });
    let serving = Serving::start(&scratch, &[]);
    let routes = routes(&serving, &free[0]);
    let mut shown = String::new();
    for (method, path, operation) in &routes {
        let allowed = &operation["x-roles"];
        let everywhere = operation["x-all-workspaces"] == true;
        for (number, role) in roles.iter().enumerate() {
            let may = allowed.as_array().unwrap().contains(&json!(role));
            let is_free = tried(&serving, &free[number], method, path).status != 403;
            assert_eq!(is_free, may, "{role} {method} {path}");
            let is_confined = tried(&serving, &confined[number], method, path).status != 403;
            assert_eq!(is_confined, may && !everywhere, "confined {role} {method} {path}");
        }
        // And nobody at all.
        let path_of_one = path.replace("{id}", "t_none");
        assert_eq!(serving.connect().send(method, &path_of_one, &[], "").status, 401, "{path}");
        let names: Vec<&str> =
            allowed.as_array().unwrap().iter().map(|role| role.as_str().unwrap()).collect();
        let confined = if everywhere { " (not confined)" } else { "" };
        shown.push_str(&format!("{method} {path}: {}{confined}\n", names.join(" ")));
    }
    insta::assert_snapshot!("routes_and_roles", shown);
    // Another method, another place.
    let wrong = serving.connect().send("PUT", "/api/v1/tasks", &[bearer(&free[0])], "");
    assert_eq!((wrong.status, wrong.kind().as_str()), (405, "wrong_method"));
    assert_eq!(wrong.header("allow"), Some("GET,HEAD,POST"));
    assert_eq!(serving.get("/api/v2/tasks", &free[0]).status, 404);
}

#[test]
fn an_agent_sees_its_workspace_alone() {
    let scratch = Scratch::new();
    let (mine, inner) = (scratch.file("mine"), scratch.file("mine/inner"));
    fs::create_dir_all(&inner).unwrap();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let agent = token(&scratch, "mine", &["--role", "agent", "--workspace", &mine]);
    let other = token(&scratch, "inner", &["--role", "agent", "--workspace", &inner]);
    let serving = Serving::start(&scratch, &[]);
    let run = |secret: &str, text: &str| {
        let cmd = format!("echo {text} in $(pwd)");
        let input = json!({ "cmd": cmd, "login": false });
        let ran = serving.post("/api/v1/tasks", secret, &input).good();
        assert_eq!(ran["exit_status"], 0, "{ran}");
        (ran["task_id"].as_str().unwrap().to_owned(), ran["stdout_preview"].clone())
    };
    let (own, printed) = run(&agent, "own");
    let place = fs::canonicalize(&mine).unwrap().display().to_string();
    assert_eq!(printed, format!("own in {place}"), "the token's workspace, not the server's");
    let (foreign, _) = run(&other, "foreign");
    let (server, _) = run(&operator, "server");
    let list = |secret: &str, query: &str| -> Vec<String> {
        let listed = serving.get(&format!("/api/v1/tasks{query}"), secret).good();
        let tasks = listed["tasks"].as_array().unwrap().iter();
        tasks.map(|task| task["task_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list(&agent, ""), [own.as_str()]);
    assert_eq!(list(&other, ""), [foreign.as_str()]);
    assert_eq!(list(&operator, ""), [server.as_str(), foreign.as_str(), own.as_str()]);
    let asked = serving.get(&format!("/api/v1/tasks?workspace={inner}"), &agent);
    assert_eq!(asked.status, 403);
    for hidden in [&foreign, &server] {
        let unknown = serving.get("/api/v1/tasks/t_none", &agent);
        for path in ["", "/output"] {
            let reply = serving.get(&format!("/api/v1/tasks/{hidden}{path}"), &agent);
            assert_eq!((reply.status, reply.kind()), (404, unknown.kind()), "{hidden}{path}");
        }
        for path in ["stop", "input", "wait"] {
            let path = format!("/api/v1/tasks/{hidden}/{path}");
            let reply = serving.post(&path, &agent, &json!({}));
            assert!(reply.status == 404 || reply.status == 400, "{reply:?}");
            assert!(!reply.body.contains("foreign in"), "{reply:?}");
        }
        assert_eq!(serving.get(&format!("/api/v1/tasks?before={hidden}"), &agent).status, 404);
    }
    // What a command may be and who asks is the token's word, not the request's.
    let task = serving.get(&format!("/api/v1/tasks?workspace={mine}"), &operator).good();
    assert_eq!(task["tasks"][1]["trust"], "trusted_integration");
    assert_eq!(task["tasks"][1]["asked_by"], "token mine");
    let raised = json!({ "cmd": "true", "trust": "trusted_operator" });
    assert_eq!(serving.post("/api/v1/tasks", &agent, &raised).kind(), "invalid_tool_input");
    let raised = json!({ "command": "true", "trust": "trusted_operator" });
    assert_eq!(serving.post("/api/v1/policy/check", &agent, &raised).status, 400);
    let checked = serving.post("/api/v1/policy/check", &agent, &json!({ "command": "true" }));
    assert_eq!(checked.good()["trust"], "trusted_integration");
}

#[test]
fn a_token_with_few_tools_has_those_alone() {
    let scratch = Scratch::new();
    let few = ["--role", "agent", "--tools", "TaskStatus,TaskOutput"];
    let few = token(&scratch, "few", &few);
    let serving = Serving::start(&scratch, &[]);
    let refused = serving.post("/api/v1/tasks", &few, &json!({ "cmd": "true" }));
    assert_eq!((refused.status, refused.kind().as_str()), (403, "forbidden"));
    assert_eq!(serving.get("/api/v1/tasks/t_none", &few).kind(), "unknown_task");
}

#[test]
fn a_session_that_is_over_is_offered_no_answer() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    // The program that asks is gone before the answer comes.
    let mut asking = scratch.guarded("call", "strict", None);
    let input = json!({ "cmd": "touch made", "login": false }).to_string();
    assert!(!asking.args(["ExecCommand", &input]).output().unwrap().status.success());
    let serving = Serving::start(&scratch, &[]);
    let open = serving.get("/api/v1/questions", &operator).good();
    let question = &open["questions"][0];
    assert_eq!(question["asking"], false);
    let replies = question["replies"].as_array().unwrap();
    assert!(replies.contains(&json!("allow_once")) && !replies.contains(&json!("allow_session")));
    let path = format!("/api/v1/questions/{}/answer", question["approval_id"].as_str().unwrap());
    let refused = serving.post(&path, &operator, &json!({ "decision": "allow_session" }));
    assert_eq!((refused.status, refused.kind().as_str()), (400, "invalid_request"));
    serving.post(&path, &operator, &json!({ "decision": "allow_once" })).good();
}

#[test]
fn only_an_operator_answers_and_the_first_answer_counts() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let agent = token(&scratch, "agent", &["--role", "agent"]);
    let viewer = token(&scratch, "viewer", &["--role", "viewer"]);
    let mut command = scratch.guarded("serve", "strict", None);
    command.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn(command);
    // Nobody is there to answer.
    let input = json!({ "cmd": "touch made", "login": false });
    let refused = serving.post("/api/v1/tasks", &agent, &input);
    assert_eq!((refused.status, refused.kind().as_str()), (403, "approval_unavailable"));
    // Somebody says that it is.
    let mut watching = serving.connect();
    watching.request("GET", "/api/v1/events?answering=true", &[bearer(&operator)], "");
    assert_eq!(watching.head().unwrap().status, 200);
    assert_eq!(serving.get("/api/v1/events?answering=true", &viewer).status, 403);
    let mut asking = serving.connect();
    asking.request("POST", "/api/v1/tasks", &[bearer(&agent)], &input.to_string());
    let question = eventually("the question is open", || {
        let open = serving.get("/api/v1/questions", &viewer).good();
        open["questions"].as_array().unwrap().iter().find(|it| it["asking"] == true).cloned()
    });
    assert_eq!(question["asked_by"], "token agent");
    assert!(question["text"].as_str().unwrap().contains("touch made"), "{question:#}");
    let id = question["approval_id"].as_str().unwrap();
    let path = format!("/api/v1/questions/{id}/answer");
    let yes = json!({ "decision": "allow_once" });
    for secret in [&agent, &viewer] {
        assert_eq!(serving.post(&path, secret, &yes).status, 403);
    }
    assert_eq!(serving.get(&format!("/api/v1/questions/{id}"), &agent).status, 403);
    let wrong = serving.post(&path, &operator, &json!({ "decision": "perhaps" }));
    assert_eq!(wrong.status, 400);
    let answered = serving.post(&path, &operator, &yes).good();
    assert_eq!(answered["answered_by"], "token me");
    assert_eq!(asking.read().good()["exit_status"], 0);
    assert!(scratch.workspace.path().join("made").exists());
    assert_eq!(serving.post(&path, &operator, &yes).kind(), "unknown_approval");
}

#[test]
fn who_cannot_see_a_question_keeps_nobody_waiting_for_an_answer() {
    let scratch = Scratch::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let agent = token(&scratch, "ci", &["--role", "agent"]);
    let confined = ["--role", "operator", "--workspace", elsewhere.path().to_str().unwrap()];
    let other = token(&scratch, "other", &confined);
    let mut command = scratch.guarded("serve", "guarded", None);
    command.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn(command);
    let watch = |token: &str| {
        let mut stream = serving.connect();
        stream.request("GET", "/api/v1/events?answering=true", &[bearer(token)], "");
        assert_eq!(stream.head().unwrap().status, 200);
        stream
    };
    let asked = json!({ "cmd": "rm -rf build", "login": false });
    let _watching = watch(&other);
    let refused = serving.post("/api/v1/tasks", &agent, &asked);
    assert_eq!((refused.status, refused.kind().as_str()), (403, "approval_unavailable"));
    // There its own questions wait.
    let there = token(&scratch, "there", &["--role", "agent", "--workspace", confined[3]]);
    let mut waiting = serving.connect();
    waiting.request("POST", "/api/v1/tasks", &[bearer(&there)], &asked.to_string());
    let question = eventually("it waits", || {
        let open = serving.get("/api/v1/questions", &other).good();
        let first = open["questions"].as_array()?.iter().find(|it| it["asking"] == true)?;
        Some(first["approval_id"].as_str()?.to_owned())
    });
    let deny = json!({ "decision": "deny" });
    serving.post(&format!("/api/v1/questions/{question}/answer"), &other, &deny).good();
    assert_eq!(waiting.read().kind(), "approval_refused");
}
