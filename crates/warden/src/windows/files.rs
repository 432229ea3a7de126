//! The files of a task's folder: made below a folder, written at offsets.

use std::{
    fs::{self, File},
    io,
    os::windows::fs::FileExt,
    path::{Path, PathBuf},
    ptr,
};

use windows_sys::Win32::{
    Foundation::{ERROR_DISK_FULL, ERROR_DISK_QUOTA_EXCEEDED, ERROR_HANDLE_DISK_FULL},
    Storage::FileSystem::GetDiskFreeSpaceExW,
    System::{
        IO::DeviceIoControl,
        Ioctl::{FILE_ZERO_DATA_INFORMATION, FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA},
    },
};

use super::api::{check, is_error, raw, size_of_u32, wide};

/// The folder in which the tasks have theirs.
pub(crate) type TasksPlace<'a> = &'a Path;

/// A task's folder.
pub(crate) type FolderOfTask = PathBuf;

/// Makes the folder of a task, which is not there yet. It is as private as what it is in.
pub(crate) fn make_folder(tasks: TasksPlace<'_>, task: &str) -> io::Result<()> {
    fs::create_dir(tasks.join(task))
}

/// Opens the folder of a task.
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of Linux")]
pub(crate) fn open_folder(tasks: TasksPlace<'_>, task: &str) -> io::Result<FolderOfTask> {
    Ok(tasks.join(task))
}

/// Makes a file in it, which is not there yet. Others may read it, and remove it.
pub(crate) fn create_file(folder: &FolderOfTask, name: &str) -> io::Result<File> {
    File::create_new(folder.join(name))
}

/// Removes a folder that could not be filled, and these files in it.
pub(crate) fn remove_folder(tasks: TasksPlace<'_>, task: &str, names: &[&str]) {
    for name in names {
        let _ = fs::remove_file(tasks.join(task).join(name));
    }
    let _ = fs::remove_dir(tasks.join(task));
}

/// Takes disk space at the beginning of a file now, by writing it.
pub(crate) fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    write_all_at(file, &vec![0; bytes], 0)
}

/// Gives disk space back; everything behind it stays where it is. Where the filesystem knows no
/// holes, this fails.
pub(crate) fn punch_hole(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let hole = FILE_ZERO_DATA_INFORMATION {
        FileOffset: from.cast_signed(),
        BeyondFinalZero: from.saturating_add(bytes).cast_signed(),
    };
    control::<()>(file, FSCTL_SET_SPARSE, None)?;
    control(file, FSCTL_SET_ZERO_DATA, Some(&hole))
}

fn control<T>(file: &File, code: u32, input: Option<&T>) -> io::Result<()> {
    let (pointer, bytes) =
        input.map_or((ptr::null(), 0), |input| (ptr::from_ref(input), size_of_u32::<T>()));
    let mut returned = 0;
    // SAFETY: the input is the structure of the code, and lives until the end.
    check(unsafe {
        DeviceIoControl(
            raw(file),
            code,
            pointer.cast(),
            bytes,
            ptr::null_mut(),
            0,
            &raw mut returned,
            ptr::null_mut(),
        )
    })
}

/// Writes at an offset, as much as is taken.
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(bytes, offset)
}

/// Writes all of it at an offset.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let (mut rest, mut offset) = (bytes, offset);
    while !rest.is_empty() {
        match file.seek_write(rest, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                rest = rest.get(written..).unwrap_or_default();
                offset += written as u64;
            }
        }
    }
    Ok(())
}

/// The bytes that are free on a folder's disk, and all that it has.
pub(crate) fn disk_space(folder: &FolderOfTask) -> Option<(u64, u64)> {
    let path = wide(folder);
    let (mut free, mut all) = (0, 0);
    // SAFETY: the path ends with a zero; the pointers are to locals.
    let asked =
        unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &raw mut free, &raw mut all, ptr::null_mut()) };
    check(asked).ok().map(|()| (free, all))
}

/// Whether an error says that the disk has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    [ERROR_DISK_FULL, ERROR_HANDLE_DISK_FULL, ERROR_DISK_QUOTA_EXCEEDED]
        .iter()
        .any(|full| is_error(error, *full))
}
