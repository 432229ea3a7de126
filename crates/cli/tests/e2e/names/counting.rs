//! What connections came to is told exactly, whatever ended them and whenever that was.

use std::{fs, process::Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Network, connections, proxies};
use crate::{
    common::{eventually, open, program, signal, text},
    http::{Serving, token},
};

/// Fetches this many bytes through a tunnel, says so, and keeps the connection.
const KEPT: &str = "import socket\n\
    s = socket.create_connection(('127.0.0.1', 61128))\n\
    s.sendall(b'CONNECT index.test:$HTTP HTTP/1.1\\r\\n\\r\\n')\n\
    assert b' 200 ' in s.recv(4096)\n\
    s.sendall(b'GET /big?300000 HTTP/1.1\\r\\nHost: index.test\\r\\n\\r\\n')\n\
    got = b''\n\
    while len(got.partition(b'\\r\\n\\r\\n')[2]) < 300000: got += s.recv(65536)\n\
    open('ready', 'w').close()\n\
    print('ended' if s.recv(99) == b'' else 'got something')\n";

fn keep(network: &Network) -> std::process::Child {
    fs::write(network.file("kept.py"), network.filled(KEPT)).unwrap();
    let input = json!({ "cmd": "python3 kept.py", "login": false, "yield_time_ms": 60_000 });
    let mut call = network.legwork("call", &network.policy(""));
    call.args(["ExecCommand", "--json", &input.to_string()]).stdout(Stdio::piped());
    let call = call.spawn().unwrap();
    eventually("the open connection", || fs::exists(network.file("ready")).ok()?.then_some(()));
    call
}

#[track_caller]
fn has_all_bytes(result: &Value) {
    let [one] = &result["connections"].as_array().unwrap()[..] else { panic!("{result:#}") };
    assert_eq!((&one["verdict"], &one["count"]), (&json!("allowed"), &json!(1)), "{result:#}");
    let out = "GET /big?300000 HTTP/1.1\r\nHost: index.test\r\n\r\n".len();
    assert_eq!(one["bytes_out"], out, "{result:#}");
    assert!(one["bytes_in"].as_u64() > Some(300_000), "{result:#}");
}

#[test]
fn bytes_of_a_connection_that_ended_with_its_killed_proxy_are_told() {
    let Some(network) = Network::new() else { return };
    let call = keep(&network);
    let [proxy] = proxies(&network)[..] else { panic!("not one proxy") };
    signal(proxy, Signal::KILL);
    let output = call.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["result"]["stdout_preview"], "ended", "{envelope:#}");
    has_all_bytes(&envelope["result"]);
}

#[test]
fn bytes_of_a_connection_that_a_stop_cut_off_are_told() {
    let Some(network) = Network::new() else { return };
    let call = keep(&network);
    let id = network.scratch.tasks()[0]["task_id"].as_str().unwrap().to_owned();
    network.scratch.get("TaskStop", &json!({ "task_id": id, "grace_ms": 0 }));
    call.wait_with_output().unwrap();
    let task = eventually("its end", || {
        Some(network.scratch.status(&id)).filter(|task| task["status"] != "running")
    });
    has_all_bytes(&task);
}

#[test]
fn what_processes_send_that_were_left_running_is_noted_when_the_last_is_gone() {
    let Some(network) = Network::new() else { return };
    let operator = token(&network.scratch, "me", &["--role", "operator"]);
    let mut serve = network.legwork("serve", &network.policy(""));
    serve.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn(serve);
    let cmd = network.filled(
        "curl -sS http://index.test:$HTTP/hello > first; (until [ -e gate ]; do sleep 0.02; done; \
         curl -sS http://index.test:$HTTP/hello; curl -sS http://evil.test:$HTTP/hello) > late 2>&1 &",
    );
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 60_000 });
    let result = serving.post("/api/v1/tasks", &operator, &input).good();
    let noted = || {
        let mut audit = std::process::Command::new(program());
        audit.args(["audit", "show", "--json", "--state"]).arg(network.scratch.state.path());
        let audit = text(&audit.output().unwrap().stdout);
        let lines = audit.lines().filter(|line| line.contains("\"connection\""));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let before = eventually("the first is noted", || Some(noted()).filter(|it| !it.is_empty()));
    assert_eq!(before.len(), 1, "{before:#?}");
    open(&network.file("gate"));
    let all = eventually("the others are noted", || Some(noted()).filter(|it| it.len() > 1));
    let [first, later, refused] = &all[..] else { panic!("{all:#?} {result:#}") };
    assert_eq!((&first["when"], &first["count"]), (&Value::Null, &json!(1)), "{all:#?}");
    assert_eq!((&later["when"], &later["count"]), (&json!("after_end"), &json!(1)), "{all:#?}");
    assert_eq!((&later["host"], &later["verdict"]), (&json!("index.test"), &json!("allowed")));
    assert_eq!(later["bytes_in"], first["bytes_in"], "{all:#?}");
    assert_eq!((&refused["host"], &refused["verdict"]), (&json!("evil.test"), &json!("refused")));
    let metrics = serving.get("/metrics", &operator).body;
    assert!(metrics.contains("legwork_connections_total{result=\"made\"} 2"), "{metrics}");
}

#[test]
fn a_connection_whose_tls_names_another_server_is_refused_and_not_also_allowed() {
    let Some(network) = Network::new() else { return };
    let connect = "curl -sS --cacert ca.pem --connect-to evil.test:$HTTPS:index.test:$HTTPS \
        https://evil.test:$HTTPS/hello";
    let result = network.run(connect);
    assert_eq!(connections(&result), [("index.test", "refused", "network-server-name")]);
    assert_eq!(result["connections"][0]["count"], 1, "{result:#}");
}

#[test]
fn names_that_are_too_many_to_be_told_are_counted_by_their_verdicts() {
    let Some(network) = Network::new() else { return };
    let script = "import socket\n\
        for n in range(100):\n\
        \x20   s = socket.create_connection(('127.0.0.1', 61128))\n\
        \x20   s.sendall(f'CONNECT n{n}.test:443 HTTP/1.1\\r\\n\\r\\n'.encode()); s.recv(4096)\n";
    fs::write(network.file("many.py"), script).unwrap();
    let result = network.run("python3 many.py; curl -sS http://index.test:$HTTP/hello");
    let all = result["connections"].as_array().unwrap();
    let counted: u64 = all.iter().map(|it| it["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, 101, "{result:#}");
    let others = |verdict: &str| {
        let is_it = |it: &&Value| it["host"] == "(others)" && it["verdict"] == verdict;
        all.iter().filter(is_it).map(|it| it["count"].as_u64().unwrap()).sum::<u64>()
    };
    // How many have room depends on how long they are.
    assert!(others("refused") >= 36 && others("allowed") == 1, "{result:#}");
    let told = format!("{} connections to further hosts", others("refused"));
    assert!(result["denials"].to_string().contains(&told), "{result:#}");
}
