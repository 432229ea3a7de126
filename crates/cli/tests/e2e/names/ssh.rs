//! `git` over `ssh`, with a real server.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use super::{ADDRESS, Network, connections};
use crate::common::{eventually, has_program, text};

/// Where Debian has it; it wants to be started by its whole path.
const SSHD: &str = "/usr/sbin/sshd";

/// A server that lets in whoever has the key of the test.
struct SshServer {
    child: Child,
    port: u16,
}

impl SshServer {
    fn start(network: &Network) -> Self {
        let file = |name: &str| network.file(name);
        for key in ["host_key", "key"] {
            let mut keygen = Command::new("ssh-keygen");
            let output = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]).output();
            assert!(output.as_ref().is_ok_and(|it| it.status.success()), "{output:?}");
        }
        // It was free a moment ago.
        let port = TcpListener::bind((ADDRESS, 0)).unwrap().local_addr().unwrap().port();
        let config = format!(
            "ListenAddress {ADDRESS}:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
             UsePAM no\nPidFile none\nPermitRootLogin yes\n",
            file("host_key"),
            file("key.pub"),
        );
        fs::write(file("sshd_config"), config).unwrap();
        let serve = format!("exec {SSHD} -D -e -f {}", file("sshd_config"));
        let mut server = Command::new("sh");
        if rustix::process::geteuid().is_root() {
            // As root it wants a folder that is only there where it is a service.
            let own = format!("mount -t tmpfs none /run && mkdir /run/sshd && {serve}");
            server = Command::new("unshare");
            server.args(["--mount", "sh", "-c", &own]);
        } else {
            server.args(["-c", &serve]);
        }
        let said = fs::File::create(file("sshd.log")).unwrap();
        let child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let server = Self { child, port };
        eventually("the ssh server", || {
            let log = fs::read_to_string(file("sshd.log")).unwrap();
            log.contains("Server listening").then_some(())
        });
        server
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn git_clones_and_pushes_over_ssh_and_another_host_is_refused_with_its_rule() {
    let Some(network) = Network::new() else { return };
    if !has_program("ssh", &["-V"]) || !has_program("test", &["-x", SSHD]) {
        return;
    }
    let server = SshServer::start(&network);
    let port = server.port;
    let source = "git init -q -b main source && cd source && git -c user.name=me \
        -c user.email=me@example.org commit -q --allow-empty -m first && git clone -q --bare . ../repo.git";
    let mut made = Command::new("bash");
    made.args(["-ec", source]).current_dir(network.scratch.workspace.path());
    let output = made.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let policy = format!(
        "[network]\nmode = \"names\"\nallow = [\"index.test:{port}\", \"{ADDRESS}:{port}\"]\n"
    );
    // As people use it: the command that is set for them, with a key and a file of known hosts.
    let git = "export GIT_SSH_COMMAND=\"$GIT_SSH_COMMAND -i $PWD/key -o IdentitiesOnly=yes \
        -o StrictHostKeyChecking=no -o UserKnownHostsFile=$PWD/known\"";
    let place = network.file("repo.git");
    let cmd = format!(
        "{git}; git clone -q ssh://$(id -un)@index.test:{port}{place} copy && git -C copy log --format=%s && \
         cd copy && git -c user.name=me -c user.email=me@example.org commit -q --allow-empty -m second && \
         git push -q origin main && git -C ../repo.git log --format=%s"
    );
    let result = network.by(&policy, &cmd);
    let log = fs::read_to_string(network.file("sshd.log")).unwrap();
    assert_eq!(result["exit_status"], 0, "{result:#}\n{log}");
    assert_eq!(result["stdout_preview"], "first\nsecond\nfirst", "{result:#}");
    let rule = format!("network.allow index.test:{port}");
    assert_eq!(connections(&result), [("index.test", "allowed", rule.as_str())], "{result:#}");
    assert_eq!(result["connections"][0]["count"], 2, "{result:#}");

    let cmd = format!("{git}; git clone -q ssh://me@files.test:{port}{place} no");
    let refused = network.by(&policy, &cmd);
    assert_ne!(refused["exit_status"], 0, "{refused:#}");
    let said = refused["stderr_preview"].as_str().unwrap();
    let why = format!(
        "files.test:{port}: no rule allows it; to allow it: [network] allow = [\"files.test:{port}\"]"
    );
    assert!(said.contains(&why), "{refused:#}");
    assert_eq!(connections(&refused), [("files.test", "refused", "network-names")]);
}
