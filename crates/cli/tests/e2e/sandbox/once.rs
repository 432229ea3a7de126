//! Each sandbox is for one command, and shows the machine as it is when the command starts. A
//! server makes them ready ahead, so these tests talk to one.

use std::{fs, os::unix::net::UnixListener, process::Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::house::{House, OPERATOR, TRUSTS, UNTRUSTED};
use crate::{
    common::{children, eventually, fixture, is_alive},
    mcp::Wire,
};

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

/// The processes of ours below a process that have this name.
fn ours_below(pid: u32, name: &str) -> Vec<u32> {
    let is_one = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    children(pid).into_iter().filter(is_one).collect()
}

/// The wardens of a server.
fn wardens(wire: &Wire) -> Vec<u32> {
    let spawners = children(wire.child.id());
    spawners.into_iter().flat_map(|spawner| ours_below(spawner, "legwork-warden")).collect()
}

#[test]
fn a_warden_stays_whole_when_whoever_waits_in_its_sandbox_is_killed() {
    for house in House::each() {
        let mut wire = server(&house, OPERATOR);
        let known = wardens(&wire);
        let mut killed = 0;
        for round in 0..60 {
            let all = wardens(&wire).into_iter();
            let mut sleepers: Vec<u32> =
                all.flat_map(|warden| ours_below(warden, "legwork-warden")).collect();
            sleepers.retain(|sleeper| {
                let pid = Pid::from_raw(sleeper.cast_signed()).unwrap();
                kill_process(pid, Signal::KILL).is_ok()
            });
            killed += sleepers.len();
            // What is killed in the moment that it is woken fails, and says so.
            let words = json!({ "cmd": format!("echo round-{round}"), "login": false });
            let answer = wire.exec(&words);
            let told = answer["result"]["content"][0]["text"].as_str().unwrap();
            let is_told = told.contains("exited with code 0") || told.contains("sandbox");
            assert!(is_told || told.contains("signal 9"), "{answer}");
            // The kernel takes its time with others, which are met by the next.
            eventually("they have died", || {
                (!sleepers.iter().any(|sleeper| is_alive(*sleeper))).then_some(())
            });
            let again = wire.tool("ExecCommand", &words);
            assert!(again.contains(&format!("round-{round}")), "{again}");
        }
        assert!(killed >= 20, "only {killed} were met");
        let gone: Vec<u32> = known.into_iter().filter(|warden| !is_alive(*warden)).collect();
        assert_eq!(gone, [0; 0]);
    }
}

#[test]
fn a_command_without_memory_to_begin_with_ends_alone() {
    let Some(house) = House::own() else { return };
    let house = house.with_policy("[limits]\nmemory_bytes_max = 65536\n");
    let mut wire = server(&house, OPERATOR);
    let known = wardens(&wire);
    for _ in 0..5 {
        // Its arguments alone are more than that.
        let cmd = format!("true {}", "x".repeat(100_000));
        let answer = wire.exec(&json!({ "cmd": cmd, "login": false }));
        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
        // Where its addresses are limited instead, the kernel refuses to start it.
        let is_refused = told.contains("argument list too long") && told.contains("pass less");
        let is_error = answer["result"]["isError"] == true;
        assert!(is_error == is_refused && !told.contains("interrupted"), "{answer}");
    }
    let gone: Vec<u32> = known.into_iter().filter(|warden| !is_alive(*warden)).collect();
    assert_eq!(gone, [0; 0], "wardens");
}

#[test]
fn a_warden_does_not_grow_with_its_sandboxes() {
    let Some(house) = House::own() else { return };
    let mut wire = server(&house, OPERATOR);
    let mut grown = |calls: usize| {
        for _ in 0..calls {
            let told = wire.tool("ExecCommand", &json!({ "cmd": "true", "login": false }));
            assert!(told.contains("exited with code 0"), "{told}");
        }
        let data = |warden: &u32| {
            let status = fs::read_to_string(format!("/proc/{warden}/status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        wardens(&wire).iter().map(data).max().unwrap()
    };
    let before = grown(30);
    let after = grown(200);
    assert!(after < before + 1024, "from {before} to {after} kB");
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
        skips::skip("only root can mount something");
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
        skips::skip("only root can mount something");
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
        skips::skip("only root can mount something");
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
