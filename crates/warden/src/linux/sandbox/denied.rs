//! Finds the files of programs that a rule denies as a whole, and covers them in the sandbox.
//!
//! A name is covered in every folder of programs. So is the file that it leads to, if that is the
//! same program: it has the same name, that name and a version (`python3.11` behind `python3`), or
//! it is in no folder of programs and nothing else there leads to it. Otherwise it is a program of
//! its own (`mawk` behind `awk`) or many in one (`busybox` behind `rm`), and only the name's link
//! is covered: no other name is harmed. Hard links are treated alike. What may be written is left
//! as it is: a cover there would be seen as a change of the file, and a command can bring its own
//! programs anyway. So are the shells, without which nothing runs. What is not covered is held by
//! notices of what is executed.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::mounts::path;
use crate::sandbox::{DeniedProgram, Profile};

/// The shells that commands and the covers themselves run in.
const SHELLS: [&str; 3] = ["/bin/sh", "/bin/bash", "/usr/bin/bash"];

/// A path that something else is laid over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CoveredFile {
    pub path: PathBuf,
    program: String,
    pub rule: String,
}

impl CoveredFile {
    /// What stands there: a script that says why, and fails as if it could not be executed.
    pub(super) fn stub(&self) -> String {
        let Self { program, rule, .. } = self;
        let said = format!("legwork: {program} is denied by the rule {rule}");
        // A rule may be called anything.
        let said: String = said.chars().filter(|character| !character.is_control()).collect();
        let quoted = said.replace('\'', "'\\''");
        format!("#!/bin/sh\nprintf '%s\\n' '{quoted}' >&2\nexit 126\n")
    }
}

/// The paths at which the denied programs are or could come to be.
pub(super) fn paths(profile: &Profile) -> Vec<PathBuf> {
    let folders = folders(profile);
    let of = |program: &DeniedProgram| {
        let name = OsStr::from_bytes(&program.name).to_owned();
        folders.iter().map(move |folder| folder.join(&name)).collect::<Vec<_>>()
    };
    profile.denied.iter().flat_map(of).collect()
}

/// What is to be covered, given what may be written.
pub(super) fn covered(profile: &Profile, writable: &[PathBuf]) -> Vec<CoveredFile> {
    if profile.denied.is_empty() {
        return Vec::new();
    }
    let search = Search { folders: folders(profile), writable };
    let mut found: Vec<CoveredFile> = Vec::new();
    for program in &profile.denied {
        for path in search.of(OsStr::from_bytes(&program.name)) {
            // Two rules may deny the same: the first is named.
            if !found.iter().any(|file| file.path == path) {
                let program_name = String::from_utf8_lossy(&program.name).into_owned();
                found.push(CoveredFile { path, program: program_name, rule: program.rule.clone() });
            }
        }
    }
    found
}

/// The folders of programs, by their real paths, each once.
fn folders(profile: &Profile) -> Vec<PathBuf> {
    let mut real: Vec<PathBuf> = Vec::new();
    for folder in &profile.program_folders {
        if let Ok(folder) = path(folder).canonicalize()
            && !real.contains(&folder)
        {
            real.push(folder);
        }
    }
    real
}

struct Search<'a> {
    folders: Vec<PathBuf>,
    writable: &'a [PathBuf],
}

impl Search<'_> {
    /// All paths of one program.
    fn of(&self, name: &OsStr) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        // A name with a slash, or none, is in no folder.
        if name.is_empty() || name.as_bytes().contains(&b'/') {
            return found;
        }
        for folder in &self.folders {
            let named = folder.join(name);
            let (Ok(data), Ok(real)) = (fs::symlink_metadata(&named), named.canonicalize()) else {
                continue;
            };
            if !real.is_file() || is_shell(&real) {
                continue;
            }
            if self.is_same_program(name, &real) {
                found.extend(self.hard_links(name, &real));
                found.insert(real);
            }
            // A link is covered in its own place: what it leads to may be another program too.
            if data.is_symlink() {
                found.insert(named);
            }
        }
        found.retain(|path| !self.writable.iter().any(|room| path.starts_with(room)));
        found
    }

    /// Whether the file behind a name is that program and no other.
    fn is_same_program(&self, name: &OsStr, real: &Path) -> bool {
        let Some(own) = real.file_name() else { return false };
        is_version_of(own, name) || !self.is_among_programs(real) && !self.is_shared(name, real)
    }

    fn is_among_programs(&self, real: &Path) -> bool {
        real.parent().is_some_and(|folder| self.folders.iter().any(|it| it == folder))
    }

    /// Whether another name in a folder of programs leads to the same file.
    fn is_shared(&self, name: &OsStr, real: &Path) -> bool {
        let mut entries = self.folders.iter().filter_map(|it| fs::read_dir(it).ok()).flatten();
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                entry.file_type().is_ok_and(|kind| kind.is_symlink())
                    && !is_version_of(&entry.file_name(), name)
                    && entry.path().canonicalize().is_ok_and(|other| other == real)
            })
        })
    }

    /// Other names of the same file in the folders of programs, if they are of the same program.
    fn hard_links(&self, name: &OsStr, real: &Path) -> Vec<PathBuf> {
        let Ok(data) = fs::metadata(real) else { return Vec::new() };
        if data.nlink() < 2 {
            return Vec::new();
        }
        let entries = self.folders.iter().filter_map(|it| fs::read_dir(it).ok()).flatten();
        let same = entries.flatten().filter(|entry| {
            is_version_of(&entry.file_name(), name)
                && entry
                    .metadata()
                    .is_ok_and(|other| (other.dev(), other.ino()) == (data.dev(), data.ino()))
        });
        same.map(|entry| entry.path()).collect()
    }
}

/// Whether a name is this one, or this one and a version: `perl5.36.0` is of `perl`.
fn is_version_of(name: &OsStr, of: &OsStr) -> bool {
    let Some(rest) = name.as_bytes().strip_prefix(of.as_bytes()) else { return false };
    rest.iter().all(|byte| byte.is_ascii_digit() || b".-_".contains(byte))
}

fn is_shell(real: &Path) -> bool {
    let real_shells = SHELLS.iter().filter_map(|shell| Path::new(shell).canonicalize().ok());
    real_shells.into_iter().any(|shell| shell == real)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;

    fn file(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn a_program_is_found_by_all_its_names_and_no_other_program_is_harmed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (bin, sbin, own) = (root.join("bin"), root.join("sbin"), root.join("ws/bin"));
        for name in ["rm", "mawk", "python3.11", "busybox", "gzip", "perl5.36.0"] {
            file(&bin.join(name));
        }
        file(&own.join("rm"));
        file(&root.join("lib/tool-1/run"));
        fs::create_dir_all(&sbin).unwrap();
        for (target, link) in [
            ("mawk", "awk"),
            ("python3.11", "python3"),
            ("busybox", "vi"),
            ("busybox", "ping"),
            ("../lib/tool-1/run", "tool"),
        ] {
            symlink(target, bin.join(link)).unwrap();
        }
        symlink("../bin/rm", sbin.join("rm")).unwrap();
        fs::hard_link(bin.join("gzip"), bin.join("zcat")).unwrap();
        fs::hard_link(bin.join("perl5.36.0"), bin.join("perl")).unwrap();
        let writable = [root.join("ws")];
        let search = Search { folders: vec![bin.clone(), sbin.clone(), own], writable: &writable };
        let of = |name: &str| -> Vec<String> {
            let relative = |path: PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
            search.of(OsStr::new(name)).into_iter().map(relative).collect()
        };
        assert_eq!(of("rm"), ["bin/rm", "sbin/rm"]);
        assert_eq!(of("awk"), ["bin/awk"]);
        assert_eq!(of("mawk"), ["bin/mawk"]);
        assert_eq!(of("python3"), ["bin/python3", "bin/python3.11"]);
        assert_eq!(of("vi"), ["bin/vi"]);
        assert_eq!(of("zcat"), ["bin/zcat"]);
        assert_eq!(of("perl"), ["bin/perl", "bin/perl5.36.0"]);
        assert_eq!(of("tool"), ["bin/tool", "lib/tool-1/run"]);
        assert!(of("absent").is_empty() && of("").is_empty() && of("../bin/rm").is_empty());
    }

    #[test]
    fn a_cover_says_the_rule_whatever_it_is_called() {
        let file = CoveredFile {
            path: PathBuf::new(),
            program: "rm".into(),
            rule: "it's\n$(rm -rf /) `x`".into(),
        };
        let scratch = tempfile::tempdir().unwrap();
        let stub = scratch.path().join("stub");
        fs::write(&stub, file.stub()).unwrap();
        let run = std::process::Command::new("/bin/sh").arg(&stub).output().unwrap();
        assert_eq!(run.status.code(), Some(126));
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(said, "legwork: rm is denied by the rule it's$(rm -rf /) `x`\n");
    }
}
