//! `legwork doctor`: what this machine can do, tried out and not guessed.

use std::{fmt::Write, process::ExitCode};

use legwork::{Caller, Engine, ToolError, Trust, Usage, audit::repairs};
use legwork_warden::{CgroupKill, cgroup_kill, cgroup_limits, sandbox::SandboxLayer};
use serde::Serialize;
use serde_json::{Value, json};

use super::audit::describe as describe_entry;
use crate::{
    OUR_FAILURE,
    arguments::{DoctorOptions, StateChoice},
    render::{bytes, print, print_json, time},
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
    let Findings { checks, usage, repairs } = examine(options.state.clone()).await;
    let layers = layers(options.state).await;
    let healthy = checks.iter().all(|check| check.ok);
    let version = env!("CARGO_PKG_VERSION");
    let printed = if options.json {
        let of = |event: &str| -> Vec<&Value> {
            repairs
                .iter()
                .filter(|entry| entry.get("event").is_some_and(|it| it == event))
                .collect()
        };
        print_json(&json!({
            "version": version, "healthy": healthy, "checks": checks, "usage": usage,
            "rebuilds": of("rebuilt"), "set_aside": of("set_aside"), "layers": layers,
        }))
    } else {
        let mut text = report(version, &checks, &layers);
        for entry in &repairs {
            let _ = writeln!(text, "\n{}", describe_entry(entry));
        }
        print(&text)
    };
    if healthy { printed } else { ExitCode::from(OUR_FAILURE) }
}

/// What was found out.
#[derive(Default)]
struct Findings {
    checks: Vec<Check>,
    usage: Option<Usage>,
    /// Entries of the audit log.
    repairs: Vec<Value>,
}

async fn examine(state: StateChoice) -> Findings {
    let engine = match state.open() {
        Ok(engine) => engine,
        Err(error) => {
            return Findings { checks: vec![failed("state", &error)], ..Findings::default() };
        }
    };
    let mut findings = Findings { checks: checks(&engine).await, ..Findings::default() };
    // After the check of the ledger, which may be the reason of one.
    findings.repairs = repairs(&engine.state().audit()).unwrap_or_default();
    match engine.usage().await {
        Ok(usage) => {
            let detail = describe(&usage);
            findings.checks.push(Check { name: "disk", ok: true, detail });
            findings.usage = Some(usage);
        }
        Err(error) => findings.checks.push(failed("disk", &error)),
    }
    findings
}

fn describe(usage: &Usage) -> String {
    let oldest = match usage.oldest_at_ms {
        Some(at_ms) => format!(", the oldest of {}", time(at_ms)),
        None => String::new(),
    };
    format!(
        "ledger {}; {} tasks{oldest}; {} folders, {}",
        bytes(usage.ledger_bytes),
        usage.tasks,
        usage.folders,
        bytes(usage.folder_bytes)
    )
}

async fn checks(engine: &Engine) -> Vec<Check> {
    let place = engine.state().path().display().to_string();
    let mut checks = vec![Check { name: "state", ok: true, detail: place }];
    checks.push(match engine.check_ledger().await {
        Ok(()) => Check { name: "ledger", ok: true, detail: "every page is whole".into() },
        Err(error) => failed("ledger", &error),
    });
    match engine.warm_up(Trust::TrustedOperator).await {
        Ok(pid) => {
            let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            let detail = format!("starts and answers{pid}");
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
async fn layers(state: StateChoice) -> Vec<Layer> {
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
    layers.push(match cgroup_limits() {
        Ok(()) => Layer::available("cgroup_limits"),
        Err(reason) => Layer::missing("cgroup_limits", &reason),
    });
    // Every kernel has them.
    layers.push(Layer::available("rlimits"));
    let unknown = SandboxLayer::ALL.into_iter().map(SandboxLayer::as_str);
    let unknown: Vec<&str> =
        unknown.filter(|name| !layers.iter().any(|layer| layer.name == *name)).collect();
    layers.extend(unknown.into_iter().map(|name| Layer::missing(name, "not used by this version")));
    let place = |layer: &Layer| SandboxLayer::ALL.iter().position(|one| one.as_str() == layer.name);
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
