//! Reading what a task prints while it prints it.

use serde_json::{Value, json};

use crate::common::{Scratch, fixture, open};

/// Reads on from a cursor.
fn after(scratch: &Scratch, task: &str, cursor: &Value, more: &Value) -> Value {
    let mut input = json!({ "task_id": task, "after": cursor });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    scratch.get("TaskOutput", &input)
}

#[test]
fn a_cursor_is_good_for_its_own_task_only() {
    let scratch = Scratch::new();
    let (one, other) =
        (scratch.promote("sleep 1000", &json!({})), scratch.promote("sleep 1001", &json!({})));
    let look = scratch.get("TaskOutput", &json!({ "task_id": one, "block": false }));
    for cursor in [look["next_cursor"].as_str().unwrap(), "", "c0.0", "nonsense"] {
        let envelope = scratch.call("TaskOutput", &json!({ "task_id": other, "after": cursor }));
        assert_eq!(envelope["error"]["details"]["field"], "after", "{envelope:#}");
    }
}

#[test]
fn a_growing_log_is_read_without_gap_or_repeat() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!("{} wait-for {gate}; exec {} tick 400 300", fixture(), fixture());
    let task = scratch.promote(&cmd, &json!({}));
    let empty = scratch.get("TaskOutput", &json!({ "task_id": task, "block": false }));
    assert_eq!(empty["retrieval_status"], "not_ready");
    let mut cursor = empty["next_cursor"].clone();
    open(&gate);
    let mut seen = String::new();
    let mut budgets = [3_u64, 40, 7, 900, 1, 8000].into_iter().cycle();
    loop {
        let more = json!({ "max_output_tokens": budgets.next().unwrap() });
        let output = after(&scratch, &task, &cursor, &more);
        seen.push_str(output["output_preview"].as_str().unwrap_or_default());
        cursor = output["next_cursor"].clone();
        if output["task"]["status"] == "completed" && output["output_preview"].is_null() {
            break;
        }
    }
    let numbers: Vec<u64> = seen.lines().map(|line| line.parse().unwrap()).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..400).collect::<Vec<_>>());
    // One stream alone is in its own order.
    let stderr = after(&scratch, &task, &empty["next_cursor"], &json!({ "stream": "stderr" }));
    let shown = stderr["output_preview"].as_str().unwrap();
    let errors: Vec<u64> = shown.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(errors, (0..400).filter(|line| line % 3 == 2).collect::<Vec<_>>());
}

#[test]
fn blocking_means_the_end_or_something_new() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!("echo one; {} wait-then-print {gate} two", fixture());
    let task = scratch.promote(&cmd, &json!({}));
    scratch.wait(&task, &json!({ "output_matches": "^one$" }));
    let timed_out = scratch.get("TaskOutput", &json!({ "task_id": task, "timeout_ms": 20 }));
    assert_eq!(timed_out["retrieval_status"], "timeout");
    assert_eq!(timed_out["output_preview"], "one");
    let cursor = &timed_out["next_cursor"];
    let nothing = after(&scratch, &task, cursor, &json!({ "timeout_ms": 20 }));
    assert_eq!(nothing["retrieval_status"], "timeout");
    assert_eq!(nothing["output_preview"], Value::Null);
    open(&gate);
    let new = after(&scratch, &task, cursor, &json!({}));
    assert_eq!(
        (&new["retrieval_status"], &new["output_preview"]),
        (&json!("success"), &json!("two\n"))
    );
    let all = scratch.get("TaskOutput", &json!({ "task_id": task }));
    assert_eq!(all["output_preview"], "one\ntwo");
    assert_eq!(all["task"]["exit_status"], 0);
}

#[test]
fn a_short_task_that_never_had_a_folder_is_read_all_the_same() {
    let scratch = Scratch::new();
    let result = scratch.result("echo out; echo err >&2");
    let task = result["task_id"].as_str().unwrap();
    let output = scratch.get("TaskOutput", &json!({ "task_id": task }));
    assert_eq!(output["output_preview"], "out\nerr");
    let error = scratch.get("TaskOutput", &json!({ "task_id": task, "stream": "stderr" }));
    assert_eq!(error["output_preview"], "err");
    assert_eq!(output["artifacts"], json!([]));
    let screen = scratch.call("TaskOutput", &json!({ "task_id": task, "view": "screen" }));
    assert_eq!(screen["error"]["details"]["field"], "view");
}
