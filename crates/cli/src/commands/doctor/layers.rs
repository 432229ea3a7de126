//! The layers of protection (namespaces, Landlock, seccomp, cgroups): which this machine has, and
//! why others are missing.

use std::{fmt::Write, sync::Arc};

use legwork::{SandboxReport, ToolError};
use legwork_warden::sandbox::SandboxLayer;
#[cfg(target_os = "linux")]
use legwork_warden::{CgroupKill, cgroup_kill, cgroup_limits};
use serde::Serialize;

use crate::{
    platform::LAYERS_NOTE,
    style::{Style, Tone, folded},
};

#[derive(Debug, Serialize)]
pub(super) struct ProtectionLayer {
    name: String,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl ProtectionLayer {
    fn available(name: &str) -> Self {
        Self { name: name.to_owned(), available: true, reason: None }
    }

    fn missing(name: &str, reason: &str) -> Self {
        Self { name: name.to_owned(), available: false, reason: Some(reason.to_owned()) }
    }
}

/// All layers, by what was found of the strictest sandbox.
pub(super) fn of(probed: Result<Arc<SandboxReport>, ToolError>) -> Vec<ProtectionLayer> {
    let mut layers: Vec<ProtectionLayer> = match probed {
        Ok(report) => {
            let enforced = report.enforced.iter().map(|name| ProtectionLayer::available(name));
            let missing =
                report.missing.iter().map(|it| ProtectionLayer::missing(&it.layer, &it.reason));
            enforced.chain(missing).collect()
        }
        Err(error) => vec![ProtectionLayer::missing("sandbox", &error.message)],
    };
    layers.extend(of_every_command());
    let unknown = SandboxLayer::ALL.into_iter().map(SandboxLayer::as_str);
    let unknown: Vec<&str> =
        unknown.filter(|name| !layers.iter().any(|layer| layer.name == *name)).collect();
    layers.extend(
        unknown.into_iter().map(|name| ProtectionLayer::missing(name, "not used by this version")),
    );
    let place = |layer: &ProtectionLayer| {
        SandboxLayer::ALL.iter().position(|one| one.as_str() == layer.name)
    };
    layers.sort_by_key(place);
    layers
}

/// What every command has here, confined or not.
#[cfg(target_os = "linux")]
fn of_every_command() -> [ProtectionLayer; 3] {
    let kill = match cgroup_kill() {
        CgroupKill::Available => ProtectionLayer::available("cgroup_kill"),
        CgroupKill::Missing(reason) => ProtectionLayer::missing("cgroup_kill", &reason),
    };
    let limits = match cgroup_limits() {
        Ok(()) => ProtectionLayer::available("cgroup_limits"),
        Err(reason) => ProtectionLayer::missing("cgroup_limits", &reason),
    };
    // Every kernel has the last.
    [kill, limits, ProtectionLayer::available("rlimits")]
}

/// What every command has here is said of the sandbox already: its job.
#[cfg(windows)]
fn of_every_command() -> [ProtectionLayer; 0] {
    []
}

/// The layers that this machine lacks.
pub(super) fn missing(layers: &[ProtectionLayer]) -> impl Iterator<Item = &ProtectionLayer> {
    layers.iter().filter(|layer| !layer.available)
}

/// The layers for a person: first what is there, in one line, then what is missing and why.
pub(super) fn report(layers: &[ProtectionLayer], style: Style) -> String {
    let there: Vec<&str> =
        layers.iter().filter(|layer| layer.available).map(|layer| layer.name.as_str()).collect();
    let width = style.width.unwrap_or(usize::MAX);
    let there = format!("Protection that this machine has: {}", there.join(", "));
    let mut text = format!("\n{}\n", folded(&there, width));
    if let Some(note) = LAYERS_NOTE {
        let _ = writeln!(text, "{}", folded(note, width));
    }
    if missing(layers).next().is_some() {
        text.push_str("Missing here:\n");
    }
    for layer in missing(layers) {
        let name = style.paint(Tone::Notable, &format!("{:<14}", layer.name));
        let _ = writeln!(text, "{name} {}", layer.reason.as_deref().unwrap_or_default());
    }
    text
}
