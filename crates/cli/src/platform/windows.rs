//! The names of Unix, as Windows has them.

use std::{
    convert::Infallible,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::windows::io::{AsHandle, OwnedHandle},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

pub(crate) use legwork_warden::Signal;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::sleep,
};

/// The number of the error of a file that is not there.
pub(crate) const NO_SUCH_FILE: i32 = 2;

/// The shell that every system of this kind has.
pub(crate) const SHELL: &str = "cmd";

/// What `--state` says of itself.
pub(crate) const STATE_HELP: &str = "\
Folder of the task records [default: %LEGWORK_STATE%, or %LOCALAPPDATA%\\legwork]";

/// What keeps commands from outliving the program that they were started by, if anything does.
pub(crate) fn ended_with() -> Option<&'static str> {
    legwork_warden::is_held_by_job().then_some(
        "this program runs in a job that ends everything in it: commands do not outlive that",
    )
}

/// The process that starts commands for an engine.
pub(crate) const STARTER: &str = "warden";

/// Why no copies of files are made where they are not.
pub(crate) const NO_COPIES: &str = "not on Windows yet";

/// What is said of the names of the layers of protection.
pub(crate) const LAYERS_NOTE: Option<&str> =
    Some("Windows has job objects for what is called cgroup_kill and cgroup_limits here.");

/// What `--open` says of itself.
pub(crate) const OPEN_HELP: &str = "Open the sign-in link in your browser";

/// What opens a file in the user's own program for it.
pub(crate) const OPENER: &[&str] = &["explorer.exe"];

/// How often to look at a file where the system does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Something that never comes.
pub(crate) struct Never(Infallible);

impl Never {
    #[expect(clippy::unused_async, reason = "the signature is that of Unix")]
    pub(crate) async fn recv(&mut self) -> Option<()> {
        match self.0 {}
    }
}

/// Nobody tells when our console has another size.
pub(crate) fn window_changes() -> io::Result<Never> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Our own stdin, to be handed on.
pub(crate) fn own_stdin() -> io::Result<OwnedHandle> {
    io::stdin().as_handle().try_clone_to_owned()
}

/// Whether our stdout and stderr are the same file, as far as that can be known.
pub(crate) fn is_one_output() -> bool {
    let id = |handle| legwork_warden::file_identity(handle).ok().filter(|id| *id != (0, 0));
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let out = id(stdout.as_handle());
    out.is_some() && out == id(stderr.as_handle())
}

/// Who may do what with a file is not said by a number here.
pub(crate) fn mode_of(_found: &Metadata) -> u32 {
    0
}

/// What is in a folder is as private as that.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Unix")]
pub(crate) fn set_mode(_file: &File, _mode: u32) -> io::Result<()> {
    Ok(())
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(folder: &Path, _mode: u32) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// What is in the state folder is its owner's alone.
pub(crate) fn is_open_to_others(_found: &Metadata) -> bool {
    false
}

/// Lets nobody but its owner open a file, wherever it is.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    legwork_warden::make_private_file(path)
}

/// How a file is opened that is made private then.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

/// Whether a file, or one with a usual end of its name, can be executed.
pub(crate) fn is_program(path: &Path) -> bool {
    let named = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        Path::new(&name).is_file()
    };
    ["", ".exe", ".cmd", ".bat", ".com"].iter().any(|end| named(end))
}

/// The state of a file: its length, and when it was changed.
pub(crate) type Stamp = (u64, Option<SystemTime>);

/// The state of a file now; none if there is none.
pub(crate) fn stamp_of(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.len(), found.modified().ok()))
}

/// Looks at a file or a folder now and then.
pub(crate) struct FileWatch;

impl FileWatch {
    #[expect(clippy::unnecessary_wraps, reason = "the signature is that of Unix")]
    pub(crate) fn of_file(_path: &Path) -> io::Result<Self> {
        Ok(Self)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the signature is that of Unix")]
    pub(crate) fn of_folder(_path: &Path) -> io::Result<Self> {
        Ok(Self)
    }

    /// Something may have happened.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        sleep(LOOK_EVERY).await;
        Ok(())
    }
}

/// Unix sockets: there are none.
#[derive(Debug)]
pub(crate) enum UnixListener {}

/// A connection over one.
#[derive(Debug)]
pub(crate) enum UnixStream {}

/// Who has connected over one.
pub(crate) enum UnixPeer {}

impl UnixListener {
    #[expect(clippy::unused_async, reason = "the signature is that of Unix")]
    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, UnixPeer)> {
        match *self {}
    }
}

impl AsyncRead for UnixStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

/// Refuses: there are no unix sockets here.
pub(crate) fn listen_unix(path: &Path) -> Result<UnixListener, String> {
    Err(format!("cannot listen on unix:{}: no unix sockets on Windows", path.display()))
}

/// Links are rare here, and need a right.
pub(crate) fn private_file_here() -> OpenOptions {
    private_file()
}

/// Who may write the file decides here, and that was set when it was made.
pub(crate) fn is_ours(_found: &Metadata) -> bool {
    true
}

/// Not found out: there are no sandboxes to hide it from.
pub(crate) fn stderr_file() -> Option<PathBuf> {
    None
}

/// Refuses, for the same reason.
pub(crate) fn listen_in(_folder: &Path, _name: &str) -> io::Result<UnixListener> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Refuses, for the same reason.
pub(crate) fn read_socket(_folder: &Path, _name: &str) -> io::Result<String> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The system's own times for a silent client are used.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Unix")]
pub(crate) fn notice_silence(
    _stream: &TcpStream,
    _silence: Duration,
    _asked: u32,
) -> io::Result<()> {
    Ok(())
}
