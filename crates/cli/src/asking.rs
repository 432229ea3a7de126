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

/// The answers, each with its key and what it means.
const KEYS: [(Reply, &str, &str); 4] = [
    (Reply::AllowOnce, "y", "once"),
    (Reply::AllowOnceUnconfined, "o", "once, outside the sandbox"),
    (Reply::AllowSession, "s", "for this session"),
    (Reply::AllowRule, "r", "save the rule"),
];

/// The line that offers these answers.
fn choices(replies: &[Reply]) -> String {
    let offered = KEYS.iter().filter(|(reply, ..)| replies.contains(reply));
    let offered: String = offered.map(|(_, key, words)| format!("[{key}] {words}  ")).collect();
    format!("{offered}[N] no > ")
}

/// Asks once; anything but a clear yes is a no.
pub(crate) fn ask(approval: &Approval) -> Option<Answered> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let replies = approval.replies();
    write!(terminal, "\n{}\n{}", approval.question(), choices(&replies)).ok()?;
    // What was typed before the question could be read does not answer it.
    let _ = tcflush(&terminal, QueueSelector::IFlush);
    let mut line = String::new();
    BufReader::new(&terminal).read_line(&mut line).ok()?;
    let typed = line.trim().to_ascii_lowercase();
    let typed = if typed == "yes" { "y" } else { typed.as_str() };
    let meant = KEYS.iter().find(|(_, key, _)| *key == typed).map(|(reply, ..)| *reply);
    let decision = meant.filter(|reply| replies.contains(reply)).unwrap_or(Reply::Deny);
    Some(Answered { decision, note: None, by: "the person at the terminal".into() })
}
