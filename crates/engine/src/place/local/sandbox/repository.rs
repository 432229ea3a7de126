//! The repository that a workspace belongs to: its hooks are guarded, its folders may be written.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use legwork_warden::sandbox::{GuardKind, Guarded};

use super::places::guarded;
use crate::plain_file::read_bytes;

/// Folders that hold hooks of repositories besides their own, by the folders of git's.
pub(super) type Hooks = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// Where git keeps what belongs to a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The folder of this working tree.
    own: PathBuf,
    /// The folder of the whole repository; often the same.
    common: PathBuf,
    /// The file that names them, in a linked working tree.
    named_by: Option<PathBuf>,
}

impl Repository {
    /// The repository around a workspace, as git finds it: in it, above it, or the one that it is a
    /// worktree of.
    pub(crate) fn around(workspace: &Path) -> Self {
        Self::below(workspace, &git_ceilings())
    }

    /// The same, but for a repository at or above one of these folders.
    fn below(workspace: &Path, ceilings: &[PathBuf]) -> Self {
        let place = workspace.join(".git");
        let mut named_by = None;
        let is_open =
            |folder: &&Path| *folder == workspace || !ceilings.iter().any(|it| it == folder);
        for folder in workspace.ancestors().take_while(is_open) {
            let named = folder.join(".git");
            let Ok(data) = fs::metadata(&named) else { continue };
            // A link leads nowhere that would be opened for writing.
            let is_own = folder == workspace || !named.is_symlink();
            if data.is_dir() && is_own && is_repository(&named) {
                return Self { own: named.clone(), common: named, named_by: None };
            }
            if data.is_file() {
                if let Some(linked) = Self::linked(&named) {
                    return linked;
                }
                named_by = Some(named);
                break;
            }
        }
        // None yet, or none that is believed: what would be its place is known all the same.
        Self { own: place.clone(), common: place, named_by }
    }

    /// The repository that a file `.git` names. The file is only believed if the repository names
    /// it in turn: otherwise a file in the workspace could open any folder for writing.
    pub(super) fn linked(file: &Path) -> Option<Self> {
        let own = file.parent()?.join(named_in(file)?).canonicalize().ok()?;
        if Self::file_of(&own)? != file.canonicalize().ok()? {
            return None;
        }
        let common = common_of(&own)?;
        (is_repository(&common) && own.starts_with(common.join("worktrees"))).then(|| Self {
            own,
            common,
            named_by: Some(file.to_owned()),
        })
    }

    /// The folder of the files of a linked working tree, by its folder of git's.
    pub(super) fn tree_at(own: &Path) -> Option<PathBuf> {
        let linked = Self::linked(&Self::file_of(own)?).filter(|it| it.own == own)?;
        linked.named_by?.parent().map(Path::to_owned)
    }

    /// The file `.git` that a folder of git's names, by a path that may count from there.
    fn file_of(own: &Path) -> Option<PathBuf> {
        let named = read_bytes(&own.join("gitdir")).ok()?;
        own.join(path_of(named.trim_ascii())).canonicalize().ok()
    }

    /// The folders that have to be written for git to work.
    pub(super) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        [self.own.clone(), self.common.clone()].into_iter()
    }

    /// Whether this is the folder of the whole repository.
    pub(super) fn is_at(&self, folder: &Path) -> bool {
        self.common == folder
    }

    /// What of it is guarded, besides what is of every repository.
    pub(super) fn guards(&self, hooks: &Hooks, operator: bool) -> Vec<Guarded> {
        let mut guards = guards_of(&self.common, hooks, operator);
        let mut files = Vec::new();
        if let Some(file) = &self.named_by {
            // By these three git finds the rest.
            files.extend([file.clone(), self.own.join("commondir"), self.own.join("gitdir")]);
        }
        if !operator {
            files.push(self.own.join("config.worktree"));
        }
        guards.extend(files.into_iter().map(|file| guarded(file, GuardKind::ReadOnly)));
        guards
    }
}

/// Most folders that are looked through for a repository.
const FOLDERS_MAX: usize = 20_000;

/// Whether a workspace is in a repository, or has one, or another of these folders has one. What
/// cannot be looked through may have one.
pub(crate) fn has_repository(workspace: &Path, others: &[String]) -> bool {
    // Configured folders need not be there. One whose name was no text is not known any more.
    let is_there = |path: &&Path| path.exists() || path.to_string_lossy().contains('\u{fffd}');
    let others = others.iter().map(Path::new).filter(is_there);
    let mut folders: Vec<PathBuf> = others.chain([workspace]).map(Path::to_owned).collect();
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        looked += 1;
        let Ok(entries) = fs::read_dir(&folder) else { return true };
        if looked > FOLDERS_MAX || is_git_folder(has_entry(&folder)) {
            return true;
        }
        for entry in entries.flatten() {
            if entry.file_name() == ".git" {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    let ceilings = git_ceilings();
    let is_open = |folder: &&Path| !ceilings.iter().any(|it| it == folder);
    workspace.ancestors().take_while(is_open).any(|folder| folder.join(".git").exists())
}

/// Whether git takes a folder with such entries for a repository, or for that of a working tree.
pub(super) fn is_git_folder(has: impl Fn(&'static str) -> bool) -> bool {
    has("HEAD") && ["objects", "commondir"].into_iter().any(has)
}

/// Whether a folder has an entry of a name: git also takes a link that leads nowhere for `HEAD`.
fn has_entry(folder: &Path) -> impl Fn(&'static str) -> bool {
    move |name| fs::symlink_metadata(folder.join(name)).is_ok()
}

/// The folders from which on git looks for no repository.
fn git_ceilings() -> Vec<PathBuf> {
    let set = env::var_os("GIT_CEILING_DIRECTORIES").unwrap_or_default();
    env::split_paths(&set).filter_map(|path| path.canonicalize().ok()).collect()
}

/// What is guarded of a repository, with the folders of hooks of its linked working trees.
pub(super) fn guards_of(folder: &Path, hooks: &Hooks, operator: bool) -> Vec<Guarded> {
    let mut guards = vec![
        guarded(folder.to_owned(), GuardKind::InPlace),
        guarded(folder.join("hooks"), GuardKind::ReadOnlyFolder),
    ];
    let own = hooks.range(folder.to_owned()..).take_while(|(it, _)| it.starts_with(folder));
    let own = own.flat_map(|(_, hooks)| hooks.iter().cloned());
    guards.extend(own.map(|folder| guarded(folder, GuardKind::ReadOnlyFolder)));
    if !operator {
        guards.push(guarded(folder.join("config"), GuardKind::ReadOnly));
    }
    guards
}

/// Whether hooks and a configuration belong into a folder of git's: a linked working tree has them
/// elsewhere.
pub(super) fn has_hooks(folder: &Path) -> bool {
    folder.join("objects").exists()
}

/// Where a file or link `.git` leads.
pub(super) fn target_of(pointer: &Path) -> PathBuf {
    let named = fs::read_link(pointer).ok().or_else(|| named_in(pointer)).unwrap_or_default();
    pointer.parent().unwrap_or(Path::new("/")).join(named)
}

/// The path that a file `.git` names.
fn named_in(file: &Path) -> Option<PathBuf> {
    let text = read_bytes(file).ok()?;
    let named = text.strip_prefix(b"gitdir:")?;
    Some(path_of(without_end(named.strip_prefix(b" ").unwrap_or(named))).to_owned())
}

/// The path that these bytes are to git.
fn path_of(bytes: &[u8]) -> &Path {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Path::new(OsStr::from_bytes(bytes.get(..end).unwrap_or_default()))
}

/// Whether a file or link `.git` leads to a folder that git takes for a repository.
pub(super) fn is_pointer(file: &Path) -> bool {
    is_git_folder(has_entry(&target_of(file)))
}

/// The folder from which a folder of git's takes hooks and configuration, if that is another one.
pub(super) fn common_of(folder: &Path) -> Option<PathBuf> {
    let named = read_bytes(&folder.join("commondir")).ok()?;
    folder.join(path_of(without_end(&named))).canonicalize().ok()
}

/// A line without its end, as git takes a path from a file: blanks belong to it.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let last = line.iter().rposition(|byte| !b"\n\r".contains(byte));
    last.and_then(|last| line.get(..=last)).unwrap_or_default()
}

fn is_repository(folder: &Path) -> bool {
    folder.join("HEAD").exists() && folder.join("objects").is_dir()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_names_a_folder_is_believed_only_if_the_folder_names_it() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (main, tree) = (base.join("main/.git"), base.join("tree"));
        let own = main.join("worktrees/tree");
        for folder in [&own, &main.join("objects"), &tree] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(main.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        let found = Repository::around(&tree);
        assert_eq!((found.common, found.named_by), (tree.join(".git"), Some(tree.join(".git"))));
        let named_by = Some(tree.join(".git"));
        for back in [tree.join(".git"), "../../../../tree/.git".into()] {
            fs::write(own.join("gitdir"), format!("{}\n", back.display())).unwrap();
            let (own, common, named_by) = (own.clone(), main.clone(), named_by.clone());
            assert_eq!(Repository::around(&tree), Repository { own, common, named_by });
        }
    }

    #[test]
    fn a_workspace_without_a_repository_has_nothing_to_compare() {
        let scratch = tempfile::tempdir().unwrap();
        let workspace = scratch.path().join("ws");
        fs::create_dir_all(workspace.join("a/b")).unwrap();
        fs::create_dir(scratch.path().join("root")).unwrap();
        let others = ["root", "absent"].map(|it| scratch.path().join(it).display().to_string());
        let has_one = || has_repository(&workspace, &others);
        assert!(has_repository(&workspace, &["/x\u{fffd}".to_owned()]));
        assert!(!has_one());
        let bare = ["ws/a/bare.git/objects", "ws/a/bare.git/commondir"];
        for one in ["ws/a/b/.git", ".git", "root/x/.git"].into_iter().chain(bare) {
            fs::create_dir_all(scratch.path().join(one)).unwrap();
            // Git takes this for a branch without commits.
            symlink("refs/heads/main", workspace.join("a/bare.git/HEAD")).ok();
            assert!(has_one(), "{one}");
            fs::remove_dir_all(scratch.path().join(one)).unwrap();
        }
    }

    #[test]
    fn a_repository_at_or_above_a_ceiling_is_not_found() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let (git, workspace) = (top.join(".git"), top.join("a/b"));
        fs::create_dir_all(git.join("objects")).unwrap();
        fs::create_dir_all(git.join("refs")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir_all(&workspace).unwrap();
        assert!(Repository::below(&workspace, &[]).is_at(&git));
        assert!(
            Repository::below(&top, std::slice::from_ref(&top)).is_at(&git),
            "it is no ceiling for itself"
        );
        for ceiling in [top.clone(), top.join("a")] {
            assert!(!Repository::below(&workspace, &[ceiling]).is_at(&git));
        }
    }
}
