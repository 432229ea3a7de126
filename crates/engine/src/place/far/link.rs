//! A connection to a post: questions with their answers, and streams of wardens' frames.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use legwork_warden::protocol::{Decoder, encode};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    message::{FromPost, Hello, Opening, PostQuestion, Problem, ToPost, unpack},
    outbox::Outbox,
    transport::{Started, TransportWords},
};

/// How long a place may take until its post says hello: a connection, and a login there.
const HELLO: Duration = Duration::from_secs(20);

/// How long a question may take that takes no time by itself.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// How often a post hears that its engine is still there: it ends when it has heard nothing for
/// three times as long.
pub(crate) const PING: Duration = Duration::from_secs(20);

/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;

/// A connection that stands.
#[derive(Debug)]
pub(super) struct Link {
    outbox: Outbox,
    shared: Arc<Mutex<Shared>>,
    next: AtomicU64,
    pub hello: Hello,
    /// What it goes through, which ends with it.
    _transport: TransportWords,
}

#[derive(Debug, Default)]
struct Shared {
    /// Why it stands no longer.
    lost: Option<String>,
    asked: HashMap<u64, oneshot::Sender<Result<Vec<u8>, Problem>>>,
    streams: HashMap<u64, mpsc::UnboundedSender<Vec<u8>>>,
}

/// The end of a stream on this side.
pub(super) struct LinkStream {
    pub number: u64,
    pub frames: mpsc::UnboundedReceiver<Vec<u8>>,
    link: Arc<Link>,
}

impl fmt::Debug for LinkStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LinkStream({})", self.number)
    }
}

impl LinkStream {
    /// Sends frames to the warden.
    pub(super) fn send(&self, bytes: Vec<u8>) -> io::Result<()> {
        self.link.tell(&ToPost::Frames { stream: self.number, bytes })
    }

    /// Whether the connection stands no longer.
    pub(super) fn is_lost(&self) -> bool {
        self.link.lost().is_some()
    }

    /// Says that nobody listens any more.
    pub(super) fn close(&self, is_reusable: bool) {
        self.link.lock().streams.remove(&self.number);
        let _ = self.link.tell(&ToPost::Close { stream: self.number, is_reusable });
    }
}

impl Link {
    /// Opens a connection over what a transport has started.
    pub(super) async fn open(started: Started, opening: Opening) -> io::Result<Arc<Self>> {
        let Started { input, mut output, complaints } = started;
        let outbox = Outbox::new(input)?;
        let frame = encode(&ToPost::Open(Box::new(opening))).map_err(io::Error::other)?;
        let mut decoder = Decoder::default();
        let hello = async {
            outbox.send(&frame)?;
            receive(&mut output, &mut decoder).await
        };
        let hello = match timeout(HELLO, hello).await {
            Ok(Ok(FromPost::Hello(hello))) => *hello,
            Ok(Ok(FromPost::Unfit(reason))) => return Err(io::Error::other(reason)),
            Ok(Ok(_)) => return Err(io::Error::other("the post did not say hello first")),
            Ok(Err(error)) => return Err(complaints.explain(&error).await),
            Err(_) => return Err(complaints.explain(&io::ErrorKind::TimedOut.into()).await),
        };
        let shared = Arc::new(Mutex::new(Shared::default()));
        tokio::spawn(listen(output, decoder, shared.clone(), outbox.clone()));
        tokio::spawn(ping(Arc::downgrade(&shared), outbox.clone()));
        let next = AtomicU64::new(1);
        Ok(Arc::new(Self { outbox, shared, next, hello, _transport: complaints }))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// Why the connection stands no longer; none while it does.
    pub(super) fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    fn tell(&self, message: &ToPost) -> io::Result<()> {
        self.outbox.send(&encode(message).map_err(io::Error::other)?)
    }

    /// Lets a task be forgotten. It is on its way when this returns.
    pub(super) fn forget(&self, task: &str) {
        let _ = self.tell(&ToPost::Forget { task: task.to_owned() });
    }

    /// A new stream, before the other side is told of it.
    pub(super) fn stream(self: &Arc<Self>) -> LinkStream {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, frames) = mpsc::unbounded_channel();
        let mut shared = self.lock();
        if shared.lost.is_none() {
            shared.streams.insert(number, sender);
        }
        drop(shared);
        LinkStream { number, frames, link: self.clone() }
    }

    /// Asks, and waits for the answer as long as such an answer may take.
    pub(super) async fn ask<T: DeserializeOwned>(&self, question: PostQuestion) -> io::Result<T> {
        self.ask_within(question, Some(ANSWER)).await
    }

    /// The same with another patience, or with any. Safe to cancel: the question is withdrawn.
    pub(super) async fn ask_within<T: DeserializeOwned>(
        &self,
        question: PostQuestion,
        patience: Option<Duration>,
    ) -> io::Result<T> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut shared = self.lock();
            if let Some(reason) = &shared.lost {
                return Err(lost(reason));
            }
            shared.asked.insert(number, sender);
        }
        let mut asking = Asking { link: self, number, is_open: true };
        self.tell(&ToPost::Ask { number, question: Box::new(question) })?;
        let answer = match patience {
            Some(patience) => timeout(patience, answer).await,
            None => Ok(answer.await),
        };
        let Ok(answer) = answer else {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the place does not answer"));
        };
        asking.is_open = false;
        match answer {
            Ok(Ok(bytes)) => unpack(&bytes),
            Ok(Err(problem)) => Err(problem.into()),
            Err(_) => Err(lost(&self.lost().unwrap_or_default())),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

/// A question that waits for its answer.
struct Asking<'a> {
    link: &'a Link,
    number: u64,
    is_open: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.link.lock().asked.remove(&self.number);
            let _ = self.link.tell(&ToPost::Withdraw { number: self.number });
        }
    }
}

/// The error of a connection that stands no longer.
fn lost(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, format!("the connection was lost: {reason}"))
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next message of the other side. Not safe to cancel in the middle of a read, but what was
/// read stays.
pub(crate) async fn receive<T: DeserializeOwned>(
    input: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder,
) -> io::Result<T> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        if let Some(message) = decoder.next_frame().map_err(io::Error::other)? {
            return Ok(message);
        }
        match input.read(&mut bytes).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => decoder.feed(bytes.get(..read).unwrap_or_default()),
        }
    }
}

/// Says again and again that the engine is still there.
async fn ping(shared: Weak<Mutex<Shared>>, outbox: Outbox) {
    let Ok(frame) = encode(&ToPost::Ping) else { return };
    loop {
        sleep(PING).await;
        let stands = shared.upgrade().is_some_and(|shared| lock(&shared).lost.is_none());
        if !stands || outbox.send(&frame).is_err() {
            return;
        }
    }
}

/// Passes on what comes, until the connection is lost.
async fn listen(
    mut output: impl AsyncRead + Unpin,
    mut decoder: Decoder,
    shared: Arc<Mutex<Shared>>,
    outbox: Outbox,
) {
    let reason = loop {
        match receive(&mut output, &mut decoder).await {
            Ok(FromPost::Answer { number, answer }) => {
                if let Some(asked) = lock(&shared).asked.remove(&number) {
                    let _ = asked.send(answer);
                }
            }
            Ok(FromPost::Frames { stream, bytes }) => {
                if let Some(stream) = lock(&shared).streams.get(&stream) {
                    let _ = stream.send(bytes);
                }
            }
            Ok(FromPost::Closed { stream }) => drop(lock(&shared).streams.remove(&stream)),
            Ok(FromPost::Hello(_) | FromPost::Unfit(_)) => break "it said hello twice".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                break "it was closed".to_owned();
            }
            Err(error) => break error.to_string(),
        }
    };
    outbox.close();
    let mut shared = lock(&shared);
    shared.lost = Some(reason);
    // Whoever waits hears of it.
    shared.asked.clear();
    shared.streams.clear();
}
