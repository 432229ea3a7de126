//! What commands changed outside their workspace, over HTTP.

use std::fs;

use serde_json::{Value, json};

use super::{Serving, token};
use crate::{outside::House, trials::can_try};

/// What is kept, as a token sees it.
fn listed(serving: &Serving, secret: &str) -> Vec<Value> {
    serving.get("/api/v1/outside", secret).good()["outside"].as_array().unwrap().clone()
}

#[test]
fn what_commands_changed_outside_is_listed_looked_at_applied_and_discarded() {
    if !can_try() {
        return;
    }
    let house = House::with_state_apart();
    let operator = token(&house.scratch, "me", &["--role", "operator"]);
    let viewer = token(&house.scratch, "viewer", &["--role", "viewer"]);
    let serving = Serving::start(&house.scratch, &[]);
    assert_eq!(listed(&serving, &viewer), Vec::<Value>::new());
    house.works("echo one > ~/one; echo two > ~/two; rm ~/.bashrc");
    let [kept] = &listed(&serving, &viewer)[..] else { panic!("nothing is kept") };
    let home = house.home.display().to_string();
    assert_eq!((&kept["home"], &kept["workspace"]), (&json!(home), &json!(format!("{home}/work"))));
    assert!(kept["bytes"].as_u64().unwrap() > 0 && kept["began_at_ms"].as_i64().unwrap() > 0);
    let id = kept["id"].as_str().unwrap();
    let path = |verb: &str| format!("/api/v1/outside/{id}/{verb}");
    let apply = |body: Value| serving.post(&path("apply"), &operator, &body);
    // What nobody has seen is not applied, nor what a short list has left out.
    assert_eq!(apply(json!({})).kind(), "invalid_tool_input");
    let few = serving.get(&path("changes?limit=1"), &viewer).good();
    assert_eq!((few["changes"].as_array().unwrap().len(), &few["total"]), (1, &json!(3)));
    let unseen = apply(json!({ "paths": ["two"] }));
    assert!(unseen.body.contains("not shown yet"), "{unseen:?}");
    let shown = serving.get(&path("changes?diff=true"), &viewer).good();
    assert_eq!(shown["summary"], "2 made, 1 removed");
    assert!(shown["diff"].as_str().unwrap().contains("+two"), "{shown:#}");
    // A part, from the home on; what is no part of it is refused.
    assert_eq!(apply(json!({ "paths": ["../elsewhere"] })).status, 400);
    let part = apply(json!({ "paths": ["one"] })).good();
    assert_eq!((&part["made"], &part["whole"]), (&json!(1), &json!(false)));
    assert_eq!(house.read("one"), "one\n");
    assert!(!fs::exists(house.home.join("two")).unwrap());
    // What somebody changed meanwhile is named, and nothing is applied.
    fs::write(house.home.join(".bashrc"), "# changed by a person\n").unwrap();
    let stale = apply(json!({}));
    assert_eq!((stale.status, stale.kind().as_str()), (409, "changed_underneath"), "{stale:?}");
    let discard = |body: Value| serving.post(&path("discard"), &operator, &body);
    assert_eq!(discard(json!({ "paths": [".bashrc"] })).good()["running"], 0);
    let rest = serving.get(&path("changes"), &viewer).good();
    assert_eq!(rest["summary"], "1 made");
    discard(json!({})).good();
    assert_eq!(listed(&serving, &viewer), Vec::<Value>::new());
    assert_eq!(house.works("ls ~/two 2>/dev/null; cat ~/one"), "one\n");
    for verb in ["apply", "discard"] {
        let gone = serving.post(&path(verb), &operator, &json!({}));
        assert_eq!((gone.status, gone.kind().as_str()), (404, "unknown_task"), "{verb}");
    }
    let noted = serving.get("/api/v1/audit", &operator).body;
    for event in ["outside_apply", "outside_discard"] {
        assert!(noted.contains(event), "{event}: {noted}");
    }
    assert!(noted.contains("token me"), "{noted}");
}
