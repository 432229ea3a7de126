//! `legwork setup --remove --all`: removes everything of Legwork but the program. Shows first what
//! that is, and asks.
//!
//! Neither the database nor a server is needed: it removes what is damaged, too, and stops tasks by
//! the processes that hold the state folder open. Only tasks at other places, which have none here,
//! are stopped by their records.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use legwork::{StateContent, gate::units::shown_bytes, user_file};

use super::{
    ClientResult, FileFate, Setup, elsewhere,
    processes::{self, Using},
    record, remove_folders,
    table::ClientEntry,
};
use crate::{
    OUR_FAILURE,
    arguments::ScopeName,
    asking,
    render::{complain, print, say},
    style::from_home,
};

/// The word that a person types to have it removed.
const WORD: &str = "remove";

/// Why the files of clients as they were before are kept.
const FOR_THE_NEXT_TRY: &str = "these clients' files as they were before Legwork";

/// Everything there is to remove.
struct Everything {
    processes: Vec<Using>,
    state: PathBuf,
    content: StateContent,
    configuration: Option<PathBuf>,
    /// The clients' files with something of ours.
    clients: Vec<PathBuf>,
    /// Clients whose files cannot be changed, which stay as they are.
    broken: Failed,
    /// The folder with their files as they were before, which stays with them.
    records: Option<PathBuf>,
    /// The places that commands ran at.
    places: Vec<String>,
    /// The tasks that have not ended there.
    elsewhere: Vec<elsewhere::FarTask>,
}

/// Things that could not be removed, with the reason.
type Failed = Vec<(String, String)>;

pub(super) async fn remove(mut setup: Setup<'_>) -> ExitCode {
    let everything = match Everything::read(&mut setup).await {
        Ok(everything) => everything,
        Err(problem) => return complain(&problem),
    };
    let kept = everything.listed_as_kept();
    if everything.is_nothing() && !everything.broken.is_empty() {
        print(&kept);
        return complain("nothing of Legwork is in your other files");
    }
    if everything.is_nothing() {
        let stays = program_stays(&setup);
        return print(&format!("Nothing of Legwork is in your files. {stays}\n{kept}"));
    }
    print(&format!("{}{kept}", everything.listed()));
    if setup.options.print {
        return ExitCode::from(if everything.broken.is_empty() { 0 } else { OUR_FAILURE });
    }
    if let Err(problem) = everything.is_possible() {
        return complain(&format!("nothing was removed: {problem}"));
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
    if let Err(problem) = everything.stop_elsewhere(&setup).await {
        return complain(&format!("nothing was removed: {problem}"));
    }
    let failed = match everything.removed(&mut setup) {
        Ok(failed) => failed,
        Err(problem) => return complain(&format!("nothing was deleted: {problem}")),
    };
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

/// The clients whose files could not be changed, with the reason: each once, though it has files of
/// its user and of projects.
fn broken(results: &[ClientResult]) -> Failed {
    let errors = results.iter().filter_map(|it| Some((it.title.clone(), it.error.clone()?)));
    let mut errors: Failed = errors.collect();
    errors.sort();
    errors.dedup();
    errors
}

/// Takes the folder with clients' files as they were before out of what is deleted, while one of
/// them cannot be changed: nothing else makes that one as it was, once a person has corrected it.
fn kept_records(content: &mut StateContent, broken: &Failed) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| !broken.is_empty() && path.ends_with(record::FOLDER);
    let at = content.own.iter().position(is_it)?;
    Some(content.own.remove(at))
}

/// The way in which the program itself is removed.
fn program_stays(setup: &Setup<'_>) -> String {
    let program = Path::new(&setup.program);
    let by_cargo = program.ancestors().any(|folder| folder.ends_with(".cargo"));
    let how = if by_cargo { "`cargo uninstall legwork-cli`" } else { "as you installed it" };
    format!("The program stays: {}; remove it {how}.", from_home(&setup.program))
}

/// The places that a state folder remembers.
fn places(content: &StateContent) -> Vec<String> {
    let folder = content.own.iter().find(|path| path.ends_with("places"));
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
    let entries = entries.into_iter().flatten().flatten();
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
    async fn read(setup: &mut Setup<'_>) -> Result<Self, String> {
        let state = setup.options.state.path().map_err(|error| error.to_string())?;
        // Without a slash at its end, by which a link would be what it leads to.
        let state: PathBuf = state.components().collect();
        let mut content =
            StateContent::of(&state).map_err(|error| format!("{}: {error}", state.display()))?;
        let places = places(&content);
        let mut elsewhere = Vec::new();
        if !places.is_empty() {
            let tasks = elsewhere::tasks(&setup.options.state).await;
            elsewhere = tasks.map_err(|error| {
                let places = places.join(", ");
                format!("the tasks at {places} cannot be read: {error}; {}", by_hand(&state))
            })?;
        }
        let results = setup.entries(true);
        // A file of a project may be one of the user's own, too.
        let mut clients: Vec<PathBuf> = results.iter().flat_map(changed).collect();
        clients.sort();
        clients.dedup();
        let broken = broken(&results);
        Ok(Self {
            processes: processes::using(&state),
            configuration: user_file().filter(|file| file.symlink_metadata().is_ok()),
            clients,
            records: kept_records(&mut content, &broken),
            broken,
            places,
            elsewhere,
            content,
            state,
        })
    }

    fn is_nothing(&self) -> bool {
        self.processes.is_empty()
            && self.elsewhere.is_empty()
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
        for task in &self.elsewhere {
            line("stop", task.to_string());
        }
        let trials = count_in(&self.state.join("trials"));
        if trials > 0 {
            let trials = counted(trials, "trial", "trials");
            line("discard", format!("{trials}, with what is not applied"));
        }
        if !self.content.own.is_empty() {
            let size = shown_bytes(self.content.bytes());
            let names = self.content.own.iter().filter_map(|path| path.file_name());
            let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
            let (state, names) = (show_path(&self.state), names.join(", "));
            line("delete", format!("{state}: {size}, all records, logs and tokens ({names})"));
        }
        if let Some(file) = &self.configuration {
            line("delete", format!("{}: your rules and settings", show_path(file)));
        }
        for file in &self.clients {
            line("change", format!("{}: without Legwork", show_path(file)));
        }
        text
    }

    /// What stays, a line each.
    fn listed_as_kept(&self) -> String {
        let foreign = self.content.foreign.iter();
        let foreign = foreign.map(|path| format!("{}: not made by Legwork", show_path(path)));
        let broken = self.broken.iter().map(|(title, error)| format!("{title}: {error}"));
        let records = self.records.iter();
        let records = records.map(|path| format!("{}: {FOR_THE_NEXT_TRY}", show_path(path)));
        foreign
            .chain(broken)
            .chain(records)
            .map(|what| format!("  {:<8} {what}\n", "keep"))
            .collect()
    }

    /// Why it must not be done from here, or now.
    fn is_possible(&self) -> Result<(), String> {
        if self.processes.iter().any(Using::is_above_us) {
            return Err("this command is itself a task of Legwork; run it in a \
                 terminal of your own"
                .into());
        }
        match self.processes.iter().find(|process| !process.is_ours) {
            Some(other) => Err(format!(
                "{other} uses the state folder and is not Legwork's own program; \
                 end it, then try again"
            )),
            None => Ok(()),
        }
    }

    async fn stop_elsewhere(&self, setup: &Setup<'_>) -> Result<(), String> {
        if self.elsewhere.is_empty() {
            return Ok(());
        }
        let stopped = elsewhere::stop(&setup.options.state).await;
        stopped.map_err(|problem| format!("{problem}; {}", by_hand(&self.state)))
    }

    /// Removes it; what could not be removed is returned. Where something runs on, no record of it
    /// is deleted, and that is the error.
    fn removed(&self, setup: &mut Setup<'_>) -> Result<Failed, String> {
        // First, so that no client starts another server; and their records are in the state
        // folder.
        let results = setup.entries(false);
        remove_folders(&results);
        let mut failed = broken(&results);
        let left: Vec<String> = processes::end(&self.state).iter().map(Using::to_string).collect();
        if !left.is_empty() {
            return Err(format!("{} does not end; kill it, then try again", left.join(", ")));
        }
        self.delete_state(&mut failed);
        if let Some(file) = &self.configuration {
            remove_file(file, &mut failed, |path| fs::remove_file(path));
            // Something else in it stays.
            let _ = file.parent().map(fs::remove_dir);
        }
        Ok(failed)
    }

    fn delete_state(&self, failed: &mut Failed) {
        // What has ended may have written something last.
        let mut content = StateContent::of(&self.state).unwrap_or_default();
        let records = kept_records(&mut content, failed);
        let is_emptied = content.foreign.is_empty() && records.is_none();
        for (path, error) in content.remove() {
            failed.push((path.display().to_string(), with_way(&error, &path)));
        }
        failed.extend(records.map(|path| (show_path(&path), FOR_THE_NEXT_TRY.to_owned())));
        if is_emptied && self.state.is_symlink() {
            remove_file(&self.state, failed, |path| fs::remove_file(path));
        } else if is_emptied {
            remove_file(&self.state, failed, |path| fs::remove_dir(path));
        }
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

/// The way to delete the records of tasks that cannot be stopped, since their place is gone.
fn by_hand(state: &Path) -> String {
    let quoted = super::quoted(&state.display().to_string());
    format!("`rm -rf {quoted}` deletes their records, and stops nothing")
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
