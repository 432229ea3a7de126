//! What becomes of one file of a client: planned first, then written, or shown.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    files,
    record::{FileRecord, MadeChange, Records, digest},
    table::{Put, SetupPart},
    text::{FileProblem, FileText},
};
use crate::platform::is_program;

/// A change of a file, with its value filled in.
#[derive(Debug)]
pub(super) struct Wish<'t> {
    pub client: &'t str,
    pub part: SetupPart,
    pub at: &'t [String],
    pub put: Put,
    /// A value that is there stays.
    pub keep: bool,
    /// An entry that works is replaced, too: something about it was asked for.
    pub anew: bool,
}

/// A file as it is, and as it is to be.
#[derive(Debug)]
pub(super) struct FilePlan {
    pub file: PathBuf,
    pub before: Option<String>,
    /// None if the file is to be removed.
    pub after: Option<String>,
    made: Vec<MadeChange>,
    /// Whether something of ours was there before.
    had_ours: bool,
}

impl FilePlan {
    /// Plans what is wished.
    pub(super) fn of(file: PathBuf, wishes: &[Wish<'_>]) -> Result<Self, String> {
        let before = read(&file)?;
        let mut text = FileText::of(&file, before.as_deref().unwrap_or_default());
        let mut plan = Self { file, before, after: None, made: Vec::new(), had_ours: false };
        for wish in wishes {
            let done = plan.fulfil(wish, &mut text);
            done.map_err(|problem| plan.told(&problem))?;
        }
        plan.after = Some(text.whole());
        Ok(plan)
    }

    /// Whether nothing is to be done.
    pub(super) fn is_done(&self) -> bool {
        self.before == self.after
    }

    fn told(&self, problem: &FileProblem) -> String {
        format!("{}:{problem}; correct it, then try again", self.file.display())
    }

    fn fulfil(&mut self, wish: &Wish<'_>, text: &mut FileText) -> Result<(), FileProblem> {
        let there = text.get(wish.at)?;
        let existed = existing(text, wish.at)?;
        match (&wish.put, there) {
            (Put::Set(_), Some(_)) if wish.keep => return Ok(()),
            (Put::Set(value), Some(there)) if *value == there => {
                self.had_ours |= wish.part != SetupPart::Shell;
                return Ok(());
            }
            (Put::Set(value), Some(there)) if wish.part == SetupPart::Server && !wish.anew => {
                self.had_ours = true;
                return renew(text, wish.at, value, &there);
            }
            (Put::Set(_), there) => {
                let previous = there.filter(|_| wish.part == SetupPart::Shell);
                self.had_ours |= wish.part == SetupPart::Server && previous.is_some();
                self.note(wish, previous, existed);
            }
            (Put::Append(element), there) => {
                let items = there.as_ref().and_then(Value::as_array);
                let mut items = items.into_iter().flatten();
                if items.any(|item| item == element) {
                    self.had_ours |= wish.part != SetupPart::Shell;
                    return Ok(());
                }
                let ours = |item: &Value| is_our_hook(item, wish.client);
                let before = text.clone();
                text.remove_elements(wish.at, ours)?;
                self.had_ours |= *text != before;
                self.note(wish, None, existed);
            }
        }
        text.put(wish.at, &wish.put)
    }

    fn note(&mut self, wish: &Wish<'_>, previous: Option<Value>, existed: usize) {
        let (part, at) = (wish.part, wish.at.to_vec());
        let known = self.made.iter().any(|made| made.part == part && made.at == at);
        if !wish.keep && !known {
            self.made.push(MadeChange { part, at, previous, existed });
        }
    }

    /// Writes it, with the file as it was kept in the records.
    pub(super) fn write(self, records: &Records, private: bool) -> io::Result<()> {
        let Some(after) = &self.after else { return Ok(()) };
        let was = self.before.as_deref();
        let known = records.find(&self.file);
        let unbroken = |record: &FileRecord| was.is_some_and(|was| record.written == digest(was));
        let mut record = match known {
            Some(record) if unbroken(&record) => record,
            known => {
                records.keep_copy(&self.file, was.unwrap_or_default())?;
                let made = known.filter(|_| self.had_ours).map(|it| it.made).unwrap_or_default();
                FileRecord {
                    file: self.file.clone(),
                    existed: was.is_some(),
                    written: String::new(),
                    folders: Vec::new(),
                    made,
                    whole: !self.had_ours,
                }
            }
        };
        let folders = files::replace(&self.file, was, after, private)?;
        record.written = digest(after);
        record.folders.extend(folders);
        // What was there before the first of equal changes counts.
        let same =
            |one: &MadeChange, other: &MadeChange| one.part == other.part && one.at == other.at;
        for made in self.made {
            if !record.made.iter().any(|known| same(known, &made)) {
                record.made.push(made);
            }
        }
        records.keep(&record)
    }

    /// Plans to undo what was done: as the file was before, where nobody has changed it since; else
    /// without what is ours.
    pub(super) fn undoing(
        file: PathBuf,
        wishes: &[Wish<'_>],
        records: &Records,
    ) -> Result<Self, String> {
        let before = read(&file)?;
        let mut plan =
            Self { file, before: before.clone(), after: None, made: Vec::new(), had_ours: true };
        let Some(now) = before else { return Ok(plan) };
        let record = records.find(&plan.file);
        if let Some(record) = record.as_ref().filter(|it| it.whole && it.written == digest(&now)) {
            let copy = records
                .before(record)
                .map_err(|error| format!("{}: {error}", records.copy(&plan.file).display()))?;
            plan.after = record.existed.then_some(copy);
            return Ok(plan);
        }
        let mut text = FileText::of(&plan.file, &now);
        let mut made = record.map(|record| record.made).unwrap_or_default();
        made.sort_by_key(|made| std::cmp::Reverse(made.existed));
        for wish in wishes.iter().filter(|wish| !wish.keep) {
            let undone = take_out(&mut text, wish, &made);
            undone.map_err(|problem| plan.told(&problem))?;
        }
        // What was made for several of them is empty only now.
        for made in &made {
            let emptied = remove_empty(&mut text, &made.at, made.existed);
            emptied.map_err(|problem| plan.told(&problem))?;
        }
        plan.after = Some(text.whole());
        Ok(plan)
    }

    /// Writes what undoes it, and forgets the file. Returns the folders that were made for it.
    pub(super) fn write_undone(self, records: &Records, private: bool) -> io::Result<Vec<PathBuf>> {
        let folders = records.find(&self.file).map(|it| it.folders).unwrap_or_default();
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if before != after => {
                files::replace(&self.file, Some(before), after, private)?;
            }
            (Some(before), None) => {
                if files::read(&self.file)?.as_ref() != Some(before) {
                    return Err(io::Error::other("it was changed meanwhile; try again"));
                }
                fs::remove_file(&self.file)?;
            }
            _ => {}
        }
        records.forget(&self.file)?;
        Ok(folders)
    }
}

/// Takes one change out of a text that others have changed, too.
fn take_out(text: &mut FileText, wish: &Wish<'_>, made: &[MadeChange]) -> Result<(), FileProblem> {
    let made = made.iter().find(|made| made.part == wish.part && made.at == wish.at);
    // What could as well be the user's own is only taken out if we have put it in.
    if wish.part == SetupPart::Shell && made.is_none() {
        return Ok(());
    }
    match &wish.put {
        Put::Append(element) => {
            let ours = |item: &Value| item == element || is_our_hook(item, wish.client);
            text.remove_elements(wish.at, ours)
        }
        Put::Set(value) if wish.part == SetupPart::Shell => {
            if text.get(wish.at)?.as_ref() != Some(value) {
                return Ok(());
            }
            match made.and_then(|made| made.previous.clone()) {
                Some(previous) => text.put(wish.at, &Put::Set(previous)),
                None => text.remove(wish.at),
            }
        }
        Put::Set(_) => text.remove(wish.at),
    }
}

/// How many keys of a path lead to something.
fn existing(text: &FileText, at: &[String]) -> Result<usize, FileProblem> {
    for count in (1..=at.len()).rev() {
        if text.get(at.get(..count).unwrap_or(at))?.is_some() {
            return Ok(count);
        }
    }
    Ok(0)
}

/// Takes out what was made on the way to a value, and is empty now.
fn remove_empty(text: &mut FileText, at: &[String], existed: usize) -> Result<(), FileProblem> {
    for count in (existed + 1..=at.len()).rev() {
        let path = at.get(..count).unwrap_or(at);
        let is_empty = match text.get(path)? {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(_) => false,
            None => continue,
        };
        if !is_empty {
            break;
        }
        text.remove(path)?;
    }
    Ok(())
}

/// Lets an entry that is there start this program, if the one that it names cannot be started; all
/// else in it is the user's.
fn renew(
    text: &mut FileText,
    at: &[String],
    new: &Value,
    there: &Value,
) -> Result<(), FileProblem> {
    if program_of(there).is_some_and(|program| can_start(&program)) {
        return Ok(());
    }
    let mut command = there.get("command").cloned().unwrap_or_default();
    let own = new.get("command").cloned().unwrap_or_default();
    match (&mut command, own) {
        (Value::Array(words), Value::Array(own)) if !words.is_empty() => {
            if let (Some(word), Some(own)) = (words.first_mut(), own.into_iter().next()) {
                *word = own;
            }
        }
        (command, own) => *command = own,
    }
    let at: Vec<String> = at.iter().cloned().chain(["command".to_owned()]).collect();
    text.put(&at, &Put::Set(command))
}

/// The program that an entry starts.
pub(crate) fn program_of(entry: &Value) -> Option<String> {
    match entry.get("command")? {
        Value::String(program) => Some(program.clone()),
        Value::Array(words) => words.first()?.as_str().map(str::to_owned),
        _ => None,
    }
}

/// Whether a program can be started, by its path or its name.
pub(crate) fn can_start(program: &str) -> bool {
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| is_program(&folder.join(program)))
}

/// Whether an element of a list is a hook of ours, perhaps of a program that was elsewhere.
pub(crate) fn is_our_hook(item: &Value, client: &str) -> bool {
    match item {
        Value::String(text) => {
            let words: Vec<&str> = text.split_whitespace().collect();
            let calls = |pair: &[&str]| pair == ["hook", client];
            text.contains("legwork") && words.windows(2).any(calls)
        }
        Value::Object(fields) => fields.values().any(|it| is_our_hook(it, client)),
        Value::Array(items) => items.iter().any(|it| is_our_hook(it, client)),
        _ => false,
    }
}

fn read(file: &Path) -> Result<Option<String>, String> {
    files::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The difference that a plan makes, as `diff -u` shows it.
pub(super) fn difference(plan: &FilePlan) -> String {
    let (before, after) = (plan.before.as_deref(), plan.after.as_deref());
    let name = plan.file.display().to_string();
    let side = |text: Option<&str>| text.map_or("/dev/null", |_| name.as_str()).to_owned();
    let texts = (before.unwrap_or_default(), after.unwrap_or_default());
    let difference = similar::TextDiff::from_lines(texts.0, texts.1);
    let mut shown = difference.unified_diff();
    shown.context_radius(3).header(&side(before), &side(after)).to_string()
}
