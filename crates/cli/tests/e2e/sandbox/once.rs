//! Each sandbox is for one command, and shows the machine as it is when the command starts. A
//! server makes them ready ahead, so these tests talk to one.

use std::{fs, os::unix::net::UnixListener, process::Command};

use serde_json::json;

use super::house::{House, OPERATOR, TRUSTS, UNTRUSTED};
use crate::{common::fixture, mcp::Wire};

/// A server of this house, which has just run a command and has a sandbox ready for the next.
fn server(house: &House, trust: &str) -> Wire {
    house.script("scripts/probe.sh", &format!("exec {} probe \"$@\"", fixture()));
    let mut command = house.legwork("mcp", trust);
    if trust == UNTRUSTED {
        let policy =
            house.file("allowed.toml", "coreTools = [\"ExecCommand(../scripts/probe.sh)\"]\n");
        command.arg("--policy").arg(policy);
    }
    let mut wire = Wire::spawn(command);
    wire.initialize();
    probe(&mut wire, "read /etc/passwd");
    wire
}

fn probe(wire: &mut Wire, words: &str) -> String {
    let input = json!({ "cmd": format!("../scripts/probe.sh {words}"), "login": false });
    wire.tool("ExecCommand", &input)
}

#[track_caller]
fn assert_refused(wire: &mut Wire, words: &str) {
    let answer = probe(wire, words);
    assert!(answer.contains("refused: "), "{words}: {answer}");
}

#[track_caller]
fn assert_allowed(wire: &mut Wire, words: &str) {
    let answer = probe(wire, words);
    assert!(answer.contains("allowed: "), "{words}: {answer}");
}

#[test]
fn nothing_of_a_command_is_seen_by_the_next() {
    for house in House::each() {
        for trust in TRUSTS {
            let mut wire = server(&house, trust);
            assert_allowed(&mut wire, "shared-memory leave");
            assert_refused(&mut wire, "shared-memory look");
            assert_allowed(&mut wire, "write /dev/shm/left");
            assert_refused(&mut wire, "read /dev/shm/left");
            // Of the temporary folder only a workspace that may be written keeps its own.
            assert_allowed(&mut wire, "write /tmp/left");
            let answer = probe(&mut wire, "read /tmp/left");
            assert_eq!(answer.contains("allowed: "), trust != UNTRUSTED, "{answer}");
        }
    }
}

#[test]
fn a_secret_that_came_after_the_sandbox_was_made_is_not_read() {
    for house in House::each() {
        let mut wire = server(&house, OPERATOR);
        let home = house.name("home");
        house.file("home/.ssh/id_ed25519", "a secret");
        house.file("home/.netrc", "a secret");
        assert_refused(&mut wire, &format!("read {home}/.ssh/id_ed25519"));
        assert_refused(&mut wire, &format!("read {home}/.netrc"));
        // Replaced, as programs do that write such a file anew: what covered the old one is gone
        // with it.
        house.file("home/.netrc.new", "another secret");
        fs::rename(house.path("home/.netrc.new"), house.path("home/.netrc")).unwrap();
        assert_refused(&mut wire, &format!("read {home}/.netrc"));
    }
}

#[test]
fn a_socket_that_came_after_the_sandbox_was_made_is_not_reached() {
    let Some(house) = House::own() else { return };
    let mut wire = server(&house, OPERATOR);
    let path = house.name("outside/socket");
    let _listener = UnixListener::bind(&path).unwrap();
    assert_refused(&mut wire, &format!("stream {path}"));
}

/// Does something in the mount namespace of a process.
fn in_mounts_of(pid: u32, words: &[&str]) {
    let namespace = format!("--mount=/proc/{pid}/ns/mnt");
    let output = Command::new("nsenter").arg(namespace).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

#[test]
fn a_mount_that_came_after_the_sandbox_was_made_is_seen() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount something");
        return;
    }
    let Some(house) = House::own() else { return };
    let house = house.through(&["unshare", "--mount", "--propagation", "private"]);
    let mut wire = server(&house, OPERATOR);
    let place = house.name("outside");
    in_mounts_of(wire.child.id(), &["mount", "-t", "tmpfs", "none", &place]);
    in_mounts_of(wire.child.id(), &["touch", &format!("{place}/mounted")]);
    assert_allowed(&mut wire, &format!("read {place}"));
}

#[test]
fn a_secret_is_hidden_wherever_it_is_mounted() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount something");
        return;
    }
    let Some(house) = House::own() else { return };
    let house = house.through(&["unshare", "--mount", "--propagation", "private"]);
    house.file("home/.ssh/id_ed25519", "a secret");
    house.file("home/.netrc", "a secret");
    house.file("home/harmless", "no secret");
    let mut wire = server(&house, OPERATOR);
    let (home, other) = (house.name("home"), house.name("outside"));
    in_mounts_of(wire.child.id(), &["mount", "--bind", &home, &other]);
    assert_allowed(&mut wire, &format!("read {other}/harmless"));
    assert_refused(&mut wire, &format!("read {other}/.ssh/id_ed25519"));
    assert_refused(&mut wire, &format!("read {other}/.netrc"));
    assert_refused(&mut wire, &format!("read {home}/.netrc"));
    // Our own state, too.
    in_mounts_of(wire.child.id(), &["umount", &other]);
    in_mounts_of(wire.child.id(), &["mount", "--bind", &house.name("state"), &other]);
    assert_refused(&mut wire, &format!("read {other}/ledger.db"));
}

#[test]
fn of_run_only_the_servers_of_names_are_shown_and_not_who_resolves_them() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount something");
        return;
    }
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/resolve && cd /run/systemd/resolve && \
                  echo nameserver > stub-resolv.conf && echo x > io.systemd.Resolve && cd \"$OLDPWD\" && exec \"$0\" \"$@\"";
    let Some(house) = House::own() else { return };
    let house =
        house.through(&["unshare", "--mount", "--propagation", "private", "sh", "-c", script]);
    for trust in TRUSTS {
        house.allows(trust, &["read /run/systemd/resolve/stub-resolv.conf"]);
        house.refuses(trust, &["read /run/systemd/resolve/io.systemd.Resolve"]);
    }
}
