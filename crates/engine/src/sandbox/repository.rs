//! The repository that a workspace belongs to: its hooks are guarded, its folders may be written.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use legwork_warden::sandbox::{Guard, Guarded};

use super::places::guarded;

/// Keys of a repository's configuration that make git run a program, or read another configuration.
const DANGEROUS: [&str; 16] = [
    "core.hookspath",
    "core.fsmonitor",
    "core.sshcommand",
    "core.pager",
    "core.editor",
    "core.askpass",
    "core.gitproxy",
    "core.worktree",
    "credential.helper",
    "include.path",
    "gpg.program",
    "sequence.editor",
    "uploadpack.packobjectshook",
    "diff.external",
    "protocol.allow",
    "interactive.difffilter",
];

/// The same for keys of named sections: the section, and how the key ends.
const DANGEROUS_NAMED: [(&str, &str); 14] = [
    ("filter.", ".clean"),
    ("filter.", ".smudge"),
    ("filter.", ".process"),
    ("diff.", ".textconv"),
    ("diff.", ".command"),
    ("merge.", ".driver"),
    ("mergetool.", ".cmd"),
    ("difftool.", ".cmd"),
    ("credential.", ".helper"),
    ("includeif.", ".path"),
    ("remote.", ".uploadpack"),
    ("remote.", ".receivepack"),
    ("gpg.", ".program"),
    ("pager.", ""),
];

/// Where git keeps what belongs to a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The folder of this working tree.
    own: PathBuf,
    /// The folder of the whole repository; often the same.
    common: PathBuf,
}

impl Repository {
    /// The repository around a workspace: in it, above it, or the one that it is a worktree of.
    pub(crate) fn around(workspace: &Path) -> Option<Self> {
        for folder in workspace.ancestors() {
            let named = folder.join(".git");
            let Ok(data) = fs::symlink_metadata(&named) else { continue };
            if data.is_dir() && is_repository(&named) {
                return Some(Self { own: named.clone(), common: named });
            }
            if data.is_file() {
                return Self::linked(&named);
            }
        }
        // None yet: what would be its place is known all the same.
        let place = workspace.join(".git");
        Some(Self { own: place.clone(), common: place })
    }

    /// The repository that a file `.git` names. The file is only believed if the repository names it in turn:
    /// otherwise a file in the workspace could open any folder for writing.
    fn linked(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let named = PathBuf::from(text.strip_prefix("gitdir:")?.trim());
        let own = file.parent()?.join(named).canonicalize().ok()?;
        let back = fs::read_to_string(own.join("gitdir")).ok()?;
        if Path::new(back.trim()).canonicalize().ok()? != file.canonicalize().ok()? {
            return None;
        }
        let common = fs::read_to_string(own.join("commondir")).ok()?;
        let common = own.join(common.trim()).canonicalize().ok()?;
        (is_repository(&common) && own.starts_with(common.join("worktrees")))
            .then_some(Self { own, common })
    }

    /// The folders that have to be written for git to work.
    pub(super) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        [self.own.clone(), self.common.clone()].into_iter()
    }

    /// What of it is guarded.
    pub(super) fn guards(&self, operator: bool) -> Vec<Guarded> {
        let mut guards = vec![
            guarded(self.common.clone(), Guard::InPlace),
            guarded(self.common.join("hooks"), Guard::ReadOnlyFolder),
        ];
        if !operator {
            let files = [self.common.join("config"), self.own.join("config.worktree")];
            guards.extend(files.map(|file| guarded(file, Guard::ReadOnly)));
        }
        guards
    }
}

/// How a repository was before a command: what it is configured to run, and whether it was there.
#[derive(Debug)]
pub(crate) struct RepositoryWatch {
    config: PathBuf,
    hooks: PathBuf,
    /// Device, number, size and time of its configuration.
    stamp: Option<(u64, u64, u64, i64, i64)>,
    keys: BTreeSet<String>,
}

impl RepositoryWatch {
    pub(super) fn begin(repository: &Repository) -> Self {
        let config = repository.common.join("config");
        let text = fs::read_to_string(&config).unwrap_or_default();
        Self {
            stamp: stamp(&config),
            keys: dangerous_keys(&text),
            hooks: repository.common.join("hooks"),
            config,
        }
    }

    /// What has come to it since then that makes git run something.
    pub(crate) fn news(&self) -> Vec<String> {
        let now = stamp(&self.config);
        if now == self.stamp {
            return Vec::new();
        }
        let text = fs::read_to_string(&self.config).unwrap_or_default();
        let keys = dangerous_keys(&text);
        let place = self.config.display();
        let mut news: Vec<String> = keys
            .difference(&self.keys)
            .map(|key| format!("{place}: `{key}` was set, by which git runs other programs"))
            .collect();
        if self.stamp.is_none() {
            // A new repository: its hooks could not be guarded while it was made.
            news.extend(
                hooks(&self.hooks)
                    .map(|hook| format!("{}: a hook came with the new repository", hook.display())),
            );
        }
        news
    }
}

/// The hooks that git would run.
fn hooks(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_none_or(|end| end != "sample"))
}

fn stamp(file: &Path) -> Option<(u64, u64, u64, i64, i64)> {
    let data = fs::metadata(file).ok()?;
    Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
}

fn is_repository(folder: &Path) -> bool {
    folder.join("HEAD").exists() && folder.join("objects").is_dir()
}

/// The keys in a configuration by which git runs programs or reads other configurations.
fn dangerous_keys(config: &str) -> BTreeSet<String> {
    let mut section = String::new();
    let mut found = BTreeSet::new();
    for line in config.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            section = match header.split_once(char::is_whitespace) {
                Some((name, rest)) => {
                    format!("{}.{}", name.to_lowercase(), rest.trim().trim_matches('"'))
                }
                None => header.to_lowercase(),
            };
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let full = format!("{section}.{}", key.trim().to_lowercase());
        let is_alias = section == "alias" && value.trim().trim_matches('"').starts_with('!');
        let named = |(start, end): &(&str, &str)| full.starts_with(start) && full.ends_with(end);
        if is_alias || DANGEROUS.contains(&full.as_str()) || DANGEROUS_NAMED.iter().any(named) {
            found.insert(full);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_run_programs_are_found_and_others_are_not() {
        let config = "[core]\n\tbare = false\n\thooksPath = /tmp/x\n[remote \"origin\"]\n\turl = /r\n\
                      \tfetch = +refs/heads/*\n[branch \"main\"]\n\tremote = origin\n[alias]\n\tst = status\n\
                      \tx = !sh -c evil\n[filter \"lfs\"]\n\tclean = git-lfs clean\n[user]\n\tname = me\n\
                      [includeIf \"gitdir:/x/\"]\n\tpath = other\n[pager]\n\tlog = less\n";
        let found: Vec<String> = dangerous_keys(config).into_iter().collect();
        assert_eq!(
            found,
            [
                "alias.x",
                "core.hookspath",
                "filter.lfs.clean",
                "includeif.gitdir:/x/.path",
                "pager.log"
            ]
        );
    }

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
        assert_eq!(Repository::around(&tree), None);
        fs::write(own.join("gitdir"), format!("{}\n", tree.join(".git").display())).unwrap();
        assert_eq!(Repository::around(&tree), Some(Repository { own, common: main }));
    }
}
