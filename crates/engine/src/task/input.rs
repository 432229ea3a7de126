//! Input to a task whose command reads it as code (a shell, an interpreter): it is noted in the
//! audit log, and in strict mode judged like a command where a shell would read it.
//!
//! Input that is taken for data is not noted: it may be a password.

use std::{path::Path, sync::Arc};

use legwork_gate::{CodeReader, Decision, Level, Script, Subject, Verdict, reads_code};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Tasks;
use crate::{
    error::{ErrorKind, ToolError},
    judge::{Facts, denied, denied_by_now},
    model::{Caller, Trust, sandbox::Wanted},
    store::{audit::AuditEntry, ledger::Task},
};

/// Text that is to be sent to a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypedText<'a> {
    /// The tool through which it comes.
    pub tool: &'a str,
    /// The text.
    pub text: &'a str,
    /// The name of a key that is pressed after it.
    pub key: Option<&'a str>,
    /// Whether that ends a line, or the input.
    pub ends_line: bool,
}

/// Lines for a shell that runs already, as the judge sees them.
#[derive(Clone)]
struct ShellLines<'a> {
    input: TypedText<'a>,
    task: &'a Task,
    trust: Trust,
    wanted: Wanted,
    fingerprint: [u8; 32],
}

impl Subject for ShellLines<'_> {
    fn tool(&self) -> &str {
        self.input.tool
    }

    fn script(&self) -> Script<'_> {
        Script::Shell(self.input.text)
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn workspace(&self) -> Option<&str> {
        Some(&self.task.workspace)
    }

    fn level(&self) -> Level {
        self.wanted.level
    }

    fn sandboxed(&self) -> bool {
        self.wanted.level != Level::None && self.task.sandbox.missing.is_empty()
    }
}

impl Facts for ShellLines<'_> {
    fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    fn executed(&self) -> String {
        format!("the shell of task {}: {}", self.task.task_id, self.task.command)
    }

    fn is_default_shell(&self) -> bool {
        false
    }

    fn environment(&self) -> &[(String, String)] {
        &[]
    }

    fn text(&self) -> &str {
        self.input.text
    }

    fn description(&self) -> Option<&str> {
        None
    }

    fn workdir(&self) -> &Path {
        Path::new(&self.task.workdir)
    }

    fn wanted(&self) -> Wanted {
        self.wanted
    }

    fn starts_anew(&self) -> bool {
        false
    }
}

impl Tasks {
    /// Lets input through to a task, or says why not: its caller must be one who may act on it, and
    /// what is code there is noted first.
    pub(crate) async fn admit_input(
        self: &Arc<Self>,
        task: &Task,
        input: TypedText<'_>,
        caller: &Caller,
    ) -> Result<(), ToolError> {
        self.right(caller, task).map_err(|only_sees| only_sees.refusal(task))?;
        let Some(reader) = reads_code(&task.command) else { return Ok(()) };
        let entry = AuditEntry::new("input")
            .own("task_id", &task.task_id)
            .own("tool", input.tool)
            .own("reader", &reader)
            .own("input_bytes", &input.text.len())
            .by(caller)
            .with("key", input.key)
            .with("input", input.text);
        self.store.note_first(entry).await?;
        if reader == CodeReader::Shell && self.judge.is_strict() {
            return self.judge_lines(task, input, caller).await;
        }
        Ok(())
    }

    /// Lets a caller type on a task's terminal key by key, or says why not. Keys that are typed one
    /// by one cannot be judged: in strict mode only a person, who could approve the lines anyway,
    /// types so into a shell. Where the input is code it is noted that it comes, and from whom; the
    /// terminal's echo has the rest.
    pub(crate) async fn admit_typing(
        &self,
        task: &Task,
        caller: &Caller,
        is_first: bool,
    ) -> Result<(), ToolError> {
        if let Err(only_sees) = self.right(caller, task) {
            let error = only_sees.refusal(task);
            let entry = AuditEntry::refused(&error).own("task_id", &task.task_id);
            self.store.note(entry.by(caller)).await;
            return Err(error);
        }
        let Some(reader) = reads_code(&task.command) else { return Ok(()) };
        if reader == CodeReader::Shell && self.judge.is_strict() && !caller.is_person {
            return Err(half_a_line(task));
        }
        if !is_first {
            return Ok(());
        }
        let entry = AuditEntry::new("typing")
            .own("task_id", &task.task_id)
            .own("reader", &reader)
            .by(caller);
        self.store.note_first(entry).await
    }

    /// Judges what a shell would run, as if it were a command of its own.
    async fn judge_lines(
        self: &Arc<Self>,
        task: &Task,
        input: TypedText<'_>,
        caller: &Caller,
    ) -> Result<(), ToolError> {
        // Half a line, or one that keys have put together, cannot be judged.
        let harmless = matches!(input.key, None | Some("enter" | "ctrl-c" | "ctrl-d"));
        let whole = input.text.is_empty() || input.ends_line || input.text.ends_with('\n');
        if !harmless || !whole {
            return Err(half_a_line(task));
        }
        if input.text.trim().is_empty() {
            return Ok(());
        }
        let operator = caller.trust.reaches(Trust::TrustedSystem);
        let lines = ShellLines {
            input,
            task,
            trust: caller.trust,
            wanted: Wanted {
                level: task.sandbox.level,
                network: task.sandbox.network_mode(),
                operator,
            },
            fingerprint: fingerprint(task, input.text),
        };
        let entry = AuditEntry::new("verdict")
            .own("task_id", &task.task_id)
            .own("tool", input.tool)
            .by(caller)
            .command(input.text)
            .with("workdir", task.workdir.as_str());
        let again = lines.clone();
        match self.judge.verdict(lines, entry).await? {
            Verdict::Allow(_) => Ok(()),
            Verdict::Ask(question) => {
                self.judge.ask(question, caller, Vec::new(), false).await?;
                let now = self.current().await;
                now.judge.check()?;
                let checked = now.judge.look(&again);
                match checked.verdict {
                    Decision::Deny => Err(denied_by_now(checked.rule.as_deref().unwrap_or("?"))),
                    Decision::Allow | Decision::Ask => Ok(()),
                }
            }
            Verdict::Deny(denial) => Err(denied(denial)),
        }
    }
}

/// An approval of input is for this text, in this task.
fn fingerprint(task: &Task, text: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"input\0");
    hash.update(task.task_id.as_str());
    hash.update(b"\0");
    hash.update(text);
    hash.finalize().into()
}

fn half_a_line(task: &Task) -> ToolError {
    ToolError::new(
        ErrorKind::CommandDenied,
        "a shell reads this input, and in strict mode only whole lines can be judged",
    )
    .detail("task_id", json!(task.task_id))
    .hint("send whole lines that end with a newline; of keys only enter, ctrl-c and ctrl-d")
}
