//! The repository that a workspace belongs to: its hooks are guarded, its folders may be written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use legwork_warden::sandbox::{GuardKind, Guarded};

use super::{
    news::hooks_paths,
    places::{expanded, guarded},
};
use crate::plain_file::read_text;

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
    /// The repository around a workspace: in it, above it, or the one that it is a worktree of.
    pub(crate) fn around(workspace: &Path) -> Self {
        let place = workspace.join(".git");
        let mut named_by = None;
        for folder in workspace.ancestors() {
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
    fn linked(file: &Path) -> Option<Self> {
        let text = read_text(file).ok()?;
        let named = PathBuf::from(text.strip_prefix("gitdir:")?.trim());
        let own = file.parent()?.join(named).canonicalize().ok()?;
        let back = read_text(&own.join("gitdir")).ok()?;
        if Path::new(back.trim()).canonicalize().ok()? != file.canonicalize().ok()? {
            return None;
        }
        let common = read_text(&own.join("commondir")).ok()?;
        let common = own.join(common.trim()).canonicalize().ok()?;
        (is_repository(&common) && own.starts_with(common.join("worktrees"))).then(|| Self {
            own,
            common,
            named_by: Some(file.to_owned()),
        })
    }

    /// The folders that have to be written for git to work.
    pub(super) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        [self.own.clone(), self.common.clone()].into_iter()
    }

    /// What of it is guarded.
    pub(super) fn guards(&self, operator: bool) -> Vec<Guarded> {
        let mut guards = vec![
            guarded(self.common.clone(), GuardKind::InPlace),
            guarded(self.common.join("hooks"), GuardKind::ReadOnlyFolder),
        ];
        let mut files = Vec::new();
        if let Some(file) = &self.named_by {
            // By these three git finds the rest.
            files.extend([file.clone(), self.own.join("commondir"), self.own.join("gitdir")]);
        }
        if !operator {
            files.extend([self.common.join("config"), self.own.join("config.worktree")]);
        }
        for module in modules(&self.common) {
            guards.push(guarded(module.join("hooks"), GuardKind::ReadOnlyFolder));
            files.extend((!operator).then(|| module.join("config")));
        }
        let hooks = self.other_hooks().into_iter().filter(|folder| folder.is_dir());
        guards.extend(hooks.map(|folder| guarded(folder, GuardKind::ReadOnlyFolder)));
        guards.extend(files.into_iter().map(|file| guarded(file, GuardKind::ReadOnly)));
        guards
    }

    /// Where its configuration, or the user's, says that hooks are instead.
    fn other_hooks(&self) -> Vec<PathBuf> {
        let users = ["~/.gitconfig", "~/.config/git/config"].map(|file| expanded(Path::new(file)));
        let own = [self.common.join("config"), self.own.join("config.worktree")];
        let top = self.named_by.as_deref().unwrap_or(&self.common).parent();
        let files = own.iter().chain(&users).filter_map(|file| read_text(file).ok());
        let named: Vec<String> = files.flat_map(|text| hooks_paths(&text)).collect();
        let place = |named: String| {
            let path = top.unwrap_or(Path::new("/")).join(expanded(Path::new(&named)));
            // A link is what it leads to: that is what git runs.
            path.canonicalize().ok()
        };
        named.into_iter().filter_map(place).collect()
    }
}

/// The repositories of submodules, and of theirs. Their names may have slashes in them.
pub(super) fn modules(repository: &Path) -> Vec<PathBuf> {
    /// Enough for every honest repository; a tree that was made to be endless is left.
    const LOOKED_AT_MAX: usize = 4096;
    let mut found = Vec::new();
    let mut waiting = vec![repository.join("modules")];
    let mut looked_at = 0;
    while let Some(folder) = waiting.pop().filter(|_| looked_at < LOOKED_AT_MAX) {
        looked_at += 1;
        for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if is_repository(&path) {
                waiting.push(path.join("modules"));
                found.push(path);
            } else {
                waiting.push(path);
            }
        }
    }
    found
}

fn is_repository(folder: &Path) -> bool {
    folder.join("HEAD").exists() && folder.join("objects").is_dir()
}

#[cfg(test)]
mod tests {
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
        fs::write(own.join("gitdir"), format!("{}\n", tree.join(".git").display())).unwrap();
        let named_by = Some(tree.join(".git"));
        assert_eq!(Repository::around(&tree), Repository { own, common: main, named_by });
    }
}
