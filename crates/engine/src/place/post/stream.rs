//! The streams of a post: each is a warden, or a connection to one, whose frames are passed on.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Seek, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex},
};

use legwork_gate::Level;
use legwork_warden::protocol::{WardenFrame, encode};
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::sync::{mpsc, oneshot};

use super::{Driving, Post, begun, lock, tell};
use crate::{
    id::TaskId,
    model::sandbox::Wanted,
    place::{
        Channel, Look, Place, TamperCheck, Warden,
        far::message::{FromPost, Starting},
    },
};

/// What is asked of a stream.
#[derive(Debug)]
pub(super) enum StreamOrder {
    Frames(Vec<u8>),
    Start(Box<Starting>, oneshot::Sender<io::Result<()>>),
    Warnings(oneshot::Sender<Vec<String>>),
    Close { is_reusable: bool },
}

/// The streams that are open.
#[derive(Debug, Clone, Default)]
pub(super) struct PostStreams {
    open: Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<StreamOrder>>>>,
    driving: Arc<Mutex<Driving>>,
}

impl PostStreams {
    /// Opens a stream.
    pub(super) fn open(&self, post: &Arc<Post>, number: u64, end: StreamEnd) {
        let (sender, orders) = mpsc::unbounded_channel();
        lock(&self.open).insert(number, sender);
        let stream = Stream { post: post.clone(), number, end, check: None };
        let mut driving = lock(&self.driving);
        while driving.try_join_next().is_some() {}
        driving.spawn(stream.drive(orders));
    }

    /// Asks something of a stream; one that is not there is asked nothing.
    pub(super) fn order(&self, number: u64, order: StreamOrder) {
        if let Some(stream) = lock(&self.open).get(&number) {
            let _ = stream.send(order);
        }
    }

    pub(super) fn forget(&self, number: u64) {
        lock(&self.open).remove(&number);
    }

    /// Lets go of all of them, once what they were told is passed on.
    pub(super) async fn end(&self) {
        lock(&self.open).clear();
        let mut driving = std::mem::take(&mut *lock(&self.driving));
        while driving.join_next().await.is_some() {}
    }
}

/// What is at the other end of a stream.
#[derive(Debug)]
pub(super) enum StreamEnd {
    /// A warden of ours, which has such a sandbox ready.
    Warden(Warden, Wanted),
    /// A warden that was dialed.
    Dialed(Channel),
    /// A warden that is gone.
    Nobody,
}

impl StreamEnd {
    fn channel(&mut self) -> Option<&mut Channel> {
        match self {
            Self::Warden(warden, _) => Some(&mut warden.channel),
            Self::Dialed(channel) => Some(channel),
            Self::Nobody => None,
        }
    }

    async fn next_frame(&mut self) -> io::Result<WardenFrame> {
        match self.channel() {
            Some(channel) => channel.next_frame().await,
            None => std::future::pending().await,
        }
    }
}

/// A stream that is open.
struct Stream {
    post: Arc<Post>,
    number: u64,
    end: StreamEnd,
    /// What was looked at before its command.
    check: Option<TamperCheck>,
}

impl Stream {
    /// Passes frames on, both ways, until it is closed.
    async fn drive(mut self, mut orders: mpsc::UnboundedReceiver<StreamOrder>) {
        loop {
            tokio::select! {
                frame = self.end.next_frame() => self.pass_on(frame),
                order = orders.recv() => match order {
                    Some(StreamOrder::Close { is_reusable }) => return self.close(is_reusable),
                    Some(order) => self.obey(order).await,
                    None => return,
                },
            }
        }
    }

    fn pass_on(&mut self, frame: io::Result<WardenFrame>) {
        let stream = self.number;
        let encoded = frame.ok().and_then(|frame| encode(&frame).ok());
        let message = if let Some(bytes) = encoded {
            FromPost::Frames { stream, bytes }
        } else {
            self.end = StreamEnd::Nobody;
            FromPost::Closed { stream }
        };
        tell(&self.post.outbox, &message);
    }

    async fn obey(&mut self, order: StreamOrder) {
        match order {
            StreamOrder::Frames(bytes) => {
                if let Some(channel) = self.end.channel() {
                    // One that is gone is noticed by whoever listens to it.
                    let _ = channel.send_frames(&bytes, &[]).await;
                }
            }
            StreamOrder::Start(starting, started) => {
                let _ = started.send(self.start(*starting).await);
            }
            StreamOrder::Warnings(answer) => {
                let warnings = match self.check.take() {
                    // The end is not read here: what goes on may change something.
                    Some(check) => check.warnings(true).await,
                    None => Vec::new(),
                };
                let _ = answer.send(warnings);
            }
            StreamOrder::Close { .. } => {}
        }
    }

    async fn start(&mut self, starting: Starting) -> io::Result<()> {
        let task = TaskId::parse(&starting.spec.task).ok_or(io::ErrorKind::InvalidInput)?;
        let StreamEnd::Warden(warden, wanted) = &mut self.end else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let opened = self.post.place.open_folder(&starting.workdir)?;
        if opened.path != starting.workdir {
            return Err(io::Error::other("the working directory leads elsewhere by now"));
        }
        let given = starting.given.map(|bytes| in_memory(&bytes)).transpose()?;
        // Whatever follows, it is begun at most once.
        begun::mark(self.post.state.path(), &task)?;
        self.check = match self.post.place.tamper_check(*wanted, &warden.name) {
            Some(looking) if starting.is_checked && wanted.level != Level::None => {
                Some(looking.await)
            }
            _ => None,
        };
        let handles = opened.handle.as_deref().into_iter().chain(given.as_ref());
        let with: Vec<_> = handles.map(AsFd::as_fd).collect();
        warden.start(starting.spec, &with).await
    }

    fn close(self, is_reusable: bool) {
        if let StreamEnd::Warden(warden, _) = self.end
            && is_reusable
        {
            self.post.place.give_back(warden);
        }
    }
}

/// A file of memory alone.
pub(super) fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}
