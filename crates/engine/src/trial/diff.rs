//! The difference that a trial makes, as a unified diff: bounded, and with nothing in it that a
//! terminal would obey.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use legwork_gate::visible;
use rustix::fs::FileType;
use similar::TextDiff;

use super::{
    Trial,
    changes::{ChangeKind, ChangedFile, TriedChange, TriedChanges},
    tree::TreeTop,
};

/// How much of a difference is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiffLimits {
    /// Lines in all.
    pub lines_max: usize,
    /// Bytes in all.
    pub bytes_max: usize,
}

/// The longest file that is compared line by line.
const FILE_MAX: u64 = 512 * 1024;

/// How long that may take for one file.
const PATIENCE: Duration = Duration::from_millis(500);

/// Lines around a change.
const CONTEXT: usize = 3;

/// A unified diff of these changes.
pub(super) fn unified(trial: &Trial, changes: &TriedChanges, limits: DiffLimits) -> String {
    let mut text = String::new();
    let (mut lines, mut left_out) = (0, 0);
    for change in changes.listed_from(&trial.record.workspace) {
        if left_out > 0 {
            left_out += 1;
            continue;
        }
        let part = of_change(trial, change);
        let length = part.lines().count();
        if lines + length <= limits.lines_max && text.len() + part.len() <= limits.bytes_max {
            lines += length;
            text.push_str(&part);
            continue;
        }
        left_out = 1;
        for line in part.lines().take(limits.lines_max.saturating_sub(lines)) {
            if text.len() + line.len() < limits.bytes_max {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    if left_out > 0 {
        text.push_str(&format!("(cut here: {left_out} more files are not shown whole)\n"));
    }
    text
}

/// What is compared of a file.
enum Content {
    Absent,
    Text(String),
    Link(PathBuf),
    /// Something that is not shown, with a word for it.
    Other(String),
}

fn of_change(trial: &Trial, change: &TriedChange) -> String {
    let name = visible(&shown(trial, &change.path));
    let below_top = name.trim_start_matches('/');
    // A mode cannot be seen in the lines of a file.
    let detail = match change.detail() {
        detail if detail.is_empty() => detail,
        detail => format!("{name}: {detail}\n"),
    };
    if change.kind == ChangeKind::Touched {
        return detail;
    }
    let Some(layer) = trial.record.layers.iter().find(|layer| layer.number == change.layer) else {
        return String::new();
    };
    let path = change.path.strip_prefix(&layer.place).unwrap_or(Path::new(""));
    let before = match change.before {
        Some(_) => below(&layer.place, path),
        None => Content::Absent,
    };
    let after = match change.kind {
        ChangeKind::Removed => Content::Absent,
        _ => above(&trial.upper(layer), path),
    };
    let from = if matches!(before, Content::Absent) {
        "/dev/null".into()
    } else {
        format!("a/{below_top}")
    };
    let to = if matches!(after, Content::Absent) {
        "/dev/null".into()
    } else {
        format!("b/{below_top}")
    };
    let text = match (before, after) {
        (Content::Absent, Content::Absent) => String::new(),
        (Content::Text(old), after @ (Content::Text(_) | Content::Absent)) => {
            let new = if let Content::Text(new) = after { new } else { String::new() };
            lines(&old, &new, &from, &to)
        }
        (Content::Absent, Content::Text(new)) => lines("", &new, &from, &to),
        (before, after) => {
            format!("--- {from}\n+++ {to}\n{}{}", told('-', &before), told('+', &after))
        }
    };
    detail + &text
}

fn told(sign: char, content: &Content) -> String {
    match content {
        Content::Absent => String::new(),
        Content::Text(text) => format!("{sign}(text of {} bytes)\n", text.len()),
        Content::Link(target) => {
            format!("{sign}(link to {})\n", visible(&target.display().to_string()))
        }
        Content::Other(what) => format!("{sign}({what})\n"),
    }
}

fn lines(old: &str, new: &str, from: &str, to: &str) -> String {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let text = diff.unified_diff().context_radius(CONTEXT).header(from, to).to_string();
    if text.is_empty() {
        return format!("--- {from}\n+++ {to}\n(empty)\n");
    }
    let whole = |line: &str| line.split('\t').map(visible).collect::<Vec<_>>().join("\t");
    text.lines().map(|line| format!("{}\n", whole(line))).collect()
}

/// A file as the workspace has it now.
fn below(place: &Path, path: &Path) -> Content {
    let Ok(top) = TreeTop::open(place) else { return Content::Absent };
    let Ok(Some(stat)) = top.look(path) else { return Content::Absent };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match top.file(path) {
            Ok(mut file) => text_of(&mut file, u64::try_from(stat.st_size).unwrap_or(0)),
            Err(error) => Content::Other(error.to_string()),
        },
        FileType::Symlink => {
            let link = top
                .parent(path)
                .and_then(|(folder, name)| Ok(rustix::fs::readlinkat(folder, name, Vec::new())?));
            Content::Link(
                link.map_or_else(
                    |_| PathBuf::new(),
                    |link| link.to_string_lossy().into_owned().into(),
                ),
            )
        }
        FileType::Directory => Content::Other("folder".into()),
        _ => Content::Other("neither file nor folder".into()),
    }
}

/// A file as the trial left it.
fn above(upper: &Path, path: &Path) -> Content {
    let Ok(top) = TreeTop::open_own(upper) else { return Content::Absent };
    let Ok(Some(stat)) = top.own_stat(path) else { return Content::Absent };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Content::Link(top.own_link(path).unwrap_or_default().into()),
        FileType::Directory => Content::Other("folder".into()),
        FileType::RegularFile => match top.own(path) {
            Ok(mut file) => text_of(file.file(), u64::try_from(stat.st_size).unwrap_or(0)),
            Err(error) => Content::Other(error.to_string()),
        },
        _ => Content::Other("neither file nor folder".into()),
    }
}

fn text_of(file: &mut fs::File, length: u64) -> Content {
    if length > FILE_MAX {
        return Content::Other(format!("{length} bytes"));
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(FILE_MAX).read_to_end(&mut bytes) {
        return Content::Other(error.to_string());
    }
    if bytes.contains(&0) {
        return Content::Other(format!("binary, {length} bytes"));
    }
    Content::Text(String::from_utf8_lossy(&bytes).into_owned())
}

/// A path as a person knows it: from the workspace, where it is in there.
fn shown(trial: &Trial, path: &Path) -> String {
    path.strip_prefix(&trial.record.workspace).unwrap_or(path).display().to_string()
}

/// A list of changes, each with its sign, at most so many; what runs or is trusted is never cut.
pub(super) fn list(trial: &Trial, changes: &TriedChanges, lines_max: usize) -> String {
    let mut text = String::new();
    let mut listed = changes.listed_from(&trial.record.workspace);
    let kept = listed.iter().filter(|it| it.runs_or_is_trusted()).count();
    let cut = listed.split_off(listed.len().min(kept.max(lines_max)));
    for change in listed {
        let end = if change.file == ChangedFile::Folder { "/" } else { "" };
        let name = shown(trial, &change.path);
        let detail = match change.detail() {
            detail if detail.is_empty() => detail,
            detail => format!(" ({detail})"),
        };
        text.push_str(&format!("  {} {}{end}{detail}\n", change.kind.sign(), visible(&name)));
    }
    if !cut.is_empty() {
        text.push_str(&format!("  and {} more\n", cut.len()));
    }
    text
}

/// How many files are made, changed and removed, in words.
pub(super) fn counted(changes: &TriedChanges) -> String {
    let kinds = [
        (ChangeKind::Made, "made"),
        (ChangeKind::Changed, "changed"),
        (ChangeKind::Removed, "removed"),
        (ChangeKind::Touched, "touched (mode, owner or time only)"),
    ];
    let counts = kinds.map(|(kind, word)| (changes.count(kind), word));
    let said: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if said.is_empty() { "nothing changed".into() } else { said.join(", ") }
}
