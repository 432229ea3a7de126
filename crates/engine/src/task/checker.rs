//! Judges commands without running them, for `legwork policy check`.

use std::{path::Path, sync::Arc};

use legwork_gate::{Checked, Explanation, Part, Trust};

use super::{Tasks, plan::Plan};
use crate::judge::outside;

/// Judges commands of one tool and one caller. All but the command is decided once: folder, shell,
/// trust, sandbox.
#[derive(Debug)]
pub struct Checker {
    tasks: Arc<Tasks>,
    plan: Plan,
    /// What was said of the command that was judged last.
    explanation: Explanation,
}

impl Checker {
    pub(super) fn new(tasks: Arc<Tasks>, plan: Plan) -> Self {
        Self { tasks, plan, explanation: Explanation::default() }
    }

    /// Judges a script.
    pub fn script(&mut self, text: &str) -> Checked {
        self.plan.set_script(text);
        self.look()
    }

    /// Judges a program with its arguments.
    pub fn argv(&mut self, argv: Vec<String>) -> Checked {
        self.plan.set_argv(argv);
        self.look()
    }

    fn look(&mut self) -> Checked {
        let checked = self.tasks.judge.look(&self.plan);
        self.explanation = checked.explanation.clone();
        checked
    }

    /// The simple commands of the script that was judged last, each with its place and verdict;
    /// none of a program with its arguments.
    pub fn parts(&self) -> Vec<Part> {
        self.tasks.judge.parts(&self.plan)
    }

    /// The rule, in TOML, that would allow exactly what was judged last; none where none can.
    pub fn proposal(&self, id: &str) -> Option<String> {
        self.tasks.judge.proposal(&self.plan, id)
    }

    /// How far the caller is trusted.
    pub fn trust(&self) -> Trust {
        legwork_gate::Subject::trust(&self.plan)
    }

    /// The folder that the command would run in.
    pub fn workdir(&self) -> &Path {
        &self.plan.workdir.path
    }

    /// What the command that was judged last would be confined to, in words.
    pub fn confinement(&self) -> String {
        let wanted = self.tasks.judge.wanted_by(self.plan.wanted, &self.explanation);
        wanted.words(outside(wanted, &self.explanation).as_deref())
    }

    /// Whether every layer of that is in force on this machine.
    pub fn is_whole(&self) -> bool {
        self.plan.sandboxed
    }
}
