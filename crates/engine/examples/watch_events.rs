//! A monitor: hears what every program on a state folder does to its tasks and questions.
//!
//! Run it with `cargo run --example watch_events`.

use std::time::Duration;

use legwork::{Answered, Engine, Event, EventKind, Interest, Options, Reply, ToolError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    legwork::init();
    let scratch = tempfile::tempdir()?;
    let mut options = Options::new(scratch.path()).state(scratch.path().join("state"));
    options.settings.approval_wait = Duration::from_secs(60);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Two engines, as two programs would have them.
        let (monitor, worker) = (Engine::open(options.clone())?, Engine::open(options)?);
        let mut events = monitor.events(None, Interest::Changes).await?;
        let work = tokio::spawn(work(worker));
        let mut ended = 0;
        while ended < 2 {
            match events.next().await {
                Ok(event) => {
                    ended += usize::from(matches!(event.what, EventKind::TaskEnded { .. }));
                    react(&monitor, &event).await?;
                }
                // A reader who is too slow looks at the tasks instead, and goes on.
                Err(_) => println!("{} tasks", monitor.tasks(true, 100).await?.len()),
            }
        }
        work.await??;
        Ok(())
    })
}

/// What somebody else does meanwhile.
async fn work(engine: Engine) -> Result<(), ToolError> {
    engine.sh("echo done; exit 7").await?;
    // This one has to be asked for.
    engine.sh("rm -rf build").await?;
    Ok(())
}

/// Tells of an event, and answers a question.
async fn react(engine: &Engine, event: &Event) -> Result<(), ToolError> {
    match &event.what {
        EventKind::TaskStarted { task_id, .. } => {
            println!("started: {}", engine.task(task_id.as_str()).await?.command);
        }
        EventKind::TaskEnded { task_id, status, .. } => {
            let outcome = engine.task(task_id.as_str()).await?.outcome.unwrap_or_default();
            println!("{}: exit code {:?}", status.as_str(), outcome.exit_status);
        }
        EventKind::QuestionOpened { approval_id } => {
            let by = "the monitor".to_owned();
            let answered = Answered { decision: Reply::AllowOnce, note: None, by };
            let question = engine.answer(approval_id, answered).await?;
            println!("asked: {}", question.command);
        }
        _ => {}
    }
    Ok(())
}
