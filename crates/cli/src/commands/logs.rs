//! `legwork logs`: what a task has written, each stream to its own.

use std::{
    io::{self, BufWriter},
    process::ExitCode,
};

use legwork::output::replay;

use crate::{
    arguments::LogsOptions,
    render::{complain, complain_of},
};

pub(crate) async fn logs(options: LogsOptions) -> ExitCode {
    let found = async {
        let engine = options.state.open()?;
        let task = engine.task(&options.task).await?;
        engine.output(&task.task_id).await
    };
    let output = match found.await {
        Ok(output) => output,
        Err(error) => return complain_of(&error),
    };
    let mut stdout = BufWriter::new(io::stdout().lock());
    match replay(&output, &mut stdout, &mut io::stderr().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("the output cannot be shown: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}
