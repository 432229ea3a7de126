//! Warns when a command has created files that others run or trust, such as git hooks.
//!
//! Not everything can be guarded. An operator may configure a repository, a new one has to get its
//! files, and what does not exist yet cannot be kept as it is. So what git would run, and what is
//! missing of what is guarded, is listed before a command and after it.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::repository::modules;
use crate::plain_file::read_text;

/// Keys of a repository's configuration that make git run a program, or read another configuration.
const DANGEROUS: [&str; 20] = [
    "core.hookspath",
    "core.fsmonitor",
    "core.sshcommand",
    "core.pager",
    "core.editor",
    "core.askpass",
    "core.gitproxy",
    "core.worktree",
    "core.alternaterefscommand",
    "credential.helper",
    "include.path",
    "gpg.program",
    "gpg.ssh.defaultkeycommand",
    "sequence.editor",
    "uploadpack.packobjectshook",
    "diff.external",
    "protocol.allow",
    "interactive.difffilter",
    "extensions.worktreeconfig",
    "sendemail.sendmailcmd",
];

/// The same for keys of named sections: the section, and how the key ends.
const DANGEROUS_NAMED: [(&str, &str); 24] = [
    ("filter.", ".clean"),
    ("filter.", ".smudge"),
    ("filter.", ".process"),
    ("diff.", ".textconv"),
    ("diff.", ".command"),
    ("merge.", ".driver"),
    ("mergetool.", ".cmd"),
    ("mergetool.", ".path"),
    ("difftool.", ".cmd"),
    ("difftool.", ".path"),
    ("credential.", ".helper"),
    ("includeif.", ".path"),
    ("remote.", ".uploadpack"),
    ("remote.", ".receivepack"),
    ("remote.", ".vcs"),
    ("gpg.", ".program"),
    ("hook.", ".command"),
    ("protocol.", ".allow"),
    ("trailer.", ".command"),
    ("trailer.", ".cmd"),
    ("tar.", ".command"),
    ("browser.", ".cmd"),
    ("man.", ".cmd"),
    ("pager.", ""),
];

/// What a linked worktree says of where the repository is.
const USUAL_COMMON: &str = "../..";

/// What is found in a repository: what is told of it, and the value that it had.
type Found = BTreeSet<(String, String)>;

/// How things were before a command.
#[derive(Debug)]
pub(super) struct Before {
    /// What was there by which git runs programs.
    found: Found,
    /// What was not there, and is guarded where it is.
    absent: Vec<PathBuf>,
}

impl Before {
    /// Looks at these folders of git's, and which of the guarded paths are missing.
    pub(super) fn of(folders: &[PathBuf], guarded: &[PathBuf]) -> Self {
        let absent = guarded.iter().filter(|path| !path.exists()).cloned().collect();
        Self { found: look(folders), absent }
    }
}

/// What has come since then.
pub(super) fn warnings(folders: &[PathBuf], before: &Before) -> Vec<String> {
    let now = look(folders);
    let news = now.difference(&before.found).map(|(text, _)| text.clone());
    let came = before.absent.iter().filter(|path| fs::symlink_metadata(path).is_ok());
    let came = came.map(|path| format!("{}: it came, and others run or trust it", path.display()));
    news.chain(came).collect::<BTreeSet<String>>().into_iter().collect()
}

fn look(folders: &[PathBuf]) -> Found {
    let modules = folders.iter().flat_map(|folder| modules(folder));
    let worktrees = folders.iter().flat_map(|folder| entries(&folder.join("worktrees")));
    let all: BTreeSet<PathBuf> = folders.iter().cloned().chain(modules).chain(worktrees).collect();
    all.iter().flat_map(|folder| look_at(folder)).collect()
}

fn look_at(folder: &Path) -> Found {
    let mut found = Found::new();
    for file in ["config", "config.worktree"].map(|name| folder.join(name)) {
        let place = file.display();
        let text = read_text(&file).unwrap_or_else(|error| {
            // Git reads what is too long for us.
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                let text = format!("{place}: git may run what it says, and it cannot be read here");
                found.insert((text, error.to_string()));
            }
            String::new()
        });
        found.extend(dangerous_keys(&text).into_iter().map(|(key, value)| {
            (format!("{place}: `{key}` was set, by which git runs other programs"), value)
        }));
    }
    for hook in entries(&folder.join("hooks")) {
        if hook.extension().is_none_or(|end| end != "sample") {
            found.insert((
                format!("{}: a hook came, which git runs", hook.display()),
                String::new(),
            ));
        }
    }
    let common = folder.join("commondir");
    if let Ok(text) = read_text(&common)
        && !(text.trim() == USUAL_COMMON
            && folder.parent().is_some_and(|it| it.ends_with("worktrees")))
    {
        let text_of = "it came, by which git takes hooks and configuration from elsewhere";
        found.insert((format!("{}: {text_of}", common.display()), text));
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The keys in a configuration by which git runs programs or reads other configurations, with their
/// values.
fn dangerous_keys(config: &str) -> Vec<(String, String)> {
    // A value may go on in the next line.
    let config = config.replace("\r\n", "\n").replace("\\\n", "");
    let mut section = String::new();
    let mut found = Vec::new();
    for line in config.lines().map(str::trim) {
        // A key may stand in the line of its section's name.
        let line = match section_of(line) {
            Some((name, rest)) => {
                section = name;
                rest.trim()
            }
            None => line,
        };
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let full = format!("{section}.{}", key.trim().to_lowercase());
        let value = value.trim();
        // An alias and an update of a submodule may be a command.
        let is_command = value.trim_matches('"').starts_with('!');
        let named = |(start, end): &(&str, &str)| full.starts_with(start) && full.ends_with(end);
        let is_dangerous = DANGEROUS.contains(&full.as_str()) || DANGEROUS_NAMED.iter().any(named);
        let is_key = !key.trim().is_empty() && !key.starts_with(['#', ';']);
        if is_key && (is_command || is_dangerous) {
            found.push((full, value.to_owned()));
        }
    }
    found
}

/// Where a configuration says that hooks are.
pub(super) fn hooks_paths(config: &str) -> Vec<String> {
    let keys = dangerous_keys(config).into_iter().filter(|(key, _)| key == "core.hookspath");
    keys.map(|(_, value)| value.trim_matches('"').to_owned()).collect()
}

/// The section that a line begins, and what stands behind its name.
fn section_of(line: &str) -> Option<(String, &str)> {
    let inner = line.strip_prefix('[')?;
    let (mut quoted, mut escaped) = (false, false);
    let end = inner.find(|character| {
        let closes = character == ']' && !quoted;
        if character == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = character == '\\' && !escaped;
        closes
    });
    let (header, rest) = inner.split_at_checked(end?)?;
    let name = match header.split_once(char::is_whitespace) {
        Some((name, rest)) => format!("{}.{}", name.to_lowercase(), rest.trim().trim_matches('"')),
        None => header.to_lowercase(),
    };
    Some((name, rest.strip_prefix(']').unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(config: &str) -> Vec<String> {
        let mut keys: Vec<_> = dangerous_keys(config).into_iter().map(|(key, _)| key).collect();
        keys.sort();
        keys
    }

    #[test]
    fn keys_that_run_programs_are_found_and_others_are_not() {
        let config = "[core]\n\tbare = false\n\thooksPath = /tmp/x\n[remote \"origin\"]\n\turl = /r\n\
                      \tfetch = +refs/heads/*\n[branch \"main\"]\n\tremote = origin\n[alias]\n\tst = status\n\
                      \tx = !sh -c evil\n[filter \"lfs\"]\n\tclean = git-lfs clean\n[user]\n\tname = me\n\
                      [includeIf \"gitdir:/x/\"]\n\tpath = other\n[pager]\n\tlog = less\n# [core] x\n";
        assert_eq!(
            keys(config),
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
    fn they_are_found_however_they_are_written() {
        assert_eq!(keys("[core] hooksPath = x"), ["core.hookspath"]);
        assert_eq!(keys("[CORE]HOOKSPATH=x\r\n"), ["core.hookspath"]);
        assert_eq!(keys("[alias]\n a = \\\n!sh"), ["alias.a"]);
        assert_eq!(keys("[alias \"a\"] command = \"!sh\""), ["alias.a.command"]);
        assert_eq!(keys("[filter \"a]\\\"b\"] clean = x"), ["filter.a]\\\"b.clean"]);
        assert_eq!(keys("[submodule \"a\"]\nupdate = !x"), ["submodule.a.update"]);
        assert_eq!(keys("[core"), [""; 0]);
    }

    #[test]
    fn a_configuration_that_cannot_be_read_any_more_is_news() {
        let scratch = tempfile::tempdir().unwrap();
        let (config, folders) = (scratch.path().join("config"), [scratch.path().to_owned()]);
        fs::write(&config, "[core]\nbare = false\n").unwrap();
        let before = Before::of(&folders, &[]);
        assert_eq!(warnings(&folders, &before), [""; 0]);
        fs::write(&config, " ".repeat(2 << 20) + "\n[core]\nhooksPath = x\n").unwrap();
        assert_eq!(warnings(&folders, &before).len(), 1);
    }
}
