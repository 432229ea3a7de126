//! Trials over HTTP: *try it first* as an answer, and what was tried as a list.

use std::fs;

use serde_json::{Value, json};

use super::{Serving, bearer, client::Wire, token};
use crate::{
    common::{Scratch, eventually},
    trials::can_try,
};

/// A server that asks, with an operator who answers and an agent who calls.
struct Asked {
    operator: String,
    agent: String,
    /// The stream that says that somebody is there.
    _watching: Wire,
    serving: Serving,
    scratch: Scratch,
}

impl Asked {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.write("build/out.txt", "made by the build\n");
        scratch.write("kept.txt", "kept\n");
        let operator = token(&scratch, "me", &["--role", "operator"]);
        let agent = token(&scratch, "agent", &["--role", "agent"]);
        let mut command = scratch.guarded("serve", "guarded", None);
        command.args(["--listen", "127.0.0.1:0"]);
        let serving = Serving::spawn(command);
        let mut watching = serving.connect();
        watching.request("GET", "/api/v1/events?answering=true", &[bearer(&operator)], "");
        assert_eq!(watching.head().unwrap().status, 200);
        Self { operator, agent, _watching: watching, serving, scratch }
    }

    /// A call of the agent, which waits for an answer.
    fn calls(&self, cmd: &str) -> Wire {
        let mut wire = self.serving.connect();
        let input = json!({ "cmd": cmd, "login": false }).to_string();
        wire.request("POST", "/api/v1/tasks", &[bearer(&self.agent)], &input);
        wire
    }

    /// The question that is open now, tried or not.
    fn question(&self, is_tried: bool) -> Value {
        eventually("a question is open", || {
            let open = self.serving.get("/api/v1/questions", &self.operator).good();
            let questions = open["questions"].as_array().unwrap().clone();
            questions.into_iter().find(|it| it["tried"].is_object() == is_tried)
        })
    }

    fn answer(&self, question: &Value, body: &Value) -> super::Reply {
        let id = question["approval_id"].as_str().unwrap();
        self.serving.post(&format!("/api/v1/questions/{id}/answer"), &self.operator, body)
    }

    /// Has a call tried first: the call, and the question about what it did.
    fn tried(&self, cmd: &str) -> (Wire, Value) {
        let call = self.calls(cmd);
        let first = self.question(false);
        assert!(first["replies"].as_array().unwrap().contains(&json!("try_first")), "{first:#}");
        let answered = self.answer(&first, &json!({ "decision": "try_first" })).good();
        assert_eq!(answered["answered_by"], "token me");
        (call, self.question(true))
    }

    fn exists(&self, name: &str) -> bool {
        fs::exists(self.scratch.file(name)).unwrap()
    }
}

#[test]
fn a_command_is_tried_first_then_refused_or_applied() {
    if !can_try() {
        return;
    }
    let asked = Asked::new();
    let (mut call, second) = asked.tried("rm -rf build");
    let tried = &second["tried"];
    assert_eq!((&tried["ended"], &tried["summary"]), (&json!("exit code 0"), &json!("1 removed")));
    assert_eq!(tried["list"], "  - build/out.txt\n");
    assert!(tried["diff"].as_str().unwrap().contains("-made by the build"), "{tried:#}");
    let replies = second["replies"].as_array().unwrap();
    assert!(replies.contains(&json!("apply")) && !replies.contains(&json!("try_first")));
    assert!(asked.exists("build/out.txt"), "nothing has happened yet");
    // It is not tried twice, and an answer that is none is no answer.
    assert_eq!(asked.answer(&second, &json!({ "decision": "try_first" })).status, 400);
    let no = json!({ "decision": "deny", "note": "the build is needed" });
    asked.answer(&second, &no).good();
    let refused = call.read();
    assert_eq!((refused.status, refused.kind().as_str()), (403, "approval_refused"));
    assert!(refused.body.contains("the build is needed"), "{refused:?}");
    assert!(asked.exists("build/out.txt"));
    assert_eq!(asked.answer(&second, &json!({ "decision": "apply" })).kind(), "unknown_approval");

    let (mut call, second) = asked.tried("rm -rf build");
    asked.answer(&second, &json!({ "decision": "apply" })).good();
    assert_eq!(call.read().good()["exit_status"], 0);
    assert!(!asked.exists("build") && asked.exists("kept.txt"));
}

#[test]
fn what_changed_meanwhile_is_not_overwritten_by_an_answer() {
    if !can_try() {
        return;
    }
    let asked = Asked::new();
    // The caller waits: it reads why nothing was applied.
    let (mut call, second) = asked.tried("rm -rf build");
    asked.scratch.write("build/out.txt", "changed by a person\n");
    asked.answer(&second, &json!({ "decision": "apply" })).good();
    let refused = call.read();
    assert_eq!((refused.status, refused.kind().as_str()), (409, "changed_underneath"));
    assert!(asked.exists("build/out.txt"));
}

#[test]
fn who_answers_when_the_caller_is_gone_applies_or_reads_why_not() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("build/out.txt", "made by the build\n");
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let unanswered = |is_tried: bool| {
        let mut call = scratch.guarded("call", "guarded", None);
        let input = json!({ "cmd": "rm -rf build", "login": false }).to_string();
        let ended = call.args(["ExecCommand", &input, "--json"]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(envelope["error"]["kind"], "approval_unavailable", "{envelope:#}");
        let open = serving.get("/api/v1/questions", &operator).good();
        let question = open["questions"][0].clone();
        assert_eq!(question["tried"].is_object(), is_tried, "{question:#}");
        let id = question["approval_id"].as_str().unwrap();
        format!("/api/v1/questions/{id}/answer")
    };
    let try_first = || {
        let path = unanswered(false);
        serving.post(&path, &operator, &json!({ "decision": "try_first" })).good();
        unanswered(true)
    };
    let apply = json!({ "decision": "apply" });
    let second = try_first();
    scratch.write("build/out.txt", "changed by a person\n");
    let stale = serving.post(&second, &operator, &apply);
    assert_eq!((stale.status, stale.kind().as_str()), (409, "changed_underneath"), "{stale:?}");
    assert!(stale.body.contains("build/out.txt"), "{stale:?}");
    assert!(fs::exists(scratch.file("build/out.txt")).unwrap());
}

/// The trials that a token sees.
fn listed(serving: &Serving, secret: &str) -> Vec<Value> {
    serving.get("/api/v1/trials", secret).good()["trials"].as_array().unwrap().clone()
}

fn path_of(trial: &Value, verb: &str) -> String {
    format!("/api/v1/trials/{}/{verb}", trial["task_id"].as_str().unwrap())
}

#[test]
fn trials_are_listed_looked_at_applied_and_discarded() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("changed.txt", "one\n");
    scratch.write("removed.txt", "gone\n");
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let viewer = token(&scratch, "viewer", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    assert_eq!(listed(&serving, &viewer), Vec::<Value>::new());
    scratch.try_sh("echo two >> changed.txt; rm removed.txt; mkdir -p a/b; echo x > a/b/c");
    let [trial] = &listed(&serving, &viewer)[..] else { panic!("no trial") };
    assert_eq!((&trial["status"], &trial["applied"]), (&json!("completed"), &json!([])));
    let shown = serving.get(&path_of(trial, "changes?diff=true"), &viewer).good();
    assert_eq!(
        (&shown["total"], &shown["summary"]),
        (&json!(3), &json!("1 made, 1 changed, 1 removed"))
    );
    let kinds = shown["changes"].as_array().unwrap().iter();
    let kinds: Vec<&str> = kinds.map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["made", "changed", "removed"]);
    assert!(shown["diff"].as_str().unwrap().contains("+two"), "{shown:#}");
    let few = serving.get(&path_of(trial, "changes?limit=1"), &viewer).good();
    assert_eq!((few["changes"].as_array().unwrap().len(), &few["total"]), (1, &json!(3)));
    assert_eq!(few["diff"], Value::Null);
    assert_eq!(serving.get(&path_of(trial, "changes?limit=0"), &viewer).status, 400);
    let id = trial["task_id"].as_str().unwrap();
    let task = serving.get(&format!("/api/v1/tasks/{id}"), &viewer).good();
    assert_eq!(task["trial"], true);

    // A part, from the workspace on; what is no part of it is refused.
    let apply = |body: Value| serving.post(&path_of(trial, "apply"), &operator, &body);
    assert_eq!(apply(json!({ "paths": ["../elsewhere"] })).status, 400);
    assert_eq!(apply(json!({ "paths": ["kept.txt"] })).kind(), "invalid_tool_input");
    let part = apply(json!({ "paths": ["changed.txt"] })).good();
    assert_eq!((&part["changed"], &part["whole"]), (&json!(1), &json!(false)));
    assert_eq!(fs::read_to_string(scratch.file("changed.txt")).unwrap(), "one\ntwo\n");
    // What somebody changed meanwhile is named, and nothing is applied.
    scratch.write("removed.txt", "changed by a person\n");
    let stale = apply(json!({}));
    assert_eq!((stale.status, stale.kind().as_str()), (409, "changed_underneath"), "{stale:?}");
    assert!(stale.body.contains("removed.txt"), "{stale:?}");
    assert!(!fs::exists(scratch.file("a")).unwrap());
    let discarded = serving.post(&path_of(trial, "discard"), &operator, &json!({})).good();
    assert_eq!(discarded["task_id"], id);
    assert_eq!(listed(&serving, &viewer), Vec::<Value>::new());
    for verb in ["apply", "discard"] {
        let gone = serving.post(&path_of(trial, verb), &operator, &json!({}));
        assert_eq!((gone.status, gone.kind().as_str()), (404, "unknown_task"), "{verb}");
    }
    // Whoever did it is in the log.
    let noted = serving.get("/api/v1/audit", &operator).body;
    for event in ["trial_apply", "trial_discard"] {
        assert!(noted.contains(event), "{event}: {noted}");
    }
    assert!(noted.contains("token me"), "{noted}");
}

#[test]
fn a_trial_that_still_runs_is_neither_applied_nor_discarded() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let begun = scratch.legwork("try").args(["--detach", "--sh", "exec sleep 1000"]).output();
    assert!(begun.unwrap().status.success());
    let [trial] = &listed(&serving, &operator)[..] else { panic!("no trial") };
    assert_eq!(trial["status"], "running");
    let looked = serving.get(&path_of(trial, "changes"), &operator);
    assert_eq!((looked.status, looked.kind().as_str()), (409, "still_running"));
    for verb in ["apply", "discard"] {
        let refused = serving.post(&path_of(trial, verb), &operator, &json!({}));
        assert_eq!((refused.status, refused.kind().as_str()), (409, "still_running"), "{verb}");
    }
    let id = trial["task_id"].as_str().unwrap();
    serving.post(&format!("/api/v1/tasks/{id}/stop"), &operator, &json!({})).good();
    serving.post(&path_of(trial, "discard"), &operator, &json!({})).good();
}

#[test]
fn a_token_that_is_confined_sees_the_trials_of_its_workspace_alone() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let (mine, other) = (scratch.file("mine"), scratch.file("other"));
    let confined = [&mine, &other].map(|folder| {
        fs::create_dir_all(folder).unwrap();
        let name = folder.rsplit('/').next().unwrap().to_owned();
        token(&scratch, &name, &["--role", "operator", "--workspace", folder])
    });
    let mut tried = scratch.legwork("try");
    tried.args(["--sh", "echo made > made.txt"]).current_dir(&mine);
    assert!(tried.output().unwrap().status.success());
    let serving = Serving::start(&scratch, &[]);
    let [trial] = &listed(&serving, &confined[0])[..] else { panic!("no trial") };
    assert_eq!(listed(&serving, &confined[1]), Vec::<Value>::new());
    assert_eq!(serving.get(&path_of(trial, "changes"), &confined[1]).status, 404);
    for verb in ["apply", "discard"] {
        let hidden = serving.post(&path_of(trial, verb), &confined[1], &json!({}));
        assert_eq!((hidden.status, hidden.kind().as_str()), (404, "unknown_task"), "{verb}");
    }
    serving.post(&path_of(trial, "apply"), &confined[0], &json!({})).good();
    assert!(fs::exists(format!("{mine}/made.txt")).unwrap());
}
