//! What ordinary work needs, for an operator in a workspace.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::json;

use super::house::{House, INTEGRATION, OPERATOR};
use crate::common::{fixture, is_alive, parent, text};

/// Whether a program is there for everybody; says so where it is not.
fn has(program: &str) -> bool {
    let found = ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|it| Path::new(it).join(program).exists());
    if !found {
        skips::skip(&format!("{program} is not installed"));
    }
    found
}

/// Whether a user may run this program; says so where not.
fn may_run(house: &House, program: &str) -> bool {
    let ask = format!("{program} --version");
    let may = house.outside("sh").args(["-c", &ask]).output().is_ok_and(|it| it.status.success());
    if !may {
        skips::skip(&format!("this user cannot run {program} at all"));
    }
    may
}

#[test]
fn git_makes_commits_and_pushes() {
    for house in House::each() {
        house.script(
            "workspace/work.sh",
            "set -e\n\
             git init -q -b main project && git init -q -b main --bare remote.git && cd project\n\
             git config user.name me && git config user.email me@example.org\n\
             echo text > file && git add file && git commit -qm first\n\
             git remote add origin ../remote.git && git push -qu origin main\n\
             git clone -q ../remote.git ../copy && git -C ../copy log --format=%s\n\
             git checkout -qb other && git stash -q || true && git gc -q && git status --short",
        );
        assert_eq!(house.prints(OPERATOR, "./work.sh").trim(), "first");
        // The same in the workspace itself, with its hooks guarded between the calls.
        house.prints(OPERATOR, "git init -q -b main .");
        house.prints(OPERATOR, "git config user.name me && git config user.email me@example.org");
        house.prints(OPERATOR, "git add work.sh && git commit -qm second");
        house.prints(
            OPERATOR,
            "git remote add origin ./remote.git && git push -qu origin main:second",
        );
        assert_eq!(house.prints(OPERATOR, "git log --format=%s").trim(), "second");
        // And without a network, in the repository as it is.
        house.prints(INTEGRATION, "git commit -q --allow-empty -m third && git checkout -qb other");
    }
}

#[test]
fn cargo_builds() {
    for house in House::each() {
        let cargo = env!("CARGO");
        if !may_run(&house, cargo) {
            continue;
        }
        house.file(
            "workspace/Cargo.toml",
            "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
        );
        house.file("workspace/src/main.rs", "fn main() { println!(\"built\"); }\n");
        let rustc = Path::new(cargo).with_file_name("rustc");
        let cmd = format!("RUSTC={} {cargo} run -q --offline", rustc.display());
        for trust in [OPERATOR, INTEGRATION] {
            assert_eq!(house.prints(trust, &cmd).trim(), "built");
        }
    }
}

#[test]
fn python_has_environments_processes_and_databases() {
    if !has("python3") {
        return;
    }
    for house in House::each() {
        let run = |script: &str| {
            house.file("workspace/script.py", script);
            house.prints(OPERATOR, "python3 script.py").trim().to_owned()
        };
        house.prints(OPERATOR, "python3 -m venv --without-pip env && env/bin/python -c pass");
        let processes = "import multiprocessing as m\n\
                         def f(x): return x * x\n\
                         if __name__ == '__main__':\n\
                         \x20   with m.Pool(2) as p: print(sum(p.map(f, range(5))))\n\
                         \x20   q = m.Queue(); q.put(1); print(q.get())\n\
                         \x20   from multiprocessing import shared_memory as s\n\
                         \x20   x = s.SharedMemory(create=True, size=10); x.close(); x.unlink()\n";
        assert_eq!(run(processes), "30\n1");
        let database = "import sqlite3\n\
                        for place in ['own.db', '/tmp/own.db', ':memory:']:\n\
                        \x20   c = sqlite3.connect(place); c.execute('pragma journal_mode=wal')\n\
                        \x20   c.execute('create table t(x)'); c.execute('insert into t values (7)'); c.commit()\n\
                        \x20   print(c.execute('select x from t').fetchone()[0])\n";
        assert_eq!(run(database), "7\n7\n7");
        let terminal = "import pty, os\nprint(os.waitstatus_to_exitcode(pty.spawn(['sh', '-c', 'test -t 0 && tty'])))\n";
        let printed = run(terminal);
        assert!(printed.contains("/dev/pts/") && printed.ends_with('0'), "{printed}");
    }
}

#[test]
fn a_test_that_listens_reaches_itself() {
    let script = "import socket, threading\n\
                  for family, address in [(socket.AF_INET, '127.0.0.1'), (socket.AF_UNIX, None)]:\n\
                  \x20   s = socket.socket(family)\n\
                  \x20   s.bind((address, 0) if address else '/tmp/own.sock'); s.listen()\n\
                  \x20   c = socket.socket(family); c.connect(s.getsockname())\n\
                  \x20   a, _ = s.accept(); c.send(b'x'); print(a.recv(1).decode())\n\
                  \x20   if not address: import os; os.unlink('/tmp/own.sock')\n\
                  s = socket.socket(socket.AF_UNIX); s.bind('\\0own'); s.listen()\n\
                  socket.socket(socket.AF_UNIX).connect('\\0own'); print('x')\n\
                  import socket; print(socket.getaddrinfo('localhost', 80)[0][4][0] in ('127.0.0.1', '::1'))\n";
    if !has("python3") {
        return;
    }
    for house in House::each() {
        house.file("workspace/script.py", script);
        for trust in [OPERATOR, INTEGRATION] {
            assert_eq!(house.prints(trust, "python3 script.py"), "x\nx\nx\nTrue");
        }
    }
}

#[test]
fn npm_installs_a_package_of_the_workspace() {
    if !has("npm") {
        return;
    }
    for house in House::each() {
        if !may_run(&house, "npm") {
            continue;
        }
        house.file(
            "workspace/part/package.json",
            r#"{"name":"part","version":"1.0.0","main":"index.js"}"#,
        );
        house.file("workspace/part/index.js", "module.exports = 'part';");
        house.file(
            "workspace/package.json",
            r#"{"name":"whole","version":"1.0.0","dependencies":{"part":"file:./part"}}"#,
        );
        house.file("home/.npmrc", "//registry.example/:_authToken=secret");
        house.prints(OPERATOR, "npm install --offline --no-audit --no-fund --silent");
        assert_eq!(house.prints(OPERATOR, "node -p \"require('part')\"").trim(), "part");
    }
}

#[test]
fn temporary_files_devices_and_own_processes_are_there() {
    for house in House::each() {
        for trust in [OPERATOR, INTEGRATION] {
            house.prints(
                trust,
                "f=$(mktemp) && echo x > $f && cat $f && mktemp -d && mktemp -p /dev/shm",
            );
            house.prints(trust, "echo x > /dev/null && head -c 4 /dev/urandom > /dev/full || true");
            assert_eq!(
                house.prints(trust, "echo out > /dev/stdout; echo err > /dev/stderr").trim(),
                "out"
            );
            let seen = house.prints(trust, "ps -e -o comm=");
            let strangers: Vec<&str> =
                seen.lines().filter(|it| !["legwork-init", "sh", "ps"].contains(it)).collect();
            assert!(strangers.is_empty(), "{strangers:?}");
        }
    }
}

#[test]
fn a_program_on_a_terminal_has_a_real_one_and_cannot_type_into_it() {
    for house in House::each() {
        let input = json!({ "cmd": "tty && test -t 1 && stty size", "tty": true, "login": false });
        let result = house.get(OPERATOR, "ExecCommand", &input);
        let printed = result.to_string();
        assert!(printed.contains("/dev/pts/0"), "{result:#}");
        let typing = format!("{} probe type-into-terminal", fixture());
        let input = json!({ "cmd": typing, "tty": true, "login": false });
        let result = house.get(OPERATOR, "ExecCommand", &input);
        assert!(result.to_string().contains("refused: Operation not permitted"), "{result:#}");
        assert!(result["denials"].to_string().contains("ioctl"), "{result:#}");
    }
}

#[test]
fn background_work_outlives_its_command_and_is_stopped_by_a_stop() {
    for house in House::each() {
        let cmd = format!(
            "{0} ignore-term ready >/dev/null 2>&1 & {0} wait-for ready; echo $!",
            fixture()
        );
        let result = house.exec(OPERATOR, &cmd);
        assert_eq!(result["exit_status"], 0, "{result:#}");
        let pids: Vec<u32> = serde_json::from_value(result["background_pids"].clone())
            .unwrap_or_else(|_| panic!("{result:#}"));
        // By the machine's own numbers, not by those inside.
        assert_eq!(pids.len(), 1, "{result:#}");
        let inner: u32 =
            fs::read_to_string(house.path("workspace/ready")).unwrap().parse().unwrap();
        assert!(is_alive(pids[0]) && pids[0] != inner, "{result:#}");
        let warden = parent(parent(pids[0]));
        assert_eq!(
            fs::read_to_string(format!("/proc/{warden}/comm")).unwrap().trim(),
            "legwork-warden"
        );
        let id = result["task_id"].as_str().unwrap();
        house.get(OPERATOR, "TaskStop", &json!({ "task_id": id, "grace_ms": 200 }));
        assert!(!is_alive(pids[0]));
    }
}

#[test]
fn a_history_that_is_linked_to_nowhere_takes_nothing_away() {
    for house in House::each() {
        symlink("/dev/null", house.path("home/.bash_history")).unwrap();
        symlink("/proc/self/fd", house.path("home/.netrc")).unwrap();
        for trust in [OPERATOR, INTEGRATION] {
            house.prints(trust, "echo x > /dev/null && cat /dev/null");
        }
    }
}

/// Everything in a folder, by its name in it.
fn all_in(folder: &Path) -> Vec<String> {
    let found =
        Command::new("find").arg(folder).args(["-mindepth", "1", "-printf", "%P\n"]).output();
    let mut found: Vec<String> = text(&found.unwrap().stdout).lines().map(str::to_owned).collect();
    found.sort();
    found
}

/// Programs that keep a cache where their variable, or else their habit, says.
const CACHING: [(&str, &str); 4] = [
    ("npm", "place=${npm_config_cache:-$HOME/.npm}"),
    ("pip3", "place=${PIP_CACHE_DIR:-$HOME/.cache/pip}"),
    ("cargo", "place=${CARGO_HOME:-$HOME/.cargo}/registry"),
    (
        "mvn",
        "place=$HOME/.m2/repository; for it in $MAVEN_OPTS; do \
             case $it in -Dmaven.repo.local=*) place=${it#*=};; esac; done",
    ),
];

/// A user who has these programs.
fn with_caching_programs(house: House, more: &[&str]) -> House {
    for (program, finds) in CACHING {
        let keeps = "echo $place; mkdir -p \"$place\" && echo kept >> \"$place/kept\"";
        house.script(&format!("programs/{program}"), &format!("{finds}\n{keeps}"));
    }
    let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", house.name("programs"));
    let mut words = vec!["/usr/bin/env", &path];
    words.extend(more);
    house.through(&words)
}

#[test]
fn nothing_appears_in_a_home_that_no_command_has_written() {
    for house in House::each() {
        let house = with_caching_programs(house, &[]);
        for trust in [OPERATOR, INTEGRATION] {
            house.prints(trust, "true");
            assert_eq!(all_in(&house.path("home")), [""; 0], "{trust}");
        }
        // Programs that keep a cache keep it where it stays until the next call.
        for (program, _) in CACHING {
            let keep = format!("p=$({program}) && echo $p && wc -l < $p/kept");
            for times in 1..3 {
                let printed = house.prints(OPERATOR, &keep);
                let (place, kept) = printed.trim().split_once('\n').unwrap();
                assert!(place.starts_with(&format!("{OWN}/{program}")), "{printed}");
                assert_eq!(kept.trim(), times.to_string(), "{printed}");
            }
        }
        assert_eq!(all_in(&house.path("home")), [""; 0]);
    }
}

/// Where the caches are of a home that has none.
const OWN: &str = "/tmp/.cache";

#[test]
fn a_cache_that_is_there_is_used_and_one_that_is_named_is_made() {
    for house in House::each() {
        house.folder("home/.npm");
        // A folder of the program's own, without the cache in it.
        house.file("home/.cargo/config.toml", "");
        let named = format!("PIP_CACHE_DIR={}", house.name("outside/pip"));
        let house = with_caching_programs(house, &[&named, "MAVEN_OPTS=-Xmx1g"]);
        let home = house.name("home");
        let place = |program: &str| house.prints(OPERATOR, program).trim().to_owned();
        assert_eq!(place("npm"), format!("{home}/.npm"));
        assert_eq!(place("cargo"), format!("{home}/.cargo/registry"));
        assert_eq!(place("pip3"), house.name("outside/pip"));
        assert_eq!(place("mvn"), format!("{OWN}/mvn"));
        let options = house.prints(OPERATOR, "echo $MAVEN_OPTS");
        assert_eq!(options.trim(), format!("-Xmx1g -Dmaven.repo.local={OWN}/mvn"));
        let found = all_in(&house.path("home"));
        let expected = [
            ".cargo",
            ".cargo/config.toml",
            ".cargo/git",
            ".cargo/registry",
            ".cargo/registry/kept",
            ".npm",
            ".npm/kept",
        ];
        assert_eq!(found, expected);
        assert!(house.path("outside/pip/kept").exists());
    }
}
