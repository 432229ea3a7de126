//! Ids: 128 random bits as lowercase base32, with a prefix that says of what.

use std::fmt;

use data_encoding::BASE32_NOPAD;
use serde::{Deserialize, Serialize};

/// 128 bits as base32.
const ID_CHARS: usize = 26;

/// The id of a task: `t_` and 26 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskId(String);

impl TaskId {
    /// Prefix of every task's id.
    pub const PREFIX: &'static str = "t_";

    /// Makes a new id that nobody can guess.
    pub fn random() -> Result<Self, getrandom::Error> {
        random(Self::PREFIX).map(Self)
    }

    /// The id that a text is, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let bits = text.strip_prefix(Self::PREFIX)?;
        let is_id = bits.len() == ID_CHARS
            && bits.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte));
        is_id.then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for TaskId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<String> for TaskId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// A random id with any prefix.
pub(crate) fn random(prefix: &str) -> Result<String, getrandom::Error> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)?;
    Ok(format!("{prefix}{}", BASE32_NOPAD.encode(&bits).to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_128_bits_in_lowercase() {
        let id = TaskId::random().unwrap();
        assert_eq!(id.as_str().len(), 2 + 26);
        assert!(
            id.as_str().chars().skip(2).all(|c| c.is_ascii_lowercase() || ('2'..='7').contains(&c))
        );
        assert_ne!(id, TaskId::random().unwrap());
        assert_eq!(TaskId::parse(id.as_str()), Some(id));
        for other in [
            "t_",
            "../../etc/passwd",
            "t_/aaaaaaaaaaaaaaaaaaaaaaaaa",
            "a_aaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert_eq!(TaskId::parse(other), None, "{other}");
        }
    }
}
