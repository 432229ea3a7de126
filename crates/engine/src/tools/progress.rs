//! Tells a caller who waits what the command printed last.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::{
    error::ToolError,
    output::{Cursor, Mask, Selection, SmallOutput, TaskOutput},
    task::{
        progress::Ended,
        run::{Grown, Run},
    },
};

/// How often at most.
const EVERY: Duration = Duration::from_millis(300);

/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 200;

/// Tokens of the end of an output in which the last line is looked for.
const SEARCHED_TOKENS: u64 = 200;

/// Waits for the end, and tells the last line of output meanwhile.
pub(super) async fn told(
    run: &mut Run,
    mask: &Mask,
    sender: &mpsc::Sender<String>,
) -> Result<Ended, ToolError> {
    let (mut stdout_bytes, mut stderr_bytes) = (0, 0);
    // No more than a warden holds in its memory. All of it, because a secret may have begun in what
    // came before.
    let mut so_far = SmallOutput::default();
    loop {
        let line = match run.grown(stdout_bytes, stderr_bytes).await {
            Grown::Ended => return run.ended().await,
            Grown::Bytes { stdout, stderr } => {
                stdout_bytes += stdout.len() as u64;
                stderr_bytes += stderr.len() as u64;
                so_far.stdout.extend(stdout);
                so_far.stderr.extend(stderr);
                last_line_of(&TaskOutput::from(&so_far), mask)
            }
            Grown::InFolder => match run.stored() {
                Ok(output) => {
                    (stdout_bytes, stderr_bytes) = (output.stdout.bytes(), output.stderr.bytes());
                    last_line_of(&output, mask)
                }
                Err(_) => None,
            },
        };
        // A client that does not read is not waited for.
        if let Some(line) = line {
            let _ = sender.try_send(line);
        }
        tokio::select! {
            ended = run.ended() => return ended,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

fn last_line_of(output: &TaskOutput, mask: &Mask) -> Option<String> {
    let from = |bytes: u64| bytes.saturating_sub(SEARCHED_TOKENS * 4);
    let cursor =
        Cursor { stdout: from(output.stdout.bytes()), stderr: from(output.stderr.bytes()) };
    let fresh = output.since(mask, cursor, Selection::Both, SEARCHED_TOKENS * 8, false).ok()?;
    last_line(&fresh.text)
}

/// The last line that is not blank, cut to what is worth telling.
fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let mut end = line.len().min(LINE_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.get(..end).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_cut_at_a_character() {
        assert_eq!(last_line("a\nb\n\n").as_deref(), Some("b"));
        assert_eq!(last_line(" \n").as_deref(), None);
        assert_eq!(last_line(&"ä".repeat(150)).unwrap().len(), 200);
        assert_eq!(last_line(&format!("x{}", "ä".repeat(150))).unwrap().len(), 199);
    }
}
