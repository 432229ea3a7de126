//! The rules on programs that hold for every command, prepared for the warden.

use std::{
    env,
    path::{Path, PathBuf},
};

use legwork_gate::ProgramRule;
use legwork_warden::sandbox::DeniedProgram;

/// Where programs are, whatever `PATH` says.
const STANDARD: [&str; 6] =
    ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"];

/// The programs that rules speak of.
#[derive(Debug, Default)]
pub(super) struct HeldPrograms {
    /// Whether any rule does: then the warden is asked before anything is executed.
    pub any: bool,
    /// Those that nobody is ever to run: they are covered.
    pub denied: Vec<DeniedProgram>,
}

impl HeldPrograms {
    pub(super) fn of(rules: &[ProgramRule]) -> Self {
        let whole = rules.iter().filter(|rule| rule.denies_program());
        let denied = |rule: &ProgramRule| DeniedProgram {
            name: rule.program.clone().into_bytes(),
            rule: rule.id.clone(),
        };
        Self { any: !rules.is_empty(), denied: whole.map(denied).collect() }
    }

    /// The folders that denied programs are looked for in; none if there are none.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        if self.denied.is_empty() {
            return Vec::new();
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let named = env::split_paths(&path).filter(|folder| folder.is_absolute());
        STANDARD.map(PathBuf::from).into_iter().chain(named).filter(|it| is_folder(it)).collect()
    }
}

fn is_folder(path: &Path) -> bool {
    path.is_dir()
}
