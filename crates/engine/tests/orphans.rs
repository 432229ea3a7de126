//! Commands that have lost their engine: stopped when nobody comes back, kept while somebody looks.
//!
//! With its own `main`, since the commands are started by a second start of this very program.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::{path::Path, time::Duration};

use legwork::{Caller, Engine, Options, Task};
use serde_json::json;

/// How long a command may run on alone.
const TTL: Duration = Duration::from_millis(600);

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

async fn task(engine: &Engine, id: &str) -> Task {
    engine.task(id).await.unwrap()
}

fn main() {
    legwork::init();
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
        tokio::time::sleep(TTL * 3).await;
        let ended = task(&engine, held.as_str()).await;
        assert_eq!(ended.reason.as_deref(), Some("abandoned"), "{ended:?}");
        assert!(!task(&engine, &seen).await.status.is_final());
        assert!(observer.report().await.unwrap().is_some());
        drop(observer);
        tokio::time::sleep(TTL * 3).await;
        assert_eq!(task(&engine, &seen).await.reason.as_deref(), Some("abandoned"));
    });
    println!("test orphans ... ok");
}
