//! `TaskWait`: every condition, several tasks, and when nothing can come any more.

use std::{fs, thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, announced, announced_number, eventually, fixture, is_alive, open, parent},
    mcp::Wire,
};

#[test]
fn output_is_matched_whenever_it_was_printed() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!(
        "printf '\\033[32mLocal:\\033[0m http://localhost:\\033[1m3000\\033[0m\\n'; \
         {} wait-for {gate}; echo half; exec sleep 1000",
        fixture()
    );
    let task = scratch.promote(&cmd, &json!({}));
    let waited = scratch.wait(&task, &json!({ "output_matches": r"localhost:(\d+)$" }));
    assert_eq!(waited["condition"]["output_matches"], "localhost:3000");
    // It was there before the call, so it does not count as new.
    let input = json!({ "task_ids": [task], "until": { "output_matches": "localhost" },
                        "after": waited["next_cursor"], "timeout_ms": 50 });
    assert_eq!(scratch.get("TaskWait", &input)["met"], false);
    open(&gate);
    let waited = scratch.wait(&task, &json!({ "output_matches": "^half$" }));
    assert_eq!(waited["condition"]["output_matches"], "half");
}

#[test]
fn an_end_before_the_condition_ends_the_wait() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let task = scratch.promote(&format!("{} wait-then-exit {gate} 3", fixture()), &json!({}));
    let (until, more) = (json!({ "port": 1, "output_matches": "never" }), json!([task]));
    let opener = thread::spawn(move || open(&gate));
    let waited = scratch
        .get("TaskWait", &json!({ "task_ids": more, "until": until, "timeout_ms": 3_600_000 }));
    opener.join().unwrap();
    assert_eq!((&waited["met"], &waited["ended"]), (&json!(false), &json!(true)));
    assert_eq!(waited["tasks"][0]["exit_status"], 3);
}

#[test]
fn a_port_counts_only_if_it_is_of_the_task_or_new() {
    let scratch = Scratch::new();
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = stranger.local_addr().unwrap().port();
    let task = scratch.promote("sleep 1000", &json!({}));
    let input = json!({ "task_ids": [task], "until": { "port": taken }, "timeout_ms": 300 });
    assert_eq!(scratch.get("TaskWait", &input)["met"], false, "it was open before, by a stranger");
    let port_file = scratch.file("port");
    // The one that listens may be a grandchild.
    let server =
        scratch.promote(&format!("sh -c '{} serve {port_file}; :'", fixture()), &json!({}));
    let port = announced_number(&port_file);
    let waited = scratch.wait(&server, &json!({ "port": port }));
    assert_eq!(waited["condition"], json!({ "port": port }));
}

#[test]
fn a_port_that_the_background_of_a_finished_task_opens_counts() {
    let scratch = Scratch::new();
    let (port_file, gate) = (scratch.file("port"), scratch.file("gate"));
    let cmd = format!(
        "({} wait-for {gate}; exec {} serve {port_file}) >/dev/null 2>&1 &",
        fixture(),
        fixture()
    );
    let result = scratch.result(&cmd);
    assert_eq!(result["exit_status"], 0);
    open(&gate);
    let port = announced_number(&port_file);
    let task = result["task_id"].as_str().unwrap();
    assert_eq!(scratch.wait(task, &json!({ "port": port }))["condition"], json!({ "port": port }));
    scratch.get("TaskStop", &json!({ "task_id": task }));
    let input = json!({ "task_ids": [task], "until": { "port": port }, "timeout_ms": 60_000 });
    assert_eq!(
        scratch.get("TaskWait", &input)["ended"],
        true,
        "nothing is left that could open it"
    );
}

#[test]
fn output_that_shows_nothing_does_not_end_the_search() {
    let scratch = Scratch::new();
    let cmd = "head -c 600000 /dev/zero | tr '\\0' '\\a'; echo READY";
    let task = scratch.promote(cmd, &json!({}));
    scratch.wait(&task, &json!({ "output_matches": "READY" }));
}

#[test]
fn the_end_of_a_long_output_is_shown_with_its_file() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!(
        "{} wait-for {gate}; {} flood 200000; echo ERROR: linker >&2; exit 1",
        fixture(),
        fixture()
    );
    let task = scratch.promote(&cmd, &json!({}));
    let mut wire = Wire::initialized(&scratch);
    let call = |tool: &str, input: &Value| json!({ "name": tool, "arguments": input });
    wire.send("tools/call", &call("TaskWait", &json!({ "task_ids": [task] })));
    // The warden hears of this one after the other: then the wait has begun.
    wire.send("tools/call", &call("TaskStatus", &json!({ "task_id": task })));
    wire.read();
    open(&gate);
    let waited = wire.read();
    let shown = waited["result"]["content"][0]["text"].as_str().unwrap();
    assert!(shown.contains("bytes left out") && shown.contains("ERROR: linker"), "{shown}");
    assert!(shown.contains("Artifacts:\n/"), "{shown}");
    // Of a task that is over, what it printed before the call is shown, too.
    let short = scratch.promote("echo boom; exit 1", &json!({}));
    eventually("it is over", || (scratch.status(&short)["status"] == "failed").then_some(()));
    let input = json!({ "task_ids": [short], "until": { "port": 1 } });
    assert_eq!(scratch.get("TaskWait", &input)["output_preview"], "boom");
}

#[test]
fn the_answer_to_an_input_comes_with_it_or_behind_its_cursor() {
    let scratch = Scratch::new();
    let cmd = "while read line; do sleep 0.2; echo prompt; done; echo prompt";
    let task = scratch.promote(cmd, &json!({ "accepts_input": true }));
    scratch.send(&task, &json!({ "input": "x\n" }));
    scratch.wait(&task, &json!({ "output_matches": "prompt" }));
    let slow = json!({ "input": "y\n", "wait_ms": 0 });
    let sent = scratch.send(&task, &slow);
    assert_eq!(sent["output_preview"], json!(null), "{sent:#}");
    let input = json!({ "task_ids": [task], "until": { "output_matches": "prompt" },
                        "after": sent["next_cursor"] });
    let waited = scratch.get("TaskWait", &input);
    assert_eq!((&waited["met"], &waited["output_preview"]), (&json!(true), &json!("prompt")));
    let all = scratch.get("TaskOutput", &json!({ "task_id": task, "block": false }));
    assert_eq!(all["output_preview"], "prompt\nprompt", "it waited for the second one");
    let sent = scratch.send(&task, &json!({ "input": "z\n", "wait_ms": 30_000 }));
    assert_eq!(
        (&sent["output_preview"], &sent["waiting_for_input"]),
        (&json!("prompt"), &json!(true))
    );
}

#[test]
fn conditions_that_make_no_sense_are_refused() {
    let scratch = Scratch::new();
    let task = scratch.promote("sleep 1000", &json!({}));
    for until in [
        json!({ "path_exists": "" }),
        json!({ "path_exists": "a\u{0}b" }),
        json!({ "output_matches": "" }),
        json!({ "output_matches": "(?=x)" }),
        json!({ "exit": false }),
        json!({ "port": 0 }),
        json!({ "port": 70000 }),
        json!({ "silence_ms": 0 }),
        json!("exit"),
    ] {
        let envelope = scratch.call("TaskWait", &json!({ "task_ids": [task], "until": until }));
        assert_eq!(envelope["error"]["kind"], "invalid_tool_input", "{until}");
        let message = envelope["error"]["message"].as_str().unwrap();
        assert!(!message.contains("u16") && !message.contains("struct"), "{message}");
    }
    // A whole number is one however it is written.
    let input = json!({ "task_ids": [task, task], "timeout_ms": 1.0 });
    assert_eq!(scratch.get("TaskWait", &input)["tasks"].as_array().unwrap().len(), 1);
}

#[test]
fn a_path_is_waited_for_also_in_folders_that_do_not_exist_yet() {
    let scratch = Scratch::new();
    let task = scratch.promote("sleep 1000", &json!({}));
    let folder = scratch.workspace.path().join("a/b");
    let maker = thread::spawn(move || {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("c"), "").unwrap();
    });
    let waited = scratch.wait(&task, &json!({ "path_exists": "a/b/c" }));
    maker.join().unwrap();
    assert!(waited["condition"]["path_exists"].as_str().unwrap().ends_with("/a/b/c"));
}

#[test]
fn silence_begins_anew_with_each_line() {
    let scratch = Scratch::new();
    let cmd = format!("{} tick 30 20000; exec sleep 1000", fixture());
    let task = scratch.promote(&cmd, &json!({}));
    let waited = scratch.wait(&task, &json!({ "silence_ms": 300 }));
    assert_eq!(waited["condition"], json!({ "silence_ms": 300 }));
    let shown = scratch.get("TaskOutput", &json!({ "task_id": task, "block": false }));
    assert!(
        shown["output_preview"].as_str().unwrap().ends_with("29")
            || shown["output_preview"].as_str().unwrap().contains("\n29"),
        "{shown}"
    );
}

#[test]
fn the_first_of_several_tasks_wins() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let slow = scratch.promote("sleep 1000", &json!({}));
    let quick = scratch.promote(&format!("{} wait-then-exit {gate} 6", fixture()), &json!({}));
    open(&gate);
    let waited = scratch.get("TaskWait", &json!({ "task_ids": [slow, quick] }));
    assert_eq!(waited["met"], true);
    assert_eq!(waited["condition"], "exit");
    assert_eq!(waited["task_id"], json!(quick));
    let statuses: Vec<&Value> =
        waited["tasks"].as_array().unwrap().iter().map(|task| &task["status"]).collect();
    assert_eq!(statuses, ["running", "failed"]);
}

#[test]
fn a_quiet_task_costs_no_processor_time() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let task = scratch.promote(&format!("exec {} ignore-term {ready}", fixture()), &json!({}));
    let warden = parent(announced(&ready));
    // Once it has spilled, nothing is due any more.
    assert_eq!(scratch.status(&task)["status"], "running");
    let slept = || {
        let status = fs::read_to_string(format!("/proc/{warden}/status")).unwrap();
        let switches =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches.unwrap().trim().parse::<u64>().unwrap()
    };
    let settled = eventually("it is quiet", || {
        let before = slept();
        thread::sleep(Duration::from_millis(300));
        (slept() == before).then_some(before)
    });
    thread::sleep(Duration::from_millis(500));
    assert_eq!(slept(), settled, "it woke up with nothing to do");
    assert!(is_alive(warden));
}

#[test]
fn a_wait_tells_nothing_about_files_that_the_sandbox_hides() {
    let scratch = Scratch::new();
    let hidden = scratch.file("hidden");
    fs::write(&hidden, "").unwrap();
    let policy = format!("[sandbox]\nunreadable = [\"{hidden}\"]\n");
    let call = |tool: &str, input: &Value| -> Value {
        let mut call = scratch.guarded("call", "guarded", Some(&policy));
        let output = call.args([tool, "--json", &input.to_string()]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["result"].clone()
    };
    let cmd = format!("ln -s {hidden} link; touch shown /tmp/own; exec sleep 1000");
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
    let task = call("ExecCommand", &input)["task_handle"]["task_id"].clone();
    let met = |path: &str, timeout_ms: u64| {
        let until = json!({ "path_exists": path });
        let wait = json!({ "task_ids": [task], "until": until, "timeout_ms": timeout_ms });
        call("TaskWait", &wait)["met"].clone()
    };
    // What the command sees is there, also in a `/tmp` of its own.
    for path in ["shown", "/tmp/own", "/usr/bin"] {
        assert_eq!(met(path, 30_000), true, "{path}");
    }
    let ledger = scratch.state.path().join("ledger.db").display().to_string();
    for path in [hidden.as_str(), "link", &ledger, "/no/such/file"] {
        assert_eq!(met(path, 50), false, "{path}");
    }
}
