//! Where a machine refuses a layer: what is left is enforced, and the lack is told everywhere.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::house::{House, INTEGRATION, OPERATOR, TRUSTS, UNTRUSTED};
use crate::common::text;

/// No user namespaces, as some machines have it; the limit counts in a namespace of its own, not on
/// this machine.
const NO_NAMESPACES: [&str; 7] = [
    "unshare",
    "--user",
    "--map-current-user",
    "--keep-caps",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all \"$0\" \"$@\"",
];

/// An ordinary user's house on such a machine.
pub fn house() -> Option<House> {
    let house = House::ordinary()?.through(&NO_NAMESPACES);
    let works = house.outside("true").output().is_ok_and(|output| output.status.success());
    if !works {
        skips::skip("this machine allows no user namespace to forbid them in");
    }
    works.then_some(house)
}

fn names(missing: &Value) -> Vec<&str> {
    missing.as_array().unwrap().iter().map(|it| it["layer"].as_str().unwrap()).collect()
}

#[test]
fn without_namespaces_every_result_says_what_is_missing() {
    let Some(house) = house() else { return };
    for (trust, network) in [(OPERATOR, true), (INTEGRATION, false)] {
        let envelope = house.call(trust, "ExecCommand", &json!({ "cmd": "true", "login": false }));
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        let missing = names(&envelope["sandbox_missing"]);
        for layer in ["user_namespace", "mount_namespace", "pid_namespace", "ipc_namespace"] {
            assert!(missing.contains(&layer), "{envelope:#}");
        }
        assert_eq!(missing.contains(&"network_namespace"), !network, "{envelope:#}");
        for it in envelope["sandbox_missing"].as_array().unwrap() {
            assert!(!it["reason"].as_str().unwrap().is_empty(), "{envelope:#}");
        }
        let id = envelope["result"]["task_id"].as_str().unwrap();
        let task = house.get(trust, "TaskStatus", &json!({ "task_id": id }))["task"].clone();
        // A task also tells of limits, which are another matter.
        let of_task = names(&task["sandbox"]["missing"]);
        assert_eq!(of_task.iter().filter(|name| **name != "cgroup_limits").count(), missing.len());
        assert!(missing.iter().all(|name| of_task.contains(name)), "{task:#}");
        let enforced = task["sandbox"]["enforced"].as_array().unwrap();
        assert!(enforced.contains(&json!("landlock")) && enforced.contains(&json!("seccomp")));
    }
    let input = json!({ "cmd": "true", "login": false }).to_string();
    let receipt = house.legwork("call", OPERATOR).args(["ExecCommand", &input]).output().unwrap();
    assert!(text(&receipt.stdout).contains("Protection missing:"), "{receipt:?}");
}

#[test]
fn what_is_missing_is_told_of_the_tasks_own_sandbox_and_not_of_the_callers() {
    let Some(house) = house() else { return };
    let exec = |house: &House, input: &Value| {
        let envelope = house.call(OPERATOR, "ExecCommand", input);
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope
    };
    // A rule of its own confines a command where nothing else is.
    let confined = "[sandbox]\nlevel = \"none\"\n\
        [[rule]]\nprogram = \"uname\"\ndecision = \"allow\"\nsandbox = \"read-only\"\n\
        [[rule]]\nprogram = \"sleep\"\ndecision = \"allow\"\nsandbox = \"read-only\"\n";
    let house = house.with_policy(confined);
    let envelope = exec(&house, &json!({ "cmd": "uname", "login": false }));
    assert!(names(&envelope["sandbox_missing"]).contains(&"mount_namespace"), "{envelope:#}");
    let envelope = exec(&house, &json!({ "cmd": "true", "login": false }));
    assert!(envelope.get("sandbox_missing").is_none(), "{envelope:#}");
    // Also where it goes on as a task, and for whoever is told that it runs already.
    let input = json!({ "cmd": "sleep 1000", "login": false, "yield_time_ms": 0 });
    for disposition in ["promoted_to_task", "already_running"] {
        let envelope = exec(&house, &input);
        assert_eq!(envelope["result"]["disposition"], disposition, "{envelope:#}");
        assert!(names(&envelope["sandbox_missing"]).contains(&"mount_namespace"), "{envelope:#}");
        if disposition == "already_running" {
            let id = &envelope["result"]["task_handle"]["task_id"];
            house.get(OPERATOR, "TaskStop", &json!({ "task_id": id, "grace_ms": 100 }));
        }
    }
    // And the other way round.
    let open = "[[rule]]\nprogram = \"uname\"\ndecision = \"allow\"\nsandbox = \"none\"\n";
    let house = house.with_policy(open);
    let envelope = exec(&house, &json!({ "cmd": "uname", "login": false }));
    assert!(envelope.get("sandbox_missing").is_none(), "{envelope:#}");
    let envelope = exec(&house, &json!({ "cmd": "true", "login": false }));
    assert!(names(&envelope["sandbox_missing"]).contains(&"mount_namespace"), "{envelope:#}");
}

#[test]
fn a_question_says_that_not_all_of_the_sandbox_is_in_force() {
    let Some(house) = house() else { return };
    let input = json!({ "command": "touch x" });
    let refused = house.call(OPERATOR, "run_shell_command", &input);
    assert_eq!(refused["error"]["kind"], "approval_unavailable", "{refused:#}");
    let shown = house.verb("approvals").arg("a_").output().unwrap();
    let shown = text(&shown.stdout);
    assert!(shown.contains("with network; not all of it is in force on this machine"), "{shown}");
}

#[test]
fn without_namespaces_files_secrets_and_processes_are_still_kept() {
    let Some(house) = house() else { return };
    house.file("home/.ssh/id_ed25519", "a secret");
    house.file("home/.netrc", "a secret");
    house.file("home/harmless", "no secret");
    house.file("workspace/.netrc", "no secret of this home");
    house.file("outside/there", "as it was");
    let (home, outside) = (house.name("home"), house.name("outside"));
    // Beside the secret: whoever lists the neighbours must not follow them.
    symlink(format!("{home}/.ssh"), house.path("home/keys")).unwrap();
    symlink("/", house.path("home/all")).unwrap();
    symlink(format!("{home}/.ssh"), house.path("workspace/keys")).unwrap();
    let refused = [
        format!("read {home}/.ssh/id_ed25519"),
        format!("read {home}/.ssh"),
        format!("read {home}/.netrc"),
        "read keys/id_ed25519".to_owned(),
        format!("read {home}/keys/id_ed25519"),
        format!("read {home}/all{home}/.ssh/id_ed25519"),
        format!("write {outside}/new"),
        format!("write {outside}/there"),
        format!("link {outside}/there hard"),
        format!("rename {outside}/there taken"),
        format!("read {}/ledger.db", house.name("state")),
        format!("read {}", house.name("state")),
        format!("signal {}", std::process::id()),
        format!("read /proc/{}/environ", std::process::id()),
        "ptrace 1".to_owned(),
        "unshare user".to_owned(),
        "keyring".to_owned(),
        "io-uring".to_owned(),
        "set-user-program".to_owned(),
        "write /proc/sys/kernel/core_pattern".to_owned(),
    ];
    for trust in TRUSTS {
        house.refuses(trust, &refused);
        house.allows(trust, &[format!("read {home}/harmless"), "read .netrc".to_owned()]);
    }
    house.allows(OPERATOR, &["write own"]);
    house.refuses(UNTRUSTED, &["write own", "write /tmp/new", "write /dev/shm/new"]);
}

#[test]
fn without_namespaces_a_secret_in_the_workspace_is_still_kept() {
    let Some(house) = house() else { return };
    house.file("workspace/.ssh/id_ed25519", "a secret");
    house.file("workspace/project/own", "no secret");
    let house = house.with_home("workspace");
    for trust in [OPERATOR, INTEGRATION] {
        house.refuses(trust, &["read .ssh/id_ed25519", "read .ssh", "write .ssh/authorized_keys"]);
        house.allows(trust, &["read project/own", "write project/new"]);
    }
}

#[test]
fn without_namespaces_nothing_is_sent_either() {
    let Some(house) = house() else { return };
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let attempts = [format!("tcp {tcp}"), "udp 127.0.0.1:53".to_owned(), "family 16".to_owned()];
    for trust in [INTEGRATION, UNTRUSTED] {
        house.refuses(trust, &attempts);
    }
}

#[test]
fn a_policy_that_requires_the_whole_sandbox_refuses_to_start_without_it() {
    let Some(house) = house() else { return };
    let house = house.with_policy("[sandbox]\nrequired = true\n");
    let envelope =
        house.call(OPERATOR, "ExecCommand", &json!({ "cmd": "touch made", "login": false }));
    assert_eq!(envelope["status"], "error", "{envelope:#}");
    assert!(envelope.to_string().contains("user_namespace"), "{envelope:#}");
    assert!(!house.path("workspace/made").exists());
    let output = house.legwork("mcp", OPERATOR).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("namespace"), "{output:?}");
}

#[test]
fn a_policy_that_requires_the_whole_sandbox_is_content_with_it() {
    for house in House::each() {
        let house = house.with_policy("[sandbox]\nrequired = true\n");
        let envelope =
            house.call(OPERATOR, "ExecCommand", &json!({ "cmd": "true", "login": false }));
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        assert!(envelope.get("sandbox_missing").is_none(), "{envelope:#}");
    }
}

#[test]
fn root_without_user_namespaces_keeps_the_others() {
    if !rustix::process::geteuid().is_root() {
        skips::skip("only root can see what root sees");
        return;
    }
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let Some(house) = House::own() else { return };
    let house = house.through(&["unshare", "--user", "--map-root-user", "sh", "-c", script]);
    house.file("home/.ssh/id_ed25519", "a secret");
    let envelope =
        house.call(INTEGRATION, "ExecCommand", &json!({ "cmd": "true", "login": false }));
    assert_eq!(names(&envelope["sandbox_missing"]), ["user_namespace"], "{envelope:#}");
    let home = house.name("home");
    house.refuses(
        INTEGRATION,
        &[
            format!("read {home}/.ssh/id_ed25519"),
            format!("write {home}/new"),
            "powers".to_owned(),
            "udp 1.1.1.1:53".to_owned(),
            "write /proc/sys/kernel/core_pattern".to_owned(),
            format!("signal {}", std::process::id()),
        ],
    );
}
