//! Starts processes: the one place where a command's is made, and a warden's.
//!
//! A process inherits the handles that are listed and no others. A command is made suspended and in
//! its job, so that nothing of it runs before it can be ended.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString, c_void},
    io, mem,
    os::windows::{ffi::OsStrExt, io::OwnedHandle},
    ptr,
};

use windows_sys::Win32::{
    Foundation::{HANDLE, INVALID_HANDLE_VALUE},
    System::Console::HPCON,
    System::Threading::{
        CREATE_UNICODE_ENVIRONMENT, CreateProcessW, DeleteProcThreadAttributeList,
        EXTENDED_STARTUPINFO_PRESENT, GetExitCodeProcess, INFINITE,
        InitializeProcThreadAttributeList, PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
        PROC_THREAD_ATTRIBUTE_JOB_LIST, PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, PROCESS_INFORMATION,
        RegisterWaitForSingleObject, ResumeThread, STARTF_USESTDHANDLES, STARTUPINFOEXW,
        UpdateProcThreadAttribute, WT_EXECUTEINWAITTHREAD, WT_EXECUTEONLYONCE,
    },
};

use super::{
    api::{check, own, raw, size_of_u32, wide},
    port,
};
use crate::protocol::Environment;

/// Without this variable hardly any program of Windows starts, so it is always there.
const SYSTEM_ROOT: &str = "SystemRoot";

/// With this variable `cmd.exe` looks for programs on `PATH` only.
const NO_CURRENT_FOLDER: &str = "NoDefaultCurrentDirectoryInExePath";

/// What a process is started with.
#[derive(Debug)]
pub(super) struct Start<'a> {
    /// The file that is executed; none where the command line says it.
    pub program: Option<&'a OsStr>,
    pub line: String,
    /// None is the environment of this process.
    pub environment: Option<Vec<u16>>,
    pub folder: &'a OsStr,
    pub flags: u32,
    /// Stdin, stdout and stderr, which can be inherited; none on a terminal of its own.
    pub streams: Option<[HANDLE; 3]>,
    /// More handles that are inherited.
    pub with: Vec<HANDLE>,
    pub job: Option<HANDLE>,
    /// The terminal that it is started on.
    pub terminal: Option<HPCON>,
}

/// A process that was started.
#[derive(Debug)]
pub(super) struct Process {
    pub handle: OwnedHandle,
    thread: OwnedHandle,
    pub pid: u32,
}

impl Start<'_> {
    /// Starts it.
    pub(super) fn start(self) -> io::Result<Process> {
        let mut inherited = self.with;
        inherited.extend(self.streams.into_iter().flatten());
        inherited.sort_unstable_by_key(|handle| handle.addr());
        inherited.dedup();
        let jobs: Vec<HANDLE> = self.job.into_iter().collect();
        let mut attributes = Attributes::new()?;
        if !inherited.is_empty() {
            attributes.set(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, &inherited)?;
        }
        if let Some(terminal) = self.terminal {
            attributes.set_terminal(terminal)?;
        }
        if !jobs.is_empty() {
            attributes.set(PROC_THREAD_ATTRIBUTE_JOB_LIST, &jobs)?;
        }
        let mut startup = STARTUPINFOEXW::default();
        startup.StartupInfo.cb = size_of_u32::<STARTUPINFOEXW>();
        startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
        let [stdin, stdout, stderr] = self.streams.unwrap_or([INVALID_HANDLE_VALUE; 3]);
        startup.StartupInfo.hStdInput = stdin;
        startup.StartupInfo.hStdOutput = stdout;
        startup.StartupInfo.hStdError = stderr;
        startup.lpAttributeList = attributes.pointer();
        let program = self.program.map(wide);
        let mut line = wide(&self.line);
        let folder = wide(self.folder);
        let mut made = PROCESS_INFORMATION::default();
        // SAFETY: every text ends with a zero (the environment with two), and all that is pointed
        // to lives until the end of the call.
        unsafe {
            check(CreateProcessW(
                program.as_ref().map_or(ptr::null(), Vec::as_ptr),
                line.as_mut_ptr(),
                ptr::null(),
                ptr::null(),
                i32::from(!inherited.is_empty()),
                self.flags | EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT,
                self.environment.as_ref().map_or(ptr::null(), |block| block.as_ptr().cast()),
                folder.as_ptr(),
                &raw const startup.StartupInfo,
                &raw mut made,
            ))?;
            Ok(Process {
                handle: own(made.hProcess)?,
                thread: own(made.hThread)?,
                pid: made.dwProcessId,
            })
        }
    }
}

impl Process {
    /// Lets a process run that was made suspended.
    pub(super) fn resume(&self) -> io::Result<()> {
        // SAFETY: an open handle of a thread.
        if unsafe { ResumeThread(raw(&self.thread)) } == u32::MAX {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Has its end told to a port, once.
    pub(super) fn tell_end(&self, port: HANDLE) -> io::Result<()> {
        unsafe extern "system" fn ended(port: *mut core::ffi::c_void, _timed_out: bool) {
            port::post(port, PROCESS_KEY);
        }
        let mut wait = ptr::null_mut();
        // SAFETY: the port, which is all that the callback is given, lives for as long as the
        // process does. The wait is never taken back: there is one in the life of a warden.
        check(unsafe {
            RegisterWaitForSingleObject(
                &raw mut wait,
                raw(&self.handle),
                Some(ended),
                port,
                INFINITE,
                WT_EXECUTEINWAITTHREAD | WT_EXECUTEONLYONCE,
            )
        })
    }

    /// The code with which it has ended.
    pub(super) fn exit_code(&self) -> u32 {
        let mut code = 0;
        // SAFETY: the pointer is to a local.
        unsafe { GetExitCodeProcess(raw(&self.handle), &raw mut code) };
        code
    }
}

/// The key under which the end of the command's process is told.
pub(super) const PROCESS_KEY: usize = usize::MAX;

/// Attributes of a process that is to be started.
struct Attributes {
    /// Words, so that it is aligned.
    room: Vec<u64>,
}

impl Attributes {
    const COUNT: u32 = 3;

    fn new() -> io::Result<Self> {
        let mut bytes = 0;
        // SAFETY: asked without room, it only says how much it needs; then it gets that.
        unsafe {
            InitializeProcThreadAttributeList(ptr::null_mut(), Self::COUNT, 0, &raw mut bytes);
            let mut attributes = Self { room: vec![0; bytes.div_ceil(mem::size_of::<u64>())] };
            let pointer = attributes.pointer();
            check(InitializeProcThreadAttributeList(pointer, Self::COUNT, 0, &raw mut bytes))?;
            Ok(attributes)
        }
    }

    fn pointer(&mut self) -> *mut core::ffi::c_void {
        self.room.as_mut_ptr().cast()
    }

    /// The handles must live until the process is started.
    fn set(&mut self, what: u32, handles: &[HANDLE]) -> io::Result<()> {
        self.put(what, handles.as_ptr().cast(), mem::size_of_val(handles))
    }

    /// A terminal is not pointed to: it stands in the place of the pointer.
    fn set_terminal(&mut self, terminal: HPCON) -> io::Result<()> {
        let pointer = ptr::with_exposed_provenance(terminal.cast_unsigned());
        self.put(PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, pointer, mem::size_of::<HPCON>())
    }

    fn put(&mut self, what: u32, pointer: *const c_void, bytes: usize) -> io::Result<()> {
        // SAFETY: the list is initialised; what is pointed to lives on, as said above.
        check(unsafe {
            UpdateProcThreadAttribute(
                self.pointer(),
                0,
                what as usize,
                pointer,
                bytes,
                ptr::null_mut(),
                ptr::null(),
            )
        })
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: it is initialised, and used no more.
        unsafe { DeleteProcThreadAttributeList(self.pointer()) };
    }
}

/// The environment of a command as the system takes it: pairs in the order of their names, which
/// are the same in capitals and in small letters.
pub(super) fn environment_block(environment: &Environment) -> Option<Vec<u16>> {
    let mut pairs: BTreeMap<String, (OsString, OsString)> = BTreeMap::new();
    let key = |name: &OsStr| name.to_string_lossy().to_uppercase();
    for (name, value) in std::env::vars_os() {
        if environment.inherited || name.eq_ignore_ascii_case(SYSTEM_ROOT) {
            pairs.insert(key(&name), (name, value));
        }
    }
    for name in &environment.unset {
        pairs.remove(&key(OsStr::new(str::from_utf8(name).ok()?)));
    }
    for (name, value) in &environment.set {
        let (name, value) = (str::from_utf8(name).ok()?, str::from_utf8(value).ok()?);
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return None;
        }
        pairs.insert(key(OsStr::new(name)), (name.into(), value.into()));
    }
    // Else a program in the current folder would be run in the place of the one that is meant,
    // whatever was set or unset.
    pairs.insert(key(OsStr::new(NO_CURRENT_FOLDER)), (NO_CURRENT_FOLDER.into(), "1".into()));
    let mut block: Vec<u16> = Vec::new();
    for (name, value) in pairs.values() {
        block.extend(name.encode_wide().chain([u16::from(b'=')]).chain(value.encode_wide()));
        block.push(0);
    }
    // An empty one has two zeros as well.
    if block.is_empty() {
        block.push(0);
    }
    block.push(0);
    Some(block)
}
