//! A proxy lives as long as the sandbox that needs it: longer than its engine, and no longer.

use std::{
    fs,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::json;

use super::{Network, connections, proxies};
use crate::common::{children, eventually, is_alive, open, parent, program, signal, text};

/// The processes of this name below a process.
fn named(root: u32, name: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let mut rest = vec![root];
    while let Some(pid) = rest.pop() {
        let below = children(pid);
        rest.extend(&below);
        found.extend(below.into_iter().filter(|it| {
            fs::read_to_string(format!("/proc/{it}/comm")).is_ok_and(|comm| comm.trim() == name)
        }));
    }
    found
}

/// A command that fetches, waits for a gate, and fetches again.
const IN_TWO_STEPS: &str = "curl -sS http://index.test:$HTTP/hello > first; touch ready; \
    until [ -e gate ]; do sleep 0.02; done; curl -sS http://index.test:$HTTP/hello";

#[test]
fn a_proxy_outlives_its_engine_and_is_found_by_the_next() {
    let Some(network) = Network::new() else { return };
    let input = json!({ "cmd": network.filled(IN_TWO_STEPS), "login": false }).to_string();
    let mut call = network.legwork("call", &network.policy(""));
    call.args(["ExecCommand", "--json", &input]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut engine = call.spawn().unwrap();
    eventually("the first step", || fs::exists(network.file("ready")).ok()?.then_some(()));
    let [proxy] = proxies(&network)[..] else { panic!("not one proxy") };
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert!(is_alive(proxy));
    // The next engine finds the task, and its way out goes on.
    let tasks = network.scratch.tasks();
    let id = tasks[0]["task_id"].as_str().unwrap();
    assert_eq!(tasks[0]["status"], "running", "{tasks:?}");
    assert!(is_alive(proxy));
    open(&network.file("gate"));
    network.scratch.wait(id, &json!({ "exit": true }));
    let task = network.scratch.status(id);
    assert_eq!(task["exit_status"], 0, "{task:#}");
    assert!(text(&network.scratch.printed(&json!(id))).starts_with("hello from"));
    eventually("nothing of it is left", || (!is_alive(proxy)).then_some(()));
}

#[test]
fn connections_of_a_command_that_ended_without_an_engine_are_known_to_the_next() {
    let Some(network) = Network::new() else { return };
    let refused = "; curl -sS http://evil.test:$HTTP/hello";
    let cmd = network.filled(&format!("{IN_TWO_STEPS}{refused}"));
    let input = json!({ "cmd": cmd, "login": false }).to_string();
    let mut call = network.legwork("call", &network.policy(""));
    call.args(["ExecCommand", "--json", &input]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut engine = call.spawn().unwrap();
    eventually("the first step", || fs::exists(network.file("ready")).ok()?.then_some(()));
    let [proxy] = proxies(&network)[..] else { panic!("not one proxy") };
    let warden = parent(proxy);
    engine.kill().unwrap();
    engine.wait().unwrap();
    open(&network.file("gate"));
    // Nobody is there to be told but the disk.
    eventually("proxy and warden are gone", || {
        (!is_alive(proxy) && !is_alive(warden)).then_some(())
    });
    let tasks = network.scratch.tasks();
    let task = network.scratch.status(tasks[0]["task_id"].as_str().unwrap());
    assert_eq!(task["exit_status"], 0, "{task:#}");
    let (allow, deny) = (network.allowed_by(), "network.deny evil.test:*");
    let expected = [("index.test", "allowed", allow.as_str()), ("evil.test", "refused", deny)];
    assert_eq!(connections(&task), expected, "{task:#}");
    let first = &task["connections"][0];
    assert_eq!(first["count"], 2, "{task:#}");
    assert!(first["bytes_in"].as_u64() > Some(100), "{task:#}");
    assert!(task["denials"].to_string().contains("connection to evil.test"), "{task:#}");
    // Each is in the audit log, once.
    let mut audit = Command::new(program());
    audit.args(["audit", "show", "--json", "--state"]).arg(network.scratch.state.path());
    let audit = text(&audit.output().unwrap().stdout);
    let noted = |word: &str| {
        let is_it = |line: &&str| line.contains("\"connection\"") && line.contains(word);
        audit.lines().filter(is_it).count()
    };
    assert_eq!((noted("index.test"), noted("evil.test")), (1, 1), "{audit}");
}

#[test]
fn a_killed_proxy_ends_its_connections_and_the_next_connection_gets_another() {
    let Some(network) = Network::new() else { return };
    let slow = "curl -sS http://index.test:$HTTP/hello > first; \
        python3 -c \"import socket; s = socket.create_connection(('127.0.0.1', 61128)); \
        s.sendall(b'CONNECT index.test:$HTTP HTTP/1.1\\r\\n\\r\\n'); s.recv(99); \
        open('ready', 'w'); print('ended' if s.recv(99) == b'' else 'got something')\"; \
        curl -sS --retry 5 --retry-delay 1 --retry-all-errors http://index.test:$HTTP/hello";
    let input = json!({ "cmd": network.filled(slow), "login": false, "yield_time_ms": 60_000 });
    let mut call = network.legwork("call", &network.policy(""));
    call.args(["ExecCommand", "--json", &input.to_string()]).stdout(Stdio::piped());
    let call = call.spawn().unwrap();
    eventually("the open connection", || fs::exists(network.file("ready")).ok()?.then_some(()));
    let [proxy] = proxies(&network)[..] else { panic!("not one proxy") };
    signal(proxy, Signal::KILL);
    let output = call.wait_with_output().unwrap();
    let envelope: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &envelope["result"];
    let printed = result["stdout_preview"].as_str().unwrap_or_default();
    let first = printed.lines().next().unwrap_or_default();
    assert!(first == "ended" || first.is_empty(), "{envelope:#}");
    assert!(printed.contains("hello from"), "{envelope:#}");
    assert_eq!(result["exit_status"], 0, "{envelope:#}");
    let all = connections(result);
    assert!(
        all.contains(&("index.test", "allowed", network.allowed_by().as_str())),
        "{envelope:#}"
    );
    assert_eq!(result["connections"][0]["count"], 3, "those of both: {envelope:#}");
    eventually("nothing of it is left", || proxies(&network).is_empty().then_some(()));
}

#[test]
fn without_a_connection_there_is_no_proxy_and_a_server_keeps_none() {
    let Some(network) = Network::new() else { return };
    let mut server = network.legwork("mcp", &network.policy(""));
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    eventually("its wardens", || (!named(server.id(), "legwork-warden").is_empty()).then_some(()));
    assert_eq!(named(server.id(), "legwork-proxy"), Vec::<u32>::new());
    drop(server.stdin.take());
    server.wait().unwrap();
    network.run("true");
    network.run("curl -sS http://index.test:$HTTP/hello");
    eventually("nothing of it is left", || proxies(&network).is_empty().then_some(()));
}

#[test]
fn a_background_process_keeps_the_way_out_and_a_stop_ends_both() {
    let Some(network) = Network::new() else { return };
    let cmd = "(touch started; until [ -e gate ]; do sleep 0.02; done; \
        curl -sS http://index.test:$HTTP/hello > late; touch done; sleep 600) > /dev/null 2>&1 &";
    let result = network.run(cmd);
    assert_eq!(result["background_pids"].as_array().map(Vec::is_empty), Some(false), "{result:#}");
    open(&network.file("gate"));
    eventually("its answer", || fs::exists(network.file("done")).ok()?.then_some(()));
    let late = fs::read_to_string(network.file("late")).unwrap();
    assert!(late.starts_with("hello from"), "{late}");
    let [proxy] = proxies(&network)[..] else { panic!("not one proxy") };
    let stop = json!({ "task_id": result["task_id"], "grace_ms": 100 });
    network.scratch.get("TaskStop", &stop);
    eventually("nothing of it is left", || (!is_alive(proxy)).then_some(()));
}

impl Network {
    /// The rule that allows plain HTTP to the index.
    fn allowed_by(&self) -> String {
        format!("network.allow index.test:{}", self.http)
    }
}
