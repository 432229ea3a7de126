//! The names of Unix, and what stands for the others there.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

pub(crate) use std::os::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt},
    },
};

use legwork_gate::Policy;
pub(crate) use rustix::{fs::FlockOperation, process::Signal};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
        UTIME_NOW, fstat, lstat, memfd_create, open, renameat_with, stat, statfs, utimensat,
    },
    io::Errno,
    time::{ClockId, clock_gettime},
};

use super::{FileLook, FileStamp};

/// Opening with this never waits, whatever stands under the name.
pub(crate) const NO_WAIT: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// Opening with this follows no link.
pub(crate) const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// The signals that can be named, in words.
pub(crate) const SIGNALS: &str = "TERM, INT, HUP, QUIT, USR1, USR2 or KILL";

/// A signal by its name.
pub(crate) fn signal_of(name: &str) -> Option<Signal> {
    Some(match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "QUIT" => Signal::QUIT,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "KILL" => Signal::KILL,
        _ => return None,
    })
}

/// What is missing where there is no place for state.
pub(crate) const NO_STATE_BASE: &str = "neither XDG_STATE_HOME nor HOME is set";

/// The folder in which programs keep their state, by variables that hold absolute paths.
pub(crate) fn state_base(set: impl Fn(&'static str) -> Option<PathBuf>) -> Option<PathBuf> {
    set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))
}

/// The folder in which programs keep their configuration.
pub(crate) fn config_base(set: impl Fn(&'static str) -> Option<PathBuf>) -> Option<PathBuf> {
    set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))
}

/// The file of the machine's configuration.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Windows")]
pub(crate) fn system_file() -> Option<PathBuf> {
    Some("/etc/legwork/config.toml".into())
}

/// A policy as it counts on this system.
pub(crate) fn here(policy: Policy) -> Policy {
    policy
}

/// The shell of scripts whose caller and user have chosen none.
pub(crate) const FALLBACK_SHELL: &str = "sh";

/// The shell that tools promise whose scripts have always the same one.
pub(crate) const COMMON_SHELL: &str = "bash";

/// A program's name without what its file's name ends with.
pub(crate) fn bare_name(file_name: &OsStr) -> OsString {
    file_name.to_owned()
}

/// The words by which a shell with a grammar of its own runs a script; none for one that is like
/// `sh`. An error is why the shell cannot be given that script.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Windows")]
pub(crate) fn own_words(
    _shell: &OsStr,
    _script: &str,
    _login: bool,
) -> Result<Option<Vec<OsString>>, &'static str> {
    Ok(None)
}

/// Whether this is Windows.
pub(crate) const ON_WINDOWS: bool = false;

/// What is said of the choice of a shell.
pub(crate) const SHELL_FIELD: &str = "The shell to use, by name or path. Default: the user's shell if it is bash, zsh \
                                      or sh, else sh.";

/// A program's name as it is compared with rules.
pub(crate) fn judged_name(name: &str) -> String {
    name.to_owned()
}

/// Whether an error of the system says that there are no terminals.
pub(crate) fn is_no_terminal(_errno: i32) -> bool {
    false
}

/// Locks a file, or lets go of it.
pub(crate) fn flock(file: &File, operation: FlockOperation) -> io::Result<()> {
    Ok(rustix::fs::flock(file, operation)?)
}

/// A folder that stays open.
pub(crate) type FolderHandle = OwnedFd;

/// Opens a folder of ours.
pub(crate) fn open_folder(path: &Path) -> io::Result<FolderHandle> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Looks at what stands under a name.
pub(crate) fn look_at(path: &Path) -> io::Result<FileLook> {
    Ok(looked(&stat(path)?))
}

/// Looks at a file that is open.
pub(crate) fn look_of(file: &File) -> io::Result<FileLook> {
    Ok(looked(&fstat(file)?))
}

fn looked(found: &Stat) -> FileLook {
    FileLook { id: (found.st_dev, found.st_ino), bytes: found.st_size.cast_unsigned() }
}

/// A file's numbers, of a link those of what it leads to, if that is wanted.
pub(crate) fn stamp(path: &Path, follows: bool) -> io::Result<FileStamp> {
    let found = if follows { stat(path) } else { lstat(path) }?;
    let time = |seconds: i64, nanoseconds: u64| {
        i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
    };
    let FileLook { id, bytes } = looked(&found);
    let modified = time(found.st_mtime, found.st_mtime_nsec);
    Ok(FileStamp { id, bytes, modified, changed: time(found.st_ctime, found.st_ctime_nsec) })
}

/// File systems whose files may be on another machine, or behind another program.
const REMOTE: [i128; 12] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x7375_7245, // Coda
    0x5346_414f, // AFS
    0x6b41_4653, // AFS of the kernel
    0x0187,      // autofs
];

/// Whether what stands under a name, or would, may be on another machine.
pub(crate) fn is_remote(path: &Path) -> bool {
    let found = path.ancestors().find_map(|above| statfs(above).ok());
    found.is_some_and(|found| REMOTE.contains(&i128::from(found.f_type)))
}

/// Makes a folder for its owner only, whatever the mask says.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Opens a folder to its owner, whatever its mode became. A folder of another user is an error.
pub(crate) fn open_to_owner(folder: &Path) -> io::Result<()> {
    let found = fs::metadata(folder)?;
    if !found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no folder"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        let problem = format!("it belongs to the user {}: do this as that user", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    if found.mode() & 0o700 == 0o700 {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(found.mode() | 0o700))
}

/// Lets nobody but its owner open a file.
pub(crate) fn make_private(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o600))
}

/// Opens a folder only to lock it.
pub(crate) fn open_to_lock(folder: &Path) -> io::Result<File> {
    File::open(folder)
}

/// Renames a file to a name that nothing has yet.
pub(crate) fn rename_new(old: &Path, new: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, old, CWD, new, RenameFlags::NOREPLACE)?)
}

/// Puts a file in the place of another, which may be open.
pub(crate) fn replace(new: &Path, old: &Path) -> io::Result<()> {
    fs::rename(new, old)
}

/// Whether a file that is open keeps its name: nobody can rename or remove it.
pub(crate) const OPEN_FILES_KEEP_THEIR_NAMES: bool = false;

/// Whether an error says that somebody has a file open, who keeps its name.
pub(crate) fn is_held_open(_error: &io::Error) -> bool {
    false
}

/// Sees to it that the names in a folder outlive a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Where a path really is.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Why a path names no folder, if its text says so.
pub(crate) fn path_problem(_path: &Path) -> Option<&'static str> {
    None
}

/// Why a program cannot be started in a folder, if there is a reason.
pub(crate) fn unfit_folder(_program: &Path, _folder: &Path) -> Option<&'static str> {
    None
}

/// Whether a path is on another machine than all of these.
pub(crate) fn is_elsewhere(_path: &Path, _roots: &[PathBuf]) -> bool {
    false
}

/// Whether a real path is that of a folder, or below it.
pub(crate) fn is_below(path: &Path, folder: &Path) -> bool {
    path.starts_with(folder)
}

/// What a file takes on its disk.
pub(crate) fn disk_bytes(found: &Metadata) -> u64 {
    found.blocks() * 512
}

/// Gives a file the time of now.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

/// An empty file of memory alone: unlike a pipe it takes any amount before anybody reads.
pub(crate) fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?))
}

/// Whether all that a descriptor gives is there already.
pub(crate) fn is_file(descriptor: &OwnedFd) -> bool {
    file_bytes(descriptor).is_some()
}

/// The length of what a descriptor gives; none unless all of it is there already.
pub(crate) fn file_bytes(descriptor: &OwnedFd) -> Option<u64> {
    let found = fstat(descriptor).ok()?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    is_file.then_some(found.st_size.cast_unsigned())
}

/// Whether an error of the system says that a disk is full.
pub(crate) fn is_full(errno: i32) -> bool {
    [Errno::NOSPC, Errno::DQUOT].iter().any(|full| full.raw_os_error() == errno)
}

/// Whether an error of the system says that there are too many processes or open files.
pub(crate) fn is_shortage(errno: i32) -> bool {
    let short = [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    short.into_iter().any(|known| known.raw_os_error() == errno)
}

/// Whether an error of the system says that something is a folder.
pub(crate) fn is_folder_error(errno: i32) -> bool {
    errno == Errno::ISDIR.raw_os_error()
}

/// Who runs this program.
pub(crate) fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Lets everything else go before this thread.
pub(crate) fn be_nice(nice: i32) {
    let _ = rustix::process::setpriority_process(None, nice);
}

/// Milliseconds since the machine was started, without those in which it slept.
pub(crate) fn awake_ms() -> u64 {
    kernel_ms(ClockId::Monotonic)
}

/// Milliseconds since the machine was started.
pub(crate) fn since_boot_ms() -> u64 {
    kernel_ms(ClockId::Boottime)
}

fn kernel_ms(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}
