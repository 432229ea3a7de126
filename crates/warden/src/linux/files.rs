//! The files of a task's folder: made below an opened folder, written at offsets.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use rustix::{
    fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, fstatvfs, mkdirat, openat, unlinkat},
    io::Errno,
};

/// The folder in which the tasks have theirs.
pub(crate) type TasksPlace<'a> = BorrowedFd<'a>;

/// A task's folder.
pub(crate) type FolderOfTask = OwnedFd;

/// Makes the folder of a task, which is not there yet.
pub(crate) fn make_folder(tasks: TasksPlace<'_>, task: &str) -> io::Result<()> {
    Ok(mkdirat(tasks, task, Mode::RWXU)?)
}

/// Opens the folder of a task.
pub(crate) fn open_folder(tasks: TasksPlace<'_>, task: &str) -> io::Result<FolderOfTask> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(tasks, task, flags, Mode::empty())?)
}

/// Makes a file in it, which is not there yet.
pub(crate) fn create_file(folder: &FolderOfTask, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Removes a folder that could not be filled, and these files in it.
pub(crate) fn remove_folder(tasks: TasksPlace<'_>, task: &str, names: &[&str]) {
    for name in names {
        let _ = unlinkat(tasks, format!("{task}/{name}"), AtFlags::empty());
    }
    let _ = unlinkat(tasks, task, AtFlags::REMOVEDIR);
}

/// Takes disk space at the beginning of a file now; a filesystem that cannot reserve gets zeros
/// written.
pub(crate) fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    match fallocate(file.as_fd(), FallocateFlags::empty(), 0, bytes as u64) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.write_all_at(&vec![0; bytes], 0),
        result => Ok(result?),
    }
}

/// Gives disk space back; everything behind it stays where it is.
pub(crate) fn punch_hole(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file.as_fd(), flags, from, bytes)?)
}

/// Writes at an offset, as much as is taken.
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(bytes, offset)
}

/// Writes all of it at an offset.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// The bytes that are free on a folder's disk, and all that it has.
pub(crate) fn disk_space(folder: &FolderOfTask) -> Option<(u64, u64)> {
    let disk = fstatvfs(folder).ok()?;
    Some((disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize))
}

/// Whether an error says that the disk has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    [Errno::NOSPC, Errno::DQUOT]
        .iter()
        .any(|full| error.raw_os_error() == Some(full.raw_os_error()))
}
