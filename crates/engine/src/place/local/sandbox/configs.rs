//! What git's configurations say, those of repositories and the user's, with the files that they
//! include, and where the hooks are that they name.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    io, mem,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    git_settings::{self, is_include},
    places::{everywhere, expanded},
    repository::{common_of, target_of},
};
use crate::plain_file::read_bytes;

/// Most files that are read of one configuration, with those that it includes.
const FILES_MAX: usize = 128;

/// The user's configurations, and this machine's.
const USERS: [&str; 4] =
    ["~/.gitconfig", "~/.config/git/config", "$GIT_CONFIG_GLOBAL", "/etc/gitconfig"];

/// Keys and values of what is not known to be harmless.
type Settings = Arc<[(String, OsString)]>;

/// What a configuration says that is not known to be harmless.
#[derive(Debug, Default)]
pub(super) struct Configs {
    /// Each file with what it says.
    pub settings: Vec<(PathBuf, Settings)>,
    /// Files that are there and cannot be read, with the reason.
    pub unread: Vec<(PathBuf, String)>,
}

impl Configs {
    /// The values of a key.
    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a OsStr> {
        let all = self.settings.iter().flat_map(|(_, settings)| settings.iter());
        all.filter(move |(known, _)| known == key).map(|(_, value)| value.as_os_str())
    }
}

/// Reads configurations. A text that the look before this one came across is not parsed again.
#[derive(Debug, Default)]
pub(super) struct ConfigReader {
    known: HashMap<Vec<u8>, Settings>,
    earlier: HashMap<Vec<u8>, Settings>,
    users: Configs,
    /// The folders that hold the files of a repository, by the folder of git's.
    trees: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl ConfigReader {
    /// Begins a look at repositories whose files are also where these files and links `.git` are.
    pub(super) fn begin(&mut self, pointers: &[PathBuf]) {
        self.earlier = mem::take(&mut self.known);
        self.users = self.read(USERS.iter().flat_map(|file| everywhere(Path::new(file))).collect());
        self.trees.clear();
        for pointer in pointers {
            let (Some(top), Ok(own)) = (pointer.parent(), target_of(pointer).canonicalize()) else {
                continue;
            };
            for git in common_of(&own).into_iter().chain([own]) {
                self.trees.entry(git).or_default().push(top.to_owned());
            }
        }
    }

    /// The user's configurations.
    pub(super) fn users(&self) -> &Configs {
        &self.users
    }

    /// The configurations in a folder of git's.
    pub(super) fn of(&mut self, folder: &Path) -> Configs {
        self.read(["config", "config.worktree"].map(|name| folder.join(name)).into())
    }

    /// The folders where these configurations of a repository, or the user's, say that its hooks
    /// are. A relative path counts from wherever git may run one: the top of each working tree, or
    /// the folder of git's.
    pub(super) fn hooks(&self, folder: &Path, own: &Configs) -> BTreeSet<PathBuf> {
        let trees = self.trees.get(folder).into_iter().flatten().cloned();
        let named = own.values("core.worktree").map(|tree| folder.join(expanded(Path::new(tree))));
        self.hooks_in(folder, own, trees.chain(named))
    }

    /// Those of them that are there and are guarded, by the paths without links, since git runs
    /// what is there. Of working trees that are elsewhere only the kept ones count: others come and
    /// go, and commands have to remove them.
    pub(super) fn hooks_to_guard(&mut self, folder: &Path, kept: &[PathBuf]) -> BTreeSet<PathBuf> {
        let own = self.of(folder);
        let trees = self.trees.get(folder).into_iter().flatten();
        let all = self.hooks_in(folder, &own, trees.filter(|it| kept.contains(it)).cloned());
        let all = all.into_iter().filter_map(|path| path.canonicalize().ok());
        // Nothing could be written into a repository that is in a folder of its hooks.
        all.filter(|path| path.is_dir() && !folder.starts_with(path)).collect()
    }

    fn hooks_in(
        &self,
        folder: &Path,
        own: &Configs,
        trees: impl Iterator<Item = PathBuf>,
    ) -> BTreeSet<PathBuf> {
        let main = folder.parent().filter(|_| folder.ends_with(".git"));
        let tops: Vec<PathBuf> =
            main.into_iter().chain([folder]).map(Path::to_owned).chain(trees).collect();
        let named = own.values("core.hookspath").chain(self.users.values("core.hookspath"));
        let named: BTreeSet<PathBuf> = named.map(|path| expanded(Path::new(path))).collect();
        named.iter().flat_map(|path| tops.iter().map(move |top| top.join(path))).collect()
    }

    fn read(&mut self, mut files: Vec<PathBuf>) -> Configs {
        let mut configs = Configs::default();
        let mut place = 0;
        while let Some(file) = files.get(place).filter(|_| place < FILES_MAX).cloned() {
            place += 1;
            let settings = match read_bytes(&file) {
                Ok(text) => self.parsed(text),
                Err(error) => {
                    // Git reads what is too long for us.
                    if !is_absent(&error) {
                        configs.unread.push((file, error.to_string()));
                    }
                    continue;
                }
            };
            for (_, value) in settings.iter().filter(|(key, _)| is_include(key)) {
                let folder = file.parent().unwrap_or(Path::new("/"));
                let included = folder.join(expanded(Path::new(value)));
                if !files.contains(&included) {
                    files.push(included);
                }
            }
            configs.settings.push((file, settings));
        }
        configs
    }

    fn parsed(&mut self, text: Vec<u8>) -> Settings {
        if let Some(known) = self.known.get(&text) {
            return known.clone();
        }
        let earlier = self.earlier.remove(&text);
        let settings = earlier.unwrap_or_else(|| {
            let mut settings = git_settings::settings(&text);
            settings.retain(|(key, value)| !git_settings::is_harmless(key, value));
            settings.into()
        });
        self.known.entry(text).or_insert(settings).clone()
    }
}

/// True if an error says that there is no such file.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
