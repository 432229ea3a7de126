//! Trials in `legwork top`: tried first as an answer, and as a list.

use std::fs;

use serde_json::json;

use super::{SMALL, asks, got, tmux::Tmux};
use crate::{
    common::Scratch,
    trials::{can_try, tree},
};

#[test]
fn a_command_is_tried_first_seen_and_refused_or_applied() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("build/out.txt", "made by the build\n");
    let before = tree(scratch.workspace.path());
    let Some(tmux) = Tmux::top(&scratch, (80, 40), &[]) else { return };
    tmux.shows("No tasks");
    let call = asks(&scratch, "rm -rf build");
    tmux.confirms("t", "try it first");
    tmux.shows("It is tried on a copy");
    let screen = tmux.shows("[a] apply what it did");
    for text in ["Tried on a copy: exit code 0; 1 removed.", "- build/out.txt", "-made by the b"] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    assert!(!screen.contains("[t] try"), "{screen}");
    assert_eq!(tree(scratch.workspace.path()), before);
    tmux.press(&["n"]);
    assert_eq!(got(call)["error"]["kind"], "approval_refused");
    assert_eq!(tree(scratch.workspace.path()), before);

    let call = asks(&scratch, "rm -rf build");
    tmux.confirms("t", "try it first");
    tmux.confirms("a", "apply what it did");
    tmux.shows("What it did is applied");
    assert_eq!(got(call)["result"]["exitCode"], 0);
    assert!(!fs::exists(scratch.file("build")).unwrap());
}

#[test]
fn what_does_not_fit_is_opened_before_it_is_applied() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    for number in 0..40 {
        scratch.write(&format!("build/file-{number}"), "one\ntwo\n");
    }
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    let call = asks(&scratch, "rm -rf build");
    tmux.confirms("t", "try it first");
    tmux.shows("[a] apply what it did");
    tmux.press(&["a"]);
    // It is shown whole first; the key counts there.
    tmux.shows("more rows: Down");
    assert!(fs::exists(scratch.file("build/file-0")).unwrap());
    tmux.confirms("a", "apply what it did");
    tmux.shows("What it did is applied");
    assert_eq!(got(call)["result"]["exitCode"], 0);
    assert!(!fs::exists(scratch.file("build")).unwrap());
}

#[test]
fn trials_are_listed_looked_at_applied_and_discarded() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("old.txt", "old\n");
    scratch.try_sh("echo wanted > new.txt; rm old.txt");
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("T trials");
    tmux.press(&["T"]);
    tmux.shows("1 made, 1 removed");
    let screen = tmux.shows("a apply  d discard");
    for text in ["│   + new.txt", "│   - old.txt", "a apply  d discard", "│ +wanted", "│ -old"]
    {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    // One that is made meanwhile appears, and is the newest.
    scratch.try_sh("echo unwanted > unwanted.txt");
    tmux.shows("echo unwa");
    tmux.press(&["Up"]);
    tmux.shows("│ +unwanted");
    tmux.shows("a apply  d discard");
    tmux.press(&["d"]);
    tmux.shows("Enter confirms, Esc cancels");
    tmux.press(&["Escape"]);
    tmux.shows("Cancelled");
    tmux.press(&["Home"]);
    tmux.settles("d", "d discard", "Discard");
    tmux.shows("discarded: the workspace is as it was");
    tmux.shows("│ +wanted");
    // What somebody has changed meanwhile is named, and nothing is applied.
    scratch.write("old.txt", "changed by a person\n");
    tmux.press(&["Home"]);
    tmux.settles("a", "a apply", "Apply the changes of");
    tmux.until("an error", |screen| screen.contains("changed") && !screen.contains("Enter"));
    assert!(!fs::exists(scratch.file("new.txt")).unwrap());
    tmux.press(&["Home"]);
    tmux.settles("d", "d discard", "Discard");
    tmux.shows("No trials");
    scratch.try_sh("echo last > last.txt");
    tmux.shows("│ +last");
    tmux.press(&["Home"]);
    tmux.settles("a", "a apply", "Apply");
    tmux.shows("applied: 1 made, 0 changed, 0 removed");
    assert_eq!(fs::read_to_string(scratch.file("last.txt")).unwrap(), "last\n");
    tmux.press(&["Escape"]);
    tmux.shows("/ filter");
    // The log knows who did it.
    let noted = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    for event in ["trial_apply", "trial_discard"] {
        let line = noted.lines().find(|line| line.contains(event)).unwrap();
        assert!(line.contains(&json!("legwork top").to_string()), "{line}");
    }
}
