//! Ways around the rules on names, each tried as hostile code would.

use std::{
    io::Read,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

use serde_json::Value;

use super::{ADDRESS, Network, connections};

/// Whether a result has a refusal of this host by this rule.
fn refused(result: &Value, host: &str, rule: &str) -> bool {
    connections(result).contains(&(host, "refused", rule))
}

#[test]
fn raw_addresses_in_every_form_are_refused() {
    let Some(network) = Network::new() else { return };
    for (host, shown) in [
        ("127.0.0.1", "127.0.0.1"),
        ("169.254.169.254", "169.254.169.254"),
        ("[::1]", "::1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("[64:ff9b::7f00:1]", "64:ff9b::7f00:1"),
        ("8.8.8.8", "8.8.8.8"),
    ] {
        // Without the environment's exception for the loopback, straight to the proxy.
        let cmd = format!(
            "curl -gsS --noproxy '' -x $http_proxy http://{host}:$HTTP/hello -o out; cat out; true"
        );
        let result = network.run(&cmd);
        assert!(refused(&result, shown, "network-names"), "{host}: {result:#}");
    }
    let script = "import socket\n\
        for host in ('2130706433', '0x7f000001', '0177.0.0.1', '127.1', '0x7f.0.0.1'):\n\
        \x20   s = socket.create_connection(('127.0.0.1', 61128))\n\
        \x20   s.sendall(f'GET http://{host}:$HTTP/hello HTTP/1.1\\r\\n\\r\\n'.encode())\n\
        \x20   print(s.recv(4096).split(b' ')[1].decode())\n";
    std::fs::write(network.file("odd.py"), network.filled(script)).unwrap();
    assert_eq!(network.prints("python3 odd.py").trim(), "400\n400\n400\n400\n400");
    assert_eq!(network.requests(), "", "nothing got out");
}

#[test]
fn a_name_that_resolves_to_this_machine_is_refused_and_connected_to_what_was_judged() {
    let Some(network) = Network::new() else { return };
    let allow = format!(
        "[network]\nmode = \"names\"\nallow = [\"rebind.test:*\", \"twice.test:*\", \"{ADDRESS}:*\"]\n"
    );
    let result = network.by(&allow, "curl -sS http://rebind.test:$HTTP/hello");
    assert!(refused(&result, "rebind.test", "network-addresses"), "{result:#}");
    // Of two addresses the one that may be is taken.
    let result = network.by(&allow, "curl -sS http://twice.test:$HTTP/hello");
    assert_eq!(result["exit_status"], 0, "{result:#}");
    // A name whose address changes between two connections is judged anew.
    network.hosts(&format!("{ADDRESS} rebind.test\n"));
    let result = network.by(&allow, "curl -sS http://rebind.test:$HTTP/hello");
    assert_eq!(result["exit_status"], 0, "{result:#}");
    network.hosts("10.0.0.1 rebind.test\n");
    let result = network.by(&allow, "curl -sS http://rebind.test:$HTTP/hello");
    assert!(refused(&result, "rebind.test", "network-addresses"), "{result:#}");
}

#[test]
fn a_redirect_leads_nowhere_that_is_not_allowed() {
    let Some(network) = Network::new() else { return };
    for to in ["http://evil.test:$HTTP/hello", "http://127.0.0.1:$HTTP/hello"] {
        let to = network.filled(to);
        let cmd = format!("curl -sSfL --noproxy '' 'http://index.test:$HTTP/redirect?{to}'");
        let result = network.run(&cmd);
        assert_ne!(result["exit_status"], 0, "{to}: {result:#}");
        assert_eq!(connections(&result).len(), 2, "{to}: {result:#}");
    }
    assert!(!network.requests().contains(" /hello"), "{}", network.requests());
}

#[test]
fn another_port_and_another_server_name_are_refused() {
    let Some(network) = Network::new() else { return };
    let result = network.run("curl -sS --proxytunnel http://index.test:22/");
    assert!(refused(&result, "index.test", "network-names"), "{result:#}");
    // The tunnel is for one name, and TLS names another.
    let connect = "curl -sS --cacert ca.pem --connect-to evil.test:$HTTPS:index.test:$HTTPS \
        https://evil.test:$HTTPS/hello";
    let result = network.run(connect);
    assert_ne!(result["exit_status"], 0, "{result:#}");
    assert!(refused(&result, "index.test", "network-server-name"), "{result:#}");
    let named = result["denials"].to_string();
    assert!(named.contains("TLS names the server evil.test"), "{named}");
    // And the other way round: no name at all.
    let silent = "import socket, ssl, os\n\
        s = socket.create_connection(('127.0.0.1', 61128))\n\
        s.sendall(b'CONNECT index.test:$HTTPS HTTP/1.1\\r\\n\\r\\n')\n\
        s.recv(4096)\n\
        c = ssl.create_default_context(cafile='ca.pem'); c.check_hostname = False\n\
        c.wrap_socket(s)\n";
    std::fs::write(network.file("silent.py"), network.filled(silent)).unwrap();
    let result = network.run("python3 silent.py");
    assert_ne!(result["exit_status"], 0, "{result:#}");
    assert!(refused(&result, "index.test", "network-server-name"), "{result:#}");
    assert_eq!(network.requests(), "", "nothing got out");
}

#[test]
fn requests_that_can_be_read_in_two_ways_are_refused_and_one_is_all_that_passes() {
    let Some(network) = Network::new() else { return };
    let script = "import socket, sys\n\
        def ask(text):\n\
        \x20   s = socket.create_connection(('127.0.0.1', 61128)); s.settimeout(10)\n\
        \x20   s.sendall(text.replace('\\n', '\\r\\n').encode())\n\
        \x20   answer = b''\n\
        \x20   try:\n\
        \x20       while piece := s.recv(4096): answer += piece\n\
        \x20   except OSError: pass\n\
        \x20   return answer.decode()\n\
        at = 'http://index.test:$HTTP'\n\
        for head in ['Content-Length: 5\\nTransfer-Encoding: chunked', 'Content-Length: 1\\nContent-Length: 2',\n\
        \x20            'X : y', ' folded: x', 'Host: evil.test:$HTTP']:\n\
        \x20   print(ask(f'POST {at}/x HTTP/1.1\\n{head}\\n\\n').split(' ')[1])\n\
        two = f'GET {at}/hello HTTP/1.1\\nHost: index.test:$HTTP\\n\\nGET {at}/smuggled HTTP/1.1\\nHost: evil.test\\n\\n'\n\
        print(ask(two).count('HTTP/1.1 200'))\n";
    std::fs::write(network.file("smuggle.py"), network.filled(script)).unwrap();
    assert_eq!(network.prints("python3 smuggle.py").trim(), "400\n400\n400\n400\n400\n1");
    assert!(!network.requests().contains("smuggled"), "{}", network.requests());
}

#[test]
fn nothing_resolves_inside_and_no_datagram_gets_out() {
    let Some(network) = Network::new() else { return };
    let script = "import socket\n\
        for what in ('example.org', 'index.test'):\n\
        \x20   try: print(socket.getaddrinfo(what, 80))\n\
        \x20   except OSError as error: print('no address')\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        for address in ('8.8.8.8', '127.7.7.7'):\n\
        \x20   try: s.sendto(b'x', (address, 53)); print('sent' if address == '8.8.8.8' else 'own loopback')\n\
        \x20   except OSError: print('not sent')\n\
        try: socket.create_connection(('127.7.7.7', $HTTP), 2); print('connected')\n\
        except OSError: print('not connected')\n";
    std::fs::write(network.file("resolve.py"), network.filled(script)).unwrap();
    let printed = network.prints("python3 resolve.py");
    assert_eq!(printed.trim(), "no address\nno address\nnot sent\nown loopback\nnot connected");
    assert_eq!(network.requests(), "", "nothing got out");
}

#[test]
fn what_is_sent_is_counted_and_limited() {
    let Some(network) = Network::new() else { return };
    let policy = network.policy("bytes_out_max = 100000");
    std::fs::write(network.file("secret"), vec![b'x'; 60_000]).unwrap();
    let send = "curl -sS -H 'Expect:' --data-binary @secret http://index.test:$HTTP/sink";
    let result = network.by(&policy, send);
    assert_eq!(result["stdout_preview"], "took 60000", "{result:#}");
    let out = result["connections"][0]["bytes_out"].as_u64().unwrap();
    assert!((60_000..61_000).contains(&out), "{result:#}");
    // Little by little is no way around it.
    let result = network.by(&policy, &format!("{send} && {send} ; {send}; true"));
    let all = result["connections"].as_array().unwrap();
    let out: u64 = all.iter().map(|it| it["bytes_out"].as_u64().unwrap()).sum();
    assert!(out <= 100_000, "{result:#}");
    let limited = all.iter().find(|it| it["verdict"] == "limited");
    assert_eq!(limited.unwrap()["rule"], "network-limits", "{result:#}");
    assert!(result["denials"].to_string().contains("bytes_out_max"), "{result:#}");
}

#[test]
fn sockets_of_others_and_the_proxys_own_port_are_no_way_out() {
    let Some(network) = Network::new() else { return };
    let own = network.scratch.workspace.path().file_name().unwrap().to_str().unwrap().to_owned();
    let outside = SocketAddr::from_abstract_name(&own).unwrap();
    let _abstract = UnixListener::bind_addr(&outside).unwrap();
    // In /tmp, and where everything can be read: beside the workspace.
    let beside = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let places = [std::env::temp_dir(), beside.path().to_owned()]
        .map(|folder| folder.join(format!("{own}.sock")));
    let _listeners = places.clone().map(|place| UnixListener::bind(place).unwrap());
    let script = "import socket, os, sys\n\
        for path in ['\\0' + sys.argv[1]] + sys.argv[2:]:\n\
        \x20   try: socket.socket(socket.AF_UNIX).connect(path); print('reached', path)\n\
        \x20   except OSError: print('not reached')\n\
        for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):\n\
        \x20   for host in ('127.0.0.1', '0.0.0.0'):\n\
        \x20       s = socket.socket()\n\
        \x20       for option in options: s.setsockopt(socket.SOL_SOCKET, option, 1)\n\
        \x20       try: s.bind((host, 61128)); s.listen(); print('taken', host, options)\n\
        \x20       except OSError: pass\n\
        print('not taken')\n";
    std::fs::write(network.file("take.py"), script).unwrap();
    let take = format!("python3 take.py {own} {} {}", places[0].display(), places[1].display());
    // All of them answer whoever is outside.
    UnixStream::connect_addr(&outside).unwrap();
    for place in &places {
        UnixStream::connect(place).unwrap();
    }
    let printed = network.prints(&take);
    for place in &places {
        std::fs::remove_file(place).unwrap();
    }
    let expected = ["not reached", "not reached", "not reached", "not taken"];
    assert_eq!(printed.lines().take(4).collect::<Vec<_>>(), expected, "{printed}");
    // And the way goes on as before.
    assert!(network.prints("curl -sS http://index.test:$HTTP/hello").starts_with("hello from"));
}

#[test]
fn a_deny_wins_over_every_allow_and_the_answer_names_it() {
    let Some(network) = Network::new() else { return };
    let policy = network.policy("").replace("allow = [", "allow = [\"*:*\", ");
    let result = network.by(&policy, "curl -sS http://evil.test:$HTTP/hello");
    let said = result["stdout_preview"].as_str().unwrap();
    assert!(said.contains("denied by the rule network.deny evil.test:*"), "{result:#}");
    assert!(refused(&result, "evil.test", "network.deny evil.test:*"), "{result:#}");
}

#[test]
fn a_name_that_is_denied_without_a_port_is_denied_on_all() {
    let Some(network) = Network::new() else { return };
    let policy = network.policy("").replace("allow = [", "allow = [\"*:*\", ");
    let policy = policy.replace("evil.test:*", "evil.test");
    let result = network.by(&policy, "curl -sS http://evil.test:$HTTP/hello");
    assert!(refused(&result, "evil.test", "network.deny evil.test"), "{result:#}");
    assert_eq!(network.requests(), "", "nothing got out");
}

#[test]
fn plain_http_passes_by_its_own_host_only_and_never_on_the_port_of_tls() {
    let Some(network) = Network::new() else { return };
    // An address that no other test has at this time: these ports cannot be chosen.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{high}.{low}", 100 + high % 100);
    let listeners: Vec<_> = [80, 443]
        .iter()
        .map_while(|port| TcpListener::bind((address.as_str(), *port)).ok())
        .collect();
    let [web, tls] = &listeners[..] else {
        skips::skip("only root can have the ports 80 and 443");
        return;
    };
    network.hosts(&format!("{address} index.test\n"));
    let policy = format!("[network]\nmode = \"names\"\nallow = [\"index.test\", \"{address}\"]\n");
    let script = "import socket, sys\n\
        for port in (80, 443):\n\
        \x20   s = socket.create_connection(('127.0.0.1', 61128))\n\
        \x20   s.sendall(f'CONNECT index.test:{port} HTTP/1.1\\r\\n\\r\\n'.encode())\n\
        \x20   print(s.recv(4096).split(b' ')[1].decode())\n\
        \x20   s.sendall(b'GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n')\n\
        \x20   while s.recv(4096): pass\n\
        s = socket.create_connection(('127.0.0.1', 61128))\n\
        s.sendall(b'GET http://index.test:443/ HTTP/1.1\\r\\nHost: index.test:443\\r\\n\\r\\n')\n\
        print(s.recv(4096).split(b' ')[1].decode())\n";
    std::fs::write(network.file("plain.py"), script).unwrap();
    let result = network.by(&policy, "python3 plain.py");
    assert_eq!(result["stdout_preview"], "200\n200\n403", "{result:#}");
    let all = connections(&result);
    let refusal = ("index.test", "refused", "network-server-name");
    assert_eq!(all, [refusal, refusal], "{result:#}");
    let counted = |place: usize| result["connections"][place]["count"].as_u64().unwrap();
    assert_eq!((counted(0), counted(1)), (1, 2), "on 80, and on 443: {result:#}");
    // Both were connected to, and neither heard a word.
    for listener in [web, tls] {
        let (mut server, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"");
    }
}
