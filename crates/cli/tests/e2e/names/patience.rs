//! Clients and servers that say nothing, say too much, leave early, or are too many.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use super::{ADDRESS, Network, connections, proxies};
use crate::common::{eventually, open};

/// Processor time that a process has taken, in ticks of which a second has a hundred.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').skip(11).take(2).map(|it| it.parse::<u64>().unwrap()).sum()
}

/// Holds that a proxy does next to nothing for a while.
#[track_caller]
fn is_idle(proxy: u32) {
    let before = ticks(proxy);
    std::thread::sleep(Duration::from_secs(1));
    let taken = ticks(proxy) - before;
    assert!(taken < 30, "it took {taken} of 100 ticks");
}

/// Starts a command and waits for a file that it makes.
fn started(network: &Network, policy: &str, cmd: &str) -> Child {
    let input = json!({ "cmd": network.filled(cmd), "login": false, "yield_time_ms": 60_000 });
    let mut call = network.legwork("call", policy);
    call.args(["ExecCommand", "--json", &input.to_string()]).stdout(Stdio::piped());
    let call = call.spawn().unwrap();
    eventually("it is ready", || fs::exists(network.file("ready")).ok()?.then_some(()));
    call
}

fn result(call: Child) -> Value {
    let output = call.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    envelope["result"].clone()
}

/// Runs the script up to its gate, sees that the proxy is idle there, and lets it go on to its end.
#[track_caller]
fn left_in_peace(network: &Network, policy: &str) -> Value {
    let call = started(network, policy, "python3 script.py");
    let [proxy] = proxies(network)[..] else { panic!("not one proxy") };
    is_idle(proxy);
    open(&network.file("gate"));
    result(call)
}

/// A policy that lets commands connect to a server of the test, and nowhere else.
fn to_server(port: &str) -> String {
    format!("[network]\nmode = \"names\"\nallow = [\"index.test:{port}\", \"{ADDRESS}:{port}\"]\n")
}

/// What most scripts in here begin with.
const HEAD: &str = "import os, socket, time\n\
    def connect(): return socket.create_connection(('127.0.0.1', 61128))\n\
    def wait(name):\n\
    \x20   while not os.path.exists(name): time.sleep(0.02)\n";

fn script(network: &Network, text: &str) {
    fs::write(network.file("script.py"), network.filled(&format!("{HEAD}{text}"))).unwrap();
}

/// A server of the test, as a script that prints its port and ends with its standard input.
struct OwnServer {
    child: Child,
    port: String,
}

impl OwnServer {
    fn start(script: &str) -> Self {
        let mut server = Command::new("python3");
        server.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = server.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, port: port.trim().to_owned() }
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_that_has_left_makes_room_though_its_server_never_answers() {
    let Some(network) = Network::new() else { return };
    script(
        &network,
        "s = connect()\n\
         s.sendall(b'GET http://index.test:$HTTP/silent HTTP/1.1\\r\\nHost: index.test:$HTTP\\r\\n\\r\\n')\n\
         wait('silent')\n\
         s.close()\n\
         began = time.monotonic()\n\
         s = connect()\n\
         s.sendall(b'GET http://index.test:$HTTP/hello HTTP/1.1\\r\\nHost: index.test:$HTTP\\r\\n\\r\\n')\n\
         print(s.recv(4096).split(b' ')[1].decode(), time.monotonic() - began < 30)\n",
    );
    let result = network.by(&network.policy("connections_max = 1"), "python3 script.py");
    assert_eq!(result["stdout_preview"], "200 True", "{result:#}");
}

#[test]
fn a_client_that_closes_its_side_after_its_request_still_hears_the_answer() {
    let Some(network) = Network::new() else { return };
    script(
        &network,
        "s = connect()\n\
         s.sendall(b'GET http://index.test:$HTTP/hello HTTP/1.1\\r\\nHost: index.test:$HTTP\\r\\n\\r\\n')\n\
         s.shutdown(socket.SHUT_WR)\n\
         print(s.recv(4096).split(b' ')[1].decode())\n",
    );
    assert_eq!(network.prints("python3 script.py").trim(), "200");
}

#[test]
fn a_client_that_keeps_sending_after_its_request_keeps_no_processor_busy() {
    let Some(network) = Network::new() else { return };
    script(
        &network,
        "s = connect()\n\
         s.sendall(b'GET http://index.test:$HTTP/silent HTTP/1.1\\r\\nHost: index.test:$HTTP\\r\\n\\r\\n')\n\
         wait('silent')\n\
         s.setblocking(False)\n\
         try:\n\
         \x20   while True: s.send(bytes(65536))\n\
         except BlockingIOError: pass\n\
         open('ready', 'w').close(); wait('gate')\n\
         s.close()\n\
         s = connect()\n\
         s.sendall(b'GET http://evil.test:$HTTP/hello HTTP/1.1\\r\\nHost: evil.test:$HTTP\\r\\n\\r\\n')\n\
         until = time.monotonic() + 30\n\
         try:\n\
         \x20   while time.monotonic() < until: s.send(bytes(1024))\n\
         \x20   print('still there')\n\
         except OSError: print('closed')\n",
    );
    let result = left_in_peace(&network, &network.policy(""));
    assert_eq!(result["stdout_preview"], "closed", "{result:#}");
    let out = result["connections"][0]["bytes_out"].as_u64().unwrap();
    assert!(out < 1000, "nothing but the request went out: {result:#}");
}

#[test]
fn without_descriptors_connections_wait_and_keep_no_processor_busy() {
    let Some(network) = Network::new() else { return };
    script(
        &network,
        "def ask():\n\
         \x20   s = connect()\n\
         \x20   s.sendall(b'CONNECT index.test:$HTTP HTTP/1.1\\r\\n\\r\\n')\n\
         \x20   return s\n\
         first = ask(); first.recv(4096)\n\
         open('first', 'w').close(); wait('fewer')\n\
         others = [ask() for _ in range(30)]\n\
         open('ready', 'w').close(); wait('more')\n\
         print({s.recv(4096).split(b' ')[1].decode() for s in others})\n",
    );
    let input = json!({ "cmd": "python3 script.py", "login": false, "yield_time_ms": 60_000 });
    let mut call = network.legwork("call", &network.policy(""));
    call.args(["ExecCommand", "--json", &input.to_string()]).stdout(Stdio::piped());
    let call = call.spawn().unwrap();
    eventually("the first", || fs::exists(network.file("first")).ok()?.then_some(()));
    let [proxy] = proxies(&network)[..] else { panic!("not one proxy") };
    let pid = Pid::from_raw(proxy.cast_signed());
    let limit = |soft| {
        let new = Rlimit { current: Some(soft), maximum: Some(1024) };
        prlimit(pid, Resource::Nofile, new).unwrap();
    };
    limit(24);
    open(&network.file("fewer"));
    eventually("all have asked", || fs::exists(network.file("ready")).ok()?.then_some(()));
    is_idle(proxy);
    limit(1024);
    open(&network.file("more"));
    let result = result(call);
    // None was taken while there was no descriptor for its server.
    assert_eq!(result["stdout_preview"], "{'200'}", "{result:#}");
    assert_eq!(result["exit_status"], 0, "{result:#}");
}

#[test]
fn an_address_that_never_answers_leaves_time_for_the_next() {
    let Some(network) = Network::new() else { return };
    // A queue of connections that is full: the kernel drops what comes.
    let script = format!(
        "import socket, sys\n\
         s = socket.socket(); s.bind(('127.7.7.8', {0})); s.listen(0)\n\
         held = [socket.socket() for _ in range(8)]\n\
         for one in held: one.setblocking(False); one.connect_ex(s.getsockname())\n\
         print({0}, flush=True); sys.stdin.read()\n",
        network.http
    );
    let _silent = OwnServer::start(&script);
    network.hosts(&format!("127.7.7.8 index.test\n{ADDRESS} index.test\n"));
    let allow = format!("allow = [\"127.7.7.8:{}\", ", network.http);
    let policy = network.policy("connect_ms_max = \"3s\"").replace("allow = [", &allow);
    let result = network.by(&policy, "curl -sS http://index.test:$HTTP/hello");
    assert_eq!(result["exit_status"], 0, "{result:#}");
    assert_eq!(connections(&result)[0].1, "allowed", "{result:#}");
}

#[test]
fn a_server_that_speaks_and_closes_first_is_heard_and_keeps_no_processor_busy() {
    let Some(network) = Network::new() else { return };
    let server = OwnServer::start(&format!(
        "import socket, sys, threading\n\
         s = socket.socket(); s.bind(('{ADDRESS}', 0)); s.listen()\n\
         def serve():\n\
         \x20   while True:\n\
         \x20       c, _ = s.accept(); c.sendall(b'220 and goodbye'); c.close()\n\
         threading.Thread(target=serve, daemon=True).start()\n\
         print(s.getsockname()[1], flush=True); sys.stdin.read()\n"
    ));
    let port = &server.port;
    script(
        &network,
        &format!(
            "s = connect()\n\
             s.sendall(b'CONNECT index.test:{port} HTTP/1.1\\r\\n\\r\\n')\n\
             got = b''\n\
             while piece := s.recv(4096): got += piece\n\
             open('ready', 'w').close(); wait('gate')\n\
             print(got.partition(b'\\r\\n\\r\\n')[2].decode())\n"
        ),
    );
    let result = left_in_peace(&network, &to_server(port));
    assert_eq!(result["stdout_preview"], "220 and goodbye", "{result:#}");
    assert_eq!(result["connections"][0]["bytes_in"], 15, "{result:#}");
}

#[test]
fn whoever_says_much_and_waits_for_an_answer_is_heard_to_the_last_byte_and_then_left_in_peace() {
    let Some(network) = Network::new() else { return };
    // Around what is waited for at a time, each side in turn.
    let talk = "def hear(s, size):\n\
        \x20   left = size\n\
        \x20   while left: left -= len(s.recv(min(left, 65536)))\n\
        SIZES = [1, 262143, 262144, 262145, 700001, 3, 3000003, 5]\n";
    let server = OwnServer::start(&format!(
        "import socket, sys, threading\n{talk}\
         s = socket.socket(); s.bind(('{ADDRESS}', 0)); s.listen()\n\
         def serve():\n\
         \x20   c, _ = s.accept()\n\
         \x20   for size in SIZES:\n\
         \x20       c.sendall(b's' * size); hear(c, 1); hear(c, size); c.sendall(b'k')\n\
         \x20   sys.stdin.read()\n\
         threading.Thread(target=serve, daemon=True).start()\n\
         print(s.getsockname()[1], flush=True); sys.stdin.read()\n"
    ));
    let port = &server.port;
    script(
        &network,
        &format!(
            "{talk}s = connect()\n\
             s.sendall(b'CONNECT index.test:{port} HTTP/1.1\\r\\n\\r\\n')\n\
             got = b''\n\
             while not got.endswith(b'\\r\\n\\r\\n'): got += s.recv(1)\n\
             for size in SIZES:\n\
             \x20   hear(s, size); s.sendall(b'k'); s.sendall(b'c' * size); hear(s, 1)\n\
             open('ready', 'w').close(); wait('gate')\n\
             print('all of it')\n"
        ),
    );
    let result = left_in_peace(&network, &to_server(port));
    assert_eq!(result["stdout_preview"], "all of it", "{result:#}");
    let bytes = 4_486_445 + 8;
    assert_eq!(result["connections"][0]["bytes_in"], bytes, "{result:#}");
    assert_eq!(result["connections"][0]["bytes_out"], bytes, "{result:#}");
}
