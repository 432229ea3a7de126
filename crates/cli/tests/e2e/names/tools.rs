//! Real programs through the proxy, each as people use it.

use std::{fs, path::Path, process::Command};

use super::{Network, connections};
use crate::{
    common::{has_program, text},
    node::Node,
};

/// Runs something outside of any sandbox that must succeed.
fn outside(network: &Network, script: &str) {
    let mut command = Command::new("bash");
    command.args(["-ec", script]).current_dir(network.scratch.workspace.path());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn curl_fetches_by_http_https_and_socks_and_sends() {
    let Some(network) = Network::new() else { return };
    let hello = |url: &str| network.prints(&format!("curl -sS --cacert ca.pem {url}"));
    let (http, https) = (network.http, network.https);
    assert_eq!(
        hello("http://index.test:$HTTP/hello").trim(),
        format!("hello from index.test:{http}")
    );
    assert_eq!(
        hello("https://index.test:$HTTPS/hello").trim(),
        format!("hello from index.test:{https}")
    );
    let socks = "-x socks5h://127.0.0.1:61128 https://index.test:$HTTPS/hello";
    assert_eq!(hello(socks).trim(), format!("hello from index.test:{https}"));
    let send = "curl -sS --cacert ca.pem -d some=thing https://index.test:$HTTPS/sink";
    assert_eq!(network.prints(send).trim(), "took 10");
    // In pieces, the end of which only the client knows.
    let pieces = "curl -sS -T - -X POST http://index.test:$HTTP/sink < ca.pem";
    let length = fs::read(network.file("ca.pem")).unwrap().len();
    assert_eq!(network.prints(pieces).trim(), format!("took {length}"));
    // As `apt` asks: plain, one request after the other, for a part of a file.
    let parts = "curl -sS -r 0-3 http://index.test:$HTTP/hello http://index.test:$HTTP/hello";
    assert_eq!(network.prints(parts).matches("hello").count(), 2);
}

#[test]
fn git_clones_over_https() {
    let Some(network) = Network::new() else { return };
    outside(
        &network,
        "git init -q -b main source && cd source && git -c user.name=me -c user.email=me@example.org \
         commit -q --allow-empty -m first && mkdir -p ../files && git clone -q --bare . ../files/repo.git && \
         git -C ../files/repo.git update-server-info",
    );
    let clone = "git -c http.sslCAInfo=$PWD/ca.pem clone -q https://index.test:$HTTPS/repo.git copy && \
        git -C copy log --format=%s";
    assert_eq!(network.prints(clone).trim(), "first");
    let refused = network
        .run("git -c http.sslCAInfo=$PWD/ca.pem clone -q https://evil.test:$HTTPS/repo.git no");
    assert_ne!(refused["exit_status"], 0, "{refused:#}");
    assert!(refused["stderr_preview"].as_str().unwrap().contains("403"), "{refused:#}");
}

#[test]
fn ssh_gets_to_an_allowed_host_and_a_refusal_says_why() {
    let Some(network) = Network::new() else { return };
    if !has_program("ssh", &["-V"]) {
        return;
    }
    // What answers is no ssh server, but it is the right one: its words come back.
    let go = |host: &str| {
        network.run(&format!(
            "timeout 20 bash -c \"$GIT_SSH_COMMAND -o StrictHostKeyChecking=no -p $HTTP me@{host} true\""
        ))
    };
    let reached = go("index.test");
    assert!(!connections(&reached).is_empty(), "{reached:#}");
    assert_eq!(connections(&reached)[0].1, "allowed", "{reached:#}");
    let refused = go("evil.test");
    let said = refused["stderr_preview"].as_str().unwrap();
    assert!(said.contains("denied by the rule network.deny evil.test:*"), "{refused:#}");
}

#[test]
fn python_fetches_with_its_own_library() {
    let Some(network) = Network::new() else { return };
    let script = "import urllib.request, ssl\n\
        context = ssl.create_default_context(cafile='ca.pem')\n\
        print(urllib.request.urlopen('https://index.test:$HTTPS/hello', context=context).read().decode())\n\
        try: urllib.request.urlopen('https://evil.test:$HTTPS/hello', context=context)\n\
        except OSError as error: print(error)\n";
    fs::write(network.file("fetch.py"), network.filled(script)).unwrap();
    let printed = network.prints("python3 fetch.py");
    assert!(printed.starts_with("hello from index.test"), "{printed}");
    assert!(
        printed.contains("403 legwork: evil.test is not allowed (network.deny evil.test:*)"),
        "{printed}"
    );
}

#[test]
fn python_requests_fetches() {
    let Some(network) = Network::new() else { return };
    if !crate::python_client::python_is_here() {
        return;
    }
    let python = crate::python_client::environment("requests", &["requests==2.32.5"]);
    let script = "import requests\n\
        print(requests.get('https://index.test:$HTTPS/hello', verify='ca.pem').text)\n\
        try: requests.get('https://evil.test:$HTTPS/hello', verify='ca.pem')\n\
        except requests.exceptions.ProxyError as error: print('refused', '403' in str(error))\n";
    fs::write(network.file("fetch.py"), network.filled(script)).unwrap();
    let printed = network.prints(&format!("{} fetch.py", python.display()));
    assert!(printed.starts_with("hello from index.test"), "{printed}");
    assert!(printed.contains("refused True"), "{printed}");
}

#[test]
fn node_fetches_and_npm_installs() {
    let Some(network) = Network::new() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    let Some(node) = Node::with("names", &folder, &["--version"]) else { return };
    let node = node.program().display().to_string();
    let script = "const text = await (await fetch('https://index.test:$HTTPS/hello')).text();\n\
        console.log(text.trim());\n\
        await fetch('https://evil.test:$HTTPS/hello').catch((error) => console.log('refused'));\n";
    fs::write(network.file("fetch.mjs"), network.filled(script)).unwrap();
    let printed = network.prints(&format!("NODE_EXTRA_CA_CERTS=ca.pem {node} fetch.mjs"));
    assert!(printed.starts_with("hello from index.test"), "{printed}");
    assert!(printed.ends_with("refused"), "{printed}");
    let npm = Path::new(&node).parent().unwrap().join("../lib/node_modules/npm/bin/npm-cli.js");
    let install = format!(
        "mkdir app && cd app && echo '{{}}' > package.json && NODE_EXTRA_CA_CERTS=../ca.pem {node} {} install \
         --no-audit --no-fund --registry https://index.test:$HTTPS/ tinything > log 2>&1 && \
         {node} -e \"console.log(require('tinything'))\"",
        npm.display()
    );
    assert_eq!(network.prints(&install).trim(), "from the registry");
}

#[test]
fn cargo_fetches_from_a_sparse_index() {
    let Some(network) = Network::new() else { return };
    let cargo = env!("CARGO");
    outside(
        &network,
        &network.filled(
            "mkdir -p files/index/ti/ny thing/src && cd thing && \
             printf '[package]\\nname = \"tinything\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n' > Cargo.toml && \
             echo 'pub const WORD: &str = \"x\";' > src/lib.rs && cd .. && \
             mkdir pack && cp -r thing pack/tinything-1.0.0 && tar -C pack -czf files/tinything.crate tinything-1.0.0 && \
             sum=$(sha256sum files/tinything.crate | cut -d' ' -f1) && \
             echo '{\"dl\":\"https://index.test:$HTTPS/tinything.crate?{crate}\"}' > files/index/config.json && \
             echo '{\"name\":\"tinything\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"'$sum'\",\"features\":{},\"yanked\":false}' \
             > files/index/ti/ny/tinything",
        ),
    );
    let fetch = format!(
        "mkdir -p app/src home && cd app && echo 'fn main() {{}}' > src/main.rs && \
         printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[workspace]\\n\
         [dependencies]\\ntinything = {{ version = \"1\", registry = \"own\" }}\\n' > Cargo.toml && \
         CARGO_HOME=$PWD/../home CARGO_HTTP_CAINFO=$PWD/../ca.pem CARGO_NET_RETRY=0 \
         CARGO_REGISTRIES_OWN_INDEX=sparse+https://index.test:$HTTPS/index/ {cargo} fetch -q && \
         ls ../home/registry/cache/*/"
    );
    assert_eq!(network.prints(&fetch).trim(), "tinything-1.0.0.crate");
}

#[test]
fn a_web_socket_goes_both_ways() {
    let Some(network) = Network::new() else { return };
    let script = "import socket, ssl, struct\n\
        s = socket.create_connection(('127.0.0.1', 61128))\n\
        s.sendall(b'CONNECT index.test:$HTTPS HTTP/1.1\\r\\n\\r\\n')\n\
        assert b' 200 ' in s.recv(4096)\n\
        s = ssl.create_default_context(cafile='ca.pem').wrap_socket(s, server_hostname='index.test')\n\
        s.sendall(b'GET /ws HTTP/1.1\\r\\nHost: index.test:$HTTPS\\r\\nUpgrade: websocket\\r\\n'\n\
        \x20         b'Connection: Upgrade\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n'\n\
        \x20         b'Sec-WebSocket-Version: 13\\r\\n\\r\\n')\n\
        while not (head := globals().get('head', b'') + s.recv(1)).endswith(b'\\r\\n\\r\\n'): pass\n\
        assert b'101' in head\n\
        word = b'hello'\n\
        s.sendall(b'\\x81' + struct.pack('B', 0x80 | len(word)) + b'\\0\\0\\0\\0' + word)\n\
        print(s.recv(2 + len(word))[2:].decode())\n";
    fs::write(network.file("ws.py"), network.filled(script)).unwrap();
    assert_eq!(network.prints("python3 ws.py").trim(), "hello");
}

#[test]
fn a_gigabyte_comes_through_whole() {
    let Some(network) = Network::new() else { return };
    let bytes: u64 = 1 << 30;
    let fetch = format!("curl -sS http://index.test:$HTTP/big?{bytes} | wc -c");
    let result = network.run(&fetch);
    assert_eq!(result["stdout_preview"], bytes.to_string(), "{result:#}");
    assert!(result["connections"][0]["bytes_in"].as_u64() > Some(bytes), "{result:#}");
}

#[test]
fn a_program_that_does_not_know_of_proxies_is_refused_by_its_own_network() {
    let Some(network) = Network::new() else { return };
    let result = network.run("curl -sS --noproxy '*' http://index.test:$HTTP/hello");
    assert_ne!(result["exit_status"], 0, "{result:#}");
    let said = result["stderr_preview"].as_str().unwrap();
    assert!(said.contains("resolve host"), "{result:#}");
    assert_eq!(network.requests(), "");
}
