//! Commands that have lost their engine: stopped when nobody comes back, kept while somebody looks.
//!
//! With its own `main`, since the commands are started by a second start of this very program.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::{path::Path, time::Duration};

use legwork::{Caller, Engine, Options, Task};
use serde_json::json;

/// How long a command may run on alone.
const TTL: Duration = Duration::from_secs(2);

fn engine(folder: &Path) -> Engine {
    let mut options = Options::new(folder);
    options.state = Some(folder.join("state"));
    options.orphan_ttl = TTL;
    Engine::open(options).unwrap()
}

/// Starts a task and lets go of the engine that owns it.
fn orphan(folder: &Path, cmd: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
        let answer = engine(folder).call("ExecCommand", input, &Caller::operator("test")).await;
        let result = answer.envelope().result.clone().unwrap();
        result["task_handle"]["task_id"].as_str().unwrap().to_owned()
    })
}

/// Waits until nobody's task is stopped, and returns why.
async fn stopped(engine: &Engine, id: &str) -> Option<String> {
    loop {
        let task = task(engine, id).await;
        if task.status.is_final() {
            return task.reason;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn task(engine: &Engine, id: &str) -> Task {
    engine.task(id).await.unwrap()
}

fn main() {
    legwork::init();
    legwork_fixture::take_at_most(Duration::from_secs(120));
    let scratch = tempfile::tempdir().unwrap();
    let (left, seen) = (orphan(scratch.path(), "sleep 1000"), orphan(scratch.path(), "sleep 1001"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = engine(scratch.path());
        let mut observer = engine.observe(task(&engine, &seen).await).await.unwrap();
        let other = engine.observe(task(&engine, &left).await).await.unwrap();
        // The one that is let go of is stopped; the one that is looked at is not.
        let held = other.task().task_id.clone();
        drop(other);
        assert_eq!(stopped(&engine, held.as_str()).await.as_deref(), Some("abandoned"));
        assert!(!task(&engine, &seen).await.status.is_final());
        assert!(observer.report().await.unwrap().is_some());
        drop(observer);
        assert_eq!(stopped(&engine, &seen).await.as_deref(), Some("abandoned"));
    });
    legwork_fixture::remove_folder(scratch.path());
    println!("test orphans ... ok");
}
