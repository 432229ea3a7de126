//! TLS: certificates as openssl makes them, seen by curl.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Output},
    time::Duration,
};

use super::{Serving, link};
use crate::common::{Scratch, has_program, text};

/// Makes a certificate for this machine, of a key of its own; returns both files.
fn certificate(scratch: &Scratch, name: &str) -> (String, String) {
    let (cert, key) = (scratch.file(&format!("{name}.pem")), scratch.file(&format!("{name}.key")));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-keyout", &key, "-out", &cert])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    (cert, key)
}

fn tools_are_here() -> bool {
    has_program("openssl", &["version"]) && has_program("curl", &["--version"])
}

fn curl(serving: &Serving, trusting: &str, path: &str, more: &[&str]) -> Output {
    let url = format!("{}{path}", serving.address.replace("0.0.0.0", "localhost"));
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--cacert", trusting]);
    command.args(more).arg(url).output().unwrap()
}

fn serve(scratch: &Scratch, files: (&str, &str), listen: &str, more: &[&str]) -> Command {
    let mut command = scratch.legwork("serve");
    command.args(["--listen", listen, "--tls-cert", files.0, "--tls-key", files.1]).args(more);
    command
}

#[test]
fn with_a_certificate_other_machines_may_come() {
    if !tools_are_here() {
        return;
    }
    let scratch = Scratch::new();
    let (cert, key) = certificate(&scratch, "one");
    let serving = Serving::spawn(serve(&scratch, (&cert, &key), "0.0.0.0:0", &[]));
    assert!(serving.address.starts_with("https://0.0.0.0:"), "{}", serving.address);
    let said = curl(&serving, &cert, "/healthz", &[]);
    assert!(text(&said.stdout).ends_with("\r\nok\n"), "{said:?}");
    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let more = version.split('=').collect::<Vec<_>>();
        assert!(curl(&serving, &cert, "/healthz", &more).status.success(), "{version}");
    }
    // Whoever is told where to go is told so by TLS, and the session stays with it.
    let unknown = curl(&serving, &cert, "/api/v1/tasks", &[]);
    assert!(text(&unknown.stdout).contains("resource_metadata=\"https://"), "{unknown:?}");
    let link = link(&scratch);
    let (base, code) = link.split_once("/#code=").unwrap();
    assert_eq!(base, serving.address.replace("0.0.0.0", "localhost"));
    let body = format!("{{\"code\": \"{code}\"}}");
    let signed_in = curl(&serving, &cert, "/api/v1/session", &["--data", &body]);
    assert!(text(&signed_in.stdout).contains("\"secret\":\"lwt_"), "{signed_in:?}");
    // Plain words are no greeting.
    let plain = serving.address.replace("https://0.0.0.0", "http://localhost");
    let refused = Command::new("curl").args(["--silent", &plain]).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
}

#[test]
fn a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
    if !tools_are_here() {
        return;
    }
    let scratch = Scratch::new();
    let ((first, first_key), (second, second_key)) =
        (certificate(&scratch, "first"), certificate(&scratch, "second"));
    let (cert, key) = (scratch.file("cert.pem"), scratch.file("key.pem"));
    let put = |from: &str, to: &str| {
        fs::copy(from, format!("{to}.new")).unwrap();
        fs::rename(format!("{to}.new"), to).unwrap();
    };
    put(&first, &cert);
    put(&first_key, &key);
    let serving = Serving::spawn(serve(&scratch, (&cert, &key), "127.0.0.1:0", &[]));
    let is_shown = |trusted: &str| curl(&serving, trusted, "/healthz", &[]).status.success();
    assert_eq!((is_shown(&first), is_shown(&second)), (true, false));
    // Half of it: what was there goes on.
    put(&second, &cert);
    assert_eq!((is_shown(&first), is_shown(&second)), (true, false));
    assert!(serving.said().contains("is not the key of"), "{}", serving.said());
    put(&second_key, &key);
    assert_eq!((is_shown(&first), is_shown(&second)), (false, true));
    fs::remove_file(&cert).unwrap();
    assert!(is_shown(&second));
}

#[test]
fn what_is_wrong_with_a_certificate_or_a_key_is_said() {
    if !tools_are_here() {
        return;
    }
    let scratch = Scratch::new();
    let (cert, key) = certificate(&scratch, "one");
    let (_, other) = certificate(&scratch, "other");
    let locked = scratch.file("locked.key");
    let made = Command::new("openssl")
        .args(["pkcs8", "-topk8", "-in", &key, "-out", &locked, "-passout", "pass:secret"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let (missing, folder) = (scratch.file("missing"), scratch.file("."));
    let garbage = scratch.file("garbage");
    fs::write(&garbage, "no certificate\n").unwrap();
    let fails = |cert: &str, key: &str, listen: &str| {
        let output = serve(&scratch, (cert, key), listen, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        text(&output.stderr)
    };
    for (cert, key, problem) in [
        (&missing, &key, "--tls-cert"),
        (&cert, &missing, "No such file"),
        (&folder, &key, "it is no file"),
        (&garbage, &key, "there is no certificate in it"),
        (&cert, &cert, "there is no private key in it"),
        (&cert, &locked, "without a password"),
        (&cert, &other, "is not the key of"),
    ] {
        let said = fails(cert, key, "127.0.0.1:0");
        assert!(said.contains(problem), "{problem}: {said}");
    }
    let socket = format!("unix:{}", scratch.file("socket"));
    assert!(fails(&cert, &key, &socket).contains("a unix socket has no TLS"));
    let alone = scratch.legwork("serve").args(["--tls-cert", &cert]).output().unwrap();
    assert!(text(&alone.stderr).contains("--tls-key"), "{alone:?}");
}

#[test]
fn a_client_that_does_not_greet_is_let_go() {
    if !tools_are_here() {
        return;
    }
    let scratch = Scratch::new();
    let (cert, key) = certificate(&scratch, "one");
    let more = ["--idle-timeout", "300ms"];
    let serving = Serving::spawn(serve(&scratch, (&cert, &key), "127.0.0.1:0", &more));
    let address = serving.address.strip_prefix("https://").unwrap();
    let silent = TcpStream::connect(address).unwrap();
    let mut halting = TcpStream::connect(address).unwrap();
    // The beginning of a greeting.
    halting.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    for mut client in [silent, halting] {
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut rest = Vec::new();
        let closed = client.read_to_end(&mut rest);
        assert!(closed.is_ok_and(|_| rest.is_empty()), "{rest:?}");
    }
    assert!(curl(&serving, &cert, "/healthz", &[]).status.success());
}
