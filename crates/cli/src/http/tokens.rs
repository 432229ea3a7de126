//! The tokens of the HTTP face: who may come in, and as what.
//!
//! A token is 256 random bits, and the file has its SHA-256 alone: whoever reads the file cannot
//! come in. A slow hash (argon2) protects secrets that people choose, by making guesses dear; of
//! 256 random bits nobody guesses one, whatever a guess costs, and every request is checked.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use legwork::Trust;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::platform::{
    Stamp, is_open_to_others, is_ours, make_private, private_file, private_file_here, stamp_of,
};

/// What a token begins with, so that people and secret scanners know it.
pub(super) const PREFIX: &str = "lwt_";

/// The file in the state folder.
const FILE: &str = "tokens.json";

/// Most bytes of the file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Longest name of a token.
const NAME_CHARS_MAX: usize = 64;

/// What the holder of a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TokenRole {
    /// Runs commands, answers questions, sees everything
    Operator,
    /// Runs commands and sees their tasks; answers no question
    Agent,
    /// Sees tasks, questions and the audit log; changes nothing
    Viewer,
}

impl TokenRole {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Agent => "agent",
            Self::Viewer => "viewer",
        }
    }

    /// The trust of a token that names none.
    pub(crate) fn usual_trust(self) -> Trust {
        match self {
            Self::Operator => Trust::TrustedOperator,
            Self::Agent => Trust::TrustedIntegration,
            Self::Viewer => Trust::UntrustedExternal,
        }
    }
}

/// A token as the file has it. An unknown field is an error: it may be a restriction that a newer
/// version has added, and that must not be overlooked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub name: String,
    pub role: TokenRole,
    pub trust: Trust,
    /// The workspace that it is confined to; none: the server's own for commands, and for an
    /// operator or a viewer the tasks of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// The tools that it can call; none: those that are offered by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
    pub created_at_ms: i64,
    /// When it ends, by the wall clock; none: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
}

impl Token {
    pub(crate) fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_at_ms.is_some_and(|end| end <= now_ms)
    }
}

/// A new token, which is shown once.
pub(crate) fn new_secret() -> Result<String, String> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).map_err(|error| error.to_string())?;
    Ok(format!("{PREFIX}{}", BASE32_NOPAD.encode(&bits).to_lowercase()))
}

/// The hash by which a token is known.
pub(crate) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The hash as the file has it.
pub(crate) fn shown_digest(secret: &str) -> String {
    HEXLOWER.encode(&digest(secret))
}

/// Checks the name of a new token.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    if text.is_empty() || text.len() > NAME_CHARS_MAX || !text.chars().all(fits) {
        return Err(format!(
            "write a name of at most {NAME_CHARS_MAX} letters, digits, dots, dashes and underscores"
        ));
    }
    Ok(text.to_owned())
}

/// What the file has.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    tokens: Vec<Token>,
}

/// The file of tokens.
#[derive(Debug, Clone)]
pub(crate) struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// The file that was named, or the one of a state folder.
    pub(crate) fn new(named: Option<&Path>, state: &Path) -> Self {
        Self { path: named.map_or_else(|| state.join(FILE), Path::to_owned) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The state of the file now; none if there is none.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        stamp_of(&self.path)
    }

    /// The tokens; none if there is no file.
    pub(crate) fn read(&self) -> Result<Vec<Token>, String> {
        let shown = self.path.display();
        let failed = |error: io::Error| format!("{shown}: {error}");
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err(format!("{shown} is no file of tokens"));
        }
        if !is_ours(&found) {
            return Err(format!(
                "{shown} belongs to another user, who could make tokens: use another file"
            ));
        }
        if is_open_to_others(&found) {
            return Err(format!("{shown} can be used by others: chmod 600 {shown}"));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let listed: Listed =
            serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
        Ok(listed.tokens)
    }

    /// Changes the list: in one step, and one process at a time.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Token>) -> Result<T, String>,
    ) -> Result<T, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.path.display());
        let beside = |suffix: &str| {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        // Whoever else writes in the folder must not lead us to another file by a link.
        let lock = private_file_here().create(true).open(beside(".lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut tokens = self.read()?;
        let changed = change(&mut tokens)?;
        let text = serde_json::to_string_pretty(&Listed { tokens });
        let text = text.map_err(|error| error.to_string())?;
        let new = beside(".new");
        let written = (|| {
            // We have the lock: what is there was left behind.
            let _ = fs::remove_file(&new);
            let mut file = private_file().create_new(true).open(&new)?;
            make_private(&new)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        })();
        written.map_err(failed)?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_256_bits_and_the_file_never_has_it() {
        let secret = new_secret().unwrap();
        assert_eq!(secret.len(), PREFIX.len() + 52);
        assert_ne!(secret, new_secret().unwrap());
        assert_eq!(shown_digest("abc").get(..8), Some("ba7816bf"));
    }

    #[test]
    fn a_field_that_a_newer_version_has_added_is_not_overlooked() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(None, folder.path());
        assert_eq!(file.read(), Ok(Vec::new()));
        let token = Token {
            name: "a".into(),
            role: TokenRole::Agent,
            trust: Trust::TrustedIntegration,
            workspace: None,
            tools: None,
            sha256: shown_digest("x"),
            created_at_ms: 1,
            expires_at_ms: None,
        };
        file.change(|tokens| {
            tokens.push(token.clone());
            Ok(())
        })
        .unwrap();
        assert_eq!(file.read(), Ok(vec![token]));
        let text = fs::read_to_string(file.path()).unwrap();
        fs::write(file.path(), text.replace("\"name\"", "\"only_on_mondays\": true, \"name\""))
            .unwrap();
        assert!(file.read().unwrap_err().contains("only_on_mondays"));
    }
}
