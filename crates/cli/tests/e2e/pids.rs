//! A pid that is used again: whoever has it now is a stranger, and is not signalled.

use std::process::Command;

use crate::common::{Scratch, program, text};

/// In a pid namespace of its own, where the next number can be chosen: a task is lost together with
/// its warden, a stranger gets its command's number at once, and then everything is done that could
/// signal it.
const SCRIPT: &str = r#"
set -e
lw() { verb=$1; shift; "$LW" "$verb" --state "$STATE" "$@"; }
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p" | head -n 1; }
call() { lw call --mode open --json "$@"; }
task=$(call ExecCommand '{"cmd":"exec sleep 1000","login":false,"yield_time_ms":0}' | field task_id)
victim=$(call TaskStatus "{\"task_id\":\"$task\"}" | field pid)
warden=$(sed 's/.*) //' /proc/$victim/stat | cut -d' ' -f2)
[ "$WARDEN" = spared ] || kill -9 $warden
kill -9 $victim || true # whoever looks after what a warden leaves may have been faster
while [ -e /proc/$victim ]; do :; done
tries=0
while :; do
    echo $((victim - 1)) > /proc/sys/kernel/ns_last_pid
    sleep 1000 &
    [ $! = $victim ] && break
    kill -9 $!; tries=$((tries + 1)); [ $tries -lt 100 ]
done
call TaskStop "{\"task_id\":\"$task\",\"grace_ms\":10}" >/dev/null || true
lw stop $task --signal KILL >/dev/null 2>&1 || true
lw ps --json | field status
call TaskStop "{\"task_id\":\"$task\"}" >/dev/null || true
kill -0 $victim && echo "the stranger lives"
"#;

fn strangers(warden: &str) -> Option<String> {
    let scratch = Scratch::new();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", SCRIPT]);
    command.env("LW", program()).env("STATE", scratch.state.path());
    command.env("WARDEN", warden).env("SHELL", "/bin/sh").current_dir(scratch.workspace.path());
    command.env("XDG_CONFIG_HOME", scratch.state.path());
    if !rustix::process::getuid().is_root() {
        skips::skip("only root can choose the next pid");
        return None;
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(text(&output.stdout))
}

#[test]
fn a_stranger_with_the_pid_of_a_lost_command_is_not_signalled() {
    if let Some(told) = strangers("killed") {
        assert_eq!(told, "interrupted\nthe stranger lives\n");
    }
}

#[test]
fn a_stranger_with_the_pid_of_a_command_that_has_just_ended_is_not_signalled() {
    if let Some(told) = strangers("spared") {
        assert_eq!(told, "failed\nthe stranger lives\n");
    }
}
