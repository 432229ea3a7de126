//! Network by name: commands reach the hosts that rules allow, through a proxy, and nothing else.
//!
//! Everything stays on this machine. The names are made up, a file of the test says which address
//! of the loopback each has, and a certificate authority of the test signs for them.

mod attacks;
mod counting;
mod durable;
mod machine;
mod patience;
mod questions;
mod reports;
mod ssh;
mod tools;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::common::{Scratch, has_program, text};

/// The address of the servers: of the loopback, and not the one that everything else is on.
pub const ADDRESS: &str = "127.7.7.7";

/// Servers with names of their own, and a workspace whose commands connect by name.
pub struct Network {
    pub scratch: Scratch,
    server: Child,
    pub http: u64,
    pub https: u64,
}

impl Network {
    /// None where the programs for it are missing.
    #[track_caller]
    pub fn new() -> Option<Self> {
        let here = has_program("python3", &["-c", "import ssl"])
            && has_program("openssl", &["version"])
            && has_program("curl", &["--version"]);
        if !here {
            return None;
        }
        let scratch = Scratch::new();
        certificates(&scratch);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/names/servers.py");
        let mut server = Command::new("python3")
            .args([script, ADDRESS, scratch.workspace.path().to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ports: Value = serde_json::from_str(&line).unwrap();
        let (http, https) = (ports["http"].as_u64().unwrap(), ports["https"].as_u64().unwrap());
        let network = Self { scratch, server, http, https };
        network.hosts(&format!(
            "{ADDRESS} index.test\n{ADDRESS} files.test\n{ADDRESS} evil.test\n127.0.0.1 rebind.test\n\
             {ADDRESS} twice.test\n127.0.0.1 twice.test\n"
        ));
        Some(network)
    }

    /// Says which address each name has.
    pub fn hosts(&self, text: &str) {
        fs::write(self.scratch.state.path().join("hosts"), text).unwrap();
    }

    /// The servers' files.
    pub fn file(&self, name: &str) -> String {
        self.scratch.file(name)
    }

    /// A policy that allows `index.test` with the ports of the servers, and `@python` for it.
    pub fn policy(&self, more: &str) -> String {
        let (http, https) = (self.http, self.https);
        format!(
            "[network]\nmode = \"names\"\n\
             allow = [\"@python\", \"index.test:{http}\", \"twice.test:{http}\", \"{ADDRESS}:{http}\", \"{ADDRESS}:{https}\"]\n\
             deny = [\"evil.test:*\"]\n{more}\n\
             [network.sets]\npython = [\"index.test:{https}\"]\n"
        )
    }

    /// `legwork VERB` by that policy, or by another.
    pub fn legwork(&self, verb: &str, policy: &str) -> Command {
        let mut command = self.scratch.guarded(verb, "guarded", Some(policy));
        command.env("LEGWORK_TEST_HOSTS", self.scratch.state.path().join("hosts"));
        // Whatever this machine says of proxies, authorities and registries.
        let foreign = ["PIP_", "GIT_", "NPM_CONFIG_", "CARGO_", "SSL_CERT_", "NODE_", "UV_"];
        for (name, _) in std::env::vars_os() {
            let upper = name.to_string_lossy().to_uppercase();
            let is_proxy = upper.ends_with("_PROXY") || upper.ends_with("_CA_BUNDLE");
            if is_proxy || foreign.iter().any(|it| upper.starts_with(it)) {
                command.env_remove(&name);
            }
        }
        command.env("PIP_CONFIG_FILE", "/dev/null");
        command
    }

    /// The result of a command by this policy.
    #[track_caller]
    pub fn by(&self, policy: &str, cmd: &str) -> Value {
        let input = json!({ "cmd": self.filled(cmd), "login": false, "yield_time_ms": 60_000 });
        let mut call = self.legwork("call", policy);
        let output = call.args(["ExecCommand", "--json", &input.to_string()]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("no JSON: {output:?}"));
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope["result"].clone()
    }

    /// The result of a command by the usual policy.
    #[track_caller]
    pub fn run(&self, cmd: &str) -> Value {
        self.by(&self.policy(""), cmd)
    }

    /// What a command prints that must succeed.
    #[track_caller]
    pub fn prints(&self, cmd: &str) -> String {
        let result = self.run(cmd);
        assert_eq!(result["exit_status"], 0, "{cmd}: {result:#}");
        result["stdout_preview"].as_str().unwrap_or_default().to_owned()
    }

    /// The text with the ports filled in.
    pub fn filled(&self, cmd: &str) -> String {
        cmd.replace("$HTTPS", &self.https.to_string()).replace("$HTTP", &self.http.to_string())
    }

    /// What the servers were asked for.
    pub fn requests(&self) -> String {
        fs::read_to_string(self.file("requests")).unwrap_or_default()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// A certificate authority, and a certificate of it for all names of the tests.
fn certificates(scratch: &Scratch) {
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        let output = command.args(arguments).current_dir(scratch.workspace.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let authority = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority"];
    let basic = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"];
    openssl(&[&["req", "-x509"][..], &key, &authority, &basic].concat());
    let names =
        "subjectAltName=DNS:index.test,DNS:files.test,DNS:evil.test,DNS:twice.test,IP:127.7.7.7";
    let own = ["-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=index.test"];
    let signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", names];
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
    openssl(&[&["req", "-x509"][..], &key, &own, &signed, &leaf].concat());
}

/// All proxies that work for a state folder: those whose environment names its file of hosts.
pub fn proxies(network: &Network) -> Vec<u32> {
    let mark = network.scratch.state.path().join("hosts");
    let mark = format!("LEGWORK_TEST_HOSTS={}", mark.display());
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|pid| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let parent = environment_of_parent(*pid);
            comm.trim() == "legwork-proxy" && parent.contains(&mark)
        })
        .collect()
}

/// A proxy shows nothing of itself, not even to root; its warden has the same environment.
fn environment_of_parent(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)).unwrap_or("0");
    let bytes = fs::read(format!("/proc/{parent}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The connections of a result: host, verdict, rule.
pub fn connections(result: &Value) -> Vec<(&str, &str, &str)> {
    let all = result["connections"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .map(|it| {
            let text = |name: &str| it[name].as_str().unwrap();
            (text("host"), text("verdict"), text("rule"))
        })
        .collect()
}

#[test]
fn pip_installs_from_an_allowed_index_and_another_host_is_refused_unresolved_with_its_rule() {
    let Some(network) = Network::new() else { return };
    if !crate::python_client::python_is_here() {
        return;
    }
    let python = crate::python_client::environment("plain", &[]);
    let result = network.run(&format!(
        "{} -m pip install --disable-pip-version-check --no-input --retries 0 --target out \
         --index-url https://index.test:$HTTPS/simple --cert ca.pem tinything && \
         PYTHONPATH=out {} -c 'import tinything; print(tinything.WORD)'",
        python.display(),
        python.display(),
    ));
    assert_eq!(result["exit_status"], 0, "{result:#}");
    assert!(result["stdout_preview"].as_str().unwrap().ends_with("from the index"), "{result:#}");
    assert_eq!(connections(&result), [("index.test", "allowed", "network.allow @python")]);
    let one = &result["connections"][0];
    assert_eq!(one["port"], network.https, "{one}");
    assert!(one["bytes_in"].as_u64() > Some(500) && one["bytes_out"].as_u64() > Some(500), "{one}");

    let input = json!({ "cmd": "curl -sS https://example.org", "login": false }).to_string();
    let mut call = network.legwork("call", &network.policy(""));
    let receipt = text(&call.args(["ExecCommand", &input]).output().unwrap().stdout);
    let line = "\nRefused by a rule:\nconnection to example.org:443: no rule allows it; to allow it: \
        [network] allow = [\"example.org\"] (rule network-names)";
    assert!(receipt.contains(line), "{receipt}");
    let result = network.run("curl -sS https://example.org");
    assert_ne!(result["exit_status"], 0, "{result:#}");
    // Refused before anything was looked up: the test's file has no such name, and a name that is
    // not found would be `failed`.
    assert_eq!(connections(&result), [("example.org", "refused", "network-names")]);
    let mut audit = Command::new(crate::common::program());
    audit.args(["audit", "show", "--json", "--state"]).arg(network.scratch.state.path());
    let audit = text(&audit.output().unwrap().stdout);
    let noted = |word: &str| {
        audit.lines().any(|line| line.contains("\"connection\"") && line.contains(word))
    };
    assert!(noted("example.org") && noted("index.test"), "{audit}");
}

#[test]
fn a_connection_is_checked_without_running_anything() {
    let Some(network) = Network::new() else { return };
    let check = |connect: &str| {
        let policy = network.policy("");
        let mut command = Command::new(crate::common::program());
        let path = network.scratch.state.path().join("given-policy.toml");
        fs::write(&path, policy).unwrap();
        command.args(["policy", "check", "--json", "--connect", connect, "--policy"]).arg(path);
        command.env("XDG_CONFIG_HOME", network.scratch.state.path());
        let output = command.output().unwrap();
        let checked: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (checked["verdict"].clone(), checked["rule"].clone(), output.status.code())
    };
    let index = format!("INDEX.test.:{}", network.https);
    assert_eq!(check(&index), (json!("allow"), json!("network.allow @python"), Some(0)));
    assert_eq!(
        check("evil.test:22"),
        (json!("deny"), json!("network.deny evil.test:*"), Some(126))
    );
    assert_eq!(check("example.org:443"), (json!("deny"), json!("network-names"), Some(126)));
    assert_eq!(check("2130706433:80").2, Some(125));
}

#[test]
fn a_rule_and_a_trust_choose_the_network_of_a_command() {
    let Some(network) = Network::new() else { return };
    let rule = "[[rule]]\nid = \"offline\"\ndecision = \"allow\"\nprogram = \"curl\"\n\
        args = [[\"-q\"]]\nnetwork = \"none\"\n";
    let policy = format!("{}{rule}", network.policy(""));
    let offline = network.by(&policy, "curl -q -sS http://index.test:$HTTP/hello");
    assert_ne!(offline["exit_status"], 0, "{offline:#}");
    assert_eq!(connections(&offline), []);
    let usual = network.by(&policy, "curl -sS http://index.test:$HTTP/hello");
    assert_eq!(usual["exit_status"], 0, "{usual:#}");

    let untrusted = |policy: &str| {
        let mut call = network.legwork("call", policy);
        let cmd = network.filled("curl -sS http://index.test:$HTTP/hello");
        let input = json!({ "cmd": cmd, "login": false }).to_string();
        call.args(["--trust", "untrusted_external", "--ask", "never"]);
        let output = call.args(["ExecCommand", "--json", &input]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        envelope["result"].clone()
    };
    let refused = untrusted(&network.policy(""));
    assert_ne!(refused["exit_status"], 0, "{refused:#}");
    let lent = untrusted(&network.policy("untrusted_external = \"names\""));
    assert_eq!(lent["exit_status"], 0, "{lent:#}");
    assert_eq!(connections(&lent).len(), 1, "{lent:#}");
}
