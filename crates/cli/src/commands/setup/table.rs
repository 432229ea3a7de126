//! The clients that are known, as data: where each keeps its servers and what is written there.

use std::{
    env,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments::ScopeName;

/// The clients.
const CLIENTS: &str = include_str!("../../../data/clients.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientTable {
    pub client: Vec<ClientEntry>,
    pub other: Vec<OtherClient>,
}

/// A client whose files setup can write; the file says what each field is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientEntry {
    pub name: String,
    pub title: String,
    programs: Vec<String>,
    folders: Vec<String>,
    #[serde(default)]
    pub outside: bool,
    pub shell: Option<String>,
    pub change: Vec<ClientChange>,
}

/// A change of one of a client's files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientChange {
    pub part: SetupPart,
    user: Vec<String>,
    #[serde(default)]
    project: Vec<String>,
    pub at: Vec<String>,
    set: Option<String>,
    append: Option<String>,
    #[serde(default)]
    pub keep: bool,
    /// The client's word for the folder of the project.
    root: Option<String>,
    pub note: Option<String>,
}

/// A client whose files are only looked at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OtherClient {
    pub title: String,
    pub file: String,
}

/// What a change is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SetupPart {
    /// The client starts our server.
    Server,
    /// The client's own shell is off.
    Shell,
    /// The client's own shell asks us.
    Hooks,
}

/// What is put into a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Put {
    /// The value of a key.
    Set(Value),
    /// An element of a list.
    Append(Value),
}

/// What the values of the table are filled with.
#[derive(Debug)]
pub(crate) struct Filling {
    /// The path of the program.
    pub program: String,
    /// The command of the hook.
    pub hook: String,
    /// Further arguments of the server.
    pub options: Vec<String>,
    /// Whether a workspace is among them.
    pub names_workspace: bool,
}

impl ClientTable {
    /// The table; a mistake in it is one of ours.
    pub(crate) fn read() -> Result<Self, String> {
        toml::from_str(CLIENTS).map_err(|error| format!("the table of clients: {error}"))
    }
}

impl ClientEntry {
    /// Whether it seems to be here.
    pub(crate) fn is_here(&self) -> bool {
        let folders = self.folders.iter().filter_map(|path| resolved(path, Path::new(".")));
        let on_path = |program: &String| {
            let folders = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&folders).any(|folder| folder.join(program).is_file())
        };
        folders.into_iter().any(|path| path.exists()) || self.programs.iter().any(on_path)
    }

    /// Whether it has a part.
    pub(crate) fn has(&self, part: SetupPart) -> bool {
        self.change.iter().any(|change| change.part == part)
    }

    /// The projects in which these files would be its own.
    pub(crate) fn projects(&self, files: &[PathBuf]) -> Vec<PathBuf> {
        let places: Vec<&String> = self.change.iter().flat_map(|it| &it.project).collect();
        let project = |file: &PathBuf| {
            let place = places.iter().find(|place| file.ends_with(place))?;
            file.ancestors().nth(Path::new(place).components().count()).map(Path::to_owned)
        };
        files.iter().filter_map(project).collect()
    }

    /// Whether it has files of this scope.
    pub(crate) fn has_scope(&self, scope: ScopeName) -> bool {
        self.change.iter().any(|change| !change.places(scope).is_empty())
    }
}

impl ClientChange {
    fn places(&self, scope: ScopeName) -> &[String] {
        match scope {
            ScopeName::User => &self.user,
            ScopeName::Project => &self.project,
        }
    }

    /// All files that it may be in.
    pub(crate) fn files(&self, scope: ScopeName, project: &Path) -> Vec<PathBuf> {
        self.places(scope).iter().filter_map(|place| resolved(place, project)).collect()
    }

    /// The file to change: the first that is there, or the first.
    pub(crate) fn file(&self, scope: ScopeName, project: &Path) -> Option<PathBuf> {
        let files = self.files(scope, project);
        let there = files.iter().find(|path| path.symlink_metadata().is_ok());
        there.or(files.first()).cloned()
    }

    /// What is put into it; none if the table is broken.
    pub(crate) fn put(&self, filling: &Filling) -> Option<Put> {
        let read = |text: &String| {
            let mut value = serde_json::from_str(text).ok()?;
            fill(&mut value, filling, self.root.as_deref());
            Some(value)
        };
        match (&self.set, &self.append) {
            (Some(text), None) => read(text).map(Put::Set),
            (None, Some(text)) => read(text).map(Put::Append),
            _ => None,
        }
    }
}

/// Puts the program and its arguments into a value of the table.
fn fill(value: &mut Value, filling: &Filling, root: Option<&str>) {
    match value {
        Value::String(text) if text == "$LEGWORK" => filling.program.clone_into(text),
        Value::String(text) if text == "$HOOK" => filling.hook.clone_into(text),
        Value::Object(fields) => fields.values_mut().for_each(|it| fill(it, filling, root)),
        Value::Array(items) => {
            let own_root = root.filter(|_| !filling.names_workspace);
            let words = |item: Value| match item.as_str() {
                Some("$OPTIONS") => filling.options.iter().cloned().map(Value::from).collect(),
                Some("$ROOT") => match own_root {
                    Some(root) => vec![Value::from("--workspace"), Value::from(root)],
                    None => Vec::new(),
                },
                _ => vec![item],
            };
            *items = std::mem::take(items).into_iter().flat_map(words).collect();
            for item in items {
                fill(item, filling, root);
            }
        }
        _ => {}
    }
}

/// A path of the table: of the home folder, of the configurations there, or of the project.
pub(crate) fn resolved(place: &str, project: &Path) -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(rest) = place.strip_prefix("~/.config/")
        && let Some(folder) = set("XDG_CONFIG_HOME")
    {
        return Some(folder.join(rest));
    }
    match place.strip_prefix("~/") {
        Some(rest) => set("HOME").map(|home| home.join(rest)),
        None => Some(project.join(place)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::SETUP_CLIENTS;

    #[test]
    fn the_table_has_every_client_of_the_command_line_and_its_values_are_json() {
        let table = ClientTable::read().unwrap();
        let names: Vec<&str> = table.client.iter().map(|client| client.name.as_str()).collect();
        assert_eq!(names, SETUP_CLIENTS);
        let filling = Filling {
            program: "/bin/legwork".into(),
            hook: "/bin/legwork hook".into(),
            options: vec!["--ask".into(), "strict".into()],
            names_workspace: false,
        };
        for client in &table.client {
            assert!(client.has(SetupPart::Server), "{}", client.name);
            assert!(client.has(SetupPart::Shell) != client.shell.is_some(), "{}", client.name);
            for change in &client.change {
                let put = change.put(&filling).unwrap_or_else(|| panic!("{change:?}"));
                let (Put::Set(value) | Put::Append(value)) = put;
                let shown = value.to_string().replace("${", "");
                assert!(!shown.contains('$'), "{value}");
                let starts = value.get("command").or(value.get("args")).is_some();
                let is_server =
                    change.part == SetupPart::Server && change.at.contains(&"legwork".into());
                assert!(!is_server || starts && value.to_string().contains(r#""mcp""#), "{value}");
            }
        }
    }
}
