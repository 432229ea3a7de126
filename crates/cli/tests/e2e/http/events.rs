//! `/api/v1/events`: nothing is missed, or that is said.

use std::{collections::VecDeque, fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Serving, bearer, client::Wire, token};
use crate::common::{Scratch, eventually, fixture};

/// A client of the stream.
pub struct Following {
    wire: Wire,
    frames: VecDeque<(String, String, Value)>,
    pub last_id: String,
}

impl Following {
    pub fn open(serving: &Serving, secret: &str, query: &str, last: Option<&str>) -> Self {
        let mut headers = vec![bearer(secret)];
        headers.extend(last.map(|last| ("Last-Event-ID", last.to_owned())));
        let mut wire = serving.connect();
        wire.request("GET", &format!("/api/v1/events{query}"), &headers, "");
        let head = wire.head().unwrap();
        assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
        Self::of(wire)
    }

    /// A connection on which a stream has begun.
    pub fn of(wire: Wire) -> Self {
        Self { wire, frames: VecDeque::new(), last_id: String::new() }
    }

    /// The name and the data of the next event.
    pub fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((id, name, data)) = self.frames.pop_front() {
                self.last_id = id;
                if !name.is_empty() {
                    return (name, data);
                }
            } else {
                let chunk = self.wire.chunk().unwrap();
                for frame in chunk.split_terminator("\n\n") {
                    let field = |name: &str| {
                        let found = frame.lines().find_map(|line| line.strip_prefix(name));
                        found.unwrap_or_default().to_owned()
                    };
                    let data = serde_json::from_str(&field("data: ")).unwrap_or_default();
                    self.frames.push_back((field("id: "), field("event: "), data));
                }
            }
        }
    }

    /// Reads until a task has ended, and returns the ids of the tasks that have started.
    pub fn until_end_of(&mut self, task: &str) -> Vec<String> {
        let mut started = Vec::new();
        loop {
            let (name, data) = self.next();
            let id = data["task_id"].as_str().unwrap_or_default();
            match name.as_str() {
                "task_started" => started.push(id.to_owned()),
                "task_ended" if id == task => return started,
                "lagged" => panic!("it has missed something"),
                _ => {}
            }
        }
    }
}

pub fn run(serving: &Serving, secret: &str, cmd: &str) -> String {
    let ran = serving.post("/api/v1/tasks", secret, &json!({ "cmd": cmd, "login": false })).good();
    ran["task_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_client_that_comes_back_misses_nothing() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let mut following = Following::open(&serving, &operator, "", None);
    assert_eq!(following.next().0, "following");
    let mut all = vec![run(&serving, &operator, "true")];
    let mut heard = following.until_end_of(&all[0]);
    for _ in 0..3 {
        let last = following.last_id.clone();
        drop(following);
        // While nobody listens, from here and from another process.
        all.push(run(&serving, &operator, "true"));
        let other = scratch.result("true");
        all.push(other["task_id"].as_str().unwrap().to_owned());
        following = Following::open(&serving, &operator, "", Some(&last));
        assert_eq!(following.next().0, "following");
        heard.extend(following.until_end_of(all.last().unwrap()));
    }
    assert_eq!(heard, all);
}

#[test]
fn a_place_that_is_not_known_is_said_to_be_lost() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    for last in ["0000000000000009-1", "garbage"] {
        let mut following = Following::open(&serving, &operator, "", Some(last));
        let heard = following.next().0;
        let heard = if heard == "following" { following.next().0 } else { heard };
        assert_eq!(heard, "lagged", "{last}");
    }
}

#[test]
fn a_server_killed_in_mid_stream_is_followed_by_one_that_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    let mut following = Following::open(&serving, &operator, "?live=true", None);
    assert_eq!(following.next().0, "following");
    let (ready, go_on) = (scratch.file("ready"), scratch.file("go-on"));
    let wait = format!("touch {ready}; {} wait-then-print {go_on} done; exit 7", fixture());
    let input = json!({ "cmd": wait, "login": false, "yield_time_ms": 0 });
    let started = serving.post("/api/v1/tasks", &operator, &input).good();
    let task = started["task_handle"]["task_id"].as_str().unwrap().to_owned();
    eventually("the command runs", || Path::new(&ready).exists().then_some(()));
    let before = run(&serving, &operator, "true");
    assert_eq!(following.until_end_of(&before), [task.clone(), before]);
    let last = following.last_id.clone();
    serving.end(Signal::KILL);
    // While there is no server a task begins and ends, and the one that waits does.
    let between = scratch.result("true")["task_id"].as_str().unwrap().to_owned();
    fs::write(&go_on, "").unwrap();
    let serving = Serving::start(&scratch, &[]);
    let mut following = Following::open(&serving, &operator, "?live=true", Some(&last));
    assert_eq!(following.next().0, "following");
    assert_eq!(following.until_end_of(&task), [between]);
    let shown = serving.get(&format!("/api/v1/tasks/{task}"), &operator).good();
    assert_eq!(shown["task"]["exit_status"], 7, "{shown}");
}

#[test]
fn an_agent_hears_of_its_workspace_alone() {
    let scratch = Scratch::new();
    let mine = scratch.file("mine");
    std::fs::create_dir(&mine).unwrap();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let agent = token(&scratch, "agent", &["--role", "agent", "--workspace", &mine]);
    let serving = Serving::start(&scratch, &[]);
    let mut following = Following::open(&serving, &agent, "", None);
    following.next();
    run(&serving, &operator, "true");
    let own = run(&serving, &agent, "true");
    assert_eq!(following.until_end_of(&own), [own]);
}

#[test]
fn a_reader_that_reads_late_holds_nobody_up_and_misses_nothing() {
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let serving = Serving::start(&scratch, &[]);
    // Somebody else keeps the stream going meanwhile.
    let mut brisk = Following::open(&serving, &operator, "", None);
    brisk.next();
    let mut late = Following::open(&serving, &operator, "", None);
    let last = run(&serving, &operator, "echo last");
    brisk.until_end_of(&last);
    // It reads at last, and everything is there.
    assert_eq!(late.next().0, "following");
    assert_eq!(late.until_end_of(&last), [last]);
}
