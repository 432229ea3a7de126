//! `legwork setup --remove --all`: removes everything of Legwork but the program. Shows first what
//! that is, and asks.
//!
//! Neither the database nor a server is needed: it removes what is damaged, too, and stops tasks by
//! the processes that hold the state folder open.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use legwork::{StateContent, gate::units::shown_bytes, user_file};

use super::{ClientResult, FileFate, Setup, processes, remove_folders, table::ClientEntry};
use crate::{
    OUR_FAILURE,
    arguments::ScopeName,
    asking,
    render::{complain, print, say},
    style::from_home,
};

/// The word that a person types to have it removed.
const WORD: &str = "remove";

/// Everything there is to remove.
struct Everything {
    processes: Vec<processes::Using>,
    state: PathBuf,
    content: StateContent,
    configuration: Option<PathBuf>,
    /// The clients' files with something of ours.
    clients: Vec<PathBuf>,
    /// The places that commands ran at.
    places: Vec<String>,
}

/// Things that could not be removed, with the reason.
type Failed = Vec<(String, String)>;

pub(super) async fn remove(mut setup: Setup<'_>) -> ExitCode {
    let state = match setup.options.state.path() {
        Ok(state) => state,
        Err(error) => return complain(&error.to_string()),
    };
    let content = match StateContent::of(&state) {
        Ok(content) => content,
        Err(error) => return complain(&format!("{}: {error}", state.display())),
    };
    // A file of a project may be one of the user's own, too.
    let mut clients: Vec<PathBuf> = setup.entries(true).iter().flat_map(changed).collect();
    clients.sort();
    clients.dedup();
    let everything = Everything {
        processes: processes::using(&state),
        configuration: user_file().filter(|file| file.symlink_metadata().is_ok()),
        clients,
        places: places(&state),
        content,
        state,
    };
    let listed = everything.listed();
    if everything.is_nothing() {
        return print(&format!("Nothing of Legwork is in your files. {}\n", program_stays(&setup)));
    }
    print(&listed);
    if setup.options.print {
        return ExitCode::SUCCESS;
    }
    if let Err(problem) = everything.is_possible() {
        return complain(&problem);
    }
    if !setup.options.yes {
        match asking::confirmed(&format!("\nType `{WORD}`, then Enter, to remove it: "), WORD).await
        {
            Ok(Some(true)) => {}
            Ok(Some(false)) => return complain("nothing was removed"),
            Ok(None) | Err(_) => {
                return complain(
                    "nothing was removed: there is no terminal to ask at; \
                     `legwork setup --remove --all --yes` asks nothing",
                );
            }
        }
    }
    let failed = everything.removed(&mut setup);
    for (what, why) in &failed {
        say(&format!("legwork: not removed: {what}: {why}"));
    }
    let places = everything.left_at_places();
    let end = if failed.is_empty() { "Removed." } else { "The rest is removed." };
    print(&format!("\n{end} {}\n{places}", program_stays(&setup)));
    ExitCode::from(if failed.is_empty() { 0 } else { OUR_FAILURE })
}

/// The files that a result is about.
fn changed(result: &ClientResult) -> Vec<PathBuf> {
    let would = result.files.iter().filter(|it| it.result == FileFate::WouldChange);
    would.map(|it| it.file.clone()).collect()
}

/// The way in which the program itself is removed.
fn program_stays(setup: &Setup<'_>) -> String {
    let program = Path::new(&setup.program);
    let by_cargo = program.ancestors().any(|folder| folder.ends_with(".cargo"));
    let how = if by_cargo { "`cargo uninstall legwork-cli`" } else { "as you installed it" };
    format!("The program stays: {}; remove it {how}.", from_home(&setup.program))
}

/// The places that the state folder remembers.
fn places(state: &Path) -> Vec<String> {
    let entries = fs::read_dir(state.join("places")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
    names.sort();
    names
}

fn show_path(path: &Path) -> String {
    from_home(&path.display().to_string())
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn count_in(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, |entries| entries.flatten().count())
}

impl Everything {
    fn is_nothing(&self) -> bool {
        self.processes.is_empty()
            && self.content.own.is_empty()
            && self.configuration.is_none()
            && self.clients.is_empty()
    }

    /// All of it, a line each.
    fn listed(&self) -> String {
        let mut text = "Legwork, to be removed:\n".to_owned();
        let mut line = |verb: &str, what: String| text.push_str(&format!("  {verb:<8} {what}\n"));
        let (helpers, shown_alone): (Vec<_>, Vec<_>) =
            self.processes.iter().partition(|process| process.is_helper());
        for process in shown_alone {
            line("stop", process.to_string());
        }
        if !helpers.is_empty() {
            line(
                "stop",
                counted(helpers.len(), "process that helps them", "processes that help them"),
            );
        }
        let kept = [
            ("trials", "trial", "trials"),
            ("outside", "layer over the home folder", "layers over the home folder"),
        ];
        for (folder, one, many) in kept {
            let count = count_in(&self.state.join(folder));
            if count > 0 {
                line("discard", format!("{}, with what is not applied", counted(count, one, many)));
            }
        }
        if !self.content.own.is_empty() {
            let size = shown_bytes(self.content.bytes());
            line(
                "delete",
                format!("{}: {size}, all records, logs and tokens", show_path(&self.state)),
            );
        }
        for path in &self.content.foreign {
            line("keep", format!("{}: not made by Legwork", show_path(path)));
        }
        if let Some(file) = &self.configuration {
            line("delete", format!("{}: your rules and settings", show_path(file)));
        }
        for file in &self.clients {
            line("change", format!("{}: without Legwork", show_path(file)));
        }
        text
    }

    /// Why it must not be done from here, or now.
    fn is_possible(&self) -> Result<(), String> {
        if self.processes.iter().any(processes::Using::is_above_us) {
            return Err(
                "nothing was removed: this command is itself a task of Legwork; run it in a \
                 terminal of your own"
                    .into(),
            );
        }
        match self.processes.iter().find(|process| !process.is_ours) {
            Some(other) => Err(format!(
                "nothing was removed: {other} uses the state folder and is not Legwork's own program; \
                 end it, then try again"
            )),
            None => Ok(()),
        }
    }

    fn removed(&self, setup: &mut Setup<'_>) -> Failed {
        let mut failed = Failed::new();
        // First, so that no client starts another server; and their records are in the state
        // folder.
        let results = setup.entries(false);
        remove_folders(&results);
        let errors = results.iter().filter_map(|it| Some((it.title.clone(), it.error.clone()?)));
        failed.extend(errors);
        for process in processes::end(&self.state) {
            failed.push((process.to_string(), "it does not end; kill it, then try again".into()));
        }
        // What has ended may have written something last.
        let content = StateContent::of(&self.state).unwrap_or_default();
        for (path, error) in content.remove() {
            failed.push((path.display().to_string(), with_way(&error, &path)));
        }
        if content.foreign.is_empty() {
            remove_file(&self.state, &mut failed, |path| fs::remove_dir(path));
        }
        if let Some(file) = &self.configuration {
            remove_file(file, &mut failed, |path| fs::remove_file(path));
            // Something else in it stays.
            let _ = file.parent().map(fs::remove_dir);
        }
        failed
    }

    fn left_at_places(&self) -> String {
        if self.places.is_empty() {
            return String::new();
        }
        let places = self.places.join(", ");
        format!(
            "Commands ran at other places ({places}). Files of Legwork may be left there: remove \
             ~/.cache/legwork and ~/.local/state/legwork-post.\n"
        )
    }
}

fn remove_file(path: &Path, failed: &mut Failed, remove: fn(&Path) -> std::io::Result<()>) {
    match remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            failed.push((path.display().to_string(), with_way(&error, path)));
        }
        _ => {}
    }
}

/// An error, and what removes the thing all the same.
fn with_way(error: &std::io::Error, path: &Path) -> String {
    let quoted = super::quoted(&path.display().to_string());
    format!("{error}; whoever may remove it does so with `rm -rf {quoted}`")
}

impl Setup<'_> {
    /// Takes Legwork out of all clients' files: the user's, and those of projects that it was put
    /// into. Where it is only shown, nothing is written.
    fn entries(&mut self, is_shown: bool) -> Vec<ClientResult> {
        self.is_shown = is_shown;
        let recorded = self.records.files();
        let of = |client: &ClientEntry| client.projects(&recorded);
        let mut projects: Vec<PathBuf> = self.table.client.iter().flat_map(of).collect();
        projects.sort();
        projects.dedup();
        let user = (ScopeName::User, self.project.clone());
        let all = projects.into_iter().map(|project| (ScopeName::Project, project));
        let mut results = Vec::new();
        for (scope, project) in std::iter::once(user).chain(all) {
            (self.scope, self.project) = (scope, project);
            let with_files = self.table.client.iter().filter(|client| client.has_scope(scope));
            results.extend(with_files.map(|client| self.one(client)).collect::<Vec<_>>());
        }
        results
    }
}
