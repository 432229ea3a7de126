//! A cgroup per warden, where one can be made: the one means that ends a whole tree at a stroke.
//!
//! A warden is born into its cgroup and the command inherits it at no cost. Before the warden kills the
//! cgroup it leaves it. Nothing here is required: without it the tree is frozen and killed instead.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

/// What the names of our cgroups begin with.
const PREFIX: &str = "legwork-";

/// Whether `cgroup.kill` can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupKill {
    /// It can.
    Available,
    /// It cannot, for this reason.
    Missing(String),
}

/// Tries what a spawner would do, and says how that went.
pub fn probe() -> CgroupKill {
    let name = format!("probe-{}", std::process::id());
    match base().and_then(|base| Cgroup::create(&base, &name)) {
        Ok(cgroup) => {
            cgroup.remove();
            CgroupKill::Available
        }
        Err(error) => CgroupKill::Missing(error.to_string()),
    }
}

/// The cgroup that this process is in, as a folder.
pub(super) fn base() -> io::Result<PathBuf> {
    let missing = |what: &str| io::Error::new(io::ErrorKind::NotFound, what.to_owned());
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .ok_or_else(|| missing("not in a version 2 cgroup"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts
        .lines()
        .filter(|line| line.contains(" - cgroup2 "))
        .find_map(|line| line.split(' ').nth(4))
        .ok_or_else(|| missing("no version 2 cgroup filesystem is mounted"))?;
    Ok(Path::new(mount).join(own))
}

/// Removes the empty cgroups of wardens that were killed together with their spawner.
///
/// One that another spawner has just made may go too; its warden then does without.
pub(super) fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The cgroup of one warden.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    parent: PathBuf,
}

impl Cgroup {
    pub(super) fn create(base: &Path, name: &str) -> io::Result<Self> {
        let path = base.join(format!("{PREFIX}{name}"));
        fs::create_dir(&path)?;
        let cgroup = Self { path, parent: base.to_owned() };
        if !fs::exists(cgroup.path.join("cgroup.kill"))? {
            cgroup.remove();
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no cgroup.kill (Linux 5.14)"));
        }
        Ok(cgroup)
    }

    /// Opens the folder, for a process that is to be born into it.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC);
        Ok(options.open(&self.path)?.into())
    }

    /// Moves the calling process out, into the parent.
    pub(super) fn leave(&self) -> io::Result<()> {
        fs::write(self.parent.join("cgroup.procs"), "0")
    }

    /// Kills everything inside.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Removes the cgroup; one that still has members stays, and is no harm.
    pub(super) fn remove(&self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// The flag does not fit the C `int` by which libc knows it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks, into the given cgroup where there is one. Returns the child's pid, or 0 in the child.
///
/// Call it with a single thread only.
pub(super) fn fork(cgroup: Option<&OwnedFd>) -> io::Result<i32> {
    let Some(cgroup) = cgroup else {
        // SAFETY: the spawner has one thread, so the child's memory is in no half-done state.
        return match unsafe { libc::fork() } {
            pid if pid < 0 => Err(io::Error::last_os_error()),
            pid => Ok(pid),
        };
    };
    // SAFETY: `clone_args` is plain data for which zero means absent; without CLONE_VM and with a
    // zero stack, clone3 acts like fork; one thread, as above.
    let pid = unsafe {
        let mut arguments: libc::clone_args = std::mem::zeroed();
        arguments.flags = CLONE_INTO_CGROUP;
        arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
        libc::syscall(libc::SYS_clone3, &raw mut arguments, std::mem::size_of::<libc::clone_args>())
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(pid).unwrap_or(0)) }
}
