//! Real filesystems in files, for what a folder cannot do: lose power, become read-only.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::has_program;

/// An ext4 filesystem in a file, mounted for as long as this lives.
pub struct Disk {
    pub image: PathBuf,
    pub mount: PathBuf,
}

impl Disk {
    /// Makes one; none where that cannot be done.
    pub fn new(image: &Path, megabytes: u32) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            skips::skip("only root can mount a filesystem");
            return None;
        }
        if !has_program("mkfs.ext4", &["-V"]) {
            return None;
        }
        run("truncate", &["-s", &format!("{megabytes}M"), text(image)]);
        run("mkfs.ext4", &["-q", "-F", text(image)]);
        Self::open(image)
    }

    /// Mounts what is in a file; what was under way when it was written last is repaired.
    pub fn open(image: &Path) -> Option<Self> {
        let mount = image.with_extension("mounted");
        fs::create_dir(&mount).unwrap();
        let mounted = Command::new("mount")
            .args(["-o", "loop,errors=remount-ro", text(image), text(&mount)])
            .output()
            .unwrap();
        if !mounted.status.success() {
            skips::skip(&format!("no filesystem in a file can be mounted here: {mounted:?}"));
            return None;
        }
        Some(Self { image: image.to_owned(), mount })
    }

    /// Lets the kernel find an error in it, after which nothing can be written; false where it does
    /// not let itself.
    pub fn make_read_only(&self) -> bool {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let place = format!(" {} ", text(&self.mount));
        let device = mounts.lines().find(|line| line.contains(&place)).unwrap();
        let device = device.split(' ').next().unwrap().trim_start_matches("/dev/");
        let told = fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "by a test");
        if let Err(error) = &told {
            skips::skip(&format!("no error can be made here: {error}"));
        }
        told.is_ok()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", text(&self.mount)]).status();
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}
