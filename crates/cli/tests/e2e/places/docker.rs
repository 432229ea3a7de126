//! A place that is a container, run by a daemon of the test's own.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{
    There, names_in,
    session::{assert_same, session},
    with,
};
use crate::{
    common::{Scratch, eventually, has_program, parts, program},
    harness::stage,
};

/// A daemon with a container.
pub struct Docker {
    daemon: Child,
    folder: TempDir,
}

impl Docker {
    /// Starts both; none where that cannot be done, which is said.
    pub fn start(scratch: &Scratch) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skips::skip("only root can start a daemon of containers");
            return None;
        }
        if !has_program("dockerd", &["--version"]) {
            return None;
        }
        let folder = TempDir::new().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let said = fs::File::create(file("log")).unwrap();
        let daemon = Command::new("dockerd")
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false", "-H"])
            .arg(format!("unix://{}", file("sock")))
            .args(["--data-root", &file("data"), "--exec-root", &file("exec")])
            .args(["--pidfile", &file("pid"), "--storage-driver", "vfs"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut docker = Self { daemon, folder };
        let answers = eventually("docker answers, or ends", || {
            let answer = docker.command().arg("version").output().ok()?;
            let has_ended = docker.daemon.try_wait().unwrap().is_some();
            (has_ended || answer.status.success()).then_some(answer.status.success())
        });
        // A machine may forbid what a daemon needs, and say so only then.
        if !answers {
            let said = fs::read_to_string(docker.file("log")).unwrap();
            skips::skip(&format!("dockerd cannot run here: {}", said.lines().last().unwrap_or("")));
            return None;
        }
        docker.has_container(scratch).then_some(docker)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn host(&self) -> String {
        format!("unix://{}", self.file("sock"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", self.host()).stdin(Stdio::null());
        command
    }

    /// Makes an image of empty folders, and a container of it that sees this machine's programs;
    /// says where this machine allows none.
    fn has_container(&self, scratch: &Scratch) -> bool {
        let tree = self.file("tree");
        for name in ["usr", "bin", "lib", "lib64", "etc", "tmp", "proc", "root", "var/tmp"] {
            fs::create_dir_all(format!("{tree}/{name}")).unwrap();
        }
        let script = format!("tar -C {tree} -c . | docker import - legwork-test");
        let mut import = Command::new("sh");
        import.args(["-c", &script]).env("DOCKER_HOST", self.host());
        let imported = import.output().unwrap();
        assert!(imported.status.success(), "{imported:?}");
        let mut run = self.command();
        run.args(["run", "-d", "--name", "there", "--network", "none", "--init"]);
        for folder in ["/usr", "/bin", "/lib", "/lib64"] {
            run.args(["-v", &format!("{folder}:{folder}:ro")]);
        }
        for folder in [scratch.workspace.path(), stage::folder()] {
            run.arg("-v").arg(format!("{0}:{0}", folder.display()));
        }
        let started = run.args(["legwork-test", "sleep", "1000"]).output().unwrap();
        if !started.status.success() {
            skips::skip(&format!("no container can run here: {started:?}"));
        }
        started.status.success()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if self.daemon.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let _ = self.command().args(["rm", "-f", "there"]).output();
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}

impl There for Docker {
    fn configuration(&self, scratch: &Scratch) -> String {
        format!(
            "[place.there]\nkind = \"docker\"\ncontainer = \"there\"\nprogram = {:?}\nstate = {:?}\n",
            program(),
            scratch.file("far"),
        )
    }
}

#[test]
fn a_session_reads_the_same_in_containers_of_their_own_as_on_this_machine() {
    let scratch = Scratch::new();
    let Some(docker) = Docker::start(&scratch) else { return };
    let mut options = vec!["--network=none".to_owned()];
    for folder in ["/usr", "/bin", "/lib", "/lib64"] {
        options.push(format!("--volume={folder}:{folder}:ro"));
    }
    options.push(format!("--volume={0}:{0}", stage::folder().display()));
    let configuration = format!(
        "[place.there]\nkind = \"docker\"\nimage = \"legwork-test\"\nprogram = {:?}\nstate = {:?}\n\
         options = {options:?}\n",
        program(),
        docker.file("posts"),
    );
    let reached = [("DOCKER_HOST", docker.host())];
    let here = session(&scratch, "", None, &[]);
    let there = session(&scratch, &configuration, Some("there"), &reached);
    assert_same(&there, &here);
    let jobs = docker.file("posts/jobs");
    eventually("the place is clean", || names_in(&jobs).is_empty().then_some(()));
    eventually("no container is left", || {
        let words = ["ps", "--all", "--quiet", "--filter", "label=legwork.task"];
        docker.command().args(words).output().unwrap().stdout.is_empty().then_some(())
    });
}

#[test]
fn a_session_reads_the_same_in_a_container_as_on_this_machine() {
    let scratch = Scratch::new();
    let Some(docker) = Docker::start(&scratch) else { return };
    let configuration = docker.configuration(&scratch);
    let mut run = with(&scratch, "run", &configuration);
    run.env("DOCKER_HOST", docker.host());
    run.args(["--place", "there", "--", "sh", "-c", "hostname; exit 7"]);
    let output = run.output().unwrap();
    let (code, inside, _) = parts(&output);
    assert_eq!(code, Some(7), "{output:?}");
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_ne!(inside, own);
    let here = session(&scratch, "", None, &[]);
    let reached = [("DOCKER_HOST", docker.host())];
    let there = session(&scratch, &configuration, Some("there"), &reached);
    assert_same(&there, &here);
    let far = scratch.file("far");
    eventually("the place is clean", || names_in(&format!("{far}/tasks")).is_empty().then_some(()));
}
