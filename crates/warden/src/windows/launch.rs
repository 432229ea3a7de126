//! The engine's side: starts a warden for each command, which is this program once more.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle},
    path::{Path, PathBuf},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use windows_sys::Win32::{
    Foundation::{DUPLICATE_SAME_ACCESS, DuplicateHandle, ERROR_ACCESS_DENIED},
    System::Threading::{
        CREATE_BREAKAWAY_FROM_JOB, CREATE_NO_WINDOW, GetCurrentProcess, TerminateProcess,
    },
};

use super::{
    api::{check, is_error, raw},
    job::Job,
    pipe::{self, listen, make_inheritable},
    process::{Process, Start},
    terminal::{self, HELPER_ARGUMENT},
    warden,
};

/// The private argument that turns a second start of the program into a warden.
const WARDEN_ARGUMENT: &str = "__legwork-warden";

/// Whether [`take_over_if_spawner`] has been called in this process.
static READY: AtomicBool = AtomicBool::new(false);

/// Becomes a warden, and never returns, if this process was started as one.
///
/// Call it first thing in `main`: before threads, arguments, logging. There is no spawner here:
/// engines start their wardens themselves.
pub fn take_over_if_spawner() {
    READY.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some(OsStr::new(HELPER_ARGUMENT)) {
        std::process::exit(terminal::help());
    }
    if first.as_deref() != Some(OsStr::new(WARDEN_ARGUMENT)) {
        return;
    }
    let served = warden_of(arguments).map(|setup| warden::run(&setup));
    std::process::exit(i32::from(!matches!(served, Some(Ok(())))))
}

/// What a warden is told by its command line.
#[derive(Debug)]
pub(super) struct Setup {
    pub name: String,
    /// The folder in which tasks have theirs.
    pub tasks: PathBuf,
    /// The folder in which wardens are listed.
    pub wardens: PathBuf,
    /// The number of the handle to its owner's connection.
    pub owner: usize,
}

fn warden_of(mut arguments: impl Iterator<Item = OsString>) -> Option<Setup> {
    Some(Setup {
        name: arguments.next()?.into_string().ok()?,
        tasks: arguments.next()?.into(),
        wardens: arguments.next()?.into(),
        owner: arguments.next()?.to_str()?.parse().ok()?,
    })
}

/// The end of a connection that a warden will have, before there is a warden.
///
/// Whoever makes it connects to its [path](Self::path) first, and then [launches](Self::launch)
/// the warden: so its owner is there when it begins.
#[derive(Debug)]
pub struct WardenOffer {
    name: String,
    server: OwnedHandle,
}

impl WardenOffer {
    /// For a warden of this name.
    pub fn new(name: &str) -> io::Result<Self> {
        if !READY.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "call legwork::init() as the first statement of main: commands are started by a \
                 second start of this program, which only that call can recognise",
            ));
        }
        Ok(Self { name: name.to_owned(), server: listen(name, true)? })
    }

    /// The path of the pipe to connect to.
    pub fn path(&self) -> String {
        pipe::warden_pipe(&self.name)
    }

    /// Starts the warden, which keeps its output in one of these folders and is listed in the
    /// other. Takes a while.
    pub fn launch(self, tasks: &Path, wardens: &Path) -> io::Result<LaunchedWarden> {
        let null = pipe::null()?;
        make_inheritable(raw(&self.server))?;
        let program = std::env::current_exe()?;
        let starting = Job::while_starting()?;
        let start = |flags| {
            let owner = raw(&self.server).addr().to_string();
            let words = [OsStr::new(WARDEN_ARGUMENT), self.name.as_ref(), tasks.as_ref()];
            let words = words.into_iter().chain([wardens.as_os_str(), owner.as_ref()]);
            let line = words.fold(String::from("\"legwork\""), |line, word| {
                // None of them has a quote in it, or ends with a backslash.
                format!("{line} \"{}\"", word.to_string_lossy())
            });
            Start {
                program: Some(program.as_os_str()),
                line,
                environment: None,
                folder: &own_root(&program),
                flags: CREATE_NO_WINDOW | flags,
                streams: Some([raw(&null); 3]),
                with: vec![raw(&self.server)],
                job: Some(starting.raw()),
                terminal: None,
            }
            .start()
        };
        // A client may keep its servers in a job that ends them all; not every job lets us out.
        let process = match start(CREATE_BREAKAWAY_FROM_JOB) {
            Err(error) if is_error(&error, ERROR_ACCESS_DENIED) => start(0)?,
            started => started?,
        };
        starting.let_go()?;
        Ok(LaunchedWarden { process })
    }
}

/// A folder that a warden can stand in without keeping anybody from removing it.
fn own_root(program: &Path) -> OsString {
    let system = std::env::var_os("SystemRoot").filter(|root| Path::new(root).is_dir());
    let root = || program.ancestors().last().map(|root| root.as_os_str().to_owned());
    system.or_else(root).unwrap_or_else(|| r"C:\".into())
}

/// A warden that this engine has started.
#[derive(Debug)]
pub struct LaunchedWarden {
    process: Process,
}

impl LaunchedWarden {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Ends it at once, and with it everything in its job.
    pub fn kill(&self) {
        // SAFETY: an open handle and a number.
        unsafe { TerminateProcess(raw(&self.process.handle), 9) };
    }

    /// Gives it a handle; returns the number that it has there.
    pub fn give(&self, handle: BorrowedHandle<'_>) -> io::Result<u64> {
        let mut there = ptr::null_mut();
        // SAFETY: all handles are open; the pointer is to a local.
        check(unsafe {
            DuplicateHandle(
                GetCurrentProcess(),
                handle.as_raw_handle(),
                self.process.handle.as_handle().as_raw_handle(),
                &raw mut there,
                0,
                0,
                DUPLICATE_SAME_ACCESS,
            )
        })?;
        Ok(there.addr() as u64)
    }
}

/// Whether the warden of this name lives: only a live process serves its pipe.
///
/// The folder in which it is listed is not asked: a warden that was killed is still in it.
pub fn is_alive(_wardens: impl AsRef<Path>, warden: &str) -> io::Result<bool> {
    pipe::is_served(warden)
}

/// Ends what a warden that is gone has left behind: nothing, since its job went with it.
pub fn end_left_by(_warden: &str) -> Vec<u32> {
    Vec::new()
}
