//! Finds the configuration files of known MCP clients, whether each starts `legwork`, and whether
//! that program is there.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::{
    arguments::ScopeName,
    commands::setup::{
        files,
        plan::{can_start, is_our_hook, program_of},
        table::{ClientChange, ClientEntry, ClientTable, SetupPart, resolved},
        text::FileText,
    },
    style::from_home,
};

/// A client whose configuration is here.
#[derive(Debug, Serialize)]
pub(super) struct FoundClient {
    pub client: String,
    pub file: PathBuf,
    /// Whether `legwork` is there; none if the file cannot be read.
    pub has_legwork: Option<bool>,
    /// The program that it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Whether that can be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub works: Option<bool>,
    /// Whether its own shell asks `legwork hook`; none if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<bool>,
    /// Its name for `legwork setup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
}

/// The clients whose configuration is in the home or in the workspace.
pub(super) fn found(workspace: &Path) -> Vec<FoundClient> {
    let Ok(table) = ClientTable::read() else { return Vec::new() };
    let known = table.client.iter().flat_map(|client| found_of(client, workspace));
    let others = table.other.iter().filter_map(|other| {
        let file = resolved(&other.file, workspace)?;
        let has_legwork = match files::read(&file) {
            Ok(text) => Some(text?.contains("legwork")),
            Err(_) => None,
        };
        let client = other.title.clone();
        let (program, works, hook, setup) = (None, None, None, None);
        Some(FoundClient { client, file, has_legwork, program, works, hook, setup })
    });
    known.chain(others).collect()
}

/// The files of a client that are there.
fn found_of(client: &ClientEntry, workspace: &Path) -> Vec<FoundClient> {
    let starts = |change: &&ClientChange| {
        change.part == SetupPart::Server && change.at.last().is_some_and(|key| key == "legwork")
    };
    let Some(server) = client.change.iter().find(starts) else { return Vec::new() };
    let mut found = Vec::new();
    for scope in [ScopeName::User, ScopeName::Project] {
        for file in server.files(scope, workspace) {
            let text = match files::read(&file) {
                Ok(None) => continue,
                Ok(Some(text)) => FileText::of(&file, &text).get(&server.at).ok(),
                Err(_) => None,
            };
            let entry = text.as_ref().and_then(Option::as_ref);
            let program = entry.and_then(program_of);
            found.push(FoundClient {
                client: client.title.clone(),
                has_legwork: text.as_ref().map(Option::is_some),
                works: program.as_deref().map(can_start),
                program,
                hook: hooked(client, scope, workspace),
                setup: Some(client.name.clone()),
                file,
            });
        }
    }
    found
}

/// Whether a hook of ours is in the files of a scope; none if the client has none.
fn hooked(client: &ClientEntry, scope: ScopeName, workspace: &Path) -> Option<bool> {
    let mut changes =
        client.change.iter().filter(|it| it.part == SetupPart::Hooks && !it.keep).peekable();
    changes.peek()?;
    let has = |change: &ClientChange| {
        let mut files = change.files(scope, workspace).into_iter();
        files.any(|file| {
            let text = files::read(&file).ok().flatten();
            let there = text.and_then(|text| FileText::of(&file, &text).get(&change.at).ok());
            let there: Option<Value> = there.flatten();
            there.is_some_and(|there| is_our_hook(&there, &client.name))
        })
    };
    Some(changes.any(has))
}

impl FoundClient {
    /// The line of the report.
    pub(super) fn line(&self) -> String {
        let file = from_home(&self.file.display().to_string());
        let setup = self.setup.as_ref();
        let setup = setup.map(|name| format!(": legwork setup {name}")).unwrap_or_default();
        let program = self.program.as_deref().map(from_home).unwrap_or_default();
        let has = match (self.has_legwork, self.works) {
            (Some(true), Some(false)) => {
                format!("has legwork, but {program} cannot be started{setup}")
            }
            (Some(true), _) => "has legwork".into(),
            (Some(false), _) => format!("does not have legwork{setup}"),
            (None, _) => "cannot be read".into(),
        };
        let hook = if self.hook == Some(true) { ", its own shell asks legwork" } else { "" };
        format!("{}: {has}{hook} ({file})", self.client)
    }
}
