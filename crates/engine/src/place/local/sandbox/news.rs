//! Warns when a command has created files that others run or trust, such as git hooks.
//!
//! Not everything can be guarded. An operator may configure a repository, a new one has to get its
//! files, and what does not exist yet cannot be kept as it is. So what git would run, and what is
//! missing of what is guarded, is listed before a command and after it.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::{
    configs::{ConfigReader, Configs, is_absent},
    finder::Found,
    git_settings,
    places::{expanded, show_bytes},
    repository::{Repository, common_of, target_of, without_end},
};
use crate::plain_file::read_bytes;

/// What a linked worktree says of where the repository is.
const USUAL_COMMON: &str = "../..";

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
    pub(super) fn of(
        folders: &[PathBuf],
        found: &Found,
        guarded: &[PathBuf],
        reader: &mut ConfigReader,
    ) -> Self {
        let absent = guarded.iter().filter(|path| !path.exists()).cloned().collect();
        Self { told: look(folders, found, reader), absent }
    }

    /// What has come since an earlier look.
    pub(super) fn since(&self, before: &Self) -> Vec<String> {
        let news = self.told.difference(&before.told).map(|(text, _)| text.clone());
        let came = before.absent.iter().filter(|path| fs::symlink_metadata(path).is_ok());
        let came =
            came.map(|path| format!("{}: it came, and others run or trust it", show_bytes(path)));
        news.chain(came).collect::<BTreeSet<String>>().into_iter().collect()
    }
}

fn look(folders: &[PathBuf], found: &Found, reader: &mut ConfigReader) -> Told {
    let mut told = Told::new();
    let known: BTreeSet<PathBuf> = folders.iter().chain(&found.repositories).cloned().collect();
    let mut all = known.clone();
    for pointer in &found.pointers {
        all.extend(look_at_pointer(pointer, found, &mut told));
    }
    // Whoever may write what that names writes what git runs.
    let commons: Vec<PathBuf> =
        all.iter().filter_map(|folder| look_at_common(folder, &known, &mut told)).collect();
    all.extend(commons);
    reader.begin(&found.pointers);
    tell_settings(reader.users(), |_| false, &mut told);
    let mut hooks = BTreeSet::new();
    for folder in &all {
        let own = reader.of(folder);
        hooks.insert(folder.join("hooks"));
        hooks.extend(reader.hooks(folder, &own));
        tell_settings(&own, |tree| is_tree_of(folder, &folder.join(tree)), &mut told);
    }
    for hook in hooks.iter().flat_map(|folder| hooks_in(folder)) {
        let text = "a hook came or was changed, which git runs";
        told.insert((format!("{}: {text}", show_bytes(&hook)), version_of(&hook)));
    }
    for folder in &found.unlisted {
        let text = "it can be entered and not listed, so repositories in it are not found";
        told.insert((format!("{}: {text}", show_bytes(folder)), String::new()));
    }
    for file in &found.trusted {
        let text = "it came or was changed, and tools run what it says";
        told.insert((format!("{}: {text}", show_bytes(file)), version_of(file)));
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
        let text = format!("{}: {text} {}", show_bytes(pointer), show_bytes(&path));
        told.insert((text, version_of(pointer)));
    }
    leads_to.into_iter().collect()
}

/// Looks whether a folder of git's takes hooks and configuration from another one, and returns
/// that. A linked working tree of a repository that is looked at anyway is not of interest.
fn look_at_common(folder: &Path, known: &BTreeSet<PathBuf>, told: &mut Told) -> Option<PathBuf> {
    let file = folder.join("commondir");
    let text = match read_bytes(&file) {
        Err(error) if is_absent(&error) => return None,
        Err(error) => error.to_string().into_bytes(),
        Ok(text) => text,
    };
    let common = common_of(folder);
    let is_tree = without_end(&text) == USUAL_COMMON.as_bytes()
        && folder.parent().is_some_and(|it| it.ends_with("worktrees"))
        && common.as_ref().is_some_and(|common| known.contains(common));
    if !is_tree {
        let text_of = "it came, by which git takes hooks and configuration from elsewhere";
        told.insert((
            format!("{}: {text_of}", show_bytes(&file)),
            show_bytes(OsStr::from_bytes(&text)),
        ));
    }
    common
}

/// Tells what configurations set; `is_own_tree` says of which `core.worktree` nothing is told.
fn tell_settings(configs: &Configs, is_own_tree: impl Fn(&Path) -> bool, told: &mut Told) {
    for (file, why) in &configs.unread {
        let text = "git may run what it says, and it cannot be read here";
        told.insert((format!("{}: {text}", show_bytes(file)), why.clone()));
    }
    for (file, settings) in &configs.settings {
        for (key, value) in settings.iter() {
            if key != "core.worktree" || !is_own_tree(&expanded(Path::new(value))) {
                let effect = git_settings::effect(key, value);
                let text = format!("{}: `{key}` was set, {effect}", show_bytes(file));
                told.insert((text, show_bytes(value)));
            }
        }
    }
}

/// Whether the files of a submodule are there: its folder of git's is in that of the repository
/// whose files they are among, or of a linked working tree of that, and they lead to it.
fn is_tree_of(folder: &Path, tree: &Path) -> bool {
    let main = |git: &Path| git.parent().filter(|_| git.ends_with(".git")).map(Path::to_owned);
    let around = |git: &Path| main(git).or_else(|| Repository::tree_at(git));
    let Ok(tree) = tree.canonicalize() else { return false };
    folder.ancestors().skip(1).find_map(around).is_some_and(|around| tree.starts_with(around))
        && target_of(&tree.join(".git")).canonicalize().ok() == folder.canonicalize().ok()
}

/// Stands for what is in a file, or in the one that a link leads to: no command can write it and
/// leave this as it is.
fn version_of(file: &Path) -> String {
    let link = fs::read_link(file).unwrap_or_default();
    let data = fs::metadata(file);
    let version = data.map(|it| (it.dev(), it.ino(), it.len(), it.ctime(), it.ctime_nsec()));
    format!("{} {version:?}", show_bytes(link))
}

fn hooks_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let is_sample = |name: &OsStr| name.as_bytes().ends_with(b".sample");
    entries.filter(|it| !is_sample(&it.file_name())).map(|it| it.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_searched_any_more_is_news() {
        let now = |unlisted| {
            let found = Found { unlisted, ..Found::default() };
            Before::of(&[], &found, &[], &mut ConfigReader::default())
        };
        let told = now(vec!["/w/a".into()]).since(&now(Vec::new()));
        assert!(told.len() == 1 && told[0].starts_with("/w/a: "), "{told:?}");
    }

    #[test]
    fn a_linked_working_tree_with_another_common_folder_is_news_though_it_is_named_alike() {
        let scratch = tempfile::tempdir().unwrap();
        let main = scratch.path().canonicalize().unwrap().join(".git");
        let own = main.join("worktrees/x");
        let alike = main.join("worktrees/.. ");
        for folder in [&own, &alike] {
            fs::create_dir_all(folder).unwrap();
        }
        let found = Found { repositories: vec![main, own.clone(), alike], ..Found::default() };
        let now = || Before::of(&[], &found, &[], &mut ConfigReader::default());
        let before = now();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        assert_eq!(now().since(&before), [""; 0]);
        for other in ["../.. \n", "../../..", "../x"] {
            fs::write(own.join("commondir"), other).unwrap();
            let told = now().since(&before);
            assert!(told.len() == 1 && told[0].contains("commondir"), "{other}: {told:?}");
        }
    }

    #[test]
    fn hooks_are_told_wherever_they_are_though_a_name_is_no_text() {
        let scratch = tempfile::tempdir().unwrap();
        let folders = [scratch.path().to_owned()];
        let named = |name: &[u8]| scratch.path().join(OsStr::from_bytes(name));
        fs::create_dir(named(b"h\xff")).unwrap();
        fs::write(scratch.path().join("config"), b"[include]\npath = \xff\n").unwrap();
        fs::write(named(b"\xff"), b"[core]\nhooksPath = h\xff\n").unwrap();
        let mut reader = ConfigReader::default();
        let mut now = || Before::of(&folders, &Found::default(), &[], &mut reader);
        let before = now();
        fs::write(named(b"h\xff/a\xfe"), "").unwrap();
        fs::write(named(b"h\xff/a\xff"), "").unwrap();
        let told = now().since(&before);
        assert!(told.len() == 2 && told[0].contains(r"h\xff/a\xfe: a hook"), "{told:?}");
    }

    #[test]
    fn a_configuration_that_cannot_be_read_any_more_is_news() {
        let scratch = tempfile::tempdir().unwrap();
        let (config, folders) = (scratch.path().join("config"), [scratch.path().to_owned()]);
        fs::write(&config, "[core]\nbare = false\n").unwrap();
        let mut reader = ConfigReader::default();
        let mut now = || Before::of(&folders, &Found::default(), &[], &mut reader);
        let before = now();
        assert_eq!(now().since(&before), [""; 0]);
        fs::write(&config, b"[core]\n; \xff\nhooksPath = x\n[user]\nname = \xe9\n").unwrap();
        let told = now().since(&before);
        assert!(told.len() == 1 && told[0].contains("core.hookspath"), "{told:?}");
        fs::write(&config, " ".repeat(2 << 20) + "\n[core]\nhooksPath = x\n").unwrap();
        assert_eq!(now().since(&before).len(), 1);
    }
}
