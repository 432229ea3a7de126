//! Layers and wardens that are made ahead for trials: used once, never when it does not fit any
//! more, and nothing of it is left.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::can_try;
use crate::{
    common::{Scratch, eventually, signal},
    mcp::Wire,
};

/// What is copied is tried before anybody is asked.
const TRY: &str = "[[rule]]\ndecision = \"try\"\nprogram = \"cp\"\n";

fn client(command: Command) -> Wire {
    let mut wire = Wire::spawn(command);
    wire.request(
        "initialize",
        &json!({
            "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "ahead", "version": "1" },
        }),
    );
    wire.write(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    wire
}

/// What stands in the folder of what is made ahead: the layers of one warden.
fn ahead(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.join("ahead")).into_iter().flatten().flatten();
    entries.map(|it| it.path()).collect()
}

/// Waits until the layers of a warden are mounted.
fn ready(state: &Path) -> PathBuf {
    eventually("a warden is ready", || {
        let is_mounted = |it: &PathBuf| it.join("0/work/0/work").is_dir();
        ahead(state).into_iter().find(is_mounted)
    })
}

/// Does something until it has used what was made ahead: a file `mark` that lies there comes along.
/// The engine may hear of what is mounted a moment after us.
fn used_ahead(state: &Path, mut act: impl FnMut(u32) -> bool) {
    for attempt in 0..20 {
        fs::write(ready(state).join("mark"), "").unwrap();
        if act(attempt) {
            return;
        }
    }
    panic!("what was made ahead is never used");
}

/// Has a command tried; the question about it, which is then answered.
fn tried(wire: &mut Wire, cmd: &str, decision: &str) -> (Value, Value) {
    let input = json!({ "cmd": cmd, "login": false });
    wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
    let question = wire.read();
    assert_eq!(question["method"], "elicitation/create", "{question:#}");
    let layers = question["params"]["message"].clone();
    let result = json!({ "action": "accept", "content": { "decision": decision } });
    wire.write(json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }).to_string());
    (layers, wire.read()["result"].clone())
}

#[test]
fn a_trial_gets_what_was_made_ahead_and_sees_the_files_as_they_are_then() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let state = scratch.state.path().to_owned();
    for name in ["kept", "changed", "removed", "folder/old", "mode/file"] {
        scratch.write(name, "before\n");
    }
    let mut wire = client(scratch.guarded("mcp", "guarded", Some(TRY)));
    tried(&mut wire, "cp kept first", "deny");
    used_ahead(&state, |attempt| {
        // A person goes on working.
        scratch.write("changed", &format!("{attempt} by a person\n"));
        scratch.write("new/deep", &format!("{attempt} by a person\n"));
        let _ = fs::remove_file(scratch.file("removed"));
        let _ = fs::remove_dir_all(scratch.file("folder"));
        let _ = fs::remove_file(scratch.file("folder"));
        symlink("new", scratch.file("folder")).unwrap();
        let see =
            "cp changed result; ls >> result; cat folder/deep >> result; echo more >> changed";
        let input = json!({ "cmd": see, "login": false });
        wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
        let question = wire.read();
        let used = scratch.trials_left().iter().any(|it| it.join("mark").exists());
        let shown = question["params"]["message"].as_str().unwrap();
        let person = format!("+{attempt} by a person");
        for line in [&person, "+changed", "+kept", "+new", "+more"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        assert!(!shown.contains("+removed") && !shown.contains("+before"), "{shown}");
        // What was changed before the command began was not changed underneath.
        let result = json!({ "action": "accept", "content": { "decision": "apply" } });
        wire.write(json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }).to_string());
        let told = wire.read()["result"].clone();
        assert_eq!(told["isError"], false, "{told:#}");
        let changed = fs::read_to_string(scratch.file("changed")).unwrap();
        assert_eq!(changed, format!("{attempt} by a person\nmore\n"));
        fs::remove_file(scratch.file("result")).unwrap();
        used
    });
}

#[test]
fn what_does_not_fit_any_more_is_not_used() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let state = scratch.state.path().to_owned();
    scratch.write("kept", "before\n");
    let git = |folder: &str| {
        let mut command = Command::new("git");
        command.args(["init", "-q"]).arg(scratch.file(folder));
        assert!(command.status().unwrap().success());
    };
    git(".");
    let mut wire = client(scratch.guarded("mcp", "guarded", Some(TRY)));
    tried(&mut wire, "cp kept first", "deny");
    // The folder that guards of the view are in is another one.
    ready(&state);
    fs::rename(scratch.file(".git"), scratch.file("old")).unwrap();
    git(".");
    fs::write(scratch.file(".git/mark"), "new\n").unwrap();
    let (shown, _) = tried(&mut wire, "cp .git/mark result; ls old >> result", "deny");
    assert!(shown.as_str().unwrap().contains("+new"), "{shown}");
    // The workspace itself has another mode.
    ready(&state);
    fs::set_permissions(scratch.workspace.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let (shown, _) = tried(&mut wire, "cp kept mode; stat -c %a . > mode", "deny");
    assert!(shown.as_str().unwrap().contains("+711"), "{shown}");
    // A warden that was killed while it waited is passed over, and the next is made again.
    let warden = ready(&state).file_name().unwrap().to_owned();
    let warden = warden.into_string().unwrap();
    signal(warden_process(&state, &warden), Signal::KILL);
    let socket = state.join("wardens").join(&warden).with_extension("sock");
    eventually("it is gone", || UnixStream::connect(&socket).is_err().then_some(()));
    let (shown, _) = tried(&mut wire, "cp kept again", "deny");
    assert!(shown.as_str().unwrap().contains("+ again"), "{shown}");
    ready(&state);
}

/// The process that listens at a warden's socket, by the kernel's word.
fn warden_process(state: &Path, name: &str) -> u32 {
    let place = state.join("wardens").join(name).with_extension("sock");
    let socket = UnixStream::connect(place).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&socket).unwrap();
    peer.pid.as_raw_nonzero().get().cast_unsigned()
}

#[test]
fn nothing_of_what_was_made_ahead_is_left_when_its_server_ends_or_is_killed() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let state = scratch.state.path().to_owned();
    scratch.write("kept", "before\n");
    let serve = || {
        let mut wire = client(scratch.guarded("mcp", "guarded", Some(TRY)));
        tried(&mut wire, "cp kept first", "deny");
        ready(&state);
        wire
    };
    drop(serve());
    eventually("what was not used is removed", || ahead(&state).is_empty().then_some(()));
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
    let mut wire = serve();
    let left = ahead(&state);
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
    assert_eq!(ahead(&state), left, "nobody could remove it");
    // What is young may belong to somebody who is just being made.
    let gc = || scratch.legwork("gc").output().unwrap();
    assert!(gc().status.success());
    assert_eq!(ahead(&state), left);
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for folder in &left {
        fs::File::open(folder).unwrap().set_modified(hour_ago).unwrap();
    }
    eventually("the clean-up removes it", || {
        assert!(gc().status.success());
        ahead(&state).is_empty().then_some(())
    });
}
