//! The sandbox as data: the profile of a command, and the layers that are really in force.

use serde::{Deserialize, Serialize};

/// What a command may touch. Whoever makes it decides; the warden only carries it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Whether it has a network: the machine's own, or none but its own loopback.
    pub network: bool,
    /// Whether a proxy on that loopback connects it to hosts that rules allow, where it has no
    /// other network.
    pub names: bool,
    /// Folders and files that may be written; everything else may not. What does not exist is
    /// passed over.
    pub writable: Vec<Vec<u8>>,
    /// Folders that can be read wherever they are, also in a temporary folder that is otherwise the
    /// command's own.
    pub shown: Vec<Vec<u8>>,
    /// Paths below what may be written that may not be written all the same.
    pub unwritable: Vec<Guarded>,
    /// Paths that may not even be read.
    pub unreadable: Vec<Vec<u8>>,
    /// The folder that it sees as `/tmp`; a fresh one in memory when absent.
    pub tmp: Option<Vec<u8>>,
    /// Our own state folder: hidden, but for the artifacts that are shown.
    pub state: Vec<u8>,
    /// Programs that are covered: what stands at their paths says that they are denied.
    pub denied: Vec<DeniedProgram>,
    /// The folders that programs are looked for in.
    pub program_folders: Vec<Vec<u8>>,
    /// Whether the warden is asked before anything is executed.
    pub tells_exec: bool,
    /// Folders of the above that are seen as a copy: what is written there goes elsewhere. Where
    /// that cannot be had, no command is started.
    pub copies: Vec<CopyOnWrite>,
}

/// A copy-on-write view of a folder, laid over its own place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOnWrite {
    /// The folder: one that may be written, or the one that is seen as `/tmp`.
    pub place: Vec<u8>,
    /// Where everything goes that is written.
    pub upper: Vec<u8>,
    /// A folder beside that, in which the kernel gets an empty one.
    pub work: Vec<u8>,
}

/// A program that is denied as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedProgram {
    /// Its name, without a folder.
    pub name: Vec<u8>,
    /// The rule that denies it.
    pub rule: String,
}

/// The attribute of a folder in a layer that is there only for something to be guarded: no command
/// has made it.
pub const PLACE_ATTRIBUTE: &str = "user.legwork.guarded";

/// A path that is kept as it is, inside something that may be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// The path.
    pub path: Vec<u8>,
    /// How.
    pub guard: GuardKind,
}

/// How a path is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardKind {
    /// It may not be written; it is passed over where it does not exist.
    ReadOnly,
    /// The same; a folder is made where there is none but its parent exists.
    ReadOnlyFolder,
    /// It may be written, but neither renamed nor removed: something below it is guarded.
    InPlace,
}

/// One protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLayer {
    /// Its own user namespace, without any capability in it.
    UserNamespace,
    /// Its own view of the files.
    MountNamespace,
    /// Its own process numbers, with an init that ends everything.
    PidNamespace,
    /// No network but its own loopback.
    NetworkNamespace,
    /// Its own System V and POSIX queues and memory.
    IpcNamespace,
    /// Rules on files, abstract sockets and signals that it cannot shed.
    Landlock,
    /// Refusal of system calls that no ordinary program needs.
    Seccomp,
    /// Limits of a process.
    Rlimits,
    /// Killing a whole tree at once.
    CgroupKill,
    /// Limits of a whole tree.
    CgroupLimits,
}

impl SandboxLayer {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 10] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::PidNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::Landlock,
        Self::Seccomp,
        Self::Rlimits,
        Self::CgroupKill,
        Self::CgroupLimits,
    ];

    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserNamespace => "user_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::NetworkNamespace => "network_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Rlimits => "rlimits",
            Self::CgroupKill => "cgroup_kill",
            Self::CgroupLimits => "cgroup_limits",
        }
    }
}

/// What of a profile is enforced here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// The layers in force.
    pub enforced: Vec<SandboxLayer>,
    /// Those that should be and are not, each with the reason.
    pub missing: Vec<AbsentLayer>,
    /// Whether the warden is asked before anything is executed.
    pub tells_exec: bool,
    /// The rules whose programs are covered.
    pub covered: Vec<String>,
}

/// A protection that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentLayer {
    /// Which.
    pub layer: SandboxLayer,
    /// Why, in words for people.
    pub reason: String,
}

impl Enforcement {
    /// Notes whether a layer is in force, and why it is not.
    pub(crate) fn note(
        &mut self,
        layer: SandboxLayer,
        there: bool,
        reason: impl FnOnce() -> String,
    ) {
        if there {
            self.enforced.push(layer);
        } else {
            self.missing.push(AbsentLayer { layer, reason: reason() });
        }
    }
}
