//! A place as it is configured: where commands run besides this machine, and how it is reached.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::sandbox::SandboxReport;
use crate::id::TaskId;

/// The name of this machine as a place.
pub const LOCAL_PLACE: &str = "local";

/// What stands between the name of a place and the rest of a warden's name.
pub(crate) const SEPARATOR: char = ':';

/// A place that was configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlaceSettings {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub reach: PlaceReach,
    /// The folder there that commands run in; the workspace's own path where absent.
    pub workspace: Option<PathBuf>,
    /// The program `legwork` there; where absent, this one is sent.
    pub program: Option<String>,
    /// The folder there that running tasks are kept in; a default place where absent.
    pub state: Option<PathBuf>,
}

/// How a place is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum PlaceReach {
    /// Over OpenSSH.
    Ssh {
        /// The host, as ssh takes it.
        host: String,
        /// Arguments for ssh, before the host.
        options: Vec<String>,
    },
    /// A container that runs.
    Docker {
        /// Its name.
        container: String,
        /// Arguments for `docker exec`, before the container.
        options: Vec<String>,
    },
    /// A container for each task.
    Image {
        /// The image that it is made of.
        image: String,
        /// Arguments for `docker run`, before the image.
        options: Vec<String>,
    },
    /// A job of Slurm for each task.
    Slurm {
        /// Arguments for `sbatch`, before ours.
        options: Vec<String>,
    },
}

impl PlaceReach {
    /// The names of the kinds in configuration.
    pub const KINDS: [&'static str; 3] = ["ssh", "docker", "slurm"];

    /// The kind's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ssh { .. } => "ssh",
            Self::Docker { .. } | Self::Image { .. } => "docker",
            Self::Slurm { .. } => "slurm",
        }
    }

    /// What is reached, for people.
    pub fn target(&self) -> &str {
        match self {
            Self::Ssh { host, .. } => host,
            Self::Docker { container, .. } => container,
            Self::Image { image, .. } => image,
            Self::Slurm { .. } => "the cluster of this machine",
        }
    }
}

impl PlaceSettings {
    /// A place of this name, with a default for everything else.
    pub fn new(name: impl Into<String>, reach: PlaceReach) -> Self {
        Self { name: name.into(), reach, workspace: None, program: None, state: None }
    }

    /// Whether this can be a place's name: it is typed, and stands before the names of wardens.
    pub fn is_name(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=32).contains(&name.len())
            && name.bytes().all(is_plain)
            && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
            && name != LOCAL_PLACE
            && name != "default"
    }
}

/// What a place says of itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlaceReport {
    /// Its name.
    pub name: String,
    /// The name of the machine.
    pub host: String,
    /// The folder there that commands run in; or why there is none.
    pub workspace: Result<PathBuf, String>,
    /// The folder there that running tasks are kept in.
    pub state: PathBuf,
    /// Processors of the machine.
    pub processors: u64,
    /// Its memory.
    pub memory_bytes: u64,
    /// How long it took to connect; next to nothing if a connection stood.
    pub opened_in: Duration,
    /// How long a question takes then.
    pub answered_in: Duration,
    /// Whether the program there is this one, byte for byte.
    pub is_same_program: bool,
    /// Wardens that live there, idle ones too.
    pub wardens: u64,
    /// Tasks of which something is stored there.
    pub tasks: u64,
    /// What commands of an operator are confined by there.
    pub sandbox: Arc<SandboxReport>,
    /// What a scheduler there lacks.
    pub lacks: Vec<String>,
}

/// The place of a warden, and its name there; none for one of this machine.
pub(crate) fn place_of(warden: &str) -> Option<(&str, &str)> {
    warden.split_once(SEPARATOR)
}

/// The task of a warden that a scheduler starts for it alone: its name says so.
pub(crate) fn task_of(warden: &str) -> Option<TaskId> {
    let (_, name) = place_of(warden)?;
    TaskId::parse(name.split_once('-')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wardens_name_says_where_it_is() {
        assert_eq!(place_of("mark-rest"), None);
        assert_eq!(place_of("build:mark-rest"), Some(("build", "mark-rest")));
    }

    #[test]
    fn names_of_places_can_be_typed_and_stand_before_a_colon() {
        for name in ["build", "gpu-1", "a.b_c", "9"] {
            assert!(PlaceSettings::is_name(name), "{name}");
        }
        for name in ["", "local", "default", "a:b", "a b", "-x", "a/b", &"x".repeat(33)] {
            assert!(!PlaceSettings::is_name(name), "{name}");
        }
    }
}
