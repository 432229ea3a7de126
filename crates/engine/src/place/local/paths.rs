//! Waits for a path to exist, with inotify.

use std::{io, path::Path, time::Duration};

use rustix::fs::inotify;
use tokio::{net::unix::pipe::Receiver, time::timeout};

/// How often to look where the kernel does not tell: no watch is left, or a filesystem of another
/// machine.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Resolves when the path exists. Safe to cancel.
pub(super) async fn appears(path: &Path) {
    while !path.exists() {
        let changed = watch_nearest(path);
        // It may have come while the watch was made.
        if path.exists() {
            return;
        }
        match changed {
            Ok(changed) => {
                let _ = timeout(LOOK_EVERY, changed.readable()).await;
            }
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// Watches the nearest folder above the path that exists.
fn watch_nearest(path: &Path) -> io::Result<Receiver> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let watch = inotify::init(flags)?;
    let wanted = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::DELETE_SELF
        | inotify::WatchFlags::MOVE_SELF
        | inotify::WatchFlags::ONLYDIR;
    let nearest = path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    inotify::add_watch(&watch, nearest, wanted)?;
    // It is no pipe, but it is read like one: only whether there is something to read is asked.
    Receiver::from_owned_fd_unchecked(watch)
}
