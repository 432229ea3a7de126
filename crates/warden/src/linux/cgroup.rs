//! A cgroup per warden, where the machine allows one: with it the kernel kills a whole process tree
//! at once.
//!
//! A warden is born into its cgroup and the command inherits it at no cost. Before the warden kills
//! the cgroup it leaves it. Nothing here is required: without it the tree is frozen and killed
//! instead.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// What the names of our cgroups begin with.
const PREFIX: &str = "legwork-";

/// What the names of tasks' own cgroups end with.
const TASK_SUFFIX: &str = "-task";

/// A cgroup that is younger may only be empty because its first process is on the way.
const SWEPT_AFTER: Duration = Duration::from_secs(60);

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
    match tree().and_then(|tree| Cgroup::create(&Base::at(&tree), &name)) {
        Ok(cgroup) => {
            cgroup.remove();
            CgroupKill::Available
        }
        Err(error) => CgroupKill::Missing(error.to_string()),
    }
}

/// The tree of version 2: where it is mounted, and our own cgroup in it, as folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub mount: PathBuf,
    pub own: PathBuf,
}

/// Where wardens' cgroups are made, and where a warden goes when it leaves its own: where the
/// spawner is.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub folder: PathBuf,
    pub home: PathBuf,
}

impl Base {
    /// Where the spawner is.
    pub(super) fn at(tree: &Tree) -> Self {
        Self { folder: tree.own.clone(), home: tree.own.clone() }
    }
}

/// Finds the tree.
fn tree() -> io::Result<Tree> {
    find_tree(
        &fs::read_to_string("/proc/self/cgroup")?,
        &fs::read_to_string("/proc/self/mountinfo")?,
    )
}

/// Finds the tree in what the kernel says of our cgroups and our mounts.
pub(super) fn find_tree(own: &str, mounts: &str) -> io::Result<Tree> {
    let missing = |what: &str| io::Error::new(io::ErrorKind::NotFound, what.to_owned());
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or_else(|| missing("not in a version 2 cgroup"))?;
    let mount = mounts
        .lines()
        .find_map(|line| line.split_once(" - cgroup2 "))
        .ok_or_else(|| missing("no version 2 cgroup filesystem is mounted"))?
        .0;
    let below =
        |path| below_mount(mount, path).ok_or_else(|| missing("a mount that cannot be read"));
    Ok(Tree { mount: below("/")?, own: below(own)? })
}

/// The folder of a cgroup, below the mount of this row (its part before the dash): of the hierarchy
/// perhaps only a part is mounted.
pub(super) fn below_mount(row: &str, path: &str) -> Option<PathBuf> {
    let mut fields = row.split(' ').skip(3);
    let (root, mount) = (fields.next()?, fields.next()?);
    let path =
        Path::new(path).strip_prefix(root).or_else(|_| Path::new(path).strip_prefix("/")).ok()?;
    Some(Path::new(mount).components().chain(path.components()).collect())
}

/// The name of a warden's cgroup.
pub(super) fn name_of(warden: &str) -> String {
    format!("{PREFIX}{warden}")
}

/// The name of the cgroup of a warden's task, where that is in the same tree.
pub(super) fn name_of_task(warden: &str) -> String {
    format!("{PREFIX}{warden}{TASK_SUFFIX}")
}

/// Removes the empty cgroups of wardens that were killed together with their spawner, and those
/// inside them: a command may have used this program itself.
pub(super) fn sweep(base: &Path) {
    for entry in ours(base) {
        if age(&entry).is_some_and(|age| age > SWEPT_AFTER) {
            sweep(&entry.path());
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The cgroups of ours in a folder.
fn ours(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()))
}

fn age(entry: &fs::DirEntry) -> Option<Duration> {
    entry.metadata().ok()?.modified().ok()?.elapsed().ok()
}

/// The cgroup of one warden.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    home: PathBuf,
}

impl Cgroup {
    pub(super) fn create(base: &Base, name: &str) -> io::Result<Self> {
        let cgroup = Self::named(base, name);
        fs::create_dir(&cgroup.path)?;
        if !fs::exists(cgroup.path.join("cgroup.kill"))? {
            cgroup.remove();
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no cgroup.kill (Linux 5.14)"));
        }
        Ok(cgroup)
    }

    /// The cgroup of a warden that has one.
    pub(super) fn named(base: &Base, name: &str) -> Self {
        Self { path: base.folder.join(name_of(name)), home: base.home.clone() }
    }

    /// Its folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder, for a process that is to be born into it.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC);
        Ok(options.open(&self.path)?.into())
    }

    /// Moves the calling process out, to where it came from.
    pub(super) fn leave(&self) -> io::Result<()> {
        fs::write(self.home.join("cgroup.procs"), "0")
    }

    /// Kills everything inside, and in the task's own cgroup where that is beside it.
    pub(super) fn kill(&self) -> io::Result<()> {
        let _ = fs::write(self.task().join("cgroup.kill"), "1");
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Removes the cgroup, and says whether it is gone; one that still has members stays, and is no
    /// harm.
    pub(super) fn remove(&self) -> bool {
        let task_is_gone = remove(&self.task());
        remove(&self.path) && task_is_gone
    }

    fn task(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(TASK_SUFFIX);
        path.into()
    }
}

/// Removes the folder of a cgroup whose tree is over, and says whether it is gone.
pub(super) fn remove(folder: &Path) -> bool {
    match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(_) => {
            let inside: Vec<_> = ours(folder).map(|entry| remove(&entry.path())).collect();
            !inside.is_empty() && fs::remove_dir(folder).is_ok()
        }
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
