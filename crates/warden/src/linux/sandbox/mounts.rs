//! Wrappers of the mount system calls: clone, create, attach, change.

use std::{
    ffi::{CString, OsStr},
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, chmodat, openat, openat2},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
        fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
    },
};

use crate::sandbox::CopyOnWrite;

const PLAIN: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

pub(super) const STILL: MountAttrFlags = PLAIN.union(MountAttrFlags::MOUNT_ATTR_RDONLY);

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {errno}")]
pub(super) struct Failed {
    what: String,
    errno: Errno,
}

pub(super) type Done<T = ()> = Result<T, Failed>;

pub(super) fn at(what: impl Into<String>) -> impl FnOnce(Errno) -> Failed {
    move |errno| Failed { what: what.into(), errno }
}

pub(super) fn at_path(place: &Path) -> impl FnOnce(Errno) -> Failed {
    at(place.display().to_string())
}

pub(super) fn io_at(place: &Path) -> impl FnOnce(io::Error) -> Failed {
    let place = place.display().to_string();
    move |error| Failed { what: place, errno: Errno::from_io_error(&error).unwrap_or(Errno::IO) }
}

/// A path, as it travels.
pub(in crate::linux) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

pub(super) fn open_path(place: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn is_folder(handle: &OwnedFd) -> bool {
    rustix::fs::fstat(handle)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// A copy of what is mounted at a place and below, attached nowhere.
pub(super) fn take_aside(place: &Path) -> Done<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, place, flags).map_err(at_path(place))
}

/// Another copy of what was taken aside.
pub(super) fn again(tree: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(tree, "", flags)
}

/// The same of all of these that exist, by their real paths.
pub(super) fn all_aside<const N: usize>(places: [PathBuf; N]) -> Done<Vec<(PathBuf, OwnedFd)>> {
    let real = places.into_iter().filter_map(|place| place.canonicalize().ok());
    real.map(|place| Ok((place.clone(), take_aside(&place)?))).collect()
}

pub(super) fn attach(tree: &OwnedFd, place: &Path) -> Done {
    move_mount(tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(at_path(place))
}

/// The same at a real path in which nothing may have become a link: in what a command could write,
/// an earlier one may have put something else in the place of a folder.
pub(super) fn attach_straight(tree: &OwnedFd, place: &Path) -> Done {
    let attached = || {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let straight = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let target = openat2(CWD, place, flags, Mode::empty(), straight)?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", target, "", flags)
    };
    attached().map_err(at_path(place))
}

/// Makes what something can be attached to, where there is room for it: in the covered folders.
pub(super) fn make_place(place: &Path, folder: bool) -> Done {
    if place.exists() {
        return Ok(());
    }
    let parent = place.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(if folder { place } else { parent }).map_err(io_at(place))?;
    if !folder {
        fs::write(place, "").map_err(io_at(place))?;
    }
    Ok(())
}

pub(super) fn filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let made = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&made, *key, *value)?;
    }
    fsconfig_create(&made)?;
    fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A view of a folder in which everything can be changed and nothing of it is, attached nowhere.
pub(super) fn copy_on_write(place: &Path, copy: &CopyOnWrite) -> Done<OwnedFd> {
    let what = || at(format!("a copy-on-write view of {}", place.display()));
    let lower = open_path(place).map_err(what())?;
    let upper = open_path(path(&copy.upper)).map_err(what())?;
    let work = fresh_folder(path(&copy.work))?;
    overlay(&lower, &upper, &work).map_err(what())
}

/// An empty folder in another one. The kernel takes none again that it has used for a view which it
/// need not keep through a power cut, and a view may have to be made anew.
fn fresh_folder(place: &Path) -> Done<OwnedFd> {
    let made = (0..FRESH_MAX).find_map(|number| {
        let folder = place.join(number.to_string());
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            made => Some(made.map(|()| folder)),
        }
    });
    let full = || Err(io::ErrorKind::AlreadyExists.into());
    let folder = made.unwrap_or_else(full).map_err(io_at(place))?;
    open_path(&folder).map_err(at_path(&folder))
}

/// How often one view is made anew at most.
const FRESH_MAX: u32 = 100;

/// An overlay of two folders, attached nowhere.
fn overlay(lower: &OwnedFd, upper: &OwnedFd, work: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    // By their numbers: a path may be longer than an option, and have a colon in it.
    let named = |folder: &OwnedFd| format!("/proc/self/fd/{}", folder.as_raw_fd());
    let made = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_flag(&made, "userxattr")?;
    // A view that did not fit any more may still be going when another one takes its place.
    fsconfig_set_string(&made, "index", "off")?;
    fsconfig_set_string(&made, "lowerdir", named(lower))?;
    fsconfig_set_string(&made, "upperdir", named(upper))?;
    fsconfig_set_string(&made, "workdir", named(work))?;
    // Otherwise the kernel writes all that is unwritten of the disk when the view goes, and whoever
    // needs that to be there afterwards writes it.
    fsconfig_set_flag(&made, "volatile")?;
    fsconfig_create(&made)?;
    open_to_owner(work);
    fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, PLAIN)
}

/// Opens to its owner what the kernel has made in the work folder of a view, with no mode at all:
/// `rm -r` could not remove it. The kernel itself does not look at the modes.
fn open_to_owner(work: &OwnedFd) {
    for name in ["work", "work/incompat", "work/incompat/volatile"] {
        // Of some kernels it is not there.
        let _ = chmodat(work, name, Mode::RWXU, AtFlags::empty());
    }
}

/// A folder in memory, attached nowhere.
pub(super) fn memory(size: &str, mode: &str) -> Done<OwnedFd> {
    filesystem("tmpfs", &[("size", size), ("mode", mode)], PLAIN).map_err(at("a folder in memory"))
}

/// Sets attributes of the mount at a place and of all below it.
pub(super) fn set_below(place: &Path, attributes: MountAttrFlags) -> rustix::io::Result<()> {
    set(place, attributes, libc::AT_RECURSIVE)
}

pub(super) fn set(
    place: &Path,
    attributes: MountAttrFlags,
    flags: libc::c_int,
) -> rustix::io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: attributes.bits().into(),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let place = CString::new(place.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path and the attributes are valid for the call, and their size is passed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            CWD.as_raw_fd(),
            place.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    let error = io::Error::last_os_error();
    if done == 0 { Ok(()) } else { Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL)) }
}
