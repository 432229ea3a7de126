//! Thin helpers over the calls of the system: handles that close themselves, texts, errors.

use std::{
    ffi::OsStr,
    io,
    os::windows::{
        ffi::OsStrExt,
        io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle},
    },
};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};

/// A text as the system takes it: UTF-16, with a zero at its end.
pub(super) fn wide(text: impl AsRef<OsStr>) -> Vec<u16> {
    text.as_ref().encode_wide().chain([0]).collect()
}

/// A text of the system's.
///
/// # Safety
///
/// It ends with a zero, and nobody changes it meanwhile.
pub(super) unsafe fn text_at(text: *const u16) -> String {
    let mut length = 0;
    // SAFETY: the caller says that there is an end, and nothing behind it is read.
    let units = unsafe {
        while *text.add(length) != 0 {
            length += 1;
        }
        std::slice::from_raw_parts(text, length)
    };
    String::from_utf16_lossy(units)
}

/// Takes a handle that a call has made; an invalid one is the error of that call.
///
/// # Safety
///
/// Nobody else closes the handle.
pub(super) unsafe fn own(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is a valid handle, and the caller says that it is nobody else's.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// The error of a call that returns zero when it fails.
pub(super) fn check(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The handle as the system takes it, for as long as its owner lives.
pub(super) fn raw(handle: &impl AsHandle) -> HANDLE {
    handle.as_handle().as_raw_handle()
}

/// Whether an error has this number of the system's.
pub(super) fn is_error(error: &io::Error, number: u32) -> bool {
    error.raw_os_error() == Some(number.cast_signed())
}

/// The size of a structure, as the system wants to be told.
#[expect(clippy::cast_possible_truncation, reason = "structures are small")]
pub(super) const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}
