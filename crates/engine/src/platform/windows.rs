//! The names of Unix, as Windows has them.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::windows::{fs as os_fs, io::AsHandle},
    path::{Component, Path, PathBuf},
    time::SystemTime,
};

pub(crate) use std::os::windows::io::{BorrowedHandle as BorrowedFd, OwnedHandle as OwnedFd};

use legwork_gate::Policy;
use legwork_warden::{FileLock, file_identity, lock_file, replace_file, unlock_file};
pub(crate) use legwork_warden::{Signal, awake_ms, since_boot_ms};

pub(crate) use super::windows_paths::is_device;
use super::{FileLook, FileStamp, windows_paths};

/// Nothing that can be opened here makes one wait.
pub(crate) const NO_WAIT: i32 = 0;

/// The link itself is opened, and is then no plain file.
pub(crate) const NO_FOLLOW: i32 = 0x0020_0000;

/// A folder can be opened only with this.
const FOLDER_TOO: u32 = 0x0200_0000;

/// Nobody else has a file open, or it is removed when the last one closes it.
const TEMPORARY: u32 = 0x0400_0000 | 0x100;

/// Numbers of errors of the system.
const DISK_FULL: [i32; 3] = [112, 39, 1295];
const SHORTAGE: [i32; 5] = [4, 8, 14, 1450, 1455];

/// Folders are named here: they cannot be removed or renamed while something in them is open.
pub(crate) type FolderHandle = PathBuf;

/// A descriptor of something.
pub(crate) trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl<T: AsHandle> AsFd for T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.as_handle()
    }
}

/// Texts as bytes: UTF-8 for all that is proper text.
pub(crate) trait OsStrExt {
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

/// Reads and writes at offsets.
pub(crate) trait FileExt {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        os_fs::FileExt::seek_read(self, buffer, offset)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut rest, mut offset) = (buffer, offset);
        while !rest.is_empty() {
            match self.read_at(rest, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    rest = rest.get_mut(read..).unwrap_or_default();
                    offset += read as u64;
                }
            }
        }
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (mut rest, mut offset) = (bytes, offset);
        while !rest.is_empty() {
            match os_fs::FileExt::seek_write(self, rest, offset)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    rest = rest.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
            }
        }
        Ok(())
    }
}

/// How a file is opened.
pub(crate) trait OpenOptionsExt {
    /// Who may open it: what is in a private folder is private.
    fn mode(&mut self, mode: u32) -> &mut Self;
    fn custom_flags(&mut self, flags: i32) -> &mut Self;
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, _mode: u32) -> &mut Self {
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut Self {
        os_fs::OpenOptionsExt::custom_flags(self, flags.cast_unsigned())
    }
}

/// What can be done with the lock of a file. A process that has one and takes another lets go of
/// the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlockOperation {
    LockShared,
    LockExclusive,
    Unlock,
    NonBlockingLockShared,
    NonBlockingLockExclusive,
}

/// Locks a file, or lets go of it.
pub(crate) fn flock(file: &File, operation: FlockOperation) -> io::Result<()> {
    let (lock, waits) = match operation {
        FlockOperation::Unlock => return unlock_file(file),
        FlockOperation::LockShared => (FileLock::Shared, true),
        FlockOperation::LockExclusive => (FileLock::Exclusive, true),
        FlockOperation::NonBlockingLockShared => (FileLock::Shared, false),
        FlockOperation::NonBlockingLockExclusive => (FileLock::Exclusive, false),
    };
    // There is none in most cases.
    let _ = unlock_file(file);
    if lock_file(file, lock, waits)? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// The signals that can be named, in words.
pub(crate) const SIGNALS: &str = "TERM, INT or KILL: Windows has no others";

/// A signal by its name.
pub(crate) fn signal_of(name: &str) -> Option<Signal> {
    Some(match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        _ => return None,
    })
}

/// What is missing where there is no place for state.
pub(crate) const NO_STATE_BASE: &str = "LOCALAPPDATA is not set";

/// The folder in which programs keep their state, by variables that hold absolute paths.
pub(crate) fn state_base(set: impl Fn(&'static str) -> Option<PathBuf>) -> Option<PathBuf> {
    set("LOCALAPPDATA")
}

/// The folder in which programs keep their configuration.
pub(crate) fn config_base(set: impl Fn(&'static str) -> Option<PathBuf>) -> Option<PathBuf> {
    set("XDG_CONFIG_HOME").or_else(|| set("APPDATA"))
}

/// The file of the machine's configuration: where only its administrators write, unlike
/// `ProgramData`, in which everybody may make a folder.
pub(crate) fn system_file() -> Option<PathBuf> {
    let programs = std::env::var_os("ProgramFiles").map(PathBuf::from)?;
    programs.is_absolute().then(|| programs.join("legwork").join("config.toml"))
}

/// A policy as it counts on this system.
pub(crate) fn here(policy: Policy) -> Policy {
    policy.for_windows()
}

/// The shell of scripts whose caller and user have chosen none.
pub(crate) const FALLBACK_SHELL: &str = "cmd";

/// The shell that tools promise whose scripts have always the same one.
pub(crate) const COMMON_SHELL: &str = "cmd";

/// A program's name without what its file's name ends with, in small letters.
pub(crate) fn bare_name(file_name: &OsStr) -> OsString {
    legwork_gate::windows_program_name(&file_name.to_string_lossy()).into()
}

/// Whether this is Windows.
pub(crate) const ON_WINDOWS: bool = true;

/// What is said of the choice of a shell.
pub(crate) const SHELL_FIELD: &str = "The shell to use: cmd, powershell, pwsh or bash (Git's), or the path of one. Default: cmd, or \
     the one that SHELL names by its path.";

/// The most characters that `cmd.exe` takes, its own name and options included.
const CMD_LINE_MAX: usize = 8191;
const CMD_LINE_BEGIN: usize = r#"cmd /d /s /c """#.len();

/// The words by which a shell with a grammar of its own runs a script; none for one that is like
/// `sh`. PowerShell reads a profile where a login is wanted. An error is why the shell cannot be
/// given that script.
pub(crate) fn own_words(
    shell: &OsStr,
    script: &str,
    login: bool,
) -> Result<Option<Vec<OsString>>, &'static str> {
    let words: &[&str] = match shell.to_str() {
        Some("cmd") => return cmd_words(script).map(Some),
        Some("powershell" | "pwsh") if login => &["-NonInteractive", "-Command"],
        Some("powershell" | "pwsh") => &["-NoProfile", "-NonInteractive", "-Command"],
        _ => return Ok(None),
    };
    Ok(Some(words.iter().copied().chain([script]).map(OsString::from).collect()))
}

/// `cmd.exe` leaves out every line but the first, and what is too long: neither goes unsaid.
fn cmd_words(script: &str) -> Result<Vec<OsString>, &'static str> {
    let line = script.trim_matches(['\r', '\n']);
    if line.contains(['\r', '\n']) {
        return Err("cmd runs one line only: join the commands with `&` or `&&`, or take another \
                    `shell`");
    }
    if line.encode_utf16().count() + CMD_LINE_BEGIN > CMD_LINE_MAX {
        return Err("the command is longer than the 8191 characters that cmd takes: put it into \
                    a file, or take another `shell`");
    }
    Ok(["/d", "/s", "/c", line].map(OsString::from).to_vec())
}

/// A program's name as it is compared with rules.
pub(crate) fn judged_name(name: &str) -> String {
    legwork_gate::windows_program_name(name)
}

/// Whether an error of the system says that there are no terminals.
pub(crate) fn is_no_terminal(errno: i32) -> bool {
    const NOT_SUPPORTED: i32 = 50;
    errno == NOT_SUPPORTED
}

/// Opens a folder of ours.
pub(crate) fn open_folder(path: &Path) -> io::Result<FolderHandle> {
    fs::read_dir(path)?;
    Ok(path.to_owned())
}

/// Opens any folder, so that it stays what it is: nobody can rename or remove it meanwhile.
pub(crate) fn hold_folder(path: &Path) -> io::Result<File> {
    let share = 0x1 | 0x2;
    let mut options = OpenOptions::new();
    os_fs::OpenOptionsExt::custom_flags(&mut options, FOLDER_TOO);
    os_fs::OpenOptionsExt::share_mode(&mut options, share);
    let folder = options.read(true).open(path)?;
    if !folder.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(folder)
}

/// Looks at what stands under a name.
pub(crate) fn look_at(path: &Path) -> io::Result<FileLook> {
    let mut options = OpenOptions::new();
    // Only its attributes are asked for, which is never refused because of others.
    os_fs::OpenOptionsExt::access_mode(&mut options, 0);
    os_fs::OpenOptionsExt::custom_flags(&mut options, FOLDER_TOO);
    look_of(&options.open(path)?)
}

/// Looks at a file that is open.
pub(crate) fn look_of(file: &File) -> io::Result<FileLook> {
    Ok(FileLook { id: file_identity(file.as_handle())?, bytes: file.metadata()?.len() })
}

/// A file's numbers, of a link those of what it leads to, if that is wanted.
pub(crate) fn stamp(path: &Path, follows: bool) -> io::Result<FileStamp> {
    let found = if follows { fs::metadata(path) } else { fs::symlink_metadata(path) }?;
    // Counted from 1601, in steps of 100 nanoseconds.
    let time = |ticks: u64| (i128::from(ticks) - 116_444_736_000_000_000) * 100;
    let modified = time(os_fs::MetadataExt::last_write_time(&found));
    let id = (os_fs::MetadataExt::creation_time(&found), 0);
    Ok(FileStamp { id, bytes: found.len(), modified, changed: modified })
}

/// Whether what stands under a name is on another machine, as its name says.
pub(crate) fn is_remote(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"\\\\")
}

/// Makes a folder for its owner only.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    if legwork_warden::make_private_folder(path)? {
        Ok(())
    } else {
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Looks whether there is a folder: its owner can always open it.
pub(crate) fn open_to_owner(folder: &Path) -> io::Result<()> {
    if fs::metadata(folder)?.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no folder"))
}

/// What is in a private folder is private.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Unix")]
pub(crate) fn make_private(_file: &File) -> io::Result<()> {
    Ok(())
}

/// A folder cannot be locked here: a file in it is.
pub(crate) fn open_to_lock(folder: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("folder.lock"))
}

/// Renames a file to a name that nothing has yet: not where a file that is open keeps its name.
pub(crate) fn rename_new(_old: &Path, _new: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Puts a file in the place of another, which may be open.
pub(crate) fn replace(new: &Path, old: &Path) -> io::Result<()> {
    replace_file(old, new)
}

/// Whether a file that is open keeps its name: SQLite lets nobody rename or remove its own.
pub(crate) const OPEN_FILES_KEEP_THEIR_NAMES: bool = true;

/// Whether an error says that somebody has a file open, who keeps its name.
pub(crate) fn is_held_open(error: &io::Error) -> bool {
    const SHARING_VIOLATION: i32 = 32;
    error.raw_os_error() == Some(SHARING_VIOLATION)
}

/// The names in a folder need nothing to outlive a power cut.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Unix")]
pub(crate) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Where a path really is, without the mark of the longest paths where it can do without: many
/// programs do not know that.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let real = path.canonicalize()?;
    let Some(text) = real.to_str() else { return Ok(real) };
    if let Some(shared) = text.strip_prefix(r"\\?\UNC\") {
        return Ok(PathBuf::from(format!(r"\\{shared}")));
    }
    Ok(text.strip_prefix(r"\\?\").map_or_else(|| real.clone(), PathBuf::from))
}

/// Why a path names no folder, if its text says so.
pub(crate) fn path_problem(path: &Path) -> Option<&'static str> {
    windows_paths::path_problem(&path.to_string_lossy())
}

/// Why a program cannot be started in a folder, if there is a reason.
pub(crate) fn unfit_folder(program: &Path, folder: &Path) -> Option<&'static str> {
    windows_paths::unfit_folder(&program.to_string_lossy(), &folder.to_string_lossy())
}

/// Whether a path is on another machine than all of these: only to look there would tell it who
/// asks.
pub(crate) fn is_elsewhere(path: &Path, roots: &[PathBuf]) -> bool {
    let roots: Vec<_> = roots.iter().map(|root| root.to_string_lossy()).collect();
    windows_paths::is_elsewhere(&path.to_string_lossy(), roots.iter().map(|root| &**root))
}

/// Whether a real path is that of a folder, or below it. The names of machines are not those of
/// files: they can come back in other capitals.
pub(crate) fn is_below(path: &Path, folder: &Path) -> bool {
    let parts = |path: &Path| {
        let mut parts = path.components();
        let Some(Component::Prefix(prefix)) = parts.next() else { return None };
        Some((prefix.as_os_str().to_ascii_lowercase(), parts.as_path().to_owned()))
    };
    let (Some((on, rest)), Some((drive, below))) = (parts(path), parts(folder)) else {
        return path.starts_with(folder);
    };
    on == drive && rest.starts_with(below)
}

/// What a file takes on its disk, as far as its length says that.
pub(crate) fn disk_bytes(found: &Metadata) -> u64 {
    found.len()
}

/// Gives a file the time of now.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    File::options().write(true).open(path)?.set_modified(SystemTime::now())
}

/// An empty file that is gone when nobody has it open.
pub(crate) fn memory_file() -> io::Result<File> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).map_err(io::Error::other)?;
    let name = data_encoding::HEXLOWER.encode(&name);
    let mut options = OpenOptions::new();
    os_fs::OpenOptionsExt::custom_flags(&mut options, TEMPORARY);
    let path = std::env::temp_dir().join(format!("legwork-{name}"));
    options.read(true).write(true).create_new(true).open(path)
}

/// Whether all that a descriptor gives is there already.
pub(crate) fn is_file(descriptor: &OwnedFd) -> bool {
    file_bytes(descriptor).is_some()
}

/// The length of what a descriptor gives; none unless all of it is there already.
pub(crate) fn file_bytes(descriptor: &OwnedFd) -> Option<u64> {
    let found = File::from(descriptor.try_clone().ok()?).metadata().ok()?;
    found.is_file().then_some(found.len())
}

/// Whether an error of the system says that a disk is full.
pub(crate) fn is_full(errno: i32) -> bool {
    DISK_FULL.contains(&errno)
}

/// Whether an error of the system says that there are too many processes or open files.
pub(crate) fn is_shortage(errno: i32) -> bool {
    SHORTAGE.contains(&errno)
}

/// A folder cannot be a stdin here in the first place.
pub(crate) fn is_folder_error(_errno: i32) -> bool {
    false
}

/// Who runs this program.
pub(crate) fn user() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

/// Threads keep their priority here.
pub(crate) fn be_nice(_nice: i32) {}
