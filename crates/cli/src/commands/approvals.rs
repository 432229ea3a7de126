//! `legwork approvals`, `approve` and `deny`: questions about commands, and their answers.

use std::{process::ExitCode, time::Duration};

use legwork::{Answered, Approval, Decision, Engine};
use serde_json::json;

use crate::{
    arguments::{ApprovalsOptions, ApproveOptions, DenyOptions, State},
    asking,
    render::{complain, complain_of, print, print_json},
};

/// How often a watcher looks for new questions.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    print("Waiting for questions; Ctrl-C ends it\n");
    loop {
        if let Err(error) = engine.watch_approvals().await {
            return complain_of(&error);
        }
        let open = match engine.approvals().await {
            Ok(open) => open,
            Err(error) => return complain_of(&error),
        };
        for approval in open {
            let id = approval.approval_id.clone();
            let asked = tokio::task::spawn_blocking(move || asking::ask(&approval));
            // While the person thinks, callers know that somebody is here.
            let answered = tokio::select! {
                answered = asked => answered.ok().flatten(),
                () = stay(engine) => None,
            };
            let Some(answered) = answered else { return complain("the terminal is gone") };
            if let Err(error) = engine.answer(&id, answered).await {
                print(&format!("{}\n", error.message));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Says again and again that somebody is here.
async fn stay(engine: &Engine) {
    while engine.watch_approvals().await.is_ok() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub(crate) async fn approve(options: ApproveOptions) -> ExitCode {
    let ApproveOptions { id, session, rule, note, state } = options;
    let decision = match (session, rule) {
        (true, _) => Decision::AllowSession,
        (_, true) => Decision::AllowRule,
        _ => Decision::AllowOnce,
    };
    answer(state, &id, decision, note).await
}

pub(crate) async fn deny(options: DenyOptions) -> ExitCode {
    answer(options.state, &options.id, Decision::Deny, options.note).await
}

async fn answer(state: State, id: &str, decision: Decision, note: Option<String>) -> ExitCode {
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
