//! `legwork top` in a real terminal: found, looked at, answered, attached to, stopped, by keys and
//! mouse; and what must not harm it.

mod harm;
mod picture;
mod running;
mod tmux;
mod trials;

use std::{
    fs,
    process::{Child, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use self::tmux::Tmux;
use crate::common::{Scratch, eventually, open, parts, signal};

const SMALL: (u16, u16) = (60, 20);

/// A call of an agent about which a person is asked.
fn asks(scratch: &Scratch, command: &str) -> Child {
    let input = json!({ "command": command }).to_string();
    let mut call = scratch.guarded("call", "guarded", None);
    call.args(["run_shell_command", "--json", &input]);
    call.stdout(Stdio::piped()).spawn().unwrap()
}

/// What the agent got.
fn got(call: Child) -> Value {
    serde_json::from_slice(&call.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn at_60_by_20_a_task_is_found_looked_at_answered_attached_to_and_stopped() {
    let scratch = Scratch::new();
    for name in ["alpha", "beta", "gamma"] {
        scratch.promote(&format!("echo output of {name}; exec sleep 1000"), &json!({}));
    }
    let python = scratch.promote("exec python3 -q -i", &json!({ "tty": true }));
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("4 running, 4 tasks");

    // Find a task, and look at its output.
    tmux.press(&["/"]);
    tmux.shows("Filter: _");
    tmux.types("beta");
    tmux.shows("│ output of beta");
    tmux.press(&["Enter"]);
    let screen = tmux.shows("/ filter  Enter attach");
    assert!(!screen.contains("alpha") && screen.contains("/beta"), "{screen}");

    // Answer a question.
    let call = asks(&scratch, "echo allowed");
    tmux.confirms("y", "allow once");
    tmux.shows("Allowed once.");
    assert_eq!(got(call)["result"]["stdout"], "allowed\n");

    // Attach and come back; the next key is for top again.
    tmux.press(&["Escape", "/"]);
    tmux.types("python3");
    tmux.press(&["Enter"]);
    tmux.shows("│ >>>");
    tmux.press(&["Enter"]);
    tmux.until("python alone", |screen| screen.starts_with(">>>"));
    tmux.types("6 * 7");
    tmux.press(&["Enter"]);
    tmux.until("an answer", |screen| screen.starts_with(">>> 6 * 7\n42\n>>>"));
    tmux.press(&["C-]"]);
    tmux.shows("detached: the task goes on");
    assert_eq!(scratch.status(&python)["status"], "running");

    // Stop it, after asking.
    tmux.press(&["x"]);
    tmux.shows("Stop exec python3 -q -i?");
    tmux.press(&["n"]);
    tmux.shows("/ filter  Enter attach");
    assert_eq!(scratch.status(&python)["status"], "running");
    tmux.press(&["x"]);
    tmux.shows("Stop exec python3 -q -i?");
    tmux.press(&["y"]);
    tmux.shows("stopped");
    assert_eq!(scratch.status(&python)["status"], "cancelled");

    // Quitting stops nothing.
    tmux.press(&["q"]);
    tmux.assert_given_back(0);
    assert_eq!(scratch.tasks().iter().filter(|task| task["status"] == "running").count(), 3);
}

#[test]
fn each_answer_reaches_its_caller() {
    let scratch = Scratch::new();
    let Some(tmux) = Tmux::top(&scratch, (100, 40), &[]) else { return };
    tmux.shows("No tasks");

    let call = asks(&scratch, "touch refused");
    tmux.shows("[N] deny, with a note");
    tmux.press(&["N"]);
    tmux.shows("Deny, because");
    tmux.types("use the Makefile");
    tmux.press(&["Enter"]);
    tmux.shows("Denied: the command does not run.");
    let answer = got(call);
    assert_eq!(answer["error"]["kind"], "approval_refused", "{answer:#}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("use the Makefile"));

    let call = asks(&scratch, "touch refused");
    // Once the note, which was for the question before, is no typing for this one any more.
    tmux.shows("[y] allow once");
    tmux.press(&["n"]);
    assert_eq!(got(call)["error"]["kind"], "approval_refused");
    assert!(!fs::exists(scratch.file("refused")).unwrap());

    let call = asks(&scratch, "touch by-rule");
    let screen = tmux.shows("[r] allow always, save the rule");
    assert!(screen.contains("decision = \"allow\""), "the rule is shown: {screen}");
    tmux.confirms("r", "allow always, save the rule");
    tmux.shows("Allowed from now on");
    assert_eq!(got(call)["result"]["exitCode"], 0);
    // An equal call is not asked about any more.
    assert_eq!(got(asks(&scratch, "touch by-rule"))["result"]["exitCode"], 0);

    let mut wire = crate::mcp::Wire::spawn({
        let mut mcp = scratch.guarded("mcp", "guarded", None);
        mcp.args(["--tools", "run_shell_command"]);
        mcp
    });
    wire.initialize();
    let input = json!({ "name": "run_shell_command", "arguments": { "command": "touch session" } });
    wire.send("tools/call", &input);
    tmux.confirms("s", "allow for this session");
    tmux.shows("Allowed in this folder for as long as");
    assert_eq!(wire.read()["result"]["isError"], false);
    assert_eq!(wire.request("tools/call", &input)["result"]["isError"], false);
    drop(wire.stdin.take());
    wire.child.wait().unwrap();

    tmux.press(&["q"]);
    tmux.assert_given_back(0);
}

#[test]
fn the_mouse_selects_answers_and_opens() {
    let scratch = Scratch::new();
    scratch.promote("echo output of alpha; exec sleep 1000", &json!({}));
    scratch.promote("echo output of beta; exec sleep 1000", &json!({}));
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("│ output of beta");
    assert_eq!(tmux.knows("#{mouse_any_flag} #{mouse_sgr_flag}"), "1 1");
    let click = |column: usize, row: usize| format!("\u{1b}[<0;{};{}M", column + 1, row + 1);
    tmux.types(&click(3, 2));
    tmux.shows("│ output of alpha");
    tmux.types("\u{1b}[<64;4;3M");
    tmux.shows("│ output of beta");
    // Away and back at once: what was forgotten is read again.
    tmux.press(&["Down", "Up"]);
    tmux.shows("│ output of beta");
    let call = asks(&scratch, "echo clicked");
    let screen = tmux.shows("[y] allow once");
    let place = |line: &str| line.find("[y] allow once").map(|at| line[..at].chars().count());
    let mut rows = screen.lines().enumerate();
    let (row, column) = rows.find_map(|(row, line)| Some((row, place(line)?))).unwrap();
    tmux.types(&click(column + 1, row));
    tmux.shows("allow once? Enter confirms");
    tmux.press(&["Enter"]);
    tmux.shows("Allowed once.");
    assert_eq!(got(call)["result"]["stdout"], "clicked\n");
    // The list has settled; a click on the task that is selected attaches to it.
    tmux.shows("exit 0    echo clicked");
    tmux.types(&click(3, 1));
    tmux.shows("Ctrl-] back  Input: _");
}

#[test]
fn a_task_without_a_terminal_is_read_in_full_and_takes_lines() {
    let scratch = Scratch::new();
    let task = scratch.promote(
        "while read -r line; do echo \"got $line\"; done; echo over",
        &json!({ "accepts_input": true }),
    );
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("while read");
    tmux.press(&["Enter"]);
    tmux.shows("Ctrl-] back  Input: _");
    tmux.types("quit x");
    tmux.press(&["Enter"]);
    tmux.until("the line", |screen| screen.lines().any(|line| line == "got quit x"));
    tmux.press(&["C-]"]);
    tmux.shows("│ got quit x");
    scratch.send(&task, &json!({ "eof": true }));
    tmux.shows("exit 0");
    tmux.shows("│ over");
    // One that has ended takes nothing.
    tmux.press(&["Enter"]);
    tmux.shows("Ctrl-] back  PgUp PgDn scroll");
    tmux.press(&["C-]"]);
    tmux.shows("/ filter");
}

#[test]
fn colours_follow_no_color() {
    let scratch = Scratch::new();
    scratch.promote("exec sleep 1000", &json!({}));
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("running ");
    let colour = regex::Regex::new("\u{1b}\\[[0-9;]*[34]8;").unwrap();
    assert!(colour.is_match(&tmux.coloured()), "{:?}", tmux.coloured());
    drop(tmux);
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[("NO_COLOR", "1")]) else { return };
    tmux.shows("running ");
    assert!(!colour.is_match(&tmux.coloured()), "{:?}", tmux.coloured());
}

#[test]
fn output_has_the_colours_that_it_was_printed_with() {
    let scratch = Scratch::new();
    let printed = r"printf 'a \033[31mred\033[0m \033[1;48;5;4mword\033[0m end\n'";
    let (red, word) = ("[38;5;1mred", "48;5;4mword");
    for more in [json!({}), json!({ "tty": true })] {
        let command = format!("{printed}; exec sleep 1000 # {}", more["tty"]);
        scratch.promote(&command, &more);
        let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
        tmux.shows("│ a red word end");
        let coloured = tmux.coloured();
        assert!(coloured.contains(red) && coloured.contains(word), "{more}: {coloured:?}");
        // In full, too.
        if more["tty"] != true {
            tmux.press(&["Enter"]);
            tmux.until("alone", |screen| screen.lines().any(|line| line == "a red word end"));
            assert!(tmux.coloured().contains(red), "{:?}", tmux.coloured());
        }
        drop(tmux);
        let Some(tmux) = Tmux::top(&scratch, SMALL, &[("NO_COLOR", "1")]) else { return };
        tmux.shows("│ a red word end");
        let plain = tmux.coloured();
        assert!(!plain.contains("8;5;"), "{plain:?}");
    }
}

#[test]
fn what_a_silent_task_uses_is_read_again_while_it_is_looked_at() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    scratch.promote(&format!("while [ ! -e {gate} ]; do :; done"), &json!({}));
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    let uses = |screen: &str| {
        let (_, after) = screen.split_once("no output  CPU ")?;
        after.lines().next().map(str::to_owned)
    };
    let first = eventually("it is measured", || uses(&tmux.screen()));
    let second =
        eventually("it is measured again", || uses(&tmux.screen()).filter(|shown| *shown != first));
    eventually("and again", || uses(&tmux.screen()).filter(|shown| *shown != second));
    open(&gate);
    tmux.shows("exit 0");
}

#[test]
fn another_size_is_drawn_anew_and_one_that_is_too_small_says_so() {
    let scratch = Scratch::new();
    scratch.promote("echo shown; exec sleep 1000", &json!({}));
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("│ shown");
    tmux.resize(30, 8);
    tmux.shows("Terminal too small:");
    tmux.shows("30x8, and top");
    tmux.resize(140, 50);
    let screen = tmux.shows("│ shown");
    assert!(!screen.contains("too small"), "{screen}");
    assert_eq!(screen.lines().filter(|line| line.contains('│')).count(), 48, "{screen}");
    tmux.resize(60, 20);
    tmux.until("all of it", |screen| {
        screen.lines().nth(19).is_some_and(|it| it.starts_with("/ f"))
    });
    tmux.press(&["?"]);
    tmux.shows("next question");
    tmux.press(&["Escape", "q"]);
    tmux.assert_given_back(0);
}

#[test]
fn without_a_terminal_there_is_a_clear_error() {
    let scratch = Scratch::new();
    let (code, stdout, stderr) = parts(&scratch.legwork("top").output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_eq!(
        stderr,
        "legwork: top needs a terminal on stdin and stdout\n\
         hint: `legwork ps` lists the tasks, `legwork approvals` the questions\n"
    );
    assert!(!fs::exists(scratch.state.path().join("ledger.db")).unwrap(), "it made nothing");
}

#[test]
fn a_signal_gives_the_terminal_back_also_while_a_task_has_it() {
    let scratch = Scratch::new();
    scratch.promote("exec python3 -q -i", &json!({ "tty": true }));
    for (number, code, attached) in
        [(Signal::TERM, 143, false), (Signal::HUP, 129, false), (Signal::TERM, 143, true)]
    {
        let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
        tmux.shows("│ >>>");
        if attached {
            tmux.press(&["Enter"]);
            tmux.until("python alone", |screen| screen.starts_with(">>>"));
        }
        signal(tmux.pid(), number);
        tmux.assert_given_back(code);
        let _ = fs::remove_file(scratch.state.path().join("after"));
    }
    assert_eq!(scratch.tasks()[0]["status"], "running");
}

#[test]
fn top_that_was_stopped_draws_itself_anew_when_it_goes_on() {
    let scratch = Scratch::new();
    scratch.result("echo something");
    let Some(tmux) = Tmux::top(&scratch, (80, 20), &[]) else { return };
    tmux.shows("echo something");
    let pid = tmux.pid();
    signal(pid, Signal::STOP);
    eventually("it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") T ").then_some(())
    });
    // A shell would take the terminal as it likes it, and print.
    tmux.sanely_reset();
    assert!(!tmux.screen().contains("echo something"), "{}", tmux.screen());
    signal(pid, Signal::CONT);
    tmux.shows("echo something");
    tmux.press(&["?"]);
    tmux.shows("select a task");
    tmux.press(&["q"]);
    tmux.assert_given_back(0);
}

#[test]
fn the_death_of_the_server_that_owns_the_tasks_changes_nothing() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    let cmd = format!("echo begun; while [ ! -e {gate} ]; do sleep 0.05; done; echo done >&2");
    wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 }));
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("│ begun");
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
    let task = scratch.promote("echo another; exec sleep 1000", &json!({}));
    tmux.shows("2 running, 2 tasks");
    open(&gate);
    tmux.shows("1 running, 2 tasks");
    tmux.shows("exit 0");
    tmux.press(&["G"]);
    tmux.shows("│ done");
    scratch.legwork("stop").arg(&task).output().unwrap();
    tmux.shows("0 running, 2 tasks");
    eventually("nothing is asked", || tmux.screen().contains("/ filter").then_some(()));
}
