//! Warns when a command has created files that others run or trust, such as git hooks.
//!
//! Not everything can be guarded. An operator may configure a repository, a new one has to get its
//! files, and what does not exist yet cannot be kept as it is. So what git would run, and what is
//! missing of what is guarded, is listed before a command and after it.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    finder::Found,
    git_settings,
    places::expanded,
    repository::{Repository, configs_of, target_of, users_configs},
};
use crate::plain_file::{read_lossily, read_text};

/// What a linked worktree says of where the repository is.
const USUAL_COMMON: &str = "../..";

/// How often a configuration may lead to another one.
const INCLUDES_MAX: usize = 32;

/// What is found in a repository: what is told of it, and the value that it had.
type Told = BTreeSet<(String, String)>;

/// How things were before a command.
#[derive(Debug, Clone)]
pub(super) struct Before {
    /// What was there by which git and other tools run programs.
    told: Told,
    /// What was not there, and is guarded where it is.
    absent: Vec<PathBuf>,
}

impl Before {
    /// Looks at these folders of git's, at what was found besides, and which of the guarded paths
    /// are missing.
    pub(super) fn of(folders: &[PathBuf], found: &Found, guarded: &[PathBuf]) -> Self {
        let absent = guarded.iter().filter(|path| !path.exists()).cloned().collect();
        Self { told: look(folders, found), absent }
    }

    /// What has come since an earlier look.
    pub(super) fn since(&self, before: &Self) -> Vec<String> {
        let news = self.told.difference(&before.told).map(|(text, _)| text.clone());
        let came = before.absent.iter().filter(|path| fs::symlink_metadata(path).is_ok());
        let came =
            came.map(|path| format!("{}: it came, and others run or trust it", path.display()));
        news.chain(came).collect::<BTreeSet<String>>().into_iter().collect()
    }
}

fn look(folders: &[PathBuf], found: &Found) -> Told {
    let mut told = Told::new();
    let mut all: BTreeSet<PathBuf> = folders.iter().chain(&found.repositories).cloned().collect();
    for pointer in &found.pointers {
        all.extend(look_at_pointer(pointer, found, &mut told));
    }
    for folder in &all {
        look_at(folder, &mut told);
    }
    for folder in &found.unlisted {
        let text = "it can be entered and not listed, so repositories in it are not found";
        told.insert((format!("{}: {text}", folder.display()), String::new()));
    }
    for file in &found.trusted {
        let text = "it came or was changed, and tools run what it says";
        told.insert((format!("{}: {text}", file.display()), version_of(file)));
    }
    told
}

/// Looks where a file or link `.git` leads, and returns the folders of git's that it leads to.
fn look_at_pointer(pointer: &Path, found: &Found, told: &mut Told) -> Vec<PathBuf> {
    if let Some(linked) = Repository::linked(pointer) {
        return linked.folders().collect();
    }
    let path = target_of(pointer);
    let leads_to = path.canonicalize();
    let is_module = |path: &PathBuf| {
        found.repositories.iter().any(|it| path != it && path.starts_with(it.join("modules")))
    };
    // One of a file that names a folder elsewhere is not of interest: the folder is.
    if !leads_to.as_ref().is_ok_and(is_module) {
        let text = "it came or was changed, by which git takes hooks and configuration from";
        let text = format!("{}: {text} {}", pointer.display(), path.display());
        told.insert((text, version_of(pointer)));
    }
    leads_to.into_iter().collect()
}

fn look_at(folder: &Path, told: &mut Told) {
    let mut configs: Vec<PathBuf> = configs_of(folder).into();
    let mut hooks = vec![folder.join("hooks")];
    let mut place = 0;
    while let Some(file) = configs.get(place).filter(|_| place < INCLUDES_MAX).cloned() {
        place += 1;
        for (key, value) in settings_of(&file, told) {
            let named = expanded(Path::new(&value));
            if git_settings::is_include(&key) {
                let place = file.parent().unwrap_or(folder).join(&named);
                if !configs.contains(&place) {
                    configs.push(place);
                }
            }
            if key == "core.hookspath" {
                let tops = [folder, folder.parent().unwrap_or(folder)];
                hooks.extend(tops.map(|top| top.join(&named)));
            }
            let is_own_tree = key == "core.worktree" && is_tree_of(folder, &folder.join(&named));
            if !git_settings::is_harmless(&key, &value) && !is_own_tree {
                let effect = git_settings::effect(&key, &value);
                let text = format!("`{key}` was set, {effect}");
                told.insert((format!("{}: {text}", file.display()), value));
            }
        }
    }
    hooks.dedup();
    for hook in hooks.iter().flat_map(|folder| entries(folder)) {
        if hook.extension().is_none_or(|end| end != "sample") {
            let text = "a hook came or was changed, which git runs";
            told.insert((format!("{}: {text}", hook.display()), version_of(&hook)));
        }
    }
    let common = folder.join("commondir");
    if let Ok(text) = read_text(&common)
        && !(text.trim() == USUAL_COMMON
            && folder.parent().is_some_and(|it| it.ends_with("worktrees")))
    {
        let text_of = "it came, by which git takes hooks and configuration from elsewhere";
        told.insert((format!("{}: {text_of}", common.display()), text));
    }
}

/// Whether the files of a submodule are there: its folder of git's is in that of the repository
/// whose files they are among, and they lead to it.
fn is_tree_of(folder: &Path, tree: &Path) -> bool {
    let around = folder.ancestors().find(|it| it.ends_with(".git")).and_then(Path::parent);
    let is_own = |git: PathBuf| folder.canonicalize().is_ok_and(|folder| folder == git);
    let leads = || target_of(&tree.join(".git")).canonicalize().is_ok_and(is_own);
    let tree = tree.canonicalize();
    tree.is_ok_and(|tree| around.is_some_and(|around| tree.starts_with(around))) && leads()
}

/// The settings in a file of git's; says if that cannot be read.
fn settings_of(file: &Path, told: &mut Told) -> Vec<(String, String)> {
    let text = read_lossily(file).unwrap_or_else(|error| {
        // Git reads what is too long for us.
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            let text = "git may run what it says, and it cannot be read here";
            told.insert((format!("{}: {text}", file.display()), error.to_string()));
        }
        String::new()
    });
    git_settings::settings(&text)
}

/// Stands for the configurations by which git finds the hooks of these folders of git's.
pub(super) fn versions_of(folders: &[PathBuf], found: &Found) -> Vec<String> {
    let folders = folders.iter().chain(&found.repositories);
    let configs = folders.flat_map(|folder| configs_of(folder));
    configs.chain(users_configs()).map(|file| version_of(&file)).collect()
}

/// Stands for what is in a file, or in the one that a link leads to: no command can write it and
/// leave this as it is.
fn version_of(file: &Path) -> String {
    let link = fs::read_link(file).unwrap_or_default();
    let data = fs::metadata(file);
    let version = data.map(|it| (it.dev(), it.ino(), it.len(), it.ctime(), it.ctime_nsec()));
    format!("{} {version:?}", link.display())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_searched_any_more_is_news() {
        let now = |unlisted| Before::of(&[], &Found { unlisted, ..Found::default() }, &[]);
        let told = now(vec!["/w/a".into()]).since(&now(Vec::new()));
        assert!(told.len() == 1 && told[0].starts_with("/w/a: "), "{told:?}");
    }

    #[test]
    fn a_configuration_that_cannot_be_read_any_more_is_news() {
        let scratch = tempfile::tempdir().unwrap();
        let (config, folders) = (scratch.path().join("config"), [scratch.path().to_owned()]);
        fs::write(&config, "[core]\nbare = false\n").unwrap();
        let now = || Before::of(&folders, &Found::default(), &[]);
        let before = now();
        assert_eq!(now().since(&before), [""; 0]);
        fs::write(&config, b"[core]\n; \xff\nhooksPath = x\n[user]\nname = \xe9\n").unwrap();
        let told = now().since(&before);
        assert!(told.len() == 1 && told[0].contains("core.hookspath"), "{told:?}");
        fs::write(&config, " ".repeat(2 << 20) + "\n[core]\nhooksPath = x\n").unwrap();
        assert_eq!(now().since(&before).len(), 1);
    }
}
