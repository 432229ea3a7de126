//! The filesystem view of a sandboxed command: everything read-only, except for the paths that may
//! be written and those that are hidden.
//!
//! It is made in two steps. Most of it is the same for every command ([`prepare`]) and can be made
//! once, as a mount namespace that later ones are copies of. The rest is each command's own
//! ([`finish`]): `/proc`, terminals, memory that is shared by path, and where artifacts are shown.
//!
//! What may be written is taken aside first, as mounts that are attached nowhere. Then the whole
//! tree is made read-only in one call, and what was taken aside is laid over its own place. Later
//! mounts cover earlier ones, so the order is: temporary folders and devices, what may be written,
//! what inside it may not, our state, secrets and other programs' sockets, programs that are
//! denied.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::OwnedFd,
        unix::fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{XattrFlags, setxattr},
    mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount},
};

use super::{
    fresh::FilesAround,
    mounts::{
        Done, STILL, again, all_aside, at, at_path, attach, attach_straight, copy_on_write,
        filesystem, io_at, is_folder, make_place, memory, open_path, path, set, set_below,
        take_aside,
    },
};
use crate::sandbox::{GuardKind, PLACE_ATTRIBUTE};

/// Device files that every program may use.
pub(super) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Links of `/dev` that programs expect.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
];

/// What of `/run` is shown: where the servers of names are written down, not the folders of that,
/// which have sockets that resolve names for whoever has no network; and where some systems keep
/// programs.
const RUN_SHOWN: [&str; 7] = [
    "/run/systemd/resolve/resolv.conf",
    "/run/systemd/resolve/stub-resolv.conf",
    "/run/resolvconf/resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
];

/// The temporary folders, which are the command's own.
const TEMPORARY_FOLDERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// Where terminals are, what makes them, and where memory is shared by path.
const TERMINALS: &str = "/dev/pts";
const MULTIPLEXER: &str = "/dev/pts/ptmx";
const SHARED_MEMORY: &str = "/dev/shm";

/// Where all artifacts are in the covered state folder, until that is covered too.
const HIDDEN: &str = "hidden";

/// Size of a temporary folder in memory.
const TEMPORARY: &str = "256m";

/// Size of a folder in memory that only holds other mounts.
const FRAME: &str = "256k";

/// Where that is made which covers programs, until all of it is laid over them.
const STUBS: &str = "/dev/.denied";

/// What a view leaves behind.
#[derive(Debug, Default)]
pub(super) struct ViewHandles {
    /// The folder of artifacts, below what hides it.
    pub tasks: Option<OwnedFd>,
    /// Where artifacts are shown.
    pub shown: Option<OwnedFd>,
    /// Where the command's terminal is to be made.
    pub terminals: Option<OwnedFd>,
}

/// Makes what all commands see, in this process's own mount namespace.
pub(super) fn prepare(surroundings: &FilesAround) -> Done {
    let FilesAround { writable, shown: shown_folders, state, .. } = surroundings;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(at("making the mounts private"))?;
    let tasks = take_aside(&state.join("tasks")).ok();
    let shown_rooms =
        shown_folders.iter().map(|place| take_aside(place)).collect::<Done<Vec<_>>>()?;
    let rooms = writable.iter().map(|place| room(surroundings, place)).collect::<Done<Vec<_>>>()?;
    let temporary = Temporary::take_aside(surroundings)?;
    let devices = all_aside(DEVICES.map(PathBuf::from))?;
    let run = all_aside(RUN_SHOWN.map(PathBuf::from))?;

    set_below(Path::new("/"), STILL).map_err(at("making the files read-only"))?;

    temporary.attach()?;
    cover_run(run)?;
    cover_dev(devices)?;
    for (place, room) in writable.iter().zip(&rooms) {
        make_place(place, is_folder(room))?;
        attach_straight(room, place)?;
    }
    for (place, room) in shown_folders.iter().zip(&shown_rooms).filter(|(place, _)| !place.exists())
    {
        make_place(place, is_folder(room))?;
        attach(room, place)?;
        set_below(place, STILL).map_err(at_path(place))?;
    }
    let sockets = surroundings.elsewhere.everywhere(surroundings.sockets.clone());
    let hidden = [&surroundings.unreadable[..], &sockets].concat();
    let guarded = guarded(surroundings);
    let kept = guarded.iter().map(|(place, _)| place).chain(&hidden).chain([state]);
    let kept = kept.chain(writable).chain(shown_folders).map(PathBuf::as_path);
    hold_ways(kept, writable)?;
    for (place, kind) in &guarded {
        guard(place, *kind)?;
    }
    cover_state(state, tasks)?;
    cover(&hidden)?;
    cover_programs(surroundings)?;
    set(Path::new("/dev"), MountAttrFlags::MOUNT_ATTR_RDONLY, 0).map_err(at("/dev"))
}

/// Makes what is a command's own. `own_pids` is whether `/proc` has to be made anew.
pub(super) fn finish(surroundings: &FilesAround, own_pids: bool) -> Done<ViewHandles> {
    let quiet = MountAttrFlags::MOUNT_ATTR_NOEXEC;
    if own_pids {
        let proc = filesystem("proc", &[], STILL | quiet).map_err(at("a /proc of its own"))?;
        attach(&proc, Path::new("/proc"))?;
    }
    let options = [("ptmxmode", "0666"), ("mode", "0620")];
    let terminals = filesystem("devpts", &options, MountAttrFlags::MOUNT_ATTR_NOSUID | quiet)
        .map_err(at("terminals of its own"))?;
    attach(&terminals, Path::new(TERMINALS))?;
    attach(&memory(TEMPORARY, "1777")?, Path::new(SHARED_MEMORY))?;
    let (all, shown) = (surroundings.state.join(HIDDEN), surroundings.state.join("tasks"));
    let tasks = open_path(&all).ok();
    if tasks.is_some() {
        attach(&memory("4k", "0000")?, &all)?;
        attach(&memory(FRAME, "0700")?, &shown)?;
    }
    Ok(ViewHandles {
        tasks,
        shown: open_path(&shown).ok(),
        terminals: open_path(Path::new(MULTIPLEXER)).ok(),
    })
}

/// What may be written at a place: the folder itself, or a copy of it.
fn room(surroundings: &FilesAround, place: &Path) -> Done<OwnedFd> {
    let copies = surroundings.profile.copies.iter();
    let same = |named: &Path| named == place || named.canonicalize().is_ok_and(|it| it == place);
    match copies.into_iter().find(|copy| same(path(&copy.place))) {
        Some(copy) => copy_on_write(place, copy),
        None => take_aside(place),
    }
}

/// The temporary folders, which are one.
struct Temporary([(&'static str, OwnedFd); 2]);

impl Temporary {
    fn take_aside(surroundings: &FilesAround) -> Done<Self> {
        let rooms = match surroundings.profile.tmp.as_deref().map(path) {
            Some(folder) => {
                let one = room(surroundings, folder)?;
                let two = again(&one).map_err(at_path(folder))?;
                [one, two]
            }
            None => [memory(TEMPORARY, "1777")?, memory(TEMPORARY, "1777")?],
        };
        let [one, two] = rooms;
        let [first, second] = TEMPORARY_FOLDERS;
        Ok(Self([(first, one), (second, two)]))
    }

    fn attach(self) -> Done {
        for (place, room) in self.0 {
            // One may be a link to the other.
            if fs::symlink_metadata(place).is_ok_and(|data| data.is_dir()) {
                attach(&room, Path::new(place))?;
            }
        }
        Ok(())
    }
}

/// Hides the sockets of other programs.
fn cover_run(shown: Vec<(PathBuf, OwnedFd)>) -> Done {
    let run = Path::new("/run");
    if !run.is_dir() {
        return Ok(());
    }
    attach(&memory(FRAME, "0755")?, run)?;
    for (place, room) in shown.into_iter().filter(|(place, _)| place.starts_with(run)) {
        make_place(&place, is_folder(&room))?;
        attach(&room, &place)?;
        set_below(&place, STILL).map_err(at_path(&place))?;
    }
    set(run, STILL, 0).map_err(at_path(run))
}

/// A `/dev` with nothing but what every program may use, and places for what is a command's own.
fn cover_dev(devices: Vec<(PathBuf, OwnedFd)>) -> Done {
    let dev = Path::new("/dev");
    attach(&memory(FRAME, "0755")?, dev)?;
    for (place, node) in devices {
        make_place(&place, false)?;
        attach(&node, &place)?;
    }
    for (target, place) in DEVICE_LINKS {
        symlink(target, place).map_err(io_at(dev))?;
    }
    make_place(Path::new(TERMINALS), true)?;
    make_place(Path::new(SHARED_MEMORY), true)
}

/// What is guarded, wherever it is seen; makes what has to be there for that.
fn guarded(surroundings: &FilesAround) -> Vec<(PathBuf, GuardKind)> {
    let mut all = Vec::new();
    for guarded in &surroundings.profile.unwritable {
        let place = path(&guarded.path);
        if guarded.guard == GuardKind::ReadOnlyFolder
            && !place.exists()
            && place.parent().is_some_and(Path::is_dir)
        {
            // If it cannot be made here, the command cannot make it either.
            let made = fs::create_dir(place).is_ok();
            let mut copies = surroundings.profile.copies.iter();
            if made && copies.any(|copy| place.starts_with(path(&copy.place))) {
                let _ = setxattr(place, PLACE_ATTRIBUTE, b"y", XattrFlags::CREATE);
            }
        }
        let Ok(place) = place.canonicalize() else { continue };
        let places = surroundings.elsewhere.everywhere(vec![place]).into_iter();
        // A link may lead to where nothing can be written anyway.
        let inside = |place: &PathBuf| surroundings.writable.iter().any(|it| place.starts_with(it));
        all.extend(places.filter(inside).map(|place| (place, guarded.guard)));
    }
    all
}

/// Holds the folders in place that lead from what may be written to what is kept: renamed, they
/// would take it along, and the next sandbox would not know it.
fn hold_ways<'a>(kept: impl Iterator<Item = &'a Path>, writable: &[PathBuf]) -> Done {
    let rooms = || writable.iter().map(PathBuf::as_path).chain(TEMPORARY_FOLDERS.map(Path::new));
    let leads = |folder: &&Path| {
        rooms().any(|room| folder.starts_with(room)) && !rooms().any(|room| room == *folder)
    };
    // A folder stands before what is in it.
    let ways: BTreeSet<&Path> =
        kept.flat_map(|place| place.ancestors().skip(1)).filter(leads).collect();
    let is_folder = |way: &&Path| fs::symlink_metadata(way).is_ok_and(|found| found.is_dir());
    ways.into_iter().filter(is_folder).try_for_each(|way| attach_straight(&take_aside(way)?, way))
}

/// Keeps a path as it is, inside something that may be written.
fn guard(place: &Path, guard: GuardKind) -> Done {
    // It may be gone with a folder that was covered.
    if !place.exists() {
        return Ok(());
    }
    attach_straight(&take_aside(place)?, place)?;
    if guard != GuardKind::InPlace {
        set_below(place, STILL).map_err(at_path(place))?;
    }
    Ok(())
}

/// Hides our own state, with a place in it where artifacts can be shown, and all of them below what
/// will be covered.
fn cover_state(state: &Path, tasks: Option<OwnedFd>) -> Done {
    // It may be in a folder that is covered already; then its place can still be made there.
    if make_place(state, true).is_err() {
        return Ok(());
    }
    attach_straight(&memory(FRAME, "0700")?, state)?;
    if let Some(tasks) = tasks {
        for name in [HIDDEN, "tasks"] {
            make_place(&state.join(name), true)?;
        }
        let all = state.join(HIDDEN);
        attach(&tasks, &all)?;
        set_below(&all, STILL).map_err(at_path(&all))?;
    }
    set(state, STILL, 0).map_err(at_path(state))
}

/// Covers secrets and sockets with something empty that nobody may open.
fn cover(hidden: &[PathBuf]) -> Done {
    let blank = Path::new("/dev/.blank");
    fs::File::create(blank)
        .and_then(|file| file.set_permissions(no_rights()))
        .map_err(io_at(blank))?;
    for place in hidden {
        // It may be gone with a folder that was covered.
        let Ok(data) = fs::symlink_metadata(place) else { continue };
        let cover = if data.is_dir() { memory("4k", "0000")? } else { take_aside(blank)? };
        attach_straight(&cover, place)?;
        set(place, STILL, 0).map_err(at_path(place))?;
    }
    fs::remove_file(blank).map_err(io_at(blank))
}

/// Covers the programs that are denied with something that says so.
fn cover_programs(surroundings: &FilesAround) -> Done {
    let covered = &surroundings.covered;
    if covered.is_empty() {
        return Ok(());
    }
    let folder = Path::new(STUBS);
    make_place(folder, true)?;
    // A page for each, and some for the folder.
    attach(&memory(&format!("{}k", 4 * (covered.len() + 4)), "0755")?, folder)?;
    for (number, file) in covered.iter().enumerate() {
        let stub = folder.join(number.to_string());
        fs::write(&stub, file.stub())
            .and_then(|()| fs::set_permissions(&stub, fs::Permissions::from_mode(0o555)))
            .map_err(io_at(&stub))?;
        for place in surroundings.elsewhere.everywhere(vec![file.path.clone()]) {
            // It may be gone with a folder that was covered.
            let Ok(data) = fs::symlink_metadata(&place) else { continue };
            let attached = attach(&take_aside(&stub)?, &place);
            if data.is_symlink() && attached.is_err() {
                // Where the kernel covers no links, the notice of what is executed has to do.
                continue;
            }
            attached?;
            set(&place, STILL, 0).map_err(at_path(&place))?;
        }
        fs::remove_file(&stub).map_err(io_at(&stub))?;
    }
    unmount(folder, UnmountFlags::DETACH).map_err(at_path(folder))?;
    fs::remove_dir(folder).map_err(io_at(folder))
}

fn no_rights() -> fs::Permissions {
    fs::Permissions::from_mode(0o0)
}
