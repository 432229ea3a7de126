//! Named pipes: those by which engines and observers reach a warden, and those of a command's
//! streams.

use std::{
    io,
    os::windows::io::OwnedHandle,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use windows_sys::Win32::{
    Foundation::{
        ERROR_FILE_NOT_FOUND, ERROR_PIPE_BUSY, GENERIC_READ, GENERIC_WRITE, HANDLE,
        HANDLE_FLAG_INHERIT, SetHandleInformation,
    },
    Security::SECURITY_ATTRIBUTES,
    Storage::FileSystem::{
        CreateFileW, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_READ_ATTRIBUTES,
        FILE_WRITE_ATTRIBUTES, OPEN_EXISTING, PIPE_ACCESS_DUPLEX, PIPE_ACCESS_INBOUND,
        PIPE_ACCESS_OUTBOUND,
    },
    System::Pipes::{
        CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
        PIPE_UNLIMITED_INSTANCES, PIPE_WAIT, PeekNamedPipe, WaitNamedPipeW,
    },
};

use super::{
    api::{check, is_error, own, raw, size_of_u32, wide},
    operation::Operation,
    security::Private,
};

/// What fits into a pipe before its writer waits.
const PIPE_BYTES: u32 = 64 * 1024;

/// The path by which a warden of this name is reached.
pub fn warden_pipe(warden: &str) -> String {
    format!(r"\\.\pipe\legwork-{warden}")
}

/// One more end of a warden's pipe, for one more client; nobody but the current user can be one.
pub(super) fn listen(warden: &str, first: bool) -> io::Result<OwnedHandle> {
    let first = if first { FILE_FLAG_FIRST_PIPE_INSTANCE } else { 0 };
    let access = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | first;
    serve(&warden_pipe(warden), access, PIPE_UNLIMITED_INSTANCES)
}

fn serve(name: &str, access: u32, instances: u32) -> io::Result<OwnedHandle> {
    let private = Private::object()?;
    let attributes = private.attributes(false);
    let mode = PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS;
    let name = wide(name);
    // SAFETY: the name ends with a zero, and what the attributes point to lives until the end.
    unsafe {
        own(CreateNamedPipeW(
            name.as_ptr(),
            access,
            mode,
            instances,
            PIPE_BYTES,
            PIPE_BYTES,
            0,
            &raw const attributes,
        ))
    }
}

/// Whether a warden listens at the pipe of this name. One that is too busy for us is alive.
pub(super) fn is_served(warden: &str) -> io::Result<bool> {
    let name = wide(warden_pipe(warden));
    // SAFETY: the name ends with a zero. One millisecond: only whether there is a pipe is asked.
    match check(unsafe { WaitNamedPipeW(name.as_ptr(), 1) }) {
        Ok(()) => Ok(true),
        Err(error) if is_error(&error, ERROR_FILE_NOT_FOUND) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(true),
        Err(error) if is_error(&error, ERROR_PIPE_BUSY) => Ok(true),
        // ERROR_SEM_TIMEOUT: every end has its client at this moment.
        Err(error) if error.raw_os_error() == Some(121) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Which end of a stream is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ours {
    Read,
    Write,
}

/// A pipe for one stream of a command: our end, which is never waited for, and the command's, which
/// it can inherit.
pub(super) fn stream(ours: Ours) -> io::Result<(OwnedHandle, OwnedHandle)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!(r"\\.\pipe\legwork-stream-{}-{number}", std::process::id());
    let (access, theirs) = match ours {
        Ours::Read => (PIPE_ACCESS_INBOUND, GENERIC_WRITE | FILE_READ_ATTRIBUTES),
        Ours::Write => (PIPE_ACCESS_OUTBOUND, GENERIC_READ | FILE_WRITE_ATTRIBUTES),
    };
    let flags = FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE;
    let server = serve(&name, access | flags, 1)?;
    let client = open_inheritable(&name, theirs)?;
    Ok((met(server)?, client))
}

/// Takes note of a client that has connected already: without that a pipe cannot be used. Only
/// before the ends of its operations are told to a port.
pub(super) fn met(server: OwnedHandle) -> io::Result<OwnedHandle> {
    let server = Arc::new(server);
    let mut connecting = Operation::new(server.clone())?;
    if !connecting.connect()? {
        connecting.wait();
    }
    drop(connecting);
    Arc::into_inner(server).ok_or_else(|| io::ErrorKind::ResourceBusy.into())
}

/// The null device, as a command can inherit it.
pub(super) fn null() -> io::Result<OwnedHandle> {
    open_inheritable("NUL", GENERIC_READ | GENERIC_WRITE)
}

pub(super) fn open_inheritable(name: &str, access: u32) -> io::Result<OwnedHandle> {
    let attributes = SECURITY_ATTRIBUTES {
        nLength: size_of_u32::<SECURITY_ATTRIBUTES>(),
        lpSecurityDescriptor: ptr::null_mut(),
        bInheritHandle: 1,
    };
    let name = wide(name);
    let shared = windows_sys::Win32::Storage::FileSystem::FILE_SHARE_READ
        | windows_sys::Win32::Storage::FileSystem::FILE_SHARE_WRITE;
    // SAFETY: the name ends with a zero; the attributes are a local.
    unsafe {
        own(CreateFileW(
            name.as_ptr(),
            access,
            shared,
            &raw const attributes,
            OPEN_EXISTING,
            0,
            ptr::null_mut(),
        ))
    }
}

/// Lets a handle be inherited by processes that are started with it.
pub(super) fn make_inheritable(handle: HANDLE) -> io::Result<()> {
    // SAFETY: changes a flag of a handle that is open.
    check(unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) })
}

/// Whether nothing waits in a pipe to be read. Of one whose writer is gone that is not said: its
/// end is told after all that is in it.
pub(super) fn is_empty(pipe: &OwnedHandle) -> bool {
    let mut waiting = 0;
    // SAFETY: the pointer is to a local.
    let peeked = unsafe {
        PeekNamedPipe(
            raw(pipe),
            ptr::null_mut(),
            0,
            ptr::null_mut(),
            &raw mut waiting,
            ptr::null_mut(),
        )
    };
    peeked != 0 && waiting == 0
}
