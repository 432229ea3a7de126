//! Reads folders that a command has closed to their owner.
//!
//! In the user namespace of a sandbox its maker has every right over files with ids of that
//! namespace, whatever their modes are. So an usher goes in there and reads. To open such a folder
//! by its mode instead, for a moment, would be seen by the command, and could undo what it does.

use std::{
    cell::Cell,
    ffi::{CStr, CString, OsStr, c_int},
    io,
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat, openat2, seek, statat,
};

use super::usher;

/// What is read of a folder at once, in the kernel's form.
const PART_BYTES: usize = 16 * 1024;

/// Reads folders in the user namespace of a sandbox.
#[derive(Debug)]
pub(in crate::linux) struct ClosedReader {
    namespace: (OwnedFd, i32),
    entries: Vec<MaybeUninit<u8>>,
    /// The names of folders that were found, each with its end.
    folders: Vec<u8>,
}

/// Some entries of a folder.
#[derive(Debug)]
pub(in crate::linux) struct FolderPart<'a> {
    /// What they take on the disk.
    pub bytes: u64,
    /// Where to go on reading; none at the end.
    pub next: Option<u64>,
    folders: &'a [u8],
}

impl FolderPart<'_> {
    /// The names of the folders among them.
    pub(in crate::linux) fn folders(&self) -> impl Iterator<Item = &OsStr> {
        let names = self.folders.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names.map(OsStr::from_bytes)
    }
}

impl ClosedReader {
    /// For a sandbox with these namespaces.
    pub(super) fn of(namespaces: &[(OwnedFd, i32)]) -> Option<Self> {
        let (handle, kind) = namespaces.iter().find(|(_, kind)| *kind == libc::CLONE_NEWUSER)?;
        let namespace = (handle.try_clone().ok()?, *kind);
        let entries = vec![MaybeUninit::uninit(); PART_BYTES];
        Some(Self { namespace, entries, folders: Vec::with_capacity(PART_BYTES) })
    }

    /// Reads some entries of a folder below a top, from a place in it on. No link is followed, and
    /// nothing outside is reached.
    pub(in crate::linux) fn read(
        &mut self,
        top: BorrowedFd<'_>,
        path: &Path,
        from: u64,
    ) -> io::Result<FolderPart<'_>> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        self.folders.clear();
        // Only the usher changes these, while this process sleeps.
        let (entries, folders) =
            (Cell::new(&mut self.entries[..]), Cell::new(Some(&mut self.folders)));
        let (bytes, next) = (Cell::new(0), Cell::new(None));
        let work = || {
            let (Some(folders), entries) = (folders.take(), entries.take()) else {
                return Ok(());
            };
            let read = read_part(top, &path, from, entries, |name, stat| {
                bytes.set(bytes.get() + super::super::copied::bytes_of(stat));
                // The names of one part have room in it.
                if FileType::from_raw_mode(stat.st_mode).is_dir() {
                    folders.extend_from_slice(name.to_bytes_with_nul());
                }
            });
            next.set(read.map_err(rustix::io::Errno::raw_os_error)?);
            Ok::<(), c_int>(())
        };
        usher::inside([&self.namespace].into_iter(), &work)?;
        let (bytes, next) = (bytes.get(), next.get());
        Ok(FolderPart { bytes, next, folders: &self.folders })
    }
}

/// Reads a part of a folder into a buffer; where to go on.
fn read_part(
    top: BorrowedFd<'_>,
    path: &CStr,
    from: u64,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(&CStr, &Stat),
) -> rustix::io::Result<Option<u64>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let straight = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let folder = openat2(top, path, flags, Mode::empty(), straight)?;
    seek(&folder, SeekFrom::Start(from))?;
    let mut entries = RawDir::new(&folder, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        let next = entry.next_entry_cookie();
        if name != c"."
            && name != c".."
            && let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            each(name, &stat);
        }
        if entries.is_buffer_empty() {
            return Ok(Some(next));
        }
    }
    Ok(None)
}
