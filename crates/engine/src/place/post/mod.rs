//! A post: the process that works for an engine at another place, over its stdin and stdout.
//!
//! It has a [`Local`] of its own, with a state folder that only posts use. It judges nothing and
//! records nothing: it answers questions about its machine, has wardens forked and passes their
//! frames on. When its engine leaves it ends; wardens with a command stay, and are dialed through
//! the next post.

pub(in crate::place) mod answers;
mod begun;
mod job;
mod stream;

use std::{
    collections::{BTreeMap, HashMap},
    env, fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use legwork_gate::ProgramRule;
use legwork_warden::protocol::{self, Decoder, encode};
use tokio::{
    net::unix::pipe,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

pub use self::job::serve_job;
use self::stream::{PostStreams, StreamOrder};
use super::{
    Local, Place,
    far::{
        PING,
        message::{FromPost, Hello, Opening, PROGRAM_VERSION, PostQuestion, Problem, ToPost},
        outbox::Outbox,
        receive,
    },
    jobs::folder::is_forgotten,
};
use crate::{
    model::sandbox::SandboxSettings,
    state::{StateFolder, aside::remove_all},
    threads::begin_in_thread,
};

/// How long what was said last may take to be passed on when the engine has left.
const FAREWELL: Duration = Duration::from_secs(2);

/// The folder of posts, beside the usual state folder.
const FOLDER: &str = "legwork-post";

/// Why a post has ended that should not have.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PostError(#[from] io::Error);

/// Works for an engine that is at the other end of stdin and stdout, until it leaves. The state
/// folder is one of its own by default.
pub async fn serve(state: Option<PathBuf>) -> Result<(), PostError> {
    let input = own(&io::stdin())?;
    let mut input = pipe::Receiver::from_owned_fd_unchecked(nonblocking(input)?)?;
    let outbox = Outbox::new(own(&io::stdout())?)?;
    let mut decoder = Decoder::default();
    let ToPost::Open(opening) = receive(&mut input, &mut decoder).await? else {
        return Err(io::Error::other("nobody has said who asks").into());
    };
    let post = match Post::open(state, &opening, outbox.clone()) {
        Ok(post) => Arc::new(post),
        Err(reason) => {
            tell(&outbox, &FromPost::Unfit(reason));
            outbox.flushed().await;
            return Ok(());
        }
    };
    tell(&outbox, &FromPost::Hello(Box::new(post.hello(&opening))));
    post.tidy_up();
    let mut serving = Serving { post, asked: HashMap::new(), streams: PostStreams::default() };
    // Whoever cannot be understood is not listened to any longer: the same as if it had left.
    while let Ok(Ok(message)) = timeout(PING * 3, receive(&mut input, &mut decoder)).await {
        serving.hear(message);
    }
    serving.leave().await;
    Ok(())
}

fn own(stream: &impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

fn nonblocking(stream: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&stream, true)?;
    Ok(stream)
}

/// Says something to the engine; one that has left is noticed by whoever listens to it.
fn tell(outbox: &Outbox, message: &FromPost) {
    if let Ok(frame) = encode(message) {
        let _ = outbox.send(&frame);
    }
}

/// What a post works with.
#[derive(Debug)]
struct Post {
    place: Local,
    state: Arc<StateFolder>,
    outbox: Outbox,
}

impl Post {
    /// Opens the state folder; an error says why nothing can be done for this engine.
    fn open(state: Option<PathBuf>, opening: &Opening, outbox: Outbox) -> Result<Self, String> {
        let path = state.map_or_else(default_folder, Ok)?;
        let (place, state) = place_for(&path, opening)?;
        Ok(Self { place, state, outbox })
    }

    fn hello(&self, opening: &Opening) -> Hello {
        let workspace = opening.workspace.canonicalize();
        let shown = opening.workspace.display();
        let workspace = match workspace {
            Ok(path) if path.is_dir() => Ok(path),
            Ok(_) => Err(format!("{shown} is not a folder")),
            Err(error) => Err(format!("{shown}: {error}")),
        };
        let text = |pair: (std::ffi::OsString, std::ffi::OsString)| {
            Some((pair.0.into_string().ok()?, pair.1.into_string().ok()?))
        };
        Hello {
            version: PROGRAM_VERSION.to_owned(),
            protocol: protocol::version(),
            pid: std::process::id(),
            boot_id: self.place.boot_id().into_owned(),
            host: kernel_text("/proc/sys/kernel/hostname").trim().to_owned(),
            workspace,
            state: self.state.path().to_owned(),
            environment: env::vars_os().filter_map(text).collect::<BTreeMap<_, _>>(),
            processors: std::thread::available_parallelism().map_or(1, |it| it.get() as u64),
            memory_bytes: memory_bytes(),
        }
    }

    /// Removes what dead wardens and tasks that nobody asked for again have left.
    fn tidy_up(self: &Arc<Self>) {
        let post = self.clone();
        drop(begin_in_thread(move || {
            post.place.clear_dead(false);
            begun::clear_old(post.state.path());
        }));
    }
}

/// This machine, for an engine elsewhere; an error says why nothing can be done for it.
fn place_for(path: &Path, opening: &Opening) -> Result<(Local, Arc<StateFolder>), String> {
    if (opening.version.as_str(), opening.protocol) != (PROGRAM_VERSION, protocol::version()) {
        return Err(format!(
            "legwork {PROGRAM_VERSION} is there, and {} here: both have to be of one version",
            opening.version
        ));
    }
    let state = StateFolder::open(path).map_err(|error| error.to_string())?;
    if is_forgotten(path) {
        // Its task has ended while this post was being started.
        let _ = remove_all(path);
        return Err("the task is over and forgotten".into());
    }
    let state = Arc::new(state);
    let settings = SandboxSettings {
        writable: opening.sandbox.writable.clone(),
        unreadable: opening.sandbox.unreadable.clone(),
        deciding: opening.sandbox.deciding.clone(),
        ..SandboxSettings::default()
    };
    let rules: Vec<ProgramRule> = opening.rules.iter().cloned().map(Into::into).collect();
    let root = opening.workspace.canonicalize().unwrap_or_else(|_| opening.workspace.clone());
    let place = Local::for_engine(&opening.mark, state.clone(), settings, &[root], &rules);
    Ok((place, state))
}

/// The state folder of posts.
pub(crate) fn default_folder() -> Result<PathBuf, String> {
    let usual = StateFolder::default_path().map_err(|error| error.to_string())?;
    Ok(usual.with_file_name(FOLDER))
}

/// What the kernel says in one of its files.
fn kernel_text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The memory of this machine.
fn memory_bytes() -> u64 {
    let text = kernel_text("/proc/meminfo");
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|rest| rest.trim().strip_suffix("kB"));
    kilobytes.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A post that is at work.
struct Serving {
    post: Arc<Post>,
    /// Those that find an answer.
    asked: HashMap<u64, AbortHandle>,
    streams: PostStreams,
}

impl Serving {
    fn hear(&mut self, message: ToPost) {
        match message {
            ToPost::Ask { number, question } => self.answer(number, *question),
            ToPost::Withdraw { number } => {
                if let Some(asked) = self.asked.remove(&number) {
                    asked.abort();
                }
            }
            ToPost::Frames { stream, bytes } => {
                self.streams.order(stream, StreamOrder::Frames(bytes));
            }
            ToPost::Close { stream, is_reusable } => {
                self.streams.order(stream, StreamOrder::Close { is_reusable });
                self.streams.forget(stream);
            }
            ToPost::Forget { task } => answers::forget(&self.post, &task),
            // It is open, and heard.
            ToPost::Open(_) | ToPost::Ping => {}
        }
    }

    fn answer(&mut self, number: u64, question: PostQuestion) {
        let (post, streams) = (self.post.clone(), self.streams.clone());
        let answering = tokio::spawn(async move {
            let answer = answers::to(&post, &streams, question).await;
            let answer = answer.map_err(Problem::from);
            tell(&post.outbox, &FromPost::Answer { number, answer });
        });
        self.asked.retain(|_, asked| !asked.is_finished());
        self.asked.insert(number, answering.abort_handle());
    }

    /// The engine has left: what it said last is passed on, and nothing else.
    async fn leave(self) {
        for asked in self.asked.values() {
            asked.abort();
        }
        let _ = timeout(FAREWELL, self.streams.end()).await;
    }
}

/// Tasks that are waited for together.
type Driving = JoinSet<()>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
