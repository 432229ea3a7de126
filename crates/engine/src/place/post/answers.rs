//! The answers of a post: what it is asked about its machine, its wardens and what tasks have
//! stored.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_warden::{folder::EXIT, is_alive, record::RECORD_BYTES};
use tokio::sync::oneshot;

use super::{
    Post, begun,
    stream::{PostStreams, StreamEnd, StreamOrder},
};
use crate::{
    id::TaskId,
    output::{Artifact, TaskFolder},
    place::{
        Local, Look, Place,
        far::message::{
            FarSandbox, FarSeen, FarWanted, JobSaid, Leftovers, LookAt, PostQuestion, ReadyWarden,
            SeenAs, StoredFile, StoredStream, StoredTask, pack,
        },
        jobs::folder::{Begun, begun_in, failed_in, mark_taken},
        local::hash,
    },
    state::aside::remove_all,
    threads::in_thread,
};

/// Most bytes of one answer.
const PIECE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Finds the answer to a question.
pub(super) async fn to(
    post: &Arc<Post>,
    streams: &PostStreams,
    question: PostQuestion,
) -> io::Result<Vec<u8>> {
    let place = &post.place;
    match question {
        PostQuestion::Survey { folder, programs, paths } => {
            on_disk(post, move |post| pack(&survey(&post.place, &folder, programs, paths))).await
        }
        PostQuestion::Look(wanted) => {
            on_disk(post, move |post| pack(&look(&post.place, wanted))).await
        }
        PostQuestion::Ready { stream, wanted } => {
            pack(&ready(post, streams, stream, wanted).await?)
        }
        PostQuestion::Start(starting) => {
            let (sender, started) = oneshot::channel();
            streams.order(starting.stream, StreamOrder::Start(starting, sender));
            pack(&started.await.unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into()))?)
        }
        PostQuestion::Warnings { stream } => {
            let (sender, warnings) = oneshot::channel();
            streams.order(stream, StreamOrder::Warnings(sender));
            pack(&warnings.await.unwrap_or_default())
        }
        PostQuestion::Dial { stream, warden } => {
            let channel = place.dial(&named(post, warden)).await?;
            streams.open(post, stream, StreamEnd::Dialed(channel));
            pack(&())
        }
        PostQuestion::IsAlive(warden) => pack(&place.is_alive(&named(post, warden))?),
        PostQuestion::EndLeftBy(warden) => {
            on_disk(post, move |post| pack(&post.place.end_left_by(&warden))).await
        }
        PostQuestion::RefusedWrites { wanted, paths } => {
            pack(&place.refused_writes(wanted.into(), paths).await)
        }
        PostQuestion::AsSeen { wanted, path } => pack(&place.as_seen(wanted.into(), path).await),
        PostQuestion::Appears(path) => {
            place.appears(&path).await;
            pack(&())
        }
        PostQuestion::Exists(path) => pack(&place.exists(&path)),
        PostQuestion::Processes(pids) => {
            on_disk(post, move |post| pack(&post.place.processes(&pids))).await
        }
        PostQuestion::Job => on_disk(post, |post| pack(&job(post)?)).await,
        PostQuestion::Stored(task) => {
            on_disk(post, move |post| pack(&stored(&post.state.task(&parsed(&task)?))?)).await
        }
        PostQuestion::Read { task, file, offset, length } => {
            let read = move |post: &Post| {
                pack(&read(&post.state.task(&parsed(&task)?), file, offset, length)?)
            };
            on_disk(post, read).await
        }
        PostQuestion::Hash => on_disk(post, |_| pack(&hash()?)).await,
        PostQuestion::Leftovers => on_disk(post, |post| pack(&leftovers(post))).await,
    }
}

/// The name of a warden: the one of a job is known to the folder of that alone.
fn named(post: &Post, warden: String) -> String {
    match begun_in(post.state.path()) {
        Some(Begun::Started { warden, .. }) => warden,
        _ => warden,
    }
}

/// What the job says of itself whose folder this post works in.
fn job(post: &Post) -> io::Result<JobSaid> {
    let folder = post.state.path();
    let said = JobSaid { begun: begun_in(folder), failed: failed_in(folder) };
    if said.failed.is_some() || matches!(said.begun, Some(Begun::Refused(_))) {
        mark_taken(folder)?;
    }
    Ok(said)
}

/// Does something that waits for the disk.
async fn on_disk(
    post: &Arc<Post>,
    work: impl FnOnce(&Post) -> io::Result<Vec<u8>> + Send + 'static,
) -> io::Result<Vec<u8>> {
    let post = post.clone();
    let done = in_thread(move || work(&post)).await;
    done.unwrap_or_else(|| Err(io::Error::other("it was cut off")))
}

/// A warden that is ready, on a stream of its own.
async fn ready(
    post: &Arc<Post>,
    streams: &PostStreams,
    stream: u64,
    wanted: FarWanted,
) -> io::Result<ReadyWarden> {
    let wanted = wanted.into();
    let ready = post.place.ready(wanted).await;
    let (warden, sandbox) = ready.map_err(|error| io::Error::other(error.to_string()))?;
    let name = warden.name.clone();
    streams.open(post, stream, StreamEnd::Warden(warden, wanted));
    let sandbox = sandbox.map(|sandbox| FarSandbox {
        enforcement: sandbox.enforcement.clone(),
        variables: sandbox
            .variables
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.to_str()?.to_owned())))
            .collect(),
        mark: sandbox.mark,
    });
    Ok(ReadyWarden { name, sandbox })
}

/// Looks at a folder, at programs as commands in it find them, and at some paths.
fn survey(place: &Local, folder: &Path, programs: Vec<String>, paths: Vec<PathBuf>) -> FarSeen {
    let mut seen = look(place, vec![LookAt::Folder(folder.to_owned())]);
    if let Ok(real) = place.open_folder(folder) {
        let programs = programs.into_iter();
        let program = |name| LookAt::Program { name, folder: real.path.clone() };
        seen.extend(look(place, programs.map(program).collect()));
        seen.extend(look(place, vec![LookAt::Folder(real.path.clone())]));
    }
    let all =
        paths.into_iter().flat_map(|path| [LookAt::Exists(path.clone()), LookAt::Folder(path)]);
    seen.extend(look(place, all.collect()));
    seen
}

/// Looks at things, and at what will be asked about them next.
fn look(place: &Local, wanted: Vec<LookAt>) -> FarSeen {
    let mut seen = FarSeen::new();
    for at in wanted {
        let what = see(place, &at);
        let mut paths = Vec::new();
        if let SeenAs::Program(Ok(found)) = &what {
            paths.extend([Some(found.clone()), found.parent().map(PathBuf::from)]);
        }
        seen.push((at, what));
        for path in paths.into_iter().flatten() {
            let real = place.real_program(&path);
            if let Some(real) = &real {
                let planted = SeenAs::Yes(place.can_be_planted(real));
                seen.push((LookAt::Planted(real.clone()), planted));
                seen.push((LookAt::Real(real.clone()), see(place, &LookAt::Real(real.clone()))));
            }
            seen.push((LookAt::Real(path), SeenAs::Real(real)));
        }
    }
    seen
}

fn see(place: &Local, at: &LookAt) -> SeenAs {
    match at {
        LookAt::Program { name, folder } => {
            let found = place.find_program(OsStr::new(name), folder);
            SeenAs::Program(found.map_err(Into::into))
        }
        LookAt::Real(path) => SeenAs::Real(place.real_program(path)),
        LookAt::Planted(path) => SeenAs::Yes(place.can_be_planted(path)),
        LookAt::Exists(path) => SeenAs::Yes(place.exists(path)),
        LookAt::Folder(path) => {
            let opened = place.open_folder(path).map(|folder| folder.path);
            let errno = |error: io::Error| error.raw_os_error();
            let unknown = rustix::io::Errno::IO.raw_os_error();
            SeenAs::Folder(opened.map_err(|error| errno(error).unwrap_or(unknown)))
        }
    }
}

/// What a task has stored.
pub(in crate::place) fn stored(folder: &TaskFolder) -> io::Result<StoredTask> {
    if !folder.path().is_dir() {
        return Ok(StoredTask::default());
    }
    let read_exit = || match fs::read(folder.path().join(EXIT)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    };
    // The record before the streams: an end that comes meanwhile is seen by the next look. What is
    // noted of gaps after them: none is there that is not noted.
    let mut exit = read_exit()?;
    let output = folder.open()?;
    if let Some(gaps) = read_exit()?.get(RECORD_BYTES..) {
        exit.resize(RECORD_BYTES, 0);
        exit.extend_from_slice(gaps);
    }
    let stream = |artifact: &Artifact| StoredStream {
        bytes: artifact.bytes(),
        gap: artifact.gap().map(|gap| (gap.from, gap.to)),
    };
    Ok(StoredTask {
        is_there: true,
        is_terminal: output.is_terminal(),
        stdout: stream(&output.stdout),
        stderr: stream(&output.stderr),
        timeline_bytes: output.timeline().bytes(),
        exit,
        note: folder.note().unwrap_or_default(),
    })
}

/// A piece of what a task has stored.
pub(in crate::place) fn read(
    folder: &TaskFolder,
    file: StoredFile,
    offset: u64,
    length: u64,
) -> io::Result<Vec<u8>> {
    let output = folder.open()?;
    let length = length.min(PIECE_BYTES_MAX);
    match file {
        StoredFile::Stdout | StoredFile::Terminal => output.stdout.read(offset, length),
        StoredFile::Stderr => output.stderr.read(offset, length),
        StoredFile::Timeline => output.timeline().read(offset, length),
    }
}

/// Forgets a task.
pub(super) fn forget(post: &Post, task: &str) {
    let Ok(id) = parsed(task) else { return };
    // What cannot be removed now is removed when it is old.
    let _ = remove_all(post.state.task(&id).path());
    begun::unmark(post.state.path(), &id);
}

fn leftovers(post: &Post) -> Leftovers {
    let names = |folder: &str| {
        let entries = fs::read_dir(post.state.path().join(folder)).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
    };
    let lives = |name: &String| {
        let warden = name.strip_suffix(".sock");
        warden.is_some_and(|warden| is_alive(&post.state.wardens, warden).unwrap_or(false))
    };
    let wardens = names("wardens").filter(lives).count() as u64;
    Leftovers { wardens, tasks: names("tasks").count() as u64 }
}

fn parsed(task: &str) -> io::Result<TaskId> {
    TaskId::parse(task).ok_or_else(|| io::Error::other("that is no task"))
}
