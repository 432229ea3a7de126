//! Judges commands without running them, for `legwork policy check`.

use std::{path::Path, sync::Arc};

use legwork_gate::{Checked, Trust};

use super::{Tasks, plan::Plan};

/// Judges commands of one tool and one caller. All but the command is decided once: folder, shell,
/// trust, sandbox.
#[derive(Debug)]
pub struct Checker {
    tasks: Arc<Tasks>,
    plan: Plan,
}

impl Checker {
    pub(super) fn new(tasks: Arc<Tasks>, plan: Plan) -> Self {
        Self { tasks, plan }
    }

    /// Judges a script.
    pub fn script(&mut self, text: &str) -> Checked {
        self.plan.set_script(text);
        self.tasks.judge.look(&self.plan)
    }

    /// Judges a program with its arguments.
    pub fn argv(&mut self, argv: Vec<String>) -> Checked {
        self.plan.set_argv(argv);
        self.tasks.judge.look(&self.plan)
    }

    /// The simple commands of the script that was judged last, each with the verdict on it by
    /// itself; none of a program with its arguments.
    pub fn parts(&self) -> Vec<(String, String)> {
        self.tasks.judge.parts(&self.plan)
    }

    /// The rule, in TOML, that would allow exactly what was judged last; none where none can.
    pub fn proposal(&self, id: &str) -> Option<String> {
        legwork_gate::proposal(&self.plan, id)
    }

    /// How far the caller is trusted.
    pub fn trust(&self) -> Trust {
        legwork_gate::Subject::trust(&self.plan)
    }

    /// The folder that the command would run in.
    pub fn workdir(&self) -> &Path {
        &self.plan.workdir.path
    }

    /// What the command would be confined to, unless a rule says otherwise, in words.
    pub fn confinement(&self) -> String {
        self.plan.wanted.to_string()
    }

    /// Whether every layer of that is in force on this machine.
    pub fn is_whole(&self) -> bool {
        self.plan.sandboxed
    }
}
