//! What becomes of connections is told: in events, in metrics, and by whoever records the end. And
//! the limits of them.

use std::process::Command;

use serde_json::{Value, json};

use super::{ADDRESS, Network, connections};
use crate::{
    common::eventually,
    http::{Serving, events::Following, token},
};

#[test]
fn a_server_counts_connections_and_their_bytes_and_tells_of_a_refused_one() {
    let Some(network) = Network::new() else { return };
    let operator = token(&network.scratch, "me", &["--role", "operator"]);
    let mut serve = network.legwork("serve", &network.policy(""));
    serve.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn(serve);
    let counted = || {
        let page = serving.get("/metrics", &operator).body;
        let of = |name: &str| -> u64 {
            let line = page.lines().find(|line| line.starts_with(&format!("legwork_{name} ")));
            line.unwrap_or_else(|| panic!("no {name}: {page}"))
                .rsplit(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let connections =
            ["made", "refused"].map(|it| of(&format!("connections_total{{result=\"{it}\"}}")));
        let bytes =
            ["out", "in"].map(|it| of(&format!("connection_bytes_total{{direction=\"{it}\"}}")));
        (connections, bytes)
    };
    assert_eq!(counted(), ([0, 0], [0, 0]));
    let cmd = network.filled(
        "curl -sS http://index.test:$HTTP/hello http://index.test:$HTTP/hello; \
         curl -sS http://evil.test:$HTTP/hello",
    );
    let mut events = Following::open(&serving, &operator, "", None);
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 60_000 });
    let reply = serving.post("/api/v1/tasks", &operator, &input);
    let result = reply.good();
    let told = loop {
        let (name, data) = events.next();
        assert_ne!(name, "lagged", "{data}");
        if name == "connection_refused" {
            break data;
        }
    };
    assert_eq!(told["task_id"], result["task_id"], "{told:#} {result:#}");
    assert_eq!((&told["host"], &told["port"]), (&json!("evil.test"), &json!(network.http)));
    assert_eq!(told["rule"], "network.deny evil.test:*", "{told:#}");
    let (made, bytes) = eventually("they are counted", || {
        Some(counted()).filter(|(connections, _)| *connections != [0, 0])
    });
    assert_eq!(made, [2, 1]);
    let [out, came] = bytes;
    assert!(out > 100 && came > 100, "{bytes:?}");
}

#[test]
fn more_connections_at_a_time_than_allowed_wait_until_one_ends() {
    let Some(network) = Network::new() else { return };
    // What has to wait is answered only after another has ended, however long that takes.
    let script = "import select, socket\n\
        def ask():\n\
        \x20   s = socket.create_connection(('127.0.0.1', 61128))\n\
        \x20   s.sendall(b'CONNECT index.test:$HTTP HTTP/1.1\\r\\n\\r\\n')\n\
        \x20   return s\n\
        def answer(s): return s.recv(4096).split(b' ')[1].decode()\n\
        first, second = ask(), ask()\n\
        print(answer(first), answer(second))\n\
        third = ask()\n\
        print(len(select.select([third], [], [], 0.3)[0]))\n\
        first.close()\n\
        print(answer(third))\n";
    std::fs::write(network.file("many.py"), network.filled(script)).unwrap();
    let result = network.by(&network.policy("connections_max = 2"), "python3 many.py");
    assert_eq!(result["stdout_preview"], "200 200\n0\n200", "{result:#}");
    assert_eq!(result["connections"][0]["count"], 3, "{result:#}");
}

#[test]
fn a_host_that_does_not_answer_is_given_up() {
    let Some(network) = Network::new() else { return };
    // A queue of connections that is full: the kernel drops what comes.
    let script = format!(
        "import socket, sys\n\
         s = socket.socket(); s.bind(('{ADDRESS}', 0)); s.listen(0)\n\
         held = [socket.socket() for _ in range(8)]\n\
         for one in held: one.setblocking(False); one.connect_ex(s.getsockname())\n\
         print(s.getsockname()[1], flush=True); sys.stdin.read()\n"
    );
    let mut silent = Command::new("python3");
    silent.args(["-c", &script]).stdin(std::process::Stdio::piped());
    let mut silent = silent.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    let stdout = silent.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut port).unwrap();
    let port = port.trim();
    let policy = format!(
        "[network]\nmode = \"names\"\nconnect_ms_max = \"300ms\"\n\
         allow = [\"index.test:{port}\", \"{ADDRESS}:{port}\"]\n"
    );
    let result = network.by(&policy, &format!("curl -sS http://index.test:{port}/"));
    drop(silent.stdin.take());
    silent.wait().unwrap();
    let rule = format!("network.allow index.test:{port}");
    assert_eq!(connections(&result), [("index.test", "failed", rule.as_str())], "{result:#}");
    let reason = result["connections"][0]["reason"].as_str().unwrap();
    assert!(reason.contains(ADDRESS), "{result:#}");
    assert!(result["stdout_preview"].as_str().unwrap().contains("legwork"), "{result:#}");
    assert_eq!(result.get("denials"), None::<&Value>, "nothing of ours refused it: {result:#}");
}
