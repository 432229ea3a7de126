//! A name that no rule speaks of becomes a question, and its connection waits for the answer.

use std::{fs, process::Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use super::{Network, connections};
use crate::{
    common::{eventually, text},
    mcp::Wire,
};

const ASK: &str = "ask = true";

/// The open questions.
fn open(network: &Network) -> Vec<Value> {
    let output = network.scratch.legwork("approvals").arg("--json").output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let listed = listed.as_array().cloned().or_else(|| listed["approvals"].as_array().cloned());
    listed.unwrap_or_default()
}

/// Starts a command that will be asked about, somebody being there to answer.
fn started(network: &Network, cmd: &str) -> std::process::Child {
    let policy = format!("{}[approval]\nwait_ms = 30000\n", network.policy(ASK));
    let input = json!({ "cmd": network.filled(cmd), "login": false, "yield_time_ms": 60_000 });
    let mut call = network.legwork("call", &policy);
    call.args(["ExecCommand", "--json", &input.to_string()]);
    call.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn result(child: std::process::Child) -> Value {
    let output = child.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["status"], "success", "{envelope:#}");
    envelope["result"].clone()
}

fn answer(network: &Network, verb: &str, id: &str, more: &[&str]) {
    let output = network.scratch.legwork(verb).arg(id).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn asked(network: &Network) -> Value {
    eventually("a question", || open(network).into_iter().next())
}

#[test]
fn an_unknown_name_is_asked_about_once_and_its_connections_wait() {
    let Some(network) = Network::new() else { return };
    let port = network.http;
    let twice = "curl -sS http://files.test:$HTTP/hello & curl -sS http://files.test:$HTTP/hello; wait; \
        curl -sS http://files.test:$HTTP/hello";
    let child = started(&network, twice);
    let question = asked(&network);
    assert_eq!(question["cause"], format!("files.test:{port}"), "{question:#}");
    let reason = question["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("connect to files.test:{port}")), "{question:#}");
    let id = question["approval_id"].as_str().unwrap();
    let shown = text(&network.scratch.legwork("approvals").arg(id).output().unwrap().stdout);
    assert!(shown.contains("May it connect?") && shown.contains("[[connect]]"), "{shown}");
    assert_eq!(open(&network).len(), 1, "one for all connections to the name");
    answer(&network, "approve", id, &[]);
    let result = result(child);
    assert_eq!(result["exit_status"], 0, "{result:#}");
    assert_eq!(connections(&result), [("files.test", "approved", "network-names")], "{result:#}");
    assert_eq!(result["connections"][0]["count"], 3, "{result:#}");
    assert_eq!(open(&network), Vec::<Value>::new());
    // Once is for this task.
    let child = started(&network, "curl -sS http://files.test:$HTTP/hello");
    let id = asked(&network)["approval_id"].as_str().unwrap().to_owned();
    answer(&network, "deny", &id, &["--note", "not today"]);
    let refused = super::questions::result(child);
    assert_eq!(connections(&refused), [("files.test", "not_approved", "network-names")]);
    let why = refused["denials"][0]["what"].as_str().unwrap();
    assert!(why.contains("asked about, and refused; the person says: not today"), "{refused:#}");
    assert_eq!(refused["denials"][0]["by"], "person", "{refused:#}");
}

#[test]
fn an_answer_can_be_saved_as_a_rule_for_the_name() {
    let Some(network) = Network::new() else { return };
    let child = started(&network, "curl -sS http://files.test:$HTTP/hello");
    let id = asked(&network)["approval_id"].as_str().unwrap().to_owned();
    answer(&network, "approve", &id, &["--rule"]);
    assert_eq!(result(child)["exit_status"], 0);
    let saved =
        fs::read_to_string(network.scratch.state.path().join("legwork/config.toml")).unwrap();
    let name = format!("name = \"files.test:{}\"", network.http);
    assert!(saved.contains("[[connect]]") && saved.contains(&name), "{saved}");
    // Nobody is asked about it any more.
    let next = network.run("curl -sS http://files.test:$HTTP/hello");
    assert_eq!(next["exit_status"], 0, "{next:#}");
    let [(host, verdict, rule)] = connections(&next)[..] else { panic!("{next:#}") };
    assert_eq!((host, verdict), ("files.test", "allowed"));
    assert!(rule.starts_with("approved-"), "{rule}");
}

#[test]
fn where_nobody_can_be_asked_the_connection_fails_at_once_and_the_answer_is_for_the_next() {
    let Some(network) = Network::new() else { return };
    let policy = network.policy(ASK);
    let refused = network.by(&policy, "curl -sS http://files.test:$HTTP/hello");
    assert_eq!(connections(&refused), [("files.test", "not_approved", "network-names")]);
    let what = refused["denials"][0]["what"].as_str().unwrap();
    assert!(what.contains("it has to be approved (question a_"), "{refused:#}");
    let id = asked(&network)["approval_id"].as_str().unwrap().to_owned();
    answer(&network, "approve", &id, &[]);
    let allowed = network.by(&policy, "curl -sS http://files.test:$HTTP/hello");
    assert_eq!(connections(&allowed), [("files.test", "approved", "network-names")]);
    let again = network.by(&policy, "curl -sS http://files.test:$HTTP/hello");
    assert_eq!(connections(&again), [("files.test", "not_approved", "network-names")], "once");
}

#[test]
fn an_answer_for_the_session_is_for_every_later_command_of_it_and_for_nobody_else() {
    let Some(network) = Network::new() else { return };
    let policy = format!("{}[approval]\nwait_ms = 30000\n", network.policy(ASK));
    let mut wire = Wire::spawn(network.legwork("mcp", &policy));
    wire.initialize();
    let call = |path: &str| {
        let cmd = network.filled(&format!("curl -sS http://files.test:$HTTP/{path}"));
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 60_000 });
        json!({ "name": "ExecCommand", "arguments": input })
    };
    wire.send("tools/call", &call("hello"));
    let id = asked(&network)["approval_id"].as_str().unwrap().to_owned();
    answer(&network, "approve", &id, &["--session"]);
    let first = wire.read();
    assert!(first.to_string().contains("hello from files.test"), "{first:#}");
    // Another command, the same name: nobody is asked.
    let second = wire.request("tools/call", &call("hello?again"));
    assert!(second.to_string().contains("hello from files.test"), "{second:#}");
    assert_eq!(open(&network), Vec::<Value>::new());
    let task = &network.scratch.tasks()[0]["task_id"];
    let task = network.scratch.status(task.as_str().unwrap());
    assert_eq!(connections(&task), [("files.test", "approved", "network-names")], "{task:#}");
    // Another session is asked, and nobody is there to answer.
    let other = network.by(&network.policy(ASK), "curl -sS http://files.test:$HTTP/hello");
    assert_eq!(connections(&other), [("files.test", "not_approved", "network-names")]);
}

#[test]
fn a_task_asks_about_so_many_names_and_each_costs_nothing_once_it_is_answered() {
    let Some(network) = Network::new() else { return };
    let script = "import os, socket, time\n\
        def ask(host):\n\
        \x20   s = socket.create_connection(('127.0.0.1', 61128))\n\
        \x20   s.sendall(f'CONNECT {host}:$HTTP HTTP/1.1\\r\\n\\r\\n'.encode())\n\
        \x20   return s.recv(4096).split(b' ')[1].decode()\n\
        print(ask('index.test'))\n\
        open('ready', 'w').close()\n\
        while not os.path.exists('gate'): time.sleep(0.02)\n\
        print({ask(f'n{n}.test') for n in range(70)}, ask('index.test'))\n";
    fs::write(network.file("ask.py"), network.filled(script)).unwrap();
    let input = json!({ "cmd": "python3 ask.py", "login": false, "yield_time_ms": 60_000 });
    let mut call = network.legwork("call", &network.policy(ASK));
    call.args(["ExecCommand", "--json", &input.to_string()]).stdout(Stdio::piped());
    let call = call.spawn().unwrap();
    eventually("the first", || fs::exists(network.file("ready")).ok()?.then_some(()));
    let [proxy] = super::proxies(&network)[..] else { panic!("not one proxy") };
    // Fewer descriptors than questions: whatever waits for an answer is closed with it.
    let few = Rlimit { current: Some(40), maximum: Some(40) };
    prlimit(Pid::from_raw(proxy.cast_signed()), Resource::Nofile, few).unwrap();
    crate::common::open(&network.file("gate"));
    let result = result(call);
    assert_eq!(result["stdout_preview"], "200\n{'403'} 200", "{result:#}");
    assert_eq!(open(&network).len(), 64);
}
