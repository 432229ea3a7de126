//! `legwork doctor`: what this machine can do, tried out and not guessed.

use std::{fmt::Write, process::ExitCode};

use legwork::{Caller, ToolError};
use legwork_warden::{CgroupKill, cgroup_kill};
use serde::Serialize;
use serde_json::json;

use crate::{
    OUR_FAILURE,
    arguments::{DoctorOptions, State},
    render::{print, print_json},
};

/// The layers that this version does not use, whatever the machine can do.
const NOT_USED_YET: [&str; 9] = [
    "user_namespace",
    "mount_namespace",
    "pid_namespace",
    "network_namespace",
    "ipc_namespace",
    "landlock",
    "seccomp",
    "rlimits",
    "cgroup_limits",
];

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

#[derive(Debug, Serialize)]
struct Layer {
    name: &'static str,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(crate) async fn doctor(options: DoctorOptions) -> ExitCode {
    let checks = checks(options.state).await;
    let layers = layers();
    let healthy = checks.iter().all(|check| check.ok);
    let version = env!("CARGO_PKG_VERSION");
    let printed = if options.json {
        print_json(&json!({
            "version": version, "healthy": healthy, "checks": checks, "layers": layers,
        }))
    } else {
        print(&report(version, &checks, &layers))
    };
    if healthy { printed } else { ExitCode::from(OUR_FAILURE) }
}

async fn checks(state: State) -> Vec<Check> {
    let engine = match state.open() {
        Ok(engine) => engine,
        Err(error) => return vec![failed("state", &error)],
    };
    let place = engine.state().path().display().to_string();
    let mut checks = vec![Check { name: "state", ok: true, detail: place }];
    match engine.warm_up() {
        Ok(pid) => {
            let detail = format!("starts and answers (pid {pid})");
            checks.push(Check { name: "spawner", ok: true, detail });
        }
        Err(error) => {
            checks.push(failed("spawner", &error));
            return checks;
        }
    }
    let input = json!({ "cmd": "echo well", "shell": "sh", "login": false, "workdir": "/",
                        "duplicate_policy": "start_new" });
    let answer = engine.call("ExecCommand", input, &Caller::operator("doctor")).await;
    checks.push(match answer.error() {
        None => Check {
            name: "command",
            ok: answer.receipt().contains("well"),
            detail: answer.envelope().summary_text.clone().unwrap_or_default(),
        },
        Some(error) => failed("command", error),
    });
    checks
}

fn failed(name: &'static str, error: &ToolError) -> Check {
    Check { name, ok: false, detail: error.message.clone() }
}

fn layers() -> Vec<Layer> {
    let kill = match cgroup_kill() {
        CgroupKill::Available => Layer { name: "cgroup_kill", available: true, reason: None },
        CgroupKill::Missing(reason) => {
            Layer { name: "cgroup_kill", available: false, reason: Some(reason) }
        }
    };
    let unused = NOT_USED_YET.into_iter().map(|name| Layer {
        name,
        available: false,
        reason: Some("this version of legwork does not use it".into()),
    });
    unused.chain([kill]).collect()
}

fn report(version: &str, checks: &[Check], layers: &[Layer]) -> String {
    let mut text = format!("legwork {version}\n\n");
    for check in checks {
        let mark = if check.ok { "ok" } else { "FAILED" };
        let _ = writeln!(text, "{:<10} {mark:<7} {}", check.name, check.detail);
    }
    text.push_str("\nProtection of commands from each other and of this machine from them:\n");
    for layer in layers {
        let mark = if layer.available { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "{:<18} {mark:<4} {}",
            layer.name,
            layer.reason.as_deref().unwrap_or_default()
        );
    }
    text
}
