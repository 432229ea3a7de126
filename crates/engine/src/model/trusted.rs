//! Names of files by which tools run programs: those of agents and editors, of git, and of servers
//! that build.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde::Deserialize;

/// The list that comes with the program.
static SHIPPED: LazyLock<TrustedNames> = LazyLock::new(|| {
    let listed: Listed = serde_json::from_str(SHIPPED_TEXT).unwrap_or_default();
    TrustedNames::new(&listed.trusted)
});
const SHIPPED_TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/paths.json"));

/// Files in a folder of git's by which it runs programs.
const OF_GIT: [&str; 4] = ["config", "config.worktree", "commondir", "gitdir"];

/// What servers that build go by.
const OF_BUILDERS: [&str; 8] = [
    ".github/workflows",
    ".github/actions",
    ".circleci",
    ".buildkite",
    ".gitlab-ci.yml",
    "azure-pipelines.yml",
    "Jenkinsfile",
    ".travis.yml",
];

#[derive(Debug, Default, Deserialize)]
struct Listed {
    trusted: Vec<PathBuf>,
}

/// Names of files by which agents and editors run programs.
#[derive(Debug, Default)]
pub(crate) struct TrustedNames {
    /// By the last part of the name.
    files: HashMap<OsString, Vec<PathBuf>>,
    /// In these folders every file.
    folders: Vec<PathBuf>,
}

impl TrustedNames {
    pub(crate) fn shipped() -> &'static Self {
        &SHIPPED
    }

    fn new(names: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for name in names {
            match (name.parent(), name.file_name()) {
                (Some(folder), Some(last)) if last == "*" => all.folders.push(folder.to_owned()),
                (_, Some(last)) => all.files.entry(last.into()).or_default().push(name.clone()),
                _ => {}
            }
        }
        all
    }

    /// Whether every file in a folder is one.
    pub(crate) fn has_all_of(&self, folder: &Path) -> bool {
        self.folders.iter().any(|name| folder.ends_with(name))
    }

    /// Whether a file of this name is one in some folder.
    pub(crate) fn may_end_with(&self, name: &OsStr) -> bool {
        self.files.contains_key(name)
    }

    /// Whether a file in a folder is one by its name.
    pub(crate) fn has(&self, folder: &Path, name: &OsStr) -> bool {
        let named = self.files.get(name).into_iter().flatten();
        let mut above = named.map(|path| path.parent().unwrap_or(Path::new("")));
        above.any(|above| folder.ends_with(above))
    }
}

/// True if tools run programs by a file: by its path alone.
pub(crate) fn is_run_by_tools(path: &Path) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let names = TrustedNames::shipped();
    let is_hook = folder.ends_with("hooks");
    let is_of_git = folder.components().any(|part| part.as_os_str() == ".git")
        && OF_GIT.iter().any(|of_git| name == *of_git);
    let mut built_by = OF_BUILDERS.iter().map(Path::new);
    name == ".git"
        || is_hook
        || is_of_git
        || names.has(folder, name)
        || names.has_all_of(folder)
        || built_by.any(|it| path.ends_with(it) || folder.ends_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tools_run_programs_by_is_known_by_its_path() {
        assert!(TrustedNames::shipped().files.values().flatten().count() > 20);
        for path in [
            ".mcp.json",
            "a/.vscode/tasks.json",
            ".husky/pre-commit",
            "a/.git/hooks/pre-push",
            "x.git/hooks/update",
            ".git/modules/b/config",
            "a/.git",
            ".github/workflows/ci.yml",
            ".gitlab-ci.yml",
        ] {
            assert!(is_run_by_tools(&Path::new("/w").join(path)), "{path}");
        }
        for path in ["tasks.json", "src/config", ".git/index", ".github/README.md", "hooks"] {
            assert!(!is_run_by_tools(&Path::new("/w").join(path)), "{path}");
        }
    }
}
