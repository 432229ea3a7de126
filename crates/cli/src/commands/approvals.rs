//! `legwork approvals`, `approve` and `deny`: questions about commands, and their answers.

use std::{convert::Infallible, process::ExitCode};

use legwork::{Answered, Approval, Engine, ErrorKind, EventKind, Interest, Reply, ToolError};
use serde_json::json;

use crate::{
    arguments::{ApprovalsOptions, ApproveOptions, DenyOptions, StateChoice},
    asking,
    render::{complain, complain_of, print, print_json},
};

pub(crate) async fn approvals(options: ApprovalsOptions) -> ExitCode {
    let engine = match options.state.open() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    if options.watch {
        return watch(&engine).await;
    }
    match engine.approvals().await {
        Err(error) => complain_of(&error),
        Ok(open) if options.json => print_json(&json!({ "approvals": open })),
        Ok(open) if open.is_empty() => print("No open questions\n"),
        Ok(open) => print(&open.iter().map(described).collect::<String>()),
    }
}

fn described(approval: &Approval) -> String {
    format!("{}\n{}\n", approval.approval_id, approval.question())
}

/// Answers questions as they come, until it is interrupted.
async fn watch(engine: &Engine) -> ExitCode {
    if asking::person().is_none() {
        return complain("--watch needs a terminal to ask on");
    }
    match answer_all(engine).await {
        Ok(never) => match never {},
        Err(error) => complain_of(&error),
    }
}

async fn answer_all(engine: &Engine) -> Result<Infallible, ToolError> {
    // For as long as this lives, callers know that somebody is here.
    let _here = engine.watch_approvals()?;
    let mut events = engine.events(None, Interest::Changes).await?;
    print("Waiting for questions; Ctrl-C ends it\n");
    loop {
        for approval in engine.approvals().await? {
            let id = approval.approval_id.clone();
            let asked = tokio::task::spawn_blocking(move || asking::ask(&approval));
            let Some(answered) = asked.await.ok().flatten() else {
                return Err(ToolError::new(ErrorKind::ToolExecutionFailed, "the terminal is gone"));
            };
            if let Err(error) = engine.answer(&id, answered).await {
                print(&format!("{}\n", error.message));
            }
        }
        while let Ok(event) = events.next().await {
            if matches!(event.what, EventKind::QuestionOpened { .. }) {
                break;
            }
        }
    }
}

pub(crate) async fn approve(options: ApproveOptions) -> ExitCode {
    let ApproveOptions { id, session, rule, outside_sandbox, note, state } = options;
    let decision = match (session, rule, outside_sandbox) {
        (true, ..) => Reply::AllowSession,
        (_, true, _) => Reply::AllowRule,
        (.., true) => Reply::AllowOnceUnconfined,
        _ => Reply::AllowOnce,
    };
    answer(state, &id, decision, note).await
}

pub(crate) async fn deny(options: DenyOptions) -> ExitCode {
    answer(options.state, &options.id, Reply::Deny, options.note).await
}

async fn answer(state: StateChoice, id: &str, decision: Reply, note: Option<String>) -> ExitCode {
    let engine = match state.open() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    let answered = Answered { decision, note, by: "the command line".into() };
    match engine.answer(id, answered).await {
        Ok(approval) => print(&format!("{}: {}\n", approval.approval_id, decision.as_str())),
        Err(error) => complain_of(&error),
    }
}
