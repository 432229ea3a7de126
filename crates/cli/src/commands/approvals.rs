//! `legwork approvals`, `approve` and `deny`: questions about commands, and their answers.

use std::{
    convert::Infallible,
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use legwork::{
    Answered, Approval, Engine, ErrorKind, Events, Interest, Reply, ToolError, user_file,
};
use serde_json::json;

use super::listed::{age, in_time};
use crate::{
    arguments::{ApprovalsOptions, ApproveOptions, DenyOptions, StateChoice},
    asking::{self, PersonSaid, Sitting, consequence},
    render::{CANCELLED, complain, complain_of, escaped, now_ms, one_line, print, print_json},
    signals::{Caught, ENDING},
    style::{Style, Tone, cut_middle},
    table::{Table, TableCell},
};

/// Least characters of an id: fewer would not look like one.
const ID_CHARS_MIN: usize = 6;

pub(crate) async fn approvals(options: ApprovalsOptions) -> ExitCode {
    if options.watch {
        return match options.state.open() {
            Ok(engine) => watch(&engine).await,
            Err(error) => complain_of(&error),
        };
    }
    let open = match options.state.existing() {
        Ok(Some(engine)) => Open::read(&engine).await,
        Ok(None) => Ok(Open::default()),
        Err(error) => Err(error),
    };
    match (open, &options.id) {
        (Err(error), _) => complain_of(&error),
        (Ok(open), Some(id)) => match open.one(id) {
            Err(error) => complain_of(&error),
            Ok(one) if options.json => print_json(&one.approval),
            Ok(one) => print(&one.described()),
        },
        (Ok(open), None) if options.json => print_json(&json!({ "approvals": open.approvals() })),
        (Ok(open), None) => print(&open.table(Style::of_stdout())),
    }
}

/// The open questions: first those whose asker is still there, the oldest of them first.
#[derive(Debug, Default)]
pub(super) struct Open(Vec<OpenQuestion>);

/// An open question.
#[derive(Debug)]
struct OpenQuestion {
    approval: Approval,
    /// Whether its asker is still there.
    is_live: bool,
    /// The answers that can be given to it.
    replies: Vec<Reply>,
}

impl Open {
    pub(super) async fn read(engine: &Engine) -> Result<Self, ToolError> {
        let open = engine.approvals().await?;
        let known = |approval: Approval| {
            let (is_live, replies) = (engine.is_asking(&approval), engine.replies(&approval));
            OpenQuestion { approval, is_live, replies }
        };
        let mut open: Vec<_> = open.into_iter().map(known).collect();
        open.sort_by_key(|one| (!one.is_live, one.approval.created_at_ms));
        Ok(Self(open))
    }

    pub(super) fn approvals(&self) -> Vec<&Approval> {
        self.0.iter().map(|one| &one.approval).collect()
    }

    fn one(&self, prefix: &str) -> Result<&OpenQuestion, ToolError> {
        let mut found = self.0.iter().filter(|one| one.approval.approval_id.starts_with(prefix));
        let unknown = |problem: String| Err(ToolError::new(ErrorKind::UnknownApproval, problem));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => unknown(format!("more than one question begins with `{prefix}`")),
            (None, _) => unknown(format!("no open question has the id `{prefix}`")),
        }
    }

    /// How many characters of each id are enough to tell the open questions apart.
    fn id_chars(&self) -> usize {
        let ids: Vec<&str> = self.0.iter().map(|one| one.approval.approval_id.as_str()).collect();
        let is_enough = |chars: &usize| {
            let mut short: Vec<_> = ids.iter().map(|id| id.get(..*chars)).collect();
            short.sort_unstable();
            short.dedup();
            short.len() == ids.len()
        };
        (ID_CHARS_MIN..64).find(is_enough).unwrap_or(64)
    }

    pub(super) fn table(&self, style: Style) -> String {
        if self.0.is_empty() {
            return "No open questions\n".into();
        }
        let chars = self.id_chars();
        let mut table = Table::new(["QUESTION", "AGE", "EXPIRES", "CALLER", "ASKED BY", "COMMAND"]);
        for OpenQuestion { approval, is_live, .. } in &self.0 {
            let id = approval.approval_id.as_str();
            let caller = if *is_live { (Tone::Notable, "running") } else { (Tone::Faint, "gone") };
            table.add([
                id.get(..chars).unwrap_or(id).to_owned().into(),
                age(approval.created_at_ms).into(),
                in_time(approval.expires_at_ms).into(),
                TableCell::new(caller.0, caller.1),
                one_line(&approval.asked_by, 16).into(),
                escaped(&subject(approval)).into(),
            ]);
        }
        let mut text = table.render(style);
        let hint = "legwork approvals ID shows one, approve and deny answer it";
        let hint = cut_middle(hint, style.width.unwrap_or(usize::MAX));
        text.push_str(&format!("{}\n", style.paint(Tone::Faint, &hint)));
        text
    }
}

/// What a question is about: a command, or a program that a command is about to run.
fn subject(approval: &Approval) -> String {
    match &approval.cause {
        Some(program) if !approval.lineage.is_empty() => {
            format!("{program} (in {})", approval.command)
        }
        _ => approval.command.clone(),
    }
}

impl OpenQuestion {
    /// A question with everything that there is to know of it.
    fn described(&self) -> String {
        let (approval, id) = (&self.approval, &self.approval.approval_id);
        let (asked, expires) = (age(approval.created_at_ms), in_time(approval.expires_at_ms));
        let mut text = format!("{id}, asked {asked} ago, expires in {expires}\n\n");
        text.push_str(&approval.question());
        text.push_str(&format!("\nlegwork approve {id}            allow it once\n"));
        if self.replies.contains(&Reply::TryFirst) {
            text.push_str(&format!("legwork approve {id} --try      try it on a copy first\n"));
        }
        if self.replies.contains(&Reply::Apply) {
            text.push_str(&format!(
                "legwork approve {id} --apply    apply what it did, without running it again\n"
            ));
        }
        if self.replies.contains(&Reply::AllowOnceUnconfined) {
            let option = "--outside-sandbox";
            text.push_str(&format!(
                "legwork approve {id} {option}  allow it once, OUTSIDE the sandbox\n"
            ));
        }
        if self.replies.contains(&Reply::AllowSession) {
            text.push_str(&format!(
                "legwork approve {id} --session  allow it for as long as the caller runs\n"
            ));
        }
        if let (true, Some(file)) = (self.replies.contains(&Reply::AllowRule), user_file()) {
            let file = file.display();
            text.push_str(&format!("legwork approve {id} --rule     save the rule in {file}\n"));
        }
        text.push_str(&format!("legwork deny {id}               refuse it\n"));
        text
    }
}

/// Answers questions as they come, until it is interrupted.
async fn watch(engine: &Engine) -> ExitCode {
    if asking::person().is_none() {
        return complain("--watch needs a terminal to ask on");
    }
    match answer_all(engine).await {
        Ok(never) => match never {},
        Err(Some(error)) => complain_of(&error),
        Err(None) => ExitCode::from(CANCELLED),
    }
}

/// Asks one question after another; an end without an error is somebody's Ctrl-C.
async fn answer_all(engine: &Engine) -> Result<Infallible, Option<ToolError>> {
    // For as long as this lives, callers know that somebody is here.
    let _here = engine.watch_approvals(None)?;
    let mut events = engine.events(None, Interest::Changes).await?;
    let mut signals = Caught::new(&ENDING);
    print("Waiting for questions; Ctrl-C ends it\n");
    // One for all questions: what is typed at one of them answers no other.
    let mut sitting = Sitting::open().map_err(|error| gone(&error))?;
    loop {
        let Some(approval) = engine.approvals().await?.into_iter().next() else {
            tokio::select! {
                () = changed(&mut events) => {}
                ended = sitting.wait() => {
                    let ended = ended.err().unwrap_or(io::ErrorKind::UnexpectedEof.into());
                    return Err(Some(gone(&ended)));
                }
                _ = signals.next() => return Err(None),
            }
            continue;
        };
        let replies = engine.replies(&approval);
        let said = tokio::select! {
            said = sitting.ask(&approval, &replies) => said,
            closed = closed(engine, &mut events, &approval) => {
                closed?;
                let command = escaped(&subject(&approval));
                print(&format!("\nAnswered elsewhere, or expired: {command}\n"));
                continue;
            }
        };
        let (decision, note) = match said {
            Ok(PersonSaid::Reply(decision, note)) => (decision, note),
            // It stays open for whoever else can answer.
            Ok(PersonSaid::Cancelled) => return Err(None),
            Err(error) => return Err(Some(gone(&error))),
        };
        let answered = Answered { decision, note, by: "the command line".into() };
        match engine.answer(&approval.approval_id, answered).await {
            Ok(approval) => print(&format!("{}\n", consequence(&approval, decision))),
            Err(error) => print(&format!("{}\n", error.message)),
        };
    }
}

fn gone(error: &io::Error) -> ToolError {
    let problem = format!("the terminal is gone: {error}");
    ToolError::new(ErrorKind::ToolExecutionFailed, problem)
}

/// Resolves when there may be another question, or one less. Safe to cancel.
async fn changed(events: &mut Events) {
    while let Ok(event) = events.next().await {
        if event.what.approval_id().is_some() {
            break;
        }
    }
}

/// Resolves when a question is open no more. Safe to cancel.
async fn closed(
    engine: &Engine,
    events: &mut Events,
    approval: &Approval,
) -> Result<(), ToolError> {
    let left_ms = approval.expires_at_ms.saturating_sub(now_ms());
    let expires = Instant::now() + Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
    loop {
        tokio::select! {
            () = changed(events) => {}
            () = tokio::time::sleep_until(expires.into()) => return Ok(()),
        }
        let open = engine.approvals().await?;
        if !open.iter().any(|one| one.approval_id == approval.approval_id) {
            return Ok(());
        }
    }
}

pub(crate) async fn approve(options: ApproveOptions) -> ExitCode {
    let chosen = [
        (options.session, Reply::AllowSession),
        (options.rule, Reply::AllowRule),
        (options.outside_sandbox, Reply::AllowOnceUnconfined),
        (options.try_first, Reply::TryFirst),
        (options.apply, Reply::Apply),
    ];
    let decision = chosen.into_iter().find(|(chosen, _)| *chosen).map(|(_, reply)| reply);
    let decision = decision.unwrap_or(Reply::AllowOnce);
    answer(&options.state, &options.id, decision, options.note).await
}

pub(crate) async fn deny(options: DenyOptions) -> ExitCode {
    answer(&options.state, &options.id, Reply::Deny, options.note).await
}

async fn answer(state: &StateChoice, id: &str, decision: Reply, note: Option<String>) -> ExitCode {
    let answered = Answered { decision, note, by: "the command line".into() };
    let recorded = match state.existing() {
        Ok(Some(engine)) => engine.answer(id, answered).await,
        Ok(None) => {
            let problem = format!("no open question has the id `{id}`");
            Err(ToolError::new(ErrorKind::UnknownApproval, problem))
        }
        Err(error) => Err(error),
    };
    match recorded {
        Ok(approval) => {
            let command = escaped(&subject(&approval));
            print(&format!("{} {command}\n", consequence(&approval, decision)))
        }
        Err(error) => complain_of(&error),
    }
}
