//! What engines ask of the system, as safe functions: clocks, who a file is, locks, folders of
//! their own.

use std::{
    fs::File,
    io,
    os::windows::io::{BorrowedHandle, FromRawHandle, OwnedHandle},
    path::Path,
    ptr,
    time::Duration,
};

use windows_sys::Win32::{
    Foundation::{ERROR_ALREADY_EXISTS, ERROR_IO_PENDING, ERROR_LOCK_VIOLATION},
    Storage::FileSystem::{
        BY_HANDLE_FILE_INFORMATION, CreateDirectoryW, GetFileInformationByHandle,
        LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
        REPLACEFILE_IGNORE_MERGE_ERRORS, ReplaceFileW, UnlockFileEx,
    },
    System::{
        IO::OVERLAPPED,
        SystemInformation::GetTickCount64,
        Threading::{
            GetProcessTimes, OpenProcess, PROCESS_NAME_WIN32, PROCESS_QUERY_LIMITED_INFORMATION,
            PROCESS_SYNCHRONIZE, QueryFullProcessImageNameW, WaitForSingleObject,
        },
        WindowsProgramming::QueryUnbiasedInterruptTime,
    },
};

use super::{
    api::{check, is_error, own, raw, wide},
    security::Private,
};

/// Where a lock lies: far behind the data of any file, since nobody could read or write below it.
const LOCKED_AT: u64 = 1 << 62;

/// Time since the machine was started, its sleep included.
pub(crate) fn since_boot() -> Duration {
    // SAFETY: takes nothing.
    Duration::from_millis(unsafe { GetTickCount64() })
}

/// Milliseconds since the machine was started.
pub fn since_boot_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since the machine was started, without those in which it slept.
pub fn awake_ms() -> u64 {
    let mut tenths = 0;
    // SAFETY: the pointer is to a local. It counts in tenths of microseconds.
    unsafe { QueryUnbiasedInterruptTime(&raw mut tenths) };
    tenths / 10_000
}

/// Which file a handle leads to: its disk, and its number there.
pub fn file_identity(file: BorrowedHandle<'_>) -> io::Result<(u64, u64)> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the pointer is to a local.
    check(unsafe { GetFileInformationByHandle(raw(&file), &raw mut found) })?;
    let number = u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow);
    Ok((found.dwVolumeSerialNumber.into(), number))
}

/// Lets nobody but the current user open a file.
pub fn make_private_file(path: &Path) -> io::Result<()> {
    Private::file()?.give_to(path)
}

/// Makes a folder that only the current user can open, as everything in it; false is that there is
/// one already.
pub fn make_private_folder(path: &Path) -> io::Result<bool> {
    let private = Private::folder()?;
    let attributes = private.attributes(false);
    let path = wide(path);
    // SAFETY: the path ends with a zero; what the attributes point to lives until the end.
    match check(unsafe { CreateDirectoryW(path.as_ptr(), &raw const attributes) }) {
        Ok(()) => Ok(true),
        Err(error) if is_error(&error, ERROR_ALREADY_EXISTS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// How a file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileLock {
    /// Others may lock it in the same way.
    Shared,
    /// Nobody else may lock it.
    Exclusive,
}

/// Locks a file until it is closed or unlocked, waiting for others if that is wanted; false is that
/// another one has it. What is in the file can be read and written all the same.
pub fn lock_file(file: &File, lock: FileLock, waits: bool) -> io::Result<bool> {
    let exclusive = if lock == FileLock::Exclusive { LOCKFILE_EXCLUSIVE_LOCK } else { 0 };
    let patience = if waits { 0 } else { LOCKFILE_FAIL_IMMEDIATELY };
    let mut place = locked_place();
    // SAFETY: the pointer is to a local; a file that was opened by the library waits for its end.
    let locked =
        check(unsafe { LockFileEx(raw(file), exclusive | patience, 0, 1, 0, &raw mut place) });
    match locked {
        Ok(()) => Ok(true),
        Err(error)
            if is_error(&error, ERROR_LOCK_VIOLATION) || is_error(&error, ERROR_IO_PENDING) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Lets go of a lock.
pub fn unlock_file(file: &File) -> io::Result<()> {
    let mut place = locked_place();
    // SAFETY: the pointer is to a local.
    check(unsafe { UnlockFileEx(raw(file), 0, 1, 0, &raw mut place) })
}

fn locked_place() -> OVERLAPPED {
    let mut place = OVERLAPPED::default();
    let (low, high) = (LOCKED_AT & 0xffff_ffff, LOCKED_AT >> 32);
    place.Anonymous.Anonymous.Offset = u32::try_from(low).unwrap_or(0);
    place.Anonymous.Anonymous.OffsetHigh = u32::try_from(high).unwrap_or(0);
    place
}

/// Puts a file in the place of another, also where that is open, as ours are: with the right to be
/// removed.
pub fn replace_file(old: &Path, new: &Path) -> io::Result<()> {
    let (old_path, new_path) = (wide(old), wide(new));
    // SAFETY: both paths end with a zero.
    let replaced = check(unsafe {
        ReplaceFileW(
            old_path.as_ptr(),
            new_path.as_ptr(),
            ptr::null(),
            REPLACEFILE_IGNORE_MERGE_ERRORS,
            ptr::null(),
            ptr::null(),
        )
    });
    match replaced {
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::rename(new, old),
        replaced => replaced,
    }
}

/// The program that a process runs; none if there is no such process, or it may not be looked at.
pub fn command_line(pid: u32) -> Option<String> {
    let access = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE;
    let mut name = [0_u16; 1024];
    let mut length = 1024;
    // SAFETY: a new handle, used while it is open; the room is as long as it is said to be.
    unsafe {
        let process = own(OpenProcess(access, 0, pid)).ok()?;
        if WaitForSingleObject(raw(&process), 0) == 0 {
            return None;
        }
        let room = name.as_mut_ptr();
        check(QueryFullProcessImageNameW(raw(&process), PROCESS_NAME_WIN32, room, &raw mut length))
            .ok()?;
    }
    name.get(..length as usize).map(String::from_utf16_lossy)
}

/// When a process was started, in tenths of microseconds since 1601: with its number, who it is.
pub fn process_started(pid: u32) -> Option<u64> {
    let mut times = [windows_sys::Win32::Foundation::FILETIME::default(); 4];
    let [made, ended, kernel, user] = &mut times;
    // SAFETY: a new handle, used while it is open; the pointers are to locals.
    unsafe {
        let process = own(OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid)).ok()?;
        check(GetProcessTimes(raw(&process), made, ended, kernel, user)).ok()?;
    }
    Some(u64::from(made.dwHighDateTime) << 32 | u64::from(made.dwLowDateTime))
}

/// A handle that another process has given to this one.
///
/// # Safety
///
/// The number is that of an open handle of this process, which nobody else owns.
pub(super) unsafe fn given(number: u64) -> Option<OwnedHandle> {
    let number = usize::try_from(number).ok().filter(|number| *number != 0)?;
    // SAFETY: the caller says so.
    Some(unsafe { OwnedHandle::from_raw_handle(ptr::with_exposed_provenance_mut(number)) })
}
