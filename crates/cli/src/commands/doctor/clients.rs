//! Finds the configuration files of known MCP clients, and whether each starts `legwork`.

use std::{
    env, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::style::from_home;

/// Where each client keeps its servers: `~` is the home, `.` the workspace.
const PLACES: [(&str, &str); 20] = [
    ("Claude Code", "~/.claude.json"),
    ("Claude Code", "./.mcp.json"),
    ("Claude Desktop", "~/.config/Claude/claude_desktop_config.json"),
    ("Codex", "~/.codex/config.toml"),
    ("Gemini CLI", "~/.gemini/settings.json"),
    ("Gemini CLI", "./.gemini/settings.json"),
    ("opencode", "~/.config/opencode/opencode.jsonc"),
    ("opencode", "./opencode.json"),
    ("Kilo", "~/.config/kilo/kilo.jsonc"),
    ("Qwen Code", "~/.qwen/settings.json"),
    ("goose", "~/.config/goose/config.yaml"),
    ("Copilot CLI", "~/.copilot/mcp-config.json"),
    ("Droid", "~/.factory/mcp.json"),
    ("Kimi", "~/.kimi-code/mcp.json"),
    ("Vibe", "~/.vibe/config.toml"),
    ("Cline", "~/.cline/data/settings/cline_mcp_settings.json"),
    ("Continue", "~/.continue/config.yaml"),
    ("Cursor", "~/.cursor/mcp.json"),
    ("Cursor", "./.cursor/mcp.json"),
    ("VS Code", "./.vscode/mcp.json"),
];

/// Most bytes of a configuration that are looked through.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A client whose configuration is here.
#[derive(Debug, Serialize)]
pub(super) struct FoundClient {
    pub client: &'static str,
    pub file: PathBuf,
    /// Whether `legwork` is named there; none if the file cannot be read.
    pub has_legwork: Option<bool>,
}

/// The clients whose configuration is in the home or in the workspace.
pub(super) fn found(workspace: &Path) -> Vec<FoundClient> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let path = |place: &str| match place.strip_prefix("~/") {
        Some(rest) => home.as_ref().map(|home| home.join(rest)),
        None => Some(workspace.join(place.trim_start_matches("./"))),
    };
    let client = |(client, place): (&'static str, &str)| {
        let file = path(place)?;
        let has_legwork = match mentions_legwork(&file) {
            Ok(has) => Some(has),
            Err(error) if is_absent(&error) => return None,
            Err(_) => None,
        };
        Some(FoundClient { client, file, has_legwork })
    };
    PLACES.into_iter().filter_map(client).collect()
}

fn mentions_legwork(file: &Path) -> io::Result<bool> {
    if !fs::metadata(file)?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    fs::File::open(file)?.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).contains("legwork"))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl FoundClient {
    /// The line of the report.
    pub(super) fn line(&self) -> String {
        let file = from_home(&self.file.display().to_string());
        let has = match self.has_legwork {
            Some(true) => "has legwork",
            Some(false) => "does not have legwork",
            None => "cannot be read",
        };
        format!("{}: {has} ({file})", self.client)
    }
}
