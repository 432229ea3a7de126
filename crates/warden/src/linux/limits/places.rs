//! Where cgroups that limit something can be made: in the hierarchies of version 1, each for one
//! controller, or in the one tree of version 2.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use crate::linux::cgroup::{self, Base, Tree};

/// Where the cgroups of one controller are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::linux) enum LimitsPlace {
    /// In the controller's own hierarchy.
    First(PathBuf),
    /// In the tree that all controllers share.
    Second(PathBuf),
}

/// The places on this machine, or why there is none.
#[derive(Debug)]
pub(in crate::linux) struct LimitsPlaces {
    pub pids: Result<LimitsPlace, String>,
    pub memory: Result<LimitsPlace, String>,
    /// The tree of version 2, where there is one.
    tree: Option<Tree>,
}

impl LimitsPlaces {
    /// Looks for them, and makes nothing.
    pub(in crate::linux) fn find() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let place = |controller| place(&own, &mounts, controller);
        let tree = cgroup::find_tree(&own, &mounts).ok();
        Self { pids: place("pids"), memory: place("memory"), tree }
    }

    /// Where wardens' own cgroups are made: where they can limit something, if that is so anywhere.
    pub(in crate::linux) fn of_wardens(&self) -> Option<Base> {
        let mut base = Base::at(self.tree.as_ref()?);
        if let Ok(LimitsPlace::Second(folder)) = &self.pids {
            base.folder.clone_from(folder);
        }
        Some(base)
    }

    /// Removes what killed wardens have left in the hierarchies.
    pub(in crate::linux) fn sweep(&self) {
        for place in [&self.pids, &self.memory].into_iter().flatten() {
            let (LimitsPlace::First(folder) | LimitsPlace::Second(folder)) = place;
            cgroup::sweep(folder);
        }
    }

    /// Removes what is left of a warden in the hierarchies of version 1, and says whether it is
    /// gone.
    pub(in crate::linux) fn forget(&self, warden: &str) -> bool {
        let places = [&self.pids, &self.memory].into_iter().flatten();
        let gone = places.map(|place| match place {
            LimitsPlace::First(folder) => cgroup::remove(&folder.join(cgroup::name_of(warden))),
            LimitsPlace::Second(_) => true,
        });
        gone.fold(true, |all, one| all & one)
    }
}

fn place(own: &str, mounts: &str, controller: &str) -> Result<LimitsPlace, String> {
    if let Some(folder) = first_version(own, mounts, controller) {
        return match access(&folder, Access::WRITE_OK) {
            Ok(()) => Ok(LimitsPlace::First(folder)),
            Err(errno) => Err(format!("{}: {}", folder.display(), std::io::Error::from(errno))),
        };
    }
    let tree = cgroup::find_tree(own, mounts).map_err(|error| error.to_string())?;
    second_version(&tree, controller).map(LimitsPlace::Second)
}

/// Our own cgroup in the hierarchy of a controller of version 1.
fn first_version(own: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|name| name == controller);
    let own = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        has(controllers).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - cgroup ")?;
        has(filesystem.rsplit(' ').next()?).then_some(())?;
        cgroup::below_mount(mount, own)
    })
}

/// The nearest cgroup above us, our own first, whose children the controller limits.
///
/// In version 2 a cgroup with processes cannot limit its children, so that is rarely our own. What
/// limits us is never left behind.
fn second_version(tree: &Tree, controller: &str) -> Result<PathBuf, String> {
    let mut folder = tree.own.as_path();
    loop {
        if gives(folder, controller, folder == tree.own) {
            return match access(folder.join("cgroup.procs"), Access::WRITE_OK) {
                Ok(()) => Ok(folder.to_owned()),
                Err(errno) => Err(format!("{}: {}", folder.display(), std::io::Error::from(errno))),
            };
        }
        if limits_something(folder) {
            return Err(format!("{} is limited itself and cannot be left", folder.display()));
        }
        match folder.parent().filter(|parent| parent.starts_with(&tree.mount)) {
            Some(parent) => folder = parent,
            None => return Err(format!("no cgroup here has the controller `{controller}`")),
        }
    }
}

/// Whether the children of a cgroup have a controller, or can be given it.
fn gives(folder: &Path, controller: &str, is_own: bool) -> bool {
    let control = folder.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&control).unwrap_or_default();
    let is_enabled = enabled.split_whitespace().any(|name| name == controller);
    is_enabled || (is_own && fs::write(&control, format!("+{controller}")).is_ok())
}

fn limits_something(folder: &Path) -> bool {
    ["memory.max", "memory.high", "pids.max", "cpu.max"].iter().any(|name| {
        let value = fs::read_to_string(folder.join(name));
        value.is_ok_and(|value| !value.starts_with("max"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_of_a_controller_is_found_also_where_only_a_part_is_mounted() {
        let own = "4:memory:/a/b\n3:cpu,cpuacct:/\n8:pids:/box/x\n0::/\n";
        let mounts = "\
            30 29 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            31 29 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
            32 29 0:28 /box /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        let found = |controller| first_version(own, mounts, controller);
        assert_eq!(found("memory"), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(found("cpuacct"), Some("/sys/fs/cgroup/cpu,cpuacct".into()));
        assert_eq!(found("pids"), Some("/sys/fs/cgroup/pids/x".into()));
        assert_eq!(found("blkio"), None);
    }

    #[test]
    fn the_nearest_cgroup_that_limits_its_children_is_used_but_no_limit_is_left_behind() {
        let mount = tempfile::tempdir().unwrap();
        let slice = mount.path().join("slice");
        let own = slice.join("session");
        fs::create_dir_all(&own).unwrap();
        for (folder, control) in [(mount.path(), "pids memory"), (&slice, "pids")] {
            fs::write(folder.join("cgroup.subtree_control"), control).unwrap();
            fs::write(folder.join("cgroup.procs"), "").unwrap();
        }
        // A cgroup with processes does not take controllers: here, because the file is a folder.
        fs::create_dir(own.join("cgroup.subtree_control")).unwrap();
        let tree = Tree { mount: mount.path().to_owned(), own: own.clone() };
        assert_eq!(second_version(&tree, "pids"), Ok(slice.clone()));
        assert_eq!(second_version(&tree, "memory"), Ok(mount.path().to_owned()));
        assert!(second_version(&tree, "hugetlb").is_err());
        fs::write(own.join("memory.max"), "max\n").unwrap();
        assert_eq!(second_version(&tree, "pids"), Ok(slice));
        fs::write(own.join("memory.max"), "1000000\n").unwrap();
        assert!(second_version(&tree, "pids").unwrap_err().contains("is limited itself"));
    }
}
