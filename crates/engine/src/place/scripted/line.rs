//! A connection to a scripted warden: its messages come when the script says so.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use legwork_warden::protocol::{Decoder, ToWarden, WardenFrame};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    super::{Channel, Soon, Wire},
    World,
};
use crate::{output::SmallOutput, platform::BorrowedFd};

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Line {
    world: Arc<Mutex<World>>,
    warden: String,
    wire: usize,
    decoder: Mutex<Decoder>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Line {
    pub(super) fn channel(world: &Arc<Mutex<World>>, warden: &str, wire: usize) -> Channel {
        Channel::new(Self {
            world: world.clone(),
            warden: warden.to_owned(),
            wire,
            decoder: Mutex::default(),
            sleep: None,
        })
    }
}

impl Wire for Line {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<WardenFrame>> {
        loop {
            let next = {
                let mut world = self.world.lock().unwrap();
                world.pass(&self.warden);
                let warden = world.wardens.get_mut(&self.warden).unwrap();
                let (alive, run) = (warden.alive, &warden.run);
                let awaited = run.as_ref().filter(|_| alive).and_then(|run| {
                    let end = run.ended.is_none().then_some(run.ends_at);
                    end.into_iter().chain(run.killed_at).min()
                });
                let outbox = warden.wires.get_mut(self.wire).unwrap();
                let due = outbox.messages.front().map(|(due, _)| *due);
                match due {
                    Some(due) if due <= Instant::now() => {
                        let (_, message) = outbox.messages.pop_front().unwrap();
                        return Poll::Ready(Ok(message));
                    }
                    // What was said before the death is still to be read.
                    None if !alive => {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    _ => {}
                }
                outbox.waker = Some(context.waker().clone());
                due.into_iter().chain(awaited).min()
            };
            let Some(at) = next else { return Poll::Pending };
            let sleep = self.sleep.insert(Box::pin(sleep_until(at)));
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn send(&self, frames: &[u8], _with: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut world = self.world.lock().unwrap();
        if !world.wardens.get(&self.warden).is_some_and(|warden| warden.alive) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut decoder = self.decoder.lock().unwrap();
        decoder.feed(frames);
        while let Some(message) = decoder.next_frame().map_err(io::Error::other)? {
            // It may have been killed before it read this one.
            world.pass(&self.warden);
            if !world.wardens.get(&self.warden).is_some_and(|warden| warden.alive) {
                break;
            }
            match message {
                ToWarden::Start(spec) => world.start(&self.warden, &spec),
                ToWarden::Order { task, order } => {
                    world.obey(&self.warden, self.wire, &task, &order);
                }
                ToWarden::Confine(_) | ToWarden::Handles(_) => {}
            }
        }
        Ok(frames.len())
    }

    fn writable(&self) -> Soon<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn is_closed(&mut self) -> bool {
        let world = self.world.lock().unwrap();
        !world.wardens.get(&self.warden).is_some_and(|warden| warden.alive)
    }

    fn resume(&self) {}
}

impl Drop for Line {
    fn drop(&mut self) {
        let Ok(mut world) = self.world.lock() else { return };
        let Some(warden) = world.wardens.get_mut(&self.warden) else { return };
        if let Some(outbox) = warden.wires.get_mut(self.wire) {
            outbox.open = false;
        }
        let run = warden.run.as_mut();
        if run.is_none() && warden.owner == Some(self.wire) {
            // Nothing to hold, and nobody who could bring it anything.
            warden.alive = false;
        } else if let Some(run) = run
            && warden.owner == Some(self.wire)
            && !run.spilled
        {
            // Alone, it stores what it has.
            run.spilled = true;
            let small = SmallOutput { stdout: run.printed.clone(), ..SmallOutput::default() };
            let (task, record) = (run.task.clone(), run.ended.clone());
            world.truths.entry(task.clone()).or_default().stored |= record.is_some();
            world.folders.insert(task, (small, record));
        }
        let name = self.warden.clone();
        world.retire(&name);
    }
}
