//! A host program with commands of its own: awaited, streamed, limited in time, left running,
//! joined again.
//!
//! Run it with `cargo run --example embed`.

use std::time::Duration;

use legwork::{Engine, ErrorKind, Options, Stream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First of all: commands are started by a second start of this very program.
    legwork::init();
    let scratch = tempfile::tempdir()?;
    let options = Options::new(scratch.path()).state(scratch.path().join("state"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = Engine::open(options)?;
        results(&engine).await?;
        output_as_it_comes(&engine).await?;
        a_task_that_runs_on(&engine).await?;
        Ok(())
    })
}

/// Whatever a command does is a result; an error is what kept it from running.
async fn results(engine: &Engine) -> Result<(), legwork::ToolError> {
    let finished = engine.sh("echo hi; exit 3").await?;
    println!("printed {:?}, exit code {:?}", finished.stdout(), finished.code());

    let words = engine.program("wc").args(["-w"]).stdin("what is asked for\n").await?;
    println!("{} words", words.stdout().trim());

    let slow = engine.sh("sleep 60").timeout(Duration::from_millis(200)).await?;
    println!("timed out: {}", slow.timed_out());

    match engine.program("no-such-program").await {
        Err(error) if error.kind == ErrorKind::CommandSpawnFailed => println!("error: {error}"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}

/// Both streams, while the command runs.
async fn output_as_it_comes(engine: &Engine) -> Result<(), legwork::ToolError> {
    let mut task = engine.sh("echo first; sleep 0.1; echo second >&2").start().await?;
    let mut output = task.output().await?;
    while let Some(chunk) = output.next().await? {
        let name = if chunk.stream == Stream::Stdout { "out" } else { "err" };
        println!("{name}: {}", chunk.text().trim_end());
    }
    println!("success: {}", task.wait().await?.success());
    Ok(())
}

/// A command that nobody waits for, and that anybody can come back to.
async fn a_task_that_runs_on(engine: &Engine) -> Result<(), legwork::ToolError> {
    let id = engine.sh("sleep 60").start().await?.detach().await;
    let running = engine.tasks(false, 10).await?;
    println!("running: {}", running.iter().any(|task| task.task_id == id));
    let finished = engine.attach(&id).await?.stop(Duration::from_secs(3)).await?;
    println!("then {}", finished.status().as_str());
    Ok(())
}
