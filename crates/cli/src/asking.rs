//! Asks the person at our terminal.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    sync::Arc,
};

use legwork::{Answered, Approval, AskFuture, Asker, Reply, SharedAsker};
use rustix::termios::{QueueSelector, tcflush};

/// The person at our terminal, if we have one in the foreground.
pub(crate) fn person() -> Option<SharedAsker> {
    let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let group = rustix::termios::tcgetpgrp(&terminal).ok()?;
    let here = group == rustix::process::getpgrp();
    here.then(|| Arc::new(Person) as SharedAsker)
}

struct Person;

impl Asker for Person {
    fn ask(&self, approval: Approval) -> AskFuture {
        Box::pin(async move {
            // In a thread: a person takes their time.
            tokio::task::spawn_blocking(move || ask(&approval)).await.ok().flatten()
        })
    }
}

/// Asks once; anything but a clear yes is a no.
pub(crate) fn ask(approval: &Approval) -> Option<Answered> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let rule = if approval.proposed_rule.is_some() { "  [r] save the rule" } else { "" };
    let choices = format!("[y] once  [s] for this session{rule}  [N] no > ");
    write!(terminal, "\n{}\n{choices}", approval.question()).ok()?;
    // What was typed before the question could be read does not answer it.
    let _ = tcflush(&terminal, QueueSelector::IFlush);
    let mut line = String::new();
    BufReader::new(&terminal).read_line(&mut line).ok()?;
    let decision = match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Reply::AllowOnce,
        "s" => Reply::AllowSession,
        "r" if approval.proposed_rule.is_some() => Reply::AllowRule,
        _ => Reply::Deny,
    };
    Some(Answered { decision, note: None, by: "the person at the terminal".into() })
}
