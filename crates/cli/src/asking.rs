//! Questions at the terminal: shows one to the person who sits there, and reads the answer.

#[cfg(unix)]
mod keyboard;
#[cfg(windows)]
#[path = "asking/windows.rs"]
mod keyboard;
mod prompt;
mod sitting;

use std::{
    io::{self, IsTerminal},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use legwork::{Answered, Approval, AskFuture, Asker, FaceAnswer, Reply, SharedAsker, user_file};
use tokio::{
    runtime::Handle,
    sync::{Mutex, MutexGuard, Notify},
};

pub(crate) use self::sitting::Sitting;
use self::{keyboard::AskingTerminal, prompt::line};
use crate::answering::{DENY, DENY_WITH_NOTE};

/// Whether a question is on the terminal right now.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Whether somebody has pressed Ctrl-C at a question.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// The turn at the terminal: one question has it, from its first row until the terminal is back.
static TURN: Mutex<()> = Mutex::const_new(());

/// Tells the other reader of the terminal that a question takes it.
static TAKES: Notify = Notify::const_new();

/// Locked while a terminal is not given back yet, because somebody may still type a note. True if
/// they called it off.
static LEAVING: Mutex<bool> = Mutex::const_new(false);

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
            let turn = TURN.lock().await;
            TAKES.notify_waiters();
            *LEAVING.lock().await = false;
            let Ok(sitting) = Sitting::open() else { return FaceAnswer::NotShown };
            let mut asked = Asked(Some(Taken { sitting, turn }));
            let Some(taken) = &mut asked.0 else { return FaceAnswer::NotShown };
            let said = taken.sitting.ask(&approval, &approval.replies()).await;
            // It was answered here: what follows depends on the answer.
            let taken = asked.0.take();
            let Ok(said) = said else { return FaceAnswer::NotShown };
            let (decision, note) = match said {
                PersonSaid::Reply(decision, note) => {
                    let _ = confirm(&approval, decision);
                    if decision == Reply::Deny {
                        taken.into_iter().for_each(leave);
                    }
                    (decision, note)
                }
                PersonSaid::Cancelled => {
                    CANCELLED.store(true, Ordering::Relaxed);
                    (Reply::Deny, None)
                }
            };
            FaceAnswer::Answered(Answered { decision, note, by: by.into() })
        })
    }

    fn lets_go(&self) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(async {
            let is_called_off = std::mem::take(&mut *LEAVING.lock().await);
            if is_called_off {
                CANCELLED.store(true, Ordering::Relaxed);
            }
            !is_called_off
        })
    }
}

/// The terminal of a question; the turn ends when the terminal is as it was.
struct Taken {
    sitting: Sitting,
    turn: MutexGuard<'static, ()>,
}

/// A question at the terminal, which somebody else may answer first.
struct Asked(Option<Taken>);

impl Drop for Asked {
    fn drop(&mut self) {
        // Who was typing goes on for a moment.
        let typed_at = |taken: &Taken| taken.sitting.is_typed_at();
        self.0.take().filter(typed_at).into_iter().for_each(leave);
    }
}

/// Gives the terminal back once nothing is typed behind an answer. A deny does not wait for that,
/// and no script whose input is something else does.
fn leave(taken: Taken) {
    if let (true, Ok(runtime)) = (io::stdin().is_terminal(), Handle::try_current()) {
        let leaving = LEAVING.try_lock();
        runtime.spawn(async move {
            let Taken { sitting, turn } = taken;
            let is_called_off = sitting.leave().await.unwrap_or(true);
            if let Ok(mut leaving) = leaving {
                *leaving = is_called_off;
            }
            drop(turn);
        });
    }
}

/// Waits until a terminal that is typed at was given back.
pub(crate) async fn wait_for_terminal() {
    drop(LEAVING.lock().await);
}

/// Resolves when a question has the terminal, or takes it. Safe to cancel.
pub(crate) async fn takes_terminal() {
    let takes = TAKES.notified();
    if TURN.try_lock().is_ok() {
        takes.await;
    }
}

/// Waits until no question has the terminal.
pub(crate) async fn no_question() {
    drop(TURN.lock().await);
}

/// What a person did about a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PersonSaid {
    /// Answered it, perhaps with a note.
    Reply(Reply, Option<String>),
    /// Pressed Ctrl-C, or had us end in another way.
    Cancelled,
}

/// The answers that let something happen, each with its letter and its name: the same on all faces.
pub(crate) const ANSWER_KEYS: [(Reply, char, &str); 6] = [
    (Reply::TryFirst, 't', "try it first"),
    (Reply::Apply, 'a', "apply what it did"),
    (Reply::AllowOnce, 'y', "allow once"),
    (Reply::AllowOnceUnconfined, 'o', "allow once OUTSIDE the sandbox"),
    (Reply::AllowSession, 's', "allow for this session"),
    (Reply::AllowRule, 'r', "allow always, save the rule"),
];

/// The hint beside a letter that waits for Enter.
pub(crate) const CONFIRM: &str = "Enter confirms, Esc cancels";

/// The message when a letter no longer waits for Enter.
pub(crate) const CANCELLED_LETTER: &str = "Cancelled: nothing was answered";

/// The letters that answer, denies first.
pub(crate) fn letters(replies: &[Reply]) -> String {
    let offered = ANSWER_KEYS.iter().filter(|(reply, ..)| replies.contains(reply));
    [DENY, DENY_WITH_NOTE].into_iter().chain(offered.map(|(_, letter, _)| *letter)).collect()
}

/// The answer of a letter, with its name.
pub(crate) fn answer_of(letter: char) -> Option<(Reply, &'static str)> {
    let found = ANSWER_KEYS.iter().find(|(_, known, _)| *known == letter);
    found.map(|(reply, _, words)| (*reply, *words))
}

/// Asks the person at the terminal to type a word; whether it was that one. None without a person.
pub(crate) async fn confirmed(question: &str, word: &str) -> io::Result<Option<bool>> {
    if !keyboard::is_there() {
        return Ok(None);
    }
    let mut terminal = AskingTerminal::open()?;
    let _open = Opened::new();
    terminal.write(question)?;
    terminal.typed_before();
    let line = line(&mut terminal).await?;
    Ok(Some(line.is_some_and(|line| line.trim() == word)))
}

/// Tells the person what an answer does.
fn confirm(approval: &Approval, reply: Reply) -> io::Result<()> {
    keyboard::tell(&consequence(approval, reply))
}

/// What an answer does, in a sentence.
pub(crate) fn consequence(approval: &Approval, reply: Reply) -> String {
    match reply {
        Reply::Deny if !approval.lineage.is_empty() => "Denied: the program does not run.".into(),
        Reply::Deny => "Denied: the command does not run.".into(),
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
