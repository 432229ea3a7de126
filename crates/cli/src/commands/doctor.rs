//! `legwork doctor`: what this machine can do, tried out and not guessed.

use std::{fmt::Write, process::ExitCode};

use legwork::{Caller, ToolError, Trust};
use legwork_warden::{CgroupKill, cgroup_kill, sandbox::Layer as Named};
use serde::Serialize;
use serde_json::json;

use crate::{
    OUR_FAILURE,
    arguments::{DoctorOptions, State},
    render::{print, print_json},
};

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

#[derive(Debug, Serialize)]
struct Layer {
    name: String,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Layer {
    fn available(name: &str) -> Self {
        Self { name: name.to_owned(), available: true, reason: None }
    }

    fn missing(name: &str, reason: &str) -> Self {
        Self { name: name.to_owned(), available: false, reason: Some(reason.to_owned()) }
    }
}

pub(crate) async fn doctor(options: DoctorOptions) -> ExitCode {
    let checks = checks(options.state.clone()).await;
    let layers = layers(options.state).await;
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
    match engine.warm_up(Trust::TrustedOperator) {
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

/// What this machine makes of the strictest sandbox: the one of a caller who is not trusted.
async fn layers(state: State) -> Vec<Layer> {
    let probed = match state.open() {
        Ok(engine) => engine.protection(Trust::UntrustedExternal).await,
        Err(error) => Err(error),
    };
    let mut layers: Vec<Layer> = match probed {
        Ok(report) => {
            let enforced = report.enforced.iter().map(|name| Layer::available(name));
            let missing = report.missing.iter().map(|it| Layer::missing(&it.layer, &it.reason));
            enforced.chain(missing).collect()
        }
        Err(error) => vec![Layer::missing("sandbox", &error.message)],
    };
    layers.push(match cgroup_kill() {
        CgroupKill::Available => Layer::available("cgroup_kill"),
        CgroupKill::Missing(reason) => Layer::missing("cgroup_kill", &reason),
    });
    let unknown = Named::ALL.into_iter().map(Named::as_str);
    let unknown: Vec<&str> =
        unknown.filter(|name| !layers.iter().any(|layer| layer.name == *name)).collect();
    layers.extend(unknown.into_iter().map(|name| Layer::missing(name, "not used by this version")));
    let place = |layer: &Layer| Named::ALL.iter().position(|one| one.as_str() == layer.name);
    layers.sort_by_key(place);
    layers
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
