//! The names of Unix, and what stands for the others there.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use rustix::process::Signal;
use rustix::{
    fs::{
        OFlags, fstat,
        inotify::{self, CreateFlags, WatchFlags},
    },
    net::sockopt,
};
pub(crate) use tokio::net::{UnixListener, UnixStream};
use tokio::{
    net::{TcpStream, unix::pipe},
    signal::unix::{Signal as SignalStream, SignalKind, signal},
};

/// The number of the error of a file that is not there.
pub(crate) const NO_SUCH_FILE: i32 = rustix::io::Errno::NOENT.raw_os_error();

/// The shell that every system of this kind has.
pub(crate) const SHELL: &str = "sh";

/// What `--state` says of itself.
pub(crate) const STATE_HELP: &str = "\
Folder of the task records [default: $LEGWORK_STATE, or ~/.local/state/legwork]";

/// What keeps commands from outliving the program that they were started by, if anything does.
pub(crate) fn ended_with() -> Option<&'static str> {
    None
}

/// The process that starts commands for an engine.
pub(crate) const STARTER: &str = "spawner";

/// Why no copies of files are made where they are not.
pub(crate) const NO_COPIES: &str = "this kernel has no overlay file system";

/// What is said of the names of the layers of protection.
pub(crate) const LAYERS_NOTE: Option<&str> = None;

/// What `--open` says of itself.
pub(crate) const OPEN_HELP: &str = "Open the sign-in link in your browser (xdg-open)";

/// What opens a file in the user's own program for it.
pub(crate) const OPENER: &[&str] = &["xdg-open"];

/// Tells when our terminal has another size.
pub(crate) fn window_changes() -> io::Result<SignalStream> {
    signal(SignalKind::window_change())
}

/// Our own stdin, to be handed on.
pub(crate) fn own_stdin() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// Whether our stdout and stderr are the same file.
pub(crate) fn is_one_output() -> bool {
    let same = |out: rustix::fs::Stat, err: rustix::fs::Stat| {
        (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
    };
    matches!((fstat(io::stdout()), fstat(io::stderr())), (Ok(out), Ok(err)) if same(out, err))
}

/// Who may do what with a file.
pub(crate) fn mode_of(found: &Metadata) -> u32 {
    found.permissions().mode() & 0o7777
}

/// Lets others do this with a file.
pub(crate) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

/// Makes a folder and those above it, for others as this mode says.
pub(crate) fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(folder)
}

/// Whether others than its owner can use a file.
pub(crate) fn is_open_to_others(found: &Metadata) -> bool {
    found.mode() & 0o077 != 0
}

/// Lets nobody but its owner open a file: its mode says so since it was made.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Windows")]
pub(crate) fn make_private(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// How a file is opened that only its owner can read.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// The same, for a name that may be a link: it is not followed.
pub(crate) fn private_file_here() -> OpenOptions {
    let mut options = private_file();
    options.custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default());
    options
}

/// Whether a file belongs to us, or to root.
pub(crate) fn is_ours(found: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&found.uid())
}

/// Whether a file can be executed.
pub(crate) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// The state of a file: which it is, its length, when it was changed.
pub(crate) type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// The state of a file now; none if there is none.
pub(crate) fn stamp_of(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    let (modified, changed) =
        ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Some((found.dev(), found.ino(), found.len(), modified.0, modified.1, changed.0, changed.1))
}

/// Tells when something happens to a file, or in a folder. The kernel's word is no pipe, but it is
/// read like one.
pub(crate) struct FileWatch(pipe::Receiver);

impl FileWatch {
    /// Changes of a file's content.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        Self::new(path, WatchFlags::MODIFY)
    }

    /// What comes into a folder, is written there, or removed.
    pub(crate) fn of_folder(path: &Path) -> io::Result<Self> {
        Self::new(path, WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE)
    }

    fn new(path: &Path, what: WatchFlags) -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&descriptor, path, what)?;
        Ok(Self(pipe::Receiver::from_owned_fd_unchecked(descriptor)?))
    }

    /// Waits until something has happened; what, does not matter.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut told = [0; 4096];
        self.0.readable().await?;
        loop {
            match self.0.try_read(&mut told) {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => return Ok(()),
            }
        }
    }
}

/// Listens on a unix socket that only its owner can connect to. A socket that nobody listens on any
/// more is replaced; anything else in its place is left alone.
pub(crate) fn listen_unix(path: &Path) -> Result<UnixListener, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("cannot listen on unix:{shown}: {error}");
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(format!(
                "cannot listen on unix:{shown}: there is a file that is no socket"
            ));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(format!("cannot listen on unix:{shown}: another program does already"));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// How long a socket may take to say what it has to say.
const SAYING: Duration = Duration::from_secs(5);

/// Has a name in a folder for as long as that is open: the path of a socket may have 108 bytes.
fn short_path(folder: &File, name: &str) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

/// The file that our stderr goes to; none if that is no file.
pub(crate) fn stderr_file() -> Option<PathBuf> {
    let path = fs::read_link("/proc/self/fd/2").ok()?;
    path.metadata().is_ok_and(|found| found.is_file()).then_some(path)
}

/// Listens on a new socket in a folder.
pub(crate) fn listen_in(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let folder = File::open(folder)?;
    UnixListener::bind(short_path(&folder, name))
}

/// What whoever listens on a socket in a folder says to us.
pub(crate) fn read_socket(folder: &Path, name: &str) -> io::Result<String> {
    let folder = File::open(folder)?;
    let mut stream = std::os::unix::net::UnixStream::connect(short_path(&folder, name))?;
    stream.set_read_timeout(Some(SAYING))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// Lets the kernel find out that a client is gone which had no time to say so, after this long, in
/// which it is asked so often.
pub(crate) fn notice_silence(stream: &TcpStream, silence: Duration, asked: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, silence)?;
    sockopt::set_tcp_keepintvl(stream, silence / asked)?;
    sockopt::set_tcp_keepcnt(stream, asked)?;
    // The same while something is on its way to it.
    let both = silence * 2;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(both.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}
