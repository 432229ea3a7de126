//! Programs that a rule asks about while a command runs: each waits in its warden for an answer.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_gate::Trust;
use legwork_warden::{
    exec::denial,
    network::{HeldName, HostName, NameVerdict},
    protocol::{FromWarden, HeldProgram, Order, ToWarden},
};
use tokio::{task::JoinSet, time::timeout};

use super::{Tasks, names, run::RunControl, start::exec_rule};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::{denied_by_now, program::AskedProgram},
    model::{
        Denial, Outcome,
        question::{Approval, SharedAsker},
    },
    store::ledger::Task,
};

/// Most words of persons that the outcome of a run passes on.
const SAID_MAX: usize = 20;

/// Most programs of a run of which it is kept why they may not be executed.
const REFUSED_MAX: usize = 256;

/// How long a warden may take to say which programs wait.
const TOLD: Duration = Duration::from_secs(2);

/// The questions that one run gives rise to. Dropping it ends the waiting for their answers.
pub(super) struct ProgramQuestions {
    task_id: TaskId,
    control: RunControl,
    /// The face of the caller, and whether that has let go of the command.
    asker: Option<(SharedAsker, Arc<AtomicBool>)>,
    waiting: JoinSet<()>,
    heard: Arc<Mutex<Heard>>,
}

/// What was heard in answer, until the outcome of the run tells it. A command may give rise to the
/// same question any number of times: each answer is kept once.
#[derive(Default)]
struct Heard {
    /// Programs that may not be executed.
    refused: Vec<RefusedQuestion>,
    /// Names that may not be connected to, with the reason; a proxy asks about few.
    refused_names: Vec<(HeldName, String)>,
    /// What the persons who allowed something say of it.
    said: Vec<String>,
}

impl Heard {
    fn say(&mut self, words: String) {
        if self.said.len() < SAID_MAX && !self.said.contains(&words) {
            self.said.push(words);
        }
    }

    fn refuse(&mut self, rule: String, program: String, why: String) {
        let is_same = |it: &&mut RefusedQuestion| it.rule == rule && it.program == program;
        if let Some(known) = self.refused.iter_mut().find(is_same) {
            known.why = why;
        } else if self.refused.len() < REFUSED_MAX {
            self.refused.push(RefusedQuestion { rule, program, why });
        }
    }
}

/// A program that may not be executed, and why.
struct RefusedQuestion {
    rule: String,
    program: String,
    why: String,
}

impl ProgramQuestions {
    /// Of a run whose orders go this way. The caller's own face is asked too, until the command is
    /// promoted: then no call is left in which it could ask.
    pub(super) fn new(
        task_id: TaskId,
        control: RunControl,
        asker: Option<SharedAsker>,
        promoted: Arc<AtomicBool>,
    ) -> Self {
        Self {
            task_id,
            control,
            asker: asker.map(|asker| (asker, promoted)),
            waiting: JoinSet::new(),
            heard: Arc::default(),
        }
    }

    /// The face of the caller, while there is a call in which it could ask.
    fn face(&self) -> Option<SharedAsker> {
        let present = self.asker.as_ref().filter(|(_, gone)| !gone.load(Ordering::Relaxed));
        present.map(|(asker, _)| asker.clone())
    }

    /// Asks about a name, beside everything else.
    pub(super) fn ask_about_name(&mut self, tasks: &Arc<Tasks>, held: HeldName) {
        let (tasks, task_id, control) = (tasks.clone(), self.task_id.clone(), self.control.clone());
        let (asker, heard) = (self.face(), self.heard.clone());
        self.waiting.spawn(async move {
            let answer = match task_of(&tasks, &task_id).await {
                Ok(task) => ask_about_name(&tasks, &task, &held, asker.as_ref()).await,
                Err(error) => Err(error),
            };
            let (number, allowed) = (held.number, answer.is_ok());
            match answer {
                Ok(Some(note)) => {
                    let words = format!("{}: the person who allowed it says: {note}", held.host);
                    lock(&heard).say(words);
                }
                Ok(None) => {}
                Err(error) => {
                    let why = reason(&error);
                    tracing::info!(%task_id, host = held.host, "not connected: {why}");
                    lock(&heard).refused_names.push((held, why));
                }
            }
            control.answer_name(number, allowed);
        });
    }

    /// Asks about a program, beside everything else.
    pub(super) fn ask(&mut self, tasks: &Arc<Tasks>, held: HeldProgram) {
        let (tasks, task_id, control) = (tasks.clone(), self.task_id.clone(), self.control.clone());
        let (asker, heard) = (self.face(), self.heard.clone());
        self.waiting.spawn(async move {
            let answer = ask(&tasks, &task_id, &held, asker.as_ref()).await;
            let allowed = answer.is_ok();
            match answer {
                Ok(Some(note)) => {
                    let words =
                        format!("`{}`: the person who allowed it says: {note}", line(&held));
                    lock(&heard).say(words);
                }
                Ok(None) => {}
                Err(error) => {
                    let rule = held.rule.clone();
                    let program = name(&held.path).into_owned();
                    let why = reason(&error);
                    tracing::info!(%task_id, rule, program, "not executed: {why}");
                    lock(&heard).refuse(rule, program, why);
                }
            }
            control.answer_program(held.number, allowed);
        });
    }

    /// Says of each program that was asked about and not executed why that was, and passes on what
    /// a person said of one that was.
    pub(super) fn explain(&self, outcome: &mut Outcome) {
        let mut heard = lock(&self.heard);
        outcome.warnings.append(&mut heard.said);
        for RefusedQuestion { rule, program, why } in &heard.refused {
            let is_meant = |denial: &&mut Denial| {
                denial.rule.as_ref() == Some(rule) && denial.program.as_ref() == Some(program)
            };
            if let Some(denial) = outcome.denials.iter_mut().find(is_meant) {
                denial.because(why);
            }
        }
        names::explain(&heard.refused_names, outcome);
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks about one program, and returns what the person who allows it says of it; an error says why
/// it may not run.
async fn ask(
    tasks: &Arc<Tasks>,
    task_id: &TaskId,
    held: &HeldProgram,
    face: Option<&SharedAsker>,
) -> Result<Option<String>, ToolError> {
    let task = task_of(tasks, task_id).await?;
    let said = tasks.judge.ask_about_program(asked(&task, held), face).await?;
    tasks.current().await.not_denied_by_now(&task, held).map(|()| said)
}

/// The same about a name.
async fn ask_about_name(
    tasks: &Arc<Tasks>,
    task: &Task,
    held: &HeldName,
    face: Option<&SharedAsker>,
) -> Result<Option<String>, ToolError> {
    let said = tasks.judge.ask_about_name(task, held, face).await?;
    tasks.current().await.name_not_denied_by_now(task, held).map(|()| said)
}

async fn task_of(tasks: &Tasks, task_id: &TaskId) -> Result<Task, ToolError> {
    let found = tasks.store.ledger.find(task_id.as_str()).await?;
    let found = found.into_iter().find(|task| task.task_id == *task_id);
    let unknown = || ToolError::new(ErrorKind::UnknownTask, "its task is not in the ledger");
    found.ok_or_else(unknown)
}

fn asked<'a>(task: &'a Task, held: &'a HeldProgram) -> AskedProgram<'a> {
    let file = if held.file.is_empty() { &held.path } else { &held.file };
    AskedProgram {
        task,
        rule: &held.rule,
        line: line(held),
        file: String::from_utf8_lossy(file).into_owned(),
        argv: &held.argv,
        lineage: &held.lineage,
    }
}

impl Tasks {
    /// An error if a program that a person has allowed is denied by now.
    fn not_denied_by_now(&self, task: &Task, held: &HeldProgram) -> Result<(), ToolError> {
        self.judge.check()?;
        let rules = self.judge.program_rules().into_iter();
        let rules = rules.filter(|rule| rule.tool.as_ref().is_none_or(|tool| *tool == task.tool));
        let rules: Vec<_> = rules.map(exec_rule).collect();
        match denial(&rules, &held.path, &held.file, &held.argv) {
            Some(rule) => Err(denied_by_now(&rule.id)),
            None => Ok(()),
        }
    }

    /// The same of a name.
    fn name_not_denied_by_now(&self, task: &Task, held: &HeldName) -> Result<(), ToolError> {
        self.judge.check()?;
        let trust = Trust::from_name(&task.trust).unwrap_or(Trust::UntrustedExternal);
        let rules = self.judge.name_rules(trust);
        let host = HostName::parse(&held.host);
        match host.as_ref().map(|host| rules.judge(host, held.port)) {
            Ok(NameVerdict::Denied(rule)) => Err(denied_by_now(&rule.id)),
            _ => Ok(()),
        }
    }

    /// Takes an answer to the program that waits for it, if no engine is there that would: the
    /// caller's is gone, and no other has adopted the command yet.
    pub(crate) async fn pass_on(&self, question: &Approval) -> Result<(), ToolError> {
        let Some(id) = &question.task_id else { return Ok(()) };
        let task = task_of(self, id).await?;
        if self.is_ours(id) || task.status.is_final() {
            return Ok(());
        }
        // Whoever has it hears of the answer.
        let Some(mut channel) = self.owned_channel(&task).await else { return Ok(()) };
        let held = async {
            loop {
                match channel.receive(id.as_str()).await {
                    Ok(FromWarden::ProgramHeld(held))
                        if self.judge.is_about(question, &asked(&task, &held)) =>
                    {
                        let allowed = self.not_denied_by_now(&task, &held).is_ok();
                        return Some(Order::AnswerProgram { number: held.number, allowed });
                    }
                    Ok(FromWarden::NameHeld(held))
                        if self.judge.is_about_name(question, &task, &held) =>
                    {
                        let allowed = self.name_not_denied_by_now(&task, &held).is_ok();
                        return Some(Order::AnswerName { number: held.number, allowed });
                    }
                    Ok(_) => {}
                    Err(_) => return None,
                }
            }
        };
        let Ok(Some(order)) = timeout(TOLD, held).await else { return Ok(()) };
        // What is told here is told to nobody else.
        let taken = self.judge.take(question, true).await?.is_some();
        if !taken {
            self.judge.take_refusal(question).await?;
        }
        let order = match order {
            Order::AnswerName { number, allowed } => {
                Order::AnswerName { number, allowed: allowed && taken }
            }
            Order::AnswerProgram { number, allowed } => {
                Order::AnswerProgram { number, allowed: allowed && taken }
            }
            other => other,
        };
        let _ = channel.send(&ToWarden::Order { task: id.to_string(), order }).await;
        Ok(())
    }
}

/// Why a program may not run, for whoever reads of its end.
fn reason(error: &ToolError) -> String {
    let detail = |name: &str| error.details.as_ref()?.get(name)?.as_str();
    let said = detail("note").map(|note| format!("; the person says: {note}"));
    let said = said.unwrap_or_default();
    match error.kind {
        ErrorKind::ApprovalRefused => format!("{}{said}", crate::model::REFUSED_BY_PERSON),
        ErrorKind::CommandDenied => error.message.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_heard_any_number_of_times_is_kept_once_and_of_others_only_so_many() {
        let mut heard = Heard::default();
        for number in 0..10_000 {
            heard.say("`make`: the person who allowed it says: with care".into());
            heard.refuse("no-curl".into(), "curl".into(), format!("why {number}"));
        }
        assert_eq!((heard.said.len(), heard.refused.len()), (1, 1));
        assert_eq!(heard.refused.first().unwrap().why, "why 9999", "the last answer counts");
        for number in 0..10_000 {
            heard.say(format!("`make {number}`: the person who allowed it says: with care"));
            heard.refuse("no-curl".into(), format!("curl{number}"), "refused".into());
        }
        assert_eq!((heard.said.len(), heard.refused.len()), (SAID_MAX, REFUSED_MAX));
    }
}
