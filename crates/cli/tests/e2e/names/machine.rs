//! What depends on the machine itself: its own addresses, and its resolver. Each test has a network
//! and a file of name servers of its own.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use super::{Network, connections};
use crate::common::text;

/// An address that belongs to nobody's private network, and to this machine for the test.
const PUBLIC: &str = "93.184.215.14";

/// Runs a command with a network that has that address: behind it a server, and a name server that
/// knows every name below `search.test`, which is the search domain, and no other.
const MACHINE: &str = r"
import fcntl, http.server, os, socket, struct, subprocess, sys, threading
PUBLIC, FOLDER, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def up(name, address=None):
    if address:
        where = struct.pack('16sHH4s8x', name, socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(s, 0x8916, where)  # SIOCSIFADDR
    fcntl.ioctl(s, 0x8914, struct.pack('16sH14x', name, 1))  # SIOCSIFFLAGS
up(b'lo')
up(b'lo:1', PUBLIC)
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'reached')
server = http.server.ThreadingHTTPServer((PUBLIC, PORT), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(('127.0.0.1', 53))
def resolve():
    while True:
        asked, sender = names.recvfrom(512)
        labels, place = [], 12
        while length := asked[place]:
            labels.append(asked[place + 1:place + 1 + length].decode()); place += length + 1
        name, kind = '.'.join(labels), struct.unpack('!H', asked[place + 1:place + 3])[0]
        with open(os.path.join(FOLDER, 'asked'), 'a') as log: log.write(name + '\n')
        question, known = asked[12:place + 5], name.endswith('search.test')
        found = known and kind == 1
        head = asked[:2] + struct.pack('!HHHHH', 0x8180 if known else 0x8183, 1, found, 0, 0)
        answer = b'\xc0\x0c' + struct.pack('!HHIH', 1, 1, 60, 4) + socket.inet_aton(PUBLIC)
        names.sendto(head + question + (answer if found else b''), sender)
threading.Thread(target=resolve, daemon=True).start()
own = os.path.join(FOLDER, 'resolv.conf')
with open(own, 'w') as file: file.write('nameserver 127.0.0.1\nsearch search.test\noptions ndots:5\n')
subprocess.run(['mount', '--bind', own, '/etc/resolv.conf'], check=True)
sys.exit(subprocess.run(sys.argv[4:]).returncode)
";

/// The port of the server; nobody else is on this network.
const PORT: &str = "8080";

/// The result of a command on such a machine.
fn on_machine(network: &Network, resolves_by_file: bool, allow: &[&str], cmd: &str) -> Value {
    let allow: Vec<String> = allow.iter().map(|name| format!("\"{name}:{PORT}\"")).collect();
    let policy = format!("[network]\nmode = \"names\"\nallow = [{}]\n", allow.join(", "));
    let mut call = network.legwork("call", &policy);
    if !resolves_by_file {
        call.env_remove("LEGWORK_TEST_HOSTS");
    }
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 60_000 }).to_string();
    call.args(["ExecCommand", "--json", &input]);
    let script = network.file("machine.py");
    fs::write(&script, MACHINE).unwrap();
    let folder = network.scratch.workspace.path().to_str().unwrap();
    let mut machine = std::process::Command::new("unshare");
    machine.args(["--net", "--mount", "python3", &script, PUBLIC, folder, PORT]);
    machine.arg(call.get_program()).args(call.get_args());
    machine.current_dir(network.scratch.workspace.path());
    for (name, value) in call.get_envs() {
        match value {
            Some(value) => machine.env(name, value),
            None => machine.env_remove(name),
        };
    }
    let output = machine.stdin(Stdio::null()).output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no JSON: {}", text(&output.stderr)));
    envelope["result"].clone()
}

fn machine() -> Option<Network> {
    if !rustix::process::geteuid().is_root() {
        skips::skip("only root can make a network with a name server of its own");
        return None;
    }
    Network::new()
}

#[test]
fn a_public_address_of_this_machine_is_its_own_and_needs_a_rule() {
    let Some(network) = machine() else { return };
    network.hosts(&format!("{PUBLIC} own.test\n"));
    let fetch = format!("curl -sS http://own.test:{PORT}/");
    let refused = on_machine(&network, true, &["own.test"], &fetch);
    assert_eq!(connections(&refused), [("own.test", "refused", "network-addresses")]);
    let why = refused["denials"].to_string();
    assert!(why.contains(&format!("{PUBLIC}, an address of this machine")), "{why}");
    let allowed = on_machine(&network, true, &["own.test", PUBLIC], &fetch);
    assert_eq!(allowed["stdout_preview"], "reached", "{allowed:#}");
}

#[test]
fn a_name_is_looked_up_as_it_is_and_never_below_a_search_domain() {
    let Some(network) = machine() else { return };
    let fetch = |host: &str| format!("curl -sS http://{host}:{PORT}/");
    let allow = ["index.test", "intranet", "index.test.search.test", PUBLIC];
    let whole = on_machine(&network, false, &allow, &fetch("index.test.search.test"));
    assert_eq!(whole["stdout_preview"], "reached", "{whole:#}");
    fs::remove_file(network.file("asked")).unwrap();
    for host in ["index.test", "intranet"] {
        let result = on_machine(&network, false, &allow, &fetch(host));
        let all = connections(&result);
        assert_eq!((all[0].0, all[0].1), (host, "failed"), "{result:#}");
    }
    let asked = fs::read_to_string(network.file("asked")).unwrap();
    assert!(asked.contains("index.test") && asked.contains("intranet"), "{asked}");
    assert!(!asked.contains("search.test"), "{asked}");
}
