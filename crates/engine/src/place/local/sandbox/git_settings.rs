//! Git's settings: which of a configuration make git run programs, read other files, or send data
//! elsewhere.
//!
//! Git has hundreds, and gets new ones. So those are listed that are known to be harmless, and all
//! others are told.

use std::{
    ffi::{OsStr, OsString},
    iter::{Copied, Peekable},
    os::unix::ffi::{OsStrExt, OsStringExt},
    slice::Iter,
};

use super::places::show_bytes;

/// Settings that are harmless with any value. A `*` stands for anything, also for nothing.
const HARMLESS: [&str; 248] = [
    "advice.*",
    "am.keepcr",
    "am.threeway",
    "apply.*",
    "author.*",
    "blame.*",
    "branch.*.description",
    "branch.*.gh-merge-base",
    "branch.*.github-pr-owner-number",
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.vscode-merge-base",
    "branch.autosetupmerge",
    "branch.autosetuprebase",
    "branch.sort",
    "checkout.*",
    "clean.requireforce",
    "clone.*",
    "color.*",
    "column.*",
    "commit.cleanup",
    "commit.gpgsign",
    "commit.status",
    "commit.verbose",
    "commitgraph.*",
    "committer.*",
    "core.abbrev",
    "core.autocrlf",
    "core.bare",
    "core.bigfilethreshold",
    "core.checkroundtripencoding",
    "core.checkstat",
    "core.commentchar",
    "core.commentstring",
    "core.commitgraph",
    "core.compression",
    "core.deltabasecachelimit",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.fscache",
    "core.fsync",
    "core.fsyncmethod",
    "core.fsyncobjectfiles",
    "core.hidedotfiles",
    "core.ignorecase",
    "core.ignorestat",
    "core.logallrefupdates",
    "core.longpaths",
    "core.loosecompression",
    "core.maxtreedepth",
    "core.multipackindex",
    "core.notesref",
    "core.packedgitlimit",
    "core.packedgitwindowsize",
    "core.packedrefstimeout",
    "core.precomposeunicode",
    "core.prefersymlinkrefs",
    "core.preloadindex",
    "core.protecthfs",
    "core.protectntfs",
    "core.quotepath",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sharedrepository",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.splitindex",
    "core.symlinks",
    "core.trustctime",
    "core.untrackedcache",
    "core.usereplacerefs",
    "core.warnambiguousrefs",
    "core.whitespace",
    "credential.*.username",
    "credential.usehttppath",
    "credential.username",
    "diff.*.binary",
    "diff.*.cachetextconv",
    "diff.*.wordregex",
    "diff.*.xfuncname",
    "diff.algorithm",
    "diff.autorefreshindex",
    "diff.colormoved",
    "diff.colormovedws",
    "diff.context",
    "diff.dirstat",
    "diff.ignoresubmodules",
    "diff.indentheuristic",
    "diff.interhunkcontext",
    "diff.mnemonicprefix",
    "diff.noprefix",
    "diff.relative",
    "diff.renamelimit",
    "diff.renames",
    "diff.statgraphwidth",
    "diff.statnamewidth",
    "diff.submodule",
    "diff.suppressblankempty",
    "diff.wordregex",
    "diff.wserrorhighlight",
    "difftool.prompt",
    "extensions.compatobjectformat",
    "extensions.noop",
    "extensions.objectformat",
    "extensions.partialclone",
    "extensions.preciousobjects",
    "extensions.refstorage",
    "extensions.relativeworktrees",
    "extensions.worktreeconfig",
    "feature.experimental",
    "feature.manyfiles",
    "fetch.all",
    "fetch.fsckobjects",
    "fetch.negotiationalgorithm",
    "fetch.output",
    "fetch.parallel",
    "fetch.prune",
    "fetch.prunetags",
    "fetch.recursesubmodules",
    "fetch.showforcedupdates",
    "fetch.unpacklimit",
    "fetch.writecommitgraph",
    "gc.aggressivedepth",
    "gc.aggressivewindow",
    "gc.auto",
    "gc.autodetach",
    "gc.autopacklimit",
    "gc.bigpackthreshold",
    "gc.cruftpacks",
    "gc.logexpiry",
    "gc.maxcruftsize",
    "gc.packrefs",
    "gc.pruneexpire",
    "gc.reflogexpire",
    "gc.reflogexpireunreachable",
    "gc.rerereresolved",
    "gc.rerereunresolved",
    "gc.worktreepruneexpire",
    "gc.writecommitgraph",
    "gitflow.branch.*",
    "gitflow.prefix.*",
    "gitflow.version",
    "gpg.format",
    "grep.*",
    "gui.geometry",
    "gui.wmstate",
    "help.format",
    "http.lowspeedlimit",
    "http.lowspeedtime",
    "http.maxrequests",
    "http.postbuffer",
    "http.version",
    "i18n.*",
    "index.*",
    "init.defaultbranch",
    "lfs.*.access",
    "lfs.*.locksverify",
    "lfs.concurrenttransfers",
    "lfs.locksverify",
    "lfs.repositoryformatversion",
    "log.*",
    "maintenance.*",
    "merge.*.name",
    "merge.*.recursive",
    "merge.autoedit",
    "merge.autostash",
    "merge.branchdesc",
    "merge.conflictstyle",
    "merge.directoryrenames",
    "merge.ff",
    "merge.log",
    "merge.renamelimit",
    "merge.renames",
    "merge.renormalize",
    "merge.stat",
    "merge.suppressdest",
    "mergetool.hideresolved",
    "mergetool.keepbackup",
    "mergetool.prompt",
    "mergetool.writetotemp",
    "notes.*",
    "pack.*",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "push.followtags",
    "push.gpgsign",
    "push.negotiate",
    "push.recursesubmodules",
    "push.useforceifincludes",
    "rebase.abbreviatecommands",
    "rebase.autosquash",
    "rebase.autostash",
    "rebase.backend",
    "rebase.forkpoint",
    "rebase.maxlabellength",
    "rebase.missingcommitscheck",
    "rebase.rebasemerges",
    "rebase.reschedulefailedexec",
    "rebase.stat",
    "rebase.updaterefs",
    "receive.autogc",
    "receive.denycurrentbranch",
    "receive.denydeletes",
    "receive.denynonfastforwards",
    "receive.fsckobjects",
    "receive.unpacklimit",
    "remote.*.fetch",
    "remote.*.followremotehead",
    "remote.*.gh-resolved",
    "remote.*.mirror",
    "remote.*.partialclonefilter",
    "remote.*.promisor",
    "remote.*.prune",
    "remote.*.prunetags",
    "remote.*.skipdefaultupdate",
    "remote.*.skipfetchall",
    "remote.*.tagopt",
    "repack.*",
    "rerere.*",
    "reset.*",
    "showbranch.*",
    "stash.*",
    "status.*",
    "submodule.*.active",
    "submodule.*.branch",
    "submodule.*.fetchrecursesubmodules",
    "submodule.*.ignore",
    "submodule.*.shallow",
    "submodule.*.update",
    "submodule.active",
    "submodule.fetchjobs",
    "submodule.propagatebranches",
    "submodule.recurse",
    "tag.forcesignannotated",
    "tag.gpgsign",
    "tag.sort",
    "transfer.fsckobjects",
    "transfer.hiderefs",
    "transfer.unpacklimit",
    "user.email",
    "user.name",
    "user.signingkey",
    "user.useconfigonly",
    "versionsort.*",
    "worktree.*",
];

/// Settings that are addresses: harmless, unless they name a program that helps git connect
/// (`ext::sh -c …`).
const ADDRESSES: [&str; 2] = ["remote.*.url", "submodule.*.url"];

/// Settings that name an address that is set elsewhere, and are harmless unless they are one.
const REMOTES: [&str; 3] = ["branch.*.remote", "branch.*.pushremote", "remote.pushdefault"];

/// True if git neither runs a program nor reads another file by this setting.
pub(super) fn is_harmless(key: &str, value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    // An update of a submodule may be a command, and so may others be.
    if value.starts_with(['!', '|']) {
        return false;
    }
    if ADDRESSES.iter().any(|pattern| matches(pattern, key)) {
        return !value.contains("::") && !value.starts_with('-');
    }
    if REMOTES.iter().any(|pattern| matches(pattern, key)) {
        let is_named = |it: char| it.is_alphanumeric() || ['.', '-', '_'].contains(&it);
        return value.chars().all(is_named) && !value.starts_with('-');
    }
    HARMLESS.iter().any(|pattern| matches(pattern, key))
}

/// The danger of a setting that is not harmless.
pub(super) fn effect(key: &str, value: &OsStr) -> &'static str {
    let value = value.to_string_lossy();
    let is_plain = !value.contains("::") && !value.starts_with('-');
    if matches("remote.*.pushurl", key) && is_plain {
        "by which git sends data to another address"
    } else {
        "by which git may run other programs"
    }
}

/// True if its value is another configuration.
pub(super) fn is_include(key: &str) -> bool {
    key == "include.path" || matches("includeif.*.path", key)
}

fn matches(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((start, end)) => {
            key.len() >= start.len() + end.len() && key.starts_with(start) && key.ends_with(end)
        }
    }
}

/// The settings in a configuration, with their values, as git reads them, which knows bytes only.
/// What git would not take for one is left out: it may be a part of a secret, in a file that is no
/// configuration.
pub(super) fn settings(config: &[u8]) -> Vec<(String, OsString)> {
    let config = config.strip_prefix(b"\xef\xbb\xbf").unwrap_or(config);
    let lines: Vec<&[u8]> = config.split(|byte| *byte == b'\n').collect();
    let lines: Vec<&[u8]> =
        lines.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    let config = lines.join(&b'\n');
    let mut rest: Rest<'_> = config.iter().copied().peekable();
    let (mut section, mut found) = (Vec::new(), Vec::new());
    while let Some(byte) = rest.next() {
        match byte {
            b'#' | b';' => skip_line(&mut rest),
            // A key may stand in the line of its section's name.
            b'[' => section = section_of(&mut rest),
            _ if is_blank(byte) => {}
            _ => {
                let mut key = vec![byte];
                while let Some(more) = rest.next_if(|it| it.is_ascii_alphanumeric() || *it == b'-')
                {
                    key.push(more);
                }
                while rest.next_if(|it| *it != b'\n' && is_blank(*it)).is_some() {}
                let has_value = rest.next_if_eq(&b'=').is_some();
                let value = if has_value { value_of(&mut rest) } else { "true".into() };
                if !section.is_empty() && byte.is_ascii_alphabetic() {
                    let name = [&*section, b".", &key.to_ascii_lowercase()].concat();
                    found.push((show_bytes(OsStr::from_bytes(&name)), value));
                }
            }
        }
    }
    found
}

/// The rest of a configuration.
type Rest<'a> = Peekable<Copied<Iter<'a, u8>>>;

/// What git takes for a blank.
fn is_blank(byte: u8) -> bool {
    [b' ', b'\t', b'\r', b'\n'].contains(&byte)
}

fn skip_line(rest: &mut Rest<'_>) {
    while rest.next_if(|it| *it != b'\n').is_some() {}
}

/// The section whose name begins here; git takes the part in quotes as it is written.
fn section_of(rest: &mut Rest<'_>) -> Vec<u8> {
    let mut name = Vec::new();
    while let Some(byte) = rest.next_if(|it| *it != b'\n') {
        match byte {
            b']' => break,
            b'"' => {
                while let Some(part) = rest.next_if(|it| ![b'"', b'\n'].contains(it)) {
                    let escaped = if part == b'\\' { rest.next() } else { None };
                    name.push(escaped.unwrap_or(part));
                }
                rest.next_if_eq(&b'"');
            }
            _ if is_blank(byte) => name.push(b'.'),
            _ => name.push(byte.to_ascii_lowercase()),
        }
    }
    name
}

/// The value that begins here: without comments, and without quotes, blanks around it and ends of
/// lines that do not belong to it.
fn value_of(rest: &mut Rest<'_>) -> OsString {
    let (mut value, mut blanks, mut quoted) = (Vec::new(), Vec::new(), false);
    while let Some(byte) = rest.next_if(|it| *it != b'\n') {
        if !quoted && is_blank(byte) {
            blanks.push(byte);
            continue;
        }
        if !quoted && [b'#', b';'].contains(&byte) {
            skip_line(rest);
            break;
        }
        if !value.is_empty() {
            value.extend_from_slice(&blanks);
        }
        blanks.clear();
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => match rest.next() {
                Some(b'\n') | None => {}
                Some(b'n') => value.push(b'\n'),
                Some(b't') => value.push(b'\t'),
                Some(b'b') => value.push(8),
                Some(escaped) => value.push(escaped),
            },
            _ => value.push(byte),
        }
    }
    // What comes after it is nothing to git.
    value.truncate(value.iter().position(|byte| *byte == 0).unwrap_or(value.len()));
    OsString::from_vec(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(config: &str) -> Vec<String> {
        let told =
            settings(config.as_bytes()).into_iter().filter(|(key, value)| !is_harmless(key, value));
        let mut keys: Vec<_> = told.map(|(key, _)| key).collect();
        keys.sort();
        keys
    }

    #[test]
    fn what_is_not_known_to_be_harmless_is_told() {
        // What clone, submodule, worktree, lfs and gh set.
        let usual = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
             [remote \"origin\"]\n\turl = git@example.org:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
             [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n\
             [submodule \"part\"]\n\tactive = true\n\turl = ../part\n\
             [user]\n\tname = me\n\temail = me@example.org\n[init]\n\tdefaultBranch = main\n\
             [lfs \"https://example.org/x/info/lfs\"]\n\taccess = basic\n";
        assert_eq!(keys(usual), [""; 0]);
        let told = [
            "[gc]recentObjectsHook = x",
            "[sendemail]smtpServer = x",
            "[sendemail]headerCmd = x",
            "[instaweb]httpd = x",
            "[browser \"b\"]path = x",
            "[man \"m\"]path = x",
            "[imap]tunnel = x",
            "[guitool \"g\"]cmd = x",
            "[alias]st = -c core.pager=./evil -p log",
            "[remote \"origin\"]url = ext::sh -c evil",
            "[remote \"origin\"]pushurl = https://example.org",
            "[branch \"main\"]pushRemote = https://example.org/x",
            "[url \"https://example.org/\"]insteadOf = git@",
            "[init]templateDir = x",
            "[help]autocorrect = immediate",
            "[nobody]knows = this",
            "[rebase]instructionFormat = '%s%nexec ./evil'",
            "[pull]twohead = evil",
            "[branch \"main\"]mergeOptions = -s evil",
        ];
        for config in told {
            assert_eq!(keys(config).len(), 1, "{config}");
        }
    }

    #[test]
    fn a_file_that_is_no_configuration_is_not_quoted() {
        for text in ["db:5432:mine:me:secret", "machine x login me password secret", "[a]\n:secret"]
        {
            assert_eq!(keys(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn another_address_is_told_as_one() {
        let pushes = |value| effect("remote.o.pushurl", OsStr::new(value));
        assert!(pushes("https://example.org/x").contains("address"));
        assert!(pushes("ext::sh -c x").contains("programs"));
        assert_eq!(keys("[remote \"o\"]mirror = true\n[extensions]worktreeConfig = true"), [""; 0]);
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
                "alias.st",
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
        assert_eq!(keys("[filter \"a]\\\"b\"] clean = x"), ["filter.a]\"b.clean"]);
        assert_eq!(keys("[submodule \"a\"]\nupdate = !x"), ["submodule.a.update"]);
        assert_eq!(keys("[core"), [""; 0]);
        assert_eq!(keys("[remote \"o\"]\nurl = ext:\":\"sh -c x"), ["remote.o.url"]);
    }

    #[test]
    fn values_that_are_no_text_are_read_as_they_are() {
        let found = settings(b"[core]\nhooksPath = h\xff\n[alias \"\xfe\"]\ncommand = a\0b\n");
        let value = OsString::from_vec(b"h\xff".to_vec());
        assert_eq!(
            found,
            [("core.hookspath".into(), value), (r"alias.\xfe.command".into(), "a".into())]
        );
    }

    #[test]
    fn values_are_read_as_git_reads_them() {
        for (written, read) in [
            ("hk ; mine", "hk"),
            ("hk# mine", "hk"),
            ("  \"h\" \"k4\"  ", "h k4"),
            ("\" h;# \" ; x", " h;# "),
            (r#"a\\b\"c\td"#, "a\\b\"c\td"),
            ("a\\\nb", "ab"),
            ("", ""),
            ("x\u{a0}", "x\u{a0}"),
            ("x\u{c}", "x\u{c}"),
        ] {
            let config = format!("[core]\nhooksPath = {written}\nbare = true\n");
            let named = settings(config.as_bytes()).into_iter().next().unwrap();
            assert_eq!(named, ("core.hookspath".to_owned(), read.into()), "{written}");
            let scratch = tempfile::tempdir().unwrap();
            let file = scratch.path().join("config");
            std::fs::write(&file, &config).unwrap();
            let mut git = std::process::Command::new("git");
            git.args(["config", "--file"]).arg(&file).args(["--get", "core.hooksPath"]);
            let output = git.output().unwrap();
            assert_eq!(output.stdout, format!("{read}\n").as_bytes(), "{written}");
        }
    }
}
