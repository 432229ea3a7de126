//! What no command in a sandbox can do, whoever started it.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::symlink,
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
    process::{Child, Stdio},
};

use super::house::{House, INTEGRATION, OPERATOR, TRUSTS, UNTRUSTED};
use crate::common::{announced, fixture};

/// Ends with the test.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process of the same user, outside.
fn neighbour(house: &House) -> Neighbour {
    let ready = house.name("workspace/ready");
    let child = house
        .outside(fixture())
        .args(["ignore-term", &ready])
        .env("LEGWORK_SECRET", "in-the-environment")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    announced(&ready);
    Neighbour(child)
}

#[test]
fn nothing_outside_is_written_by_any_way() {
    for house in House::each() {
        let outside = house.name("outside");
        house.file("outside/there", "as it was");
        house.file("workspace/own", "mine");
        symlink(&outside, house.path("workspace/way")).unwrap();
        symlink(house.path("outside/there"), house.path("workspace/one")).unwrap();
        let attempts = [
            format!("write {outside}/new"),
            format!("write {outside}/there"),
            format!("write {}/home/new", house.base.path().display()),
            "write way/new".to_owned(),
            "write one".to_owned(),
            "truncate one".to_owned(),
            format!("write /proc/self/root{outside}/new"),
            format!("write /proc/thread-self/root{outside}/new"),
            "write /proc/self/cwd/../outside/new".to_owned(),
            "write ../outside/new".to_owned(),
            format!("touch {outside}/there"),
            format!("chmod {outside}/there 666"),
            format!("chmod {outside} 777"),
        ];
        house.possible(&attempts);
        fs::write(house.path("outside/there"), "as it was").unwrap();
        fs::remove_file(house.path("outside/new")).unwrap();
        let more = [
            format!("write /proc/1/root{outside}/new"),
            format!("write /proc/1/cwd{outside}/new"),
            format!("link {outside}/there hard"),
            format!("rename {outside}/there taken"),
            format!("rename own {outside}/given"),
            format!("plant {outside}/folder file"),
        ];
        for trust in TRUSTS {
            house.refuses(trust, &attempts);
            house.refuses(trust, &more);
        }
        assert_eq!(fs::read_to_string(house.path("outside/there")).unwrap(), "as it was");
        assert!(!house.path("outside/new").exists());
    }
}

#[test]
fn the_workspace_is_written_only_by_whom_it_may() {
    for house in House::each() {
        house.allows(
            OPERATOR,
            &["write own", "write /tmp/x", "write /var/tmp/y", "write /dev/shm/z"],
        );
        house.allows(INTEGRATION, &["write other", "write /tmp/x"]);
        house.refuses(
            UNTRUSTED,
            &["write third", "plant folder file", "touch own", "chmod own 600"],
        );
        house.allows(UNTRUSTED, &["write /tmp/x", "write /dev/shm/z", "read own"]);
        assert!(house.path("workspace/own").exists() && !house.path("workspace/third").exists());
    }
}

#[test]
fn secrets_are_not_read_by_any_way() {
    for house in House::each() {
        let files = [
            ".ssh/id_ed25519",
            ".aws/credentials",
            ".gnupg/private-keys-v1.d/key",
            ".netrc",
            ".npmrc",
            ".git-credentials",
            ".config/gh/hosts.yml",
            ".config/gcloud/credentials.db",
            ".kube/config",
            ".docker/config.json",
            ".cargo/credentials.toml",
            ".mozilla/firefox/logins.json",
            ".bash_history",
        ];
        for file in files {
            house.file(&format!("home/{file}"), "a secret");
        }
        house.file("home/harmless", "no secret");
        let home = house.name("home");
        symlink(format!("{home}/.ssh"), house.path("workspace/keys")).unwrap();
        symlink(format!("{home}/.netrc"), house.path("workspace/netrc")).unwrap();
        let mut attempts: Vec<String> =
            files.iter().map(|file| format!("read {home}/{file}")).collect();
        attempts.extend([
            format!("read {home}/.ssh"),
            "read keys/id_ed25519".to_owned(),
            "read netrc".to_owned(),
            "read ../home/.netrc".to_owned(),
            format!("read /proc/self/root{home}/.ssh/id_ed25519"),
            "read /proc/self/cwd/../home/.ssh/id_ed25519".to_owned(),
        ]);
        house.possible(&attempts);
        attempts.extend([
            format!("read /proc/1/root{home}/.ssh/id_ed25519"),
            format!("chmod {home}/.ssh 755"),
            format!("chmod {home}/.netrc 644"),
            format!("rename {home}/.ssh {home}/open"),
            format!("link {home}/.netrc linked"),
        ]);
        if house.is_root() {
            attempts.push("read /etc/shadow".to_owned());
        }
        for trust in TRUSTS {
            house.refuses(trust, &attempts);
            house.allows(trust, &[format!("read {home}/harmless")]);
        }
    }
}

#[test]
fn a_secret_below_the_workspace_is_not_read_either_nor_moved_away_for_later() {
    for house in House::each() {
        house.file("workspace/.config/gcloud/credentials.db", "a secret");
        house.file("workspace/.netrc", "a secret");
        house.file("workspace/.bashrc", "as it was");
        house.file("workspace/.config/legwork/config.toml", "");
        let workspace = house.name("workspace");
        let house = house.with_home("workspace");
        let attempts = ["read .config/gcloud/credentials.db", "read .netrc", "read .config/gcloud"];
        house.possible(&attempts);
        for trust in TRUSTS {
            house.refuses(trust, &attempts);
        }
        for trust in [OPERATOR, INTEGRATION] {
            house.allows(trust, &["write .config/other"]);
            house.refuses(
                trust,
                &[
                    "replace .config".to_owned(),
                    "replace .config/legwork".to_owned(),
                    format!("rename {workspace}/.netrc {workspace}/free"),
                    "write .bashrc".to_owned(),
                    "rename .bashrc away".to_owned(),
                    "write .config/legwork/config.toml".to_owned(),
                ],
            );
            house.refuses(trust, &attempts);
        }
    }
}

#[test]
fn the_network_is_there_only_for_whom_it_may_be() {
    for house in House::each() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let attempts = [
            format!("tcp {}", tcp.local_addr().unwrap()),
            format!("udp {}", udp.local_addr().unwrap()),
        ];
        house.possible(&attempts);
        house.allows(OPERATOR, &attempts);
        udp.set_nonblocking(true).unwrap();
        let mut heard = [0; 64];
        while udp.recv(&mut heard).is_ok() {}
        for trust in [INTEGRATION, UNTRUSTED] {
            house.refuses(trust, &attempts[..1]);
            // Its own loopback takes what nobody hears.
            house.probes(trust, &attempts[1..]);
            assert!(udp.recv(&mut heard).is_err(), "a datagram left the sandbox");
            // Netlink, packets, the machine around a virtual one, the kernel's own ciphers.
            house.refuses(
                trust,
                &["family 16", "family 17", "family 40", "family 38", "udp 1.1.1.1:53"],
            );
        }
        house.refuses(OPERATOR, &["family 17", "family 40", "family 38"]);
    }
}

#[test]
fn sockets_of_other_programs_are_out_of_reach() {
    for house in House::each() {
        let own = format!("legwork-{}", house.base.path().file_name().unwrap().display());
        let _abstract =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&own).unwrap()).unwrap();
        let mut paths = Vec::new();
        // Of those that root makes no other user may connect to one.
        if house.is_root() || !rustix::process::geteuid().is_root() {
            paths.extend([format!("/tmp/{own}"), house.name(&format!("outside/{own}"))]);
        }
        if house.is_root() {
            paths.push(format!("/run/{own}"));
        }
        let _listeners: Vec<_> =
            paths.iter().map(|path| UnixListener::bind(path).unwrap()).collect();
        let datagram = house.name("outside/datagram");
        let _datagram = UnixDatagram::bind(&datagram).unwrap();
        house.give(datagram.as_ref());
        let mut attempts = vec![format!("abstract {own}"), format!("datagram {datagram}")];
        attempts.extend(paths.iter().map(|path| format!("stream {path}")));
        house.possible(&attempts);
        for trust in TRUSTS {
            house.refuses(trust, &attempts);
        }
        for path in &paths {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_socket_in_the_workspace_is_out_of_reach_for_the_untrusted() {
    for house in House::each() {
        let (stream, datagram) = (house.name("workspace/s"), house.name("workspace/d"));
        let _stream = UnixListener::bind(&stream).unwrap();
        let _datagram = UnixDatagram::bind(&datagram).unwrap();
        house.give(stream.as_ref());
        house.give(datagram.as_ref());
        let attempts = [format!("stream {stream}"), format!("datagram {datagram}")];
        house.possible(&attempts);
        house.allows(OPERATOR, &attempts);
        house.refuses(UNTRUSTED, &attempts);
    }
}

#[test]
fn processes_outside_are_neither_seen_nor_touched() {
    for house in House::each() {
        let neighbour = neighbour(&house);
        let pid = neighbour.0.id();
        let attempts = [
            format!("signal {pid}"),
            format!("limits {pid}"),
            format!("memory {pid}"),
            format!("read /proc/{pid}/environ"),
            format!("read /proc/{pid}/root/etc/passwd"),
            format!("read /proc/{pid}/cwd/."),
            format!("read /proc/{pid}/fd"),
            format!("read /proc/{pid}/cmdline"),
            format!("ptrace {pid}"),
        ];
        house.possible(&attempts);
        let inner = [
            "signal 1",
            "ptrace 1",
            "memory 1",
            "read /proc/1/environ",
            "read /proc/1/root/etc/passwd",
            "read /proc/1/cwd/.",
            "read /proc/1/fd/0",
            "read /proc/1/mem",
            "read /proc/1/maps",
        ];
        for trust in TRUSTS {
            house.refuses(trust, &attempts);
            house.refuses(trust, &inner);
        }
    }
}

/// What the filter must refuse by its own word; the kernel would give another reason, or do it.
const BY_FILTER: [&str; 29] = [
    "keyring",
    "add-key",
    "unshare user",
    "unshare mount",
    "unshare pid",
    "unshare network",
    "unshare ipc",
    "unshare uts",
    "unshare cgroup",
    "unshare time",
    "clone user",
    "clone mount",
    "clone network",
    "mount",
    "unmount",
    "open-tree",
    "mount-attributes",
    "file-system",
    "chroot",
    "enter-namespace",
    "open-by-handle",
    "bpf",
    "perf",
    "userfault",
    "module",
    "reboot",
    "host-name",
    "swap",
    "clock",
];

#[test]
fn calls_that_only_an_administrator_or_an_attack_needs_are_refused() {
    for house in House::each() {
        for trust in TRUSTS {
            for (probe, answer) in house.probes(trust, &BY_FILTER) {
                assert!(
                    answer.starts_with("refused: Operation not permitted"),
                    "{probe} at {trust}: {answer}"
                );
            }
            for (probe, answer) in house.probes(trust, &["io-uring", "clone3", "x32"]) {
                assert!(
                    answer.contains("Function not implemented"),
                    "{probe} at {trust}: {answer}"
                );
            }
            house.refuses(
                trust,
                &[
                    "i386",
                    "powers",
                    "become-another",
                    "set-user-program",
                    "descriptors",
                    "kernel-log",
                    "watch-files",
                    "open-tree-attributes",
                    "become-root",
                ],
            );
        }
    }
}

#[test]
fn no_file_becomes_a_way_to_other_rights() {
    for house in House::each() {
        house.file("workspace/program", "#!/bin/sh\n");
        for trust in [OPERATOR, INTEGRATION] {
            house.refuses(
                trust,
                &[
                    "chmod program 4755",
                    "fchmodat2 program 4755",
                    "suid-open made",
                    "make-device device",
                ],
            );
            house.allows(trust, &["chmod program 755", "chmod program 600"]);
            if house.is_root() {
                house.refuses(trust, &["chmod program 2755", "fchmodat2 program 2755"]);
            }
        }
        assert!(!house.path("workspace/device").exists());
    }
}

#[test]
fn devices_and_the_kernels_own_files_are_out_of_reach() {
    for house in House::each() {
        let attempts = [
            "read /dev/vda",
            "read /dev/sda",
            "read /dev/mem",
            "read /dev/kmsg",
            "read /dev/fuse",
            "read /dev/kvm",
            "write /dev/vda",
            "write /proc/sys/kernel/core_pattern",
            "write /proc/sys/kernel/hostname",
            "write /proc/sys/vm/drop_caches",
            "write /proc/sysrq-trigger",
            "write /sys/kernel/uevent_helper",
            "write /sys/power/state",
            "write /sys/fs/cgroup/cgroup.procs",
            "write /sys/fs/cgroup/unified/cgroup.procs",
            "plant /sys/fs/cgroup/memory/legwork-probe tasks",
            "write /sys/fs/cgroup/memory/release_agent",
            "plant /sys/fs/cgroup/unified/legwork-probe tasks",
            "read /proc/kcore",
            "read /proc/kmsg",
            "write /proc/self/oom_score_adj",
            "make-device /dev/shm/device",
            "make-device /tmp/device",
        ];
        for trust in TRUSTS {
            house.refuses(trust, &attempts);
        }
    }
}
