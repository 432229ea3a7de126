//! A question about a command, its answer, and who can be asked.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    future::Future,
    pin::Pin,
    sync::Arc,
};

use legwork_gate::{Part, visible};
use serde::{Deserialize, Serialize};

use crate::{clock::now_ms, id::TaskId};

/// A question about a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The id.
    pub approval_id: String,
    /// The tool through which the command came.
    pub tool: String,
    /// The command, as it was asked for.
    pub command: String,
    /// What the caller says that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The file that would be executed, and what it links to: a program, or a shell that is not
    /// the default one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interpreter: Option<String>,
    /// The folder that it would run in.
    pub workdir: String,
    /// The workspace of the caller.
    pub workspace: String,
    /// Who asks.
    pub asked_by: String,
    /// How far that caller is trusted.
    pub trust: String,
    /// Why it has to be asked.
    pub reason: String,
    /// The rule that says so.
    pub rule: String,
    /// The part of the command that is the cause.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// What it would be confined to.
    pub sandbox: String,
    /// Paths that it names to write to, and that its sandbox will not let it write.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused: Vec<String>,
    /// Whether it may be allowed to run outside the sandbox: [`Reply::AllowOnceUnconfined`].
    pub may_leave_sandbox: bool,
    /// Whether it may be tried on a copy first: [`Reply::TryFirst`].
    pub may_try: bool,
    /// Where it was tried already: what it did there. Then [`Reply::Apply`] brings that over.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tried: Option<Box<TriedCommand>>,
    /// Whether one answer may count for all equal commands of the session: only where the text was
    /// understood.
    pub may_repeat: bool,
    /// The task that waits for the answer before it executes a program or connects to a host. When
    /// the task is over, so is the question.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub task_id: Option<TaskId>,
    /// Where the question is about a program that the command is about to execute: the command
    /// lines of the processes that led to it, the command itself first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lineage: Vec<String>,
    /// The simple commands, each with what is said of it by itself.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<Part>,
    /// The rule that would allow exactly this from now on; none where that cannot be said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub proposed_rule: Option<String>,
    /// When it was asked, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Until when it can be answered.
    pub expires_at_ms: i64,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Reply>,
    /// What whoever answered wants the caller to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answered_by: Option<String>,
    /// Equal for equal commands of one caller, confined in the same way: what is approved is what
    /// runs.
    #[serde(skip)]
    pub(crate) key: String,
    /// The engine that asked: a session lasts as long as it does.
    #[serde(skip)]
    pub(crate) session: String,
}

/// What a command did that was tried on a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedCommand {
    /// The trial.
    pub task_id: TaskId,
    /// How it ended, in words.
    pub ended: String,
    /// What it was confined to, which is not what it is confined to when it runs: a trial has no
    /// network.
    pub sandbox: String,
    /// How many files it made, changed and removed, in words.
    pub summary: String,
    /// The files, one a line: `+` made, `~` changed, `-` removed, `.` touched. Of many the first.
    pub list: String,
    /// A unified diff, cut where it is long.
    pub diff: String,
    /// The end of what it printed.
    pub output: String,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Not yet: on a copy first, then ask again with what it would change.
    TryFirst,
    /// What it changed when it was tried is brought over; it does not run again.
    Apply,
    /// This once.
    AllowOnce,
    /// This once, outside the sandbox: only where the question says that it may leave it.
    AllowOnceUnconfined,
    /// Exactly this command in this folder, for as long as the asking program runs.
    AllowSession,
    /// Exactly this command from now on: the rule that the question shows is saved.
    AllowRule,
    /// No.
    Deny,
}

impl Reply {
    /// All of them, the safest first.
    pub const ALL: [Self; 7] = [
        Self::Deny,
        Self::TryFirst,
        Self::Apply,
        Self::AllowOnce,
        Self::AllowOnceUnconfined,
        Self::AllowSession,
        Self::AllowRule,
    ];

    /// The name in JSON and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TryFirst => "try_first",
            Self::Apply => "apply",
            Self::AllowOnce => "allow_once",
            Self::AllowOnceUnconfined => "allow_once_unconfined",
            Self::AllowSession => "allow_session",
            Self::AllowRule => "allow_rule",
            Self::Deny => "deny",
        }
    }

    /// The decision of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.as_str() == name)
    }
}

/// What somebody answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Yes or no.
    pub decision: Reply,
    /// What the caller is to know.
    pub note: Option<String>,
    /// Who answered.
    pub by: String,
}

/// What came of a question on a face.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaceAnswer {
    /// The person answered it.
    Answered(Answered),
    /// The person closed it without an answer, or the client did.
    Closed,
    /// It was shown to nobody.
    NotShown,
}

/// A future that a face returns.
pub type AskFuture = Pin<Box<dyn Future<Output = FaceAnswer> + Send>>;

/// A face that can ask a person.
pub trait Asker: Send + Sync {
    /// Asks, and waits for the answer.
    fn ask(&self, approval: Approval) -> AskFuture;

    /// Resolves when the face has let go of a question that was answered: nothing that was allowed
    /// starts before. False if the person called it off meanwhile.
    fn lets_go(&self) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(std::future::ready(true))
    }
}

impl fmt::Debug for dyn Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Asker")
    }
}

impl Approval {
    /// The question as a person is to read it: first why it is asked, since some clients show only
    /// a few lines, then the whole command, with nothing that could hide a part of it.
    pub fn question(&self) -> String {
        let mut text = format!("{} (rule: {})\n", visible(&self.reason), visible(&self.rule));
        if let Some(cause) = &self.cause {
            let _ = writeln!(text, "    {}", visible(cause));
        }
        let is_name = self.task_id.is_some() && self.lineage.is_empty();
        text.push_str(match &self.tried {
            Some(_) => "\nThis command was tried on a copy. Is what it did to be applied?\n\n",
            None if is_name => {
                "\nMay it connect? The connection waits, and with it this command:\n\n"
            }
            None if self.lineage.is_empty() => "\nMay this command run?\n\n",
            None => "\nMay this program run? It waits, and with it this command:\n\n",
        });
        for line in self.command.lines() {
            let _ = writeln!(text, "    {}", visible(line));
        }
        if let Some(description) = &self.description {
            let _ = writeln!(text, "\nThe caller's own words about it: {}", visible(description));
        }
        if let Some(tried) = &self.tried {
            tried.describe(&mut text);
        }
        if !self.lineage.is_empty() {
            text.push_str("\nThe processes that led to it:\n");
            for (depth, line) in self.lineage.iter().enumerate() {
                let _ = writeln!(text, "    {:depth$}{}", "", visible(line));
            }
        }
        if self.parts.len() > 1 {
            text.push_str("\nIts parts:\n");
            for Part { text: part, verdict, .. } in &self.parts {
                let _ = writeln!(text, "    {:<5}  {}", verdict.as_str(), visible(part));
            }
        }
        text.push('\n');
        if let Some(interpreter) = &self.interpreter {
            let _ = writeln!(text, "run by:   {}", visible(interpreter));
        }
        let _ = writeln!(text, "in:       {}", visible(&self.workdir));
        if self.workspace != self.workdir {
            let _ = writeln!(text, "project:  {}", visible(&self.workspace));
        }
        let _ = writeln!(text, "sandbox:  {}", visible(&self.confinement()));
        for path in &self.refused {
            let _ = writeln!(text, "          {} is not writable in the sandbox", visible(path));
        }
        let (name, trust, tool) = (visible(&self.asked_by), visible(&self.trust), &self.tool);
        let _ = writeln!(text, "asked by: {name} ({trust}), through {tool}");
        if let Some(rule) = &self.proposed_rule {
            text.push_str("\nThe rule that can be saved for it:\n");
            for line in rule.lines() {
                let _ = writeln!(text, "    {}", visible(line));
            }
        }
        text
    }

    /// What it would be confined to, after what it was confined to when it was tried.
    pub fn confinement(&self) -> Cow<'_, str> {
        match &self.tried {
            Some(tried) if tried.sandbox != self.sandbox => {
                format!("{} when it was tried; {} if it runs", tried.sandbox, self.sandbox).into()
            }
            _ => self.sandbox.as_str().into(),
        }
    }

    /// The answers that can be given while its asker is here, the safest first;
    /// [`Engine::replies`](crate::Engine::replies) are those that can be given now.
    pub fn replies(&self) -> Vec<Reply> {
        let can_be = |reply: &Reply| match reply {
            Reply::AllowOnceUnconfined => self.may_leave_sandbox,
            Reply::AllowRule => self.proposed_rule.is_some(),
            Reply::AllowSession => self.may_repeat,
            Reply::TryFirst => self.may_try,
            Reply::Apply => self.tried.is_some(),
            Reply::Deny | Reply::AllowOnce => true,
        };
        Reply::ALL.into_iter().filter(can_be).collect()
    }

    pub(crate) fn is_expired(&self) -> bool {
        now_ms() >= self.expires_at_ms
    }
}

impl TriedCommand {
    fn describe(&self, text: &mut String) {
        let _ = writeln!(text, "\nTried: {}; {}.", visible(&self.ended), visible(&self.summary));
        for part in [&self.list, &self.diff] {
            for line in part.lines() {
                let _ = writeln!(text, "    {}", shown_line(line));
            }
        }
        if !self.output.is_empty() {
            text.push_str("\nIt printed:\n");
            for line in self.output.lines() {
                let _ = writeln!(text, "    {}", shown_line(line));
            }
        }
    }
}

/// A line of a file: its tabs are no secret.
fn shown_line(line: &str) -> String {
    line.split('\t').map(visible).collect::<Vec<_>>().join("    ")
}

/// A face that asks, as callers carry it.
pub type SharedAsker = Arc<dyn Asker>;

#[cfg(test)]
mod tests {
    use legwork_gate::{Decision, Span};

    use super::*;

    fn part(text: &str, verdict: Decision) -> Part {
        Part { text: text.into(), verdict, span: Span::default(), program: None }
    }

    fn hostile() -> Approval {
        Approval {
            approval_id: "a_x".into(),
            tool: "ExecCommand".into(),
            command: "echo safe\u{202e}\u{1b}[2K\r# \u{200b}\u{e0041}\nrm -rf x".into(),
            description: Some("harmless\n\nMay this command run? yes".into()),
            interpreter: Some("/w/sh\u{202e}".into()),
            workdir: "/w".into(),
            workspace: "/w".into(),
            asked_by: "client\u{7}".into(),
            trust: "trusted_operator".into(),
            reason: "r".into(),
            rule: "dangerous".into(),
            cause: Some("rm -rf x\u{200b}".into()),
            sandbox: "none".into(),
            created_at_ms: 0,
            expires_at_ms: 0,
            parts: vec![part("echo safe", Decision::Allow), part("rm -rf x", Decision::Ask)],
            refused: vec!["/etc/\u{7}".into()],
            may_leave_sandbox: true,
            may_try: false,
            tried: None,
            may_repeat: true,
            task_id: None,
            lineage: Vec::new(),
            proposed_rule: None,
            decision: None,
            note: None,
            answered_by: None,
            key: String::new(),
            session: String::new(),
        }
    }

    #[test]
    fn nothing_hides_in_a_question() {
        let text = hostile().question();
        assert!(text.is_ascii() && !text.contains(['\u{1b}', '\r', '\u{7}']), "{text}");
        assert!(text.contains(
            "    echo safe\\u{202e}\\u{1b}[2K\\u{d}# \\u{200b}\\u{e0041}\n    rm -rf x\n"
        ));
        assert!(text.starts_with("r (rule: dangerous)\n    rm -rf x\\u{200b}\n"), "{text}");
        assert!(text.contains("run by:   /w/sh\\u{202e}\n"), "{text}");
        let (command, words) = text.split_once("\n\nThe caller's own words about it: ").unwrap();
        assert!(command.ends_with("\n    rm -rf x"), "below the command: {text}");
        let rest = words.split_once('\n').unwrap().1;
        assert!(rest.starts_with('\n'), "the caller's words stay one line: {text}");
    }

    #[test]
    fn a_question_about_a_tried_command_tells_the_sandbox_of_the_trial_from_that_of_a_run() {
        let sandbox = |tried: Option<&str>| {
            let tried = tried.map(|sandbox| {
                Box::new(TriedCommand {
                    task_id: TaskId::random().unwrap(),
                    ended: "exit code 0".into(),
                    sandbox: sandbox.into(),
                    summary: "1 removed".into(),
                    list: String::new(),
                    diff: String::new(),
                    output: String::new(),
                })
            });
            let sandbox = "workspace-write, with network".into();
            let text = Approval { sandbox, tried, ..hostile() }.question();
            text.lines().find_map(|line| line.strip_prefix("sandbox:  ")).unwrap().to_owned()
        };
        let (run, trial) = ("workspace-write, with network", "workspace-write, no network");
        assert_eq!(sandbox(None), run);
        assert_eq!(sandbox(Some(trial)), format!("{trial} when it was tried; {run} if it runs"));
        // Where a trial has the network as well.
        assert_eq!(sandbox(Some(run)), run);
    }
}
