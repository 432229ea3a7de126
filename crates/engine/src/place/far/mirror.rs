//! Brings what a task has stored at another place to this machine, where it is read like any other
//! output.
//!
//! Only what is missing is brought, by ranges. At no moment does the copy say something wrong: what
//! is known to be dropped is noted before what follows it, and the exit record comes last.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_warden::{
    folder::{EXIT, SPEC, Stream, TERMINAL, TIMELINE},
    record::RECORD_BYTES,
};

use super::{
    link::Link,
    message::{PostQuestion, StoredFile, StoredStream, StoredTask},
};
use crate::{
    id::TaskId, output::TaskFolder, place::post::answers, state::make_private, threads::in_thread,
};

/// Bytes that are brought at a time.
const PIECE_BYTES: u64 = 512 * 1024;

/// Where what a task has stored is read.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Through a post.
    Link(Arc<Link>),
    /// In a folder that is seen here, too.
    Folder(TaskFolder),
}

impl Source {
    async fn stored(&self, id: &TaskId) -> io::Result<StoredTask> {
        match self {
            Self::Link(link) => link.ask(PostQuestion::Stored(id.to_string())).await,
            Self::Folder(folder) => {
                let folder = folder.clone();
                on_disk(move || answers::stored(&folder)).await
            }
        }
    }

    async fn read(
        &self,
        id: &TaskId,
        file: StoredFile,
        offset: u64,
        length: u64,
    ) -> io::Result<Vec<u8>> {
        match self {
            Self::Link(link) => {
                let task = id.to_string();
                link.ask(PostQuestion::Read { task, file, offset, length }).await
            }
            Self::Folder(folder) => {
                let folder = folder.clone();
                on_disk(move || answers::read(&folder, file, offset, length)).await
            }
        }
    }
}

/// Brings what is missing of a task; says whether its exit record is here now, and so everything.
pub(super) async fn bring(source: Source, tasks: &Path, id: &TaskId) -> io::Result<bool> {
    let stored = source.stored(id).await?;
    if !stored.is_there {
        return Ok(false);
    }
    let folder = tasks.join(id.as_str());
    let copy = Copy { source, folder, id: id.clone() };
    let (path, exit, note) = (copy.folder.clone(), stored.exit.clone(), stored.note.clone());
    on_disk(move || {
        make_private(&path)?;
        if !note.is_empty() && !path.join(SPEC).exists() {
            open(&path.join(SPEC))?.write_all_at(&note, 0)?;
        }
        write_gaps(&path, &exit)
    })
    .await?;
    let first = if stored.is_terminal { StoredFile::Terminal } else { StoredFile::Stdout };
    copy.stream(first, stored.stdout).await?;
    copy.stream(StoredFile::Stderr, stored.stderr).await?;
    let timeline = StoredStream { bytes: stored.timeline_bytes, gap: None };
    copy.stream(StoredFile::Timeline, timeline).await?;
    let is_over = stored.exit.get(..RECORD_BYTES).is_some_and(|it| it.iter().any(|it| *it != 0));
    if is_over {
        let path = copy.folder.join(EXIT);
        on_disk(move || {
            let file = open(&path)?;
            file.write_all_at(&stored.exit, 0)?;
            file.sync_all()
        })
        .await?;
    }
    Ok(is_over)
}

/// A task's folder on this machine, and where it is brought from.
#[derive(Debug, Clone)]
struct Copy {
    source: Source,
    folder: PathBuf,
    id: TaskId,
}

impl Copy {
    /// Brings what is missing of a file.
    async fn stream(&self, file: StoredFile, stored: StoredStream) -> io::Result<()> {
        let path = self.folder.join(file_name(file));
        let here = path.clone();
        let mut at = on_disk(move || match here.metadata() {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        })
        .await?;
        while at < stored.bytes {
            if let Some((from, to)) = stored.gap.filter(|(from, to)| (*from..*to).contains(&at)) {
                debug_assert!(from <= at, "a gap begins before what is in it");
                at = to;
                continue;
            }
            let end = stored.gap.map(|(from, _)| from).filter(|from| *from > at);
            let length = end.unwrap_or(stored.bytes).min(stored.bytes) - at;
            let length = length.min(PIECE_BYTES);
            let piece = self.source.read(&self.id, file, at, length).await?;
            // What was dropped meanwhile is noted with the next look.
            if piece.is_empty() {
                break;
            }
            let (path, from) = (path.clone(), at);
            at += piece.len() as u64;
            on_disk(move || open(&path)?.write_all_at(&piece, from)).await?;
        }
        Ok(())
    }
}

/// Writes what is noted behind the exit record, and not that.
fn write_gaps(folder: &Path, exit: &[u8]) -> io::Result<()> {
    let Some(gaps) = exit.get(RECORD_BYTES..).filter(|gaps| !gaps.is_empty()) else {
        return Ok(());
    };
    let file = open(&folder.join(EXIT))?;
    file.write_all_at(gaps, RECORD_BYTES as u64)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn file_name(file: StoredFile) -> &'static str {
    match file {
        StoredFile::Stdout => Stream::Stdout.file_name(),
        StoredFile::Stderr => Stream::Stderr.file_name(),
        StoredFile::Terminal => TERMINAL,
        StoredFile::Timeline => TIMELINE,
    }
}

async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    in_thread(work).await.unwrap_or_else(|| Err(io::Error::other("it was cut off")))
}
