//! Questions at the terminal: shows one to the person who sits there, and reads the answer.

#[cfg(unix)]
mod keyboard;
#[cfg(windows)]
#[path = "asking/windows.rs"]
mod keyboard;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use legwork::{Answered, Approval, AskFuture, Asker, Reply, SharedAsker, user_file};

use self::keyboard::AskingTerminal;
use crate::signals::{Caught, ENDING};

/// Whether a question is on the terminal right now.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Whether somebody has pressed Ctrl-C at a question.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// Whether a question is on the terminal right now: nothing else is to be written there.
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed)
}

/// Whether somebody has pressed Ctrl-C at a question of this process.
pub(crate) fn was_cancelled() -> bool {
    CANCELLED.load(Ordering::Relaxed)
}

/// The person at our terminal, if we have one in the foreground.
pub(crate) fn person() -> Option<SharedAsker> {
    keyboard::is_there().then(|| Arc::new(Person) as SharedAsker)
}

struct Person;

impl Asker for Person {
    fn ask(&self, approval: Approval) -> AskFuture {
        Box::pin(async move {
            let by = "the person at the terminal";
            let decision = match ask(&approval, &approval.replies()).await.ok()? {
                PersonSaid::Reply(decision) => {
                    let _ = confirm(&approval, decision);
                    decision
                }
                PersonSaid::Cancelled => {
                    CANCELLED.store(true, Ordering::Relaxed);
                    Reply::Deny
                }
            };
            Some(Answered { decision, note: None, by: by.into() })
        })
    }
}

/// What a person did about a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PersonSaid {
    /// Answered it.
    Reply(Reply),
    /// Pressed Ctrl-C, or had us end in another way.
    Cancelled,
}

/// The answers, each with its key and its name.
pub(crate) const ANSWER_KEYS: [(Reply, &str, &str); 6] = [
    (Reply::TryFirst, "t", "try it first"),
    (Reply::Apply, "a", "apply what it did"),
    (Reply::AllowOnce, "y", "once"),
    (Reply::AllowOnceUnconfined, "o", "once, outside the sandbox"),
    (Reply::AllowSession, "s", "for this session"),
    (Reply::AllowRule, "r", "save the rule"),
];

/// The line that offers these answers.
fn choices(replies: &[Reply]) -> String {
    let offered = ANSWER_KEYS.iter().filter(|(reply, ..)| replies.contains(reply));
    let offered: String = offered.map(|(_, key, words)| format!("[{key}] {words}  ")).collect();
    format!("{offered}[N] no > ")
}

/// The answer that was typed; none if it is none of those that were offered.
fn meant(typed: &str, replies: &[Reply]) -> Option<Reply> {
    match typed.trim().to_ascii_lowercase().as_str() {
        "" | "n" | "no" => Some(Reply::Deny),
        "yes" => Some(Reply::AllowOnce),
        key => {
            let found =
                ANSWER_KEYS.iter().find(|(_, known, _)| *known == key).map(|(reply, ..)| *reply);
            found.filter(|reply| replies.contains(reply))
        }
    }
}

/// Asks until there is an answer; the end of the input is a no. Safe to cancel: nothing that is
/// typed later is taken from whoever reads the terminal then.
pub(crate) async fn ask(approval: &Approval, replies: &[Reply]) -> io::Result<PersonSaid> {
    let mut terminal = AskingTerminal::open()?;
    let mut signals = Caught::new(&ENDING);
    let _open = Opened::new();
    terminal.write(&format!("\n{}\n", approval.question()))?;
    // What was typed before the question could be read does not answer it.
    terminal.forget_typed();
    terminal.write(&choices(replies))?;
    loop {
        let line = tokio::select! {
            line = terminal.line() => line?,
            _ = signals.next() => {
                terminal.write("\n")?;
                return Ok(PersonSaid::Cancelled);
            }
        };
        let Some(line) = line else {
            terminal.write("\n")?;
            return Ok(PersonSaid::Reply(Reply::Deny));
        };
        if let Some(reply) = meant(&line, replies) {
            return Ok(PersonSaid::Reply(reply));
        }
        let typed = crate::render::one_line(line.trim(), 20);
        terminal.write(&format!("`{typed}` is none of the answers\n{}", choices(replies)))?;
    }
}

/// Tells the person what an answer does.
fn confirm(approval: &Approval, reply: Reply) -> io::Result<()> {
    keyboard::tell(&consequence(approval, reply))
}

/// What an answer does, in a sentence.
pub(crate) fn consequence(approval: &Approval, reply: Reply) -> String {
    match reply {
        Reply::Deny if !approval.lineage.is_empty() => "Refused: the program does not run.".into(),
        Reply::Deny => "Refused: the command does not run.".into(),
        Reply::TryFirst => {
            "It is tried on a copy, without network; the next question says what it did.".into()
        }
        Reply::Apply => "What it did is applied; it does not run again.".into(),
        Reply::AllowOnce => "Allowed once.".into(),
        Reply::AllowOnceUnconfined => "Allowed once, outside the sandbox.".into(),
        Reply::AllowSession => {
            format!("Allowed in this folder for as long as {} runs.", approval.asked_by)
        }
        Reply::AllowRule => match user_file() {
            Some(path) => format!("Allowed from now on: the rule is saved in {}.", path.display()),
            None => "Allowed from now on.".into(),
        },
    }
}

/// Says that a question is on the terminal, for as long as it lives.
struct Opened;

impl Opened {
    fn new() -> Self {
        OPEN.store(true, Ordering::Relaxed);
        Self
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPEN.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_is_an_answer() {
        let replies = [Reply::Deny, Reply::AllowOnce, Reply::AllowSession];
        for (typed, expected) in [
            ("y\n", Some(Reply::AllowOnce)),
            (" YES \n", Some(Reply::AllowOnce)),
            ("s\n", Some(Reply::AllowSession)),
            ("\n", Some(Reply::Deny)),
            ("no\n", Some(Reply::Deny)),
            ("r\n", None),
            ("o\n", None),
            ("ja\n", None),
        ] {
            assert_eq!(meant(typed, &replies), expected, "{typed:?}");
        }
    }
}
