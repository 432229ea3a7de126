//! `legwork setup`: tells MCP clients of this program, and undoes it.
//!
//! What is written where is data (`data/clients.toml`). A file is changed in one place and keeps
//! its comments, its order and its layout; as it was before, it is kept in the state folder.

mod elsewhere;
mod everything;
pub(crate) mod files;
mod jsonc;
pub(crate) mod plan;
#[cfg(unix)]
mod processes;
#[cfg(windows)]
#[path = "processes_windows.rs"]
mod processes;
mod record;
pub(crate) mod table;
pub(crate) mod text;
mod toml_text;

use std::{path::PathBuf, process::ExitCode};

use serde::Serialize;

use self::{
    plan::{FilePlan, Wish, difference},
    record::Records,
    table::{ClientEntry, ClientTable, Filling, SetupPart},
};
use super::{hook::quoted, program};
use crate::{
    OUR_FAILURE,
    arguments::{ScopeName, SetupOptions},
    render::{complain, complain_of, print, print_json, say},
    style::{Style, Tone, folded, from_home},
};

pub(crate) async fn setup(options: &SetupOptions) -> ExitCode {
    match Setup::new(options) {
        Ok(setup) if options.all => everything::remove(setup).await,
        Ok(setup) => setup.run(),
        Err(code) => code,
    }
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FileFate {
    Unchanged,
    Changed,
    WouldChange,
}

#[derive(Debug, Serialize)]
struct FileResult {
    file: PathBuf,
    result: FileFate,
    /// The file as it was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

/// What became of a client.
#[derive(Debug, Serialize)]
struct ClientResult {
    client: String,
    title: String,
    files: Vec<FileResult>,
    /// What the person has to know or do.
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Folders that were made for files which are gone.
    #[serde(skip)]
    folders: Vec<PathBuf>,
}

struct Setup<'o> {
    options: &'o SetupOptions,
    scope: ScopeName,
    /// Changes are shown, and nothing is written.
    is_shown: bool,
    table: ClientTable,
    program: String,
    records: Records,
    project: PathBuf,
    /// Arguments of the server.
    server_options: Vec<String>,
}

impl<'o> Setup<'o> {
    fn new(options: &'o SetupOptions) -> Result<Self, ExitCode> {
        let failed = |problem: String| complain(&problem);
        let table = ClientTable::read().map_err(failed)?;
        let program = program::path().map_err(failed)?;
        let state = options.state.path().map_err(|error| complain_of(&error.into()))?;
        let project = std::env::current_dir().map_err(|error| failed(error.to_string()))?;
        let mut server_options = Vec::new();
        if let Some(workspace) = &options.workspace {
            let workspace = workspace
                .canonicalize()
                .map_err(|error| failed(format!("--workspace {}: {error}", workspace.display())))?;
            server_options.extend(["--workspace".into(), workspace.display().to_string()]);
        }
        if let Some(state) = &options.state.state {
            let state = std::path::absolute(state).map_err(|error| failed(error.to_string()))?;
            server_options.extend(["--state".into(), state.display().to_string()]);
        }
        if let Some(tools) = &options.tools {
            server_options.extend(["--tools".into(), tools.clone()]);
        }
        let records = Records::of(&state);
        Ok(Self {
            options,
            scope: options.scope,
            is_shown: options.print,
            table,
            program,
            records,
            project,
            server_options,
        })
    }

    fn run(&self) -> ExitCode {
        let named = &self.options.clients;
        let is_meant = |client: &&ClientEntry| match named.as_slice() {
            [] => client.is_here() && self.suits(client),
            named => named.contains(&client.name),
        };
        let meant: Vec<&ClientEntry> = self.table.client.iter().filter(is_meant).collect();
        let results: Vec<ClientResult> = meant.iter().map(|client| self.one(client)).collect();
        remove_folders(&results);
        let failed = results.iter().any(|result| result.error.is_some());
        let printed = if self.options.json {
            print_json(&results)
        } else if results.is_empty() {
            print(
                "No client that setup knows was found here. Name one: legwork setup claude-code\n",
            )
        } else {
            print(&self.told(&results))
        };
        if failed { ExitCode::from(OUR_FAILURE) } else { printed }
    }

    /// Whether a client that was not named has what is asked for.
    fn suits(&self, client: &ClientEntry) -> bool {
        client.has_scope(self.scope)
            && (self.options.workspace.is_some() || self.options.remove || !client.outside)
    }

    fn one(&self, client: &ClientEntry) -> ClientResult {
        let mut result = ClientResult {
            client: client.name.clone(),
            title: client.title.clone(),
            files: Vec::new(),
            notes: Vec::new(),
            error: self.impossible(client),
            folders: Vec::new(),
        };
        if result.error.is_none() {
            result.error = self.change_files(client, &mut result).err();
        }
        if result.error.is_none() && !self.options.remove {
            result.notes = self.notes(client);
        }
        result
    }

    /// Why a client cannot be set up as asked.
    fn impossible(&self, client: &ClientEntry) -> Option<String> {
        if !client.has_scope(self.scope) {
            return Some("it has no file of its own in a project: leave --scope out".into());
        }
        (client.outside && self.options.workspace.is_none() && !self.options.remove).then(|| {
            "it starts servers outside of any project: name the folder to work in with --workspace"
                .into()
        })
    }

    fn change_files(&self, client: &ClientEntry, result: &mut ClientResult) -> Result<(), String> {
        let filling = self.filling(client);
        let planned = |(file, wishes): (PathBuf, Vec<Wish<'_>>)| {
            if self.options.remove {
                FilePlan::undoing(file, &wishes, &self.records)
            } else {
                FilePlan::of(file, &wishes)
            }
        };
        // All files are read before one is written: a mistake in the second leaves the first alone.
        let plans = self.wishes(client, &filling).into_iter().map(planned);
        for plan in plans.collect::<Result<Vec<_>, _>>()? {
            result.files.push(self.carry_out(plan, &mut result.folders)?);
        }
        Ok(())
    }

    fn carry_out(&self, plan: FilePlan, folders: &mut Vec<PathBuf>) -> Result<FileResult, String> {
        let file = plan.file.clone();
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let private = self.scope == ScopeName::User;
        let (is_done, shown) = (plan.is_done(), self.is_shown);
        let diff = (shown && !is_done).then(|| difference(&plan));
        match (shown, self.options.remove) {
            (true, _) => {}
            (false, true) => {
                folders.extend(plan.write_undone(&self.records, private).map_err(failed)?);
            }
            (false, false) if is_done => {}
            (false, false) => plan.write(&self.records, private).map_err(failed)?,
        }
        let result = match (is_done, shown) {
            (true, _) => FileFate::Unchanged,
            (false, true) => FileFate::WouldChange,
            (false, false) => FileFate::Changed,
        };
        let backup = self.records.copy(&file);
        let backup = Some(backup).filter(|path| result == FileFate::Changed && path.exists());
        Ok(FileResult { file, result, backup, diff })
    }

    fn filling(&self, client: &ClientEntry) -> Filling {
        let mut hook = format!("{} hook {}", quoted(&self.program), client.name);
        if self.options.rewrite && client.name == REWRITES {
            hook.push_str(" --rewrite");
        }
        if let Some(state) = &self.options.state.state {
            let state = std::path::absolute(state).unwrap_or_else(|_| state.clone());
            hook.push_str(&format!(" --state {}", quoted(&state.display().to_string())));
        }
        Filling {
            program: self.program.clone(),
            hook,
            options: self.server_options.clone(),
            names_workspace: self.options.workspace.is_some(),
        }
    }

    /// The changes of each of a client's files: those that are asked for, or all that may have to
    /// be undone.
    fn wishes<'c>(
        &self,
        client: &'c ClientEntry,
        filling: &Filling,
    ) -> Vec<(PathBuf, Vec<Wish<'c>>)> {
        let (scope, remove) = (self.scope, self.options.remove);
        let wanted = |part: SetupPart| match part {
            SetupPart::Server => true,
            SetupPart::Shell => self.options.shell_off,
            SetupPart::Hooks => self.options.hooks,
        };
        let mut wishes: Vec<(PathBuf, Vec<Wish<'c>>)> = Vec::new();
        for change in client.change.iter().filter(|it| remove || wanted(it.part)) {
            let files = if remove {
                change.files(scope, &self.project)
            } else {
                change.file(scope, &self.project).into_iter().collect()
            };
            for file in files {
                let Some(put) = change.put(filling) else { continue };
                let wish = Wish {
                    client: &client.name,
                    part: change.part,
                    at: &change.at,
                    put,
                    keep: change.keep,
                    anew: !self.server_options.is_empty(),
                };
                match wishes.iter_mut().find(|(known, _)| *known == file) {
                    Some((_, of_file)) => of_file.push(wish),
                    None => wishes.push((file, vec![wish])),
                }
            }
        }
        wishes
    }

    /// What the person should know besides.
    fn notes(&self, client: &ClientEntry) -> Vec<String> {
        let mut notes = Vec::new();
        let hooks =
            client.change.iter().filter(|it| it.part == SetupPart::Hooks && self.options.hooks);
        notes.extend(hooks.filter_map(|change| change.note.clone()));
        if self.options.hooks && !client.has(SetupPart::Hooks) {
            notes.push("Legwork has no hook for it".into());
        }
        match &client.shell {
            Some(how) if how == "none" => {}
            Some(how) => notes.push(format!("its own shell stays on: {how}")),
            None if self.options.shell_off || self.options.hooks => {}
            None => {
                let setup = format!("`legwork setup {}", client.name);
                let judged = format!(", {setup} --hooks` judges what it runs");
                let judged = if client.has(SetupPart::Hooks) { judged } else { String::new() };
                let note = format!("its own shell stays on: {setup} --shell-off` switches it off");
                notes.push(note + &judged);
            }
        }
        notes
    }

    /// The results for a person.
    fn told(&self, results: &[ClientResult]) -> String {
        let style = Style::of_stdout();
        let mut text = String::new();
        for result in results {
            text.push_str(&self.told_of(result, style));
        }
        let changed = results.iter().flat_map(|it| &it.files);
        let changed = changed.filter(|it| it.result == FileFate::Changed).count();
        if changed > 0 && !self.options.remove {
            text.push_str("\nRestart the clients; `legwork setup --remove` undoes it.\n");
        }
        text
    }

    fn told_of(&self, result: &ClientResult, style: Style) -> String {
        let title = &result.title;
        if let Some(error) = &result.error {
            say(&format!("legwork: {title}: {error}"));
            return String::new();
        }
        let diffs: String = result.files.iter().filter_map(|it| it.diff.as_deref()).collect();
        if !diffs.is_empty() {
            return diffs;
        }
        let shown = |file: &FileResult| from_home(&file.file.display().to_string());
        let changed = result.files.iter().filter(|it| it.result == FileFate::Changed);
        let changed: Vec<String> = changed.map(shown).collect();
        let what = match (changed.is_empty(), self.options.remove) {
            (true, true) => "nothing of Legwork is in its files".to_owned(),
            (true, false) => "already set up".to_owned(),
            (false, true) => format!("removed from {}", changed.join(", ")),
            (false, false) => format!("set up in {}", changed.join(", ")),
        };
        let mut text = format!("{}: {what}\n", style.paint(Tone::Strong, title));
        let width = style.width.unwrap_or(usize::MAX);
        for note in &result.notes {
            text.push_str(&format!("{}\n", folded(&format!("  {note}"), width)));
        }
        text
    }
}

/// The client whose hook can rewrite a command.
const REWRITES: &str = "claude-code";

/// Removes the folders that were made for files which are gone, the innermost first; those that
/// have something else in them stay.
fn remove_folders(results: &[ClientResult]) {
    let mut folders: Vec<&PathBuf> = results.iter().flat_map(|result| &result.folders).collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.as_os_str().len()));
    for folder in folders {
        let _ = std::fs::remove_dir(folder);
    }
}
