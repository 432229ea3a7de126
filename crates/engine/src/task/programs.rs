//! Programs that a rule asks about while a command runs: each waits in its warden for an answer.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use legwork_warden::protocol::HeldProgram;
use tokio::task::JoinSet;

use super::{Tasks, run::RunControl};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::program::AskedProgram,
    model::{Denial, Outcome, question::SharedAsker},
};

/// The questions that one run gives rise to. Dropping it ends the waiting for their answers.
pub(super) struct ProgramQuestions {
    task_id: TaskId,
    control: RunControl,
    /// The face of the caller, and whether that has let go of the command.
    asker: Option<(SharedAsker, Arc<AtomicBool>)>,
    waiting: JoinSet<()>,
    refused: Arc<Mutex<Vec<RefusedQuestion>>>,
}

/// A program that may not be executed, and why.
struct RefusedQuestion {
    rule: String,
    program: String,
    why: String,
}

impl ProgramQuestions {
    /// Of a run whose orders go this way.
    pub(super) fn new(task_id: TaskId, control: RunControl) -> Self {
        Self { task_id, control, asker: None, waiting: JoinSet::new(), refused: Arc::default() }
    }

    /// The caller's own face is asked too, until the command is promoted: then no call is left in
    /// which it could ask.
    pub(super) fn by_way_of(self, asker: Option<SharedAsker>, promoted: Arc<AtomicBool>) -> Self {
        Self { asker: asker.map(|asker| (asker, promoted)), ..self }
    }

    /// Asks about a program, beside everything else.
    pub(super) fn ask(&mut self, tasks: &Arc<Tasks>, held: HeldProgram) {
        let (tasks, task_id, control) = (tasks.clone(), self.task_id.clone(), self.control.clone());
        let present = self.asker.as_ref().filter(|(_, gone)| !gone.load(Ordering::Relaxed));
        let asker = present.map(|(asker, _)| asker.clone());
        let refused = self.refused.clone();
        self.waiting.spawn(async move {
            let answer = ask(&tasks, &task_id, &held, asker.as_ref()).await;
            let allowed = answer.is_ok();
            if let Err(error) = answer {
                let rule = held.rule.clone();
                let program = name(&held.path).into_owned();
                let why = reason(&error);
                tracing::info!(%task_id, rule, program, "not executed: {why}");
                let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.push(RefusedQuestion { rule, program, why });
            }
            control.answer_program(held.number, allowed);
        });
    }

    /// Says of each program that was asked about and not executed why that was.
    pub(super) fn explain(&self, outcome: &mut Outcome) {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for RefusedQuestion { rule, program, why } in &*refused {
            let is_meant = |denial: &&mut Denial| {
                denial.rule.as_ref() == Some(rule) && denial.program.as_ref() == Some(program)
            };
            if let Some(denial) = outcome.denials.iter_mut().find(is_meant) {
                denial.because(why);
            }
        }
    }
}

/// Asks about one program; an error says why it may not run.
async fn ask(
    tasks: &Tasks,
    task_id: &TaskId,
    held: &HeldProgram,
    face: Option<&SharedAsker>,
) -> Result<(), ToolError> {
    let found = tasks.store.ledger.find(task_id.as_str()).await?;
    let Some(task) = found.into_iter().find(|task| task.task_id == *task_id) else {
        return Err(ToolError::new(ErrorKind::UnknownTask, "its task is not in the ledger"));
    };
    let file = if held.file.is_empty() { &held.path } else { &held.file };
    let asked = AskedProgram {
        task: &task,
        rule: &held.rule,
        line: line(held),
        file: String::from_utf8_lossy(file).into_owned(),
        argv: &held.argv,
        lineage: &held.lineage,
    };
    tasks.judge.ask_about_program(asked, face).await
}

/// Why a program may not run, for whoever reads of its end.
fn reason(error: &ToolError) -> String {
    let detail = |name: &str| error.details.as_ref()?.get(name)?.as_str();
    let said = detail("note").map(|note| format!("; the person says: {note}"));
    let said = said.unwrap_or_default();
    match error.kind {
        ErrorKind::ApprovalRefused => format!("{}{said}", crate::model::REFUSED_BY_PERSON),
        ErrorKind::ApprovalExpired => "asked about, and nobody answered in time".to_owned(),
        ErrorKind::ApprovalUnavailable => {
            let id = detail("approval_id").unwrap_or("?");
            format!("it has to be approved (question {id}); once it is, run the command again")
        }
        _ => format!("nobody could be asked about it: {}", error.message),
    }
}

/// The program with its arguments, as a shell would write them.
fn line(held: &HeldProgram) -> String {
    let mut words = vec![quoted(&name(&held.path))];
    let arguments = held.argv.get(1..).unwrap_or_default();
    words.extend(arguments.iter().map(|word| quoted(&String::from_utf8_lossy(word))));
    words.join(" ")
}

/// The last part of a path.
fn name(path: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path))
}

/// A word, in quotes if a shell would make more of it.
fn quoted(word: &str) -> String {
    let is_safe =
        |character: char| character.is_alphanumeric() || "_-+=:,./@%^".contains(character);
    if !word.is_empty() && word.chars().all(is_safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
