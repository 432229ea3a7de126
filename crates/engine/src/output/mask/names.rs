//! Which variables hold secrets, by their names, and which of their values are none all the same.

use std::path::Path;

/// A value with fewer characters would be found in any text.
const VALUE_CHARS_MIN: usize = 8;

/// Words that make a name that of a secret.
const WORDS: [&str; 20] = [
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWORDS",
    "PASSWD",
    "PASSPHRASE",
    "PASS",
    "PWD",
    "APIKEY",
    "ACCESSKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "JWT",
    "PAT",
];

/// Endings of a word that do the same, as in `PGPASSWORD` and `AUTHTOKEN`.
const ENDINGS: [&str; 5] = ["PASSWORD", "PASSWD", "TOKEN", "SECRET", "APIKEY"];

/// Words that do the same when KEY follows.
const KEYS: [&str; 7] = ["API", "ACCESS", "PRIVATE", "SIGNING", "ENCRYPTION", "ACCOUNT", "MASTER"];

/// Variables whose values everybody may know, so that what is in them is no secret elsewhere
/// either.
const PUBLIC: [&str; 6] = ["USER", "LOGNAME", "HOSTNAME", "HOME", "PWD", "SHELL"];

/// Whether a variable of this name holds a secret.
fn is_secret(name: &str) -> bool {
    if PUBLIC.contains(&name) || name == "OLDPWD" {
        return false;
    }
    let words = words(name);
    // Keys of collectors are given as headers.
    let is_otlp = words.first().is_some_and(|word| word == "OTEL");
    if is_otlp && words.last().is_some_and(|word| word == "HEADERS") {
        return true;
    }
    let by_word = words.iter().any(|word| {
        WORDS.contains(&word.as_str()) || ENDINGS.iter().any(|ending| word.ends_with(ending))
    });
    by_word
        || words.windows(2).any(|pair| match pair {
            [kind, key] => key == "KEY" && KEYS.contains(&kind.as_str()),
            _ => false,
        })
}

/// The words of a name, in capitals: `npm_authToken` has three.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for character in name.chars() {
        let begins = was_small && character.is_uppercase();
        if (begins || !character.is_alphanumeric()) && words.last().is_some_and(|w| !w.is_empty()) {
            words.push(String::new());
        }
        was_small = character.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_uppercase());
        }
    }
    words
}

/// The variables that hold secrets, with their values.
pub(super) fn secrets(variables: &[(String, String)]) -> Vec<(&str, &str)> {
    let public: Vec<&str> = variables
        .iter()
        .filter(|(name, _)| PUBLIC.contains(&name.as_str()))
        .map(|(_, value)| value.as_str())
        .collect();
    let is_known = |value: &str| public.iter().any(|known| known.contains(value));
    variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.trim()))
        .filter(|(name, value)| is_secret(name) && value.chars().count() >= VALUE_CHARS_MIN)
        .filter(|(_, value)| !is_known(value) && !is_place(value))
        .collect()
}

/// Whether a value only says where something is: a file that holds a secret, an agent's socket.
fn is_place(value: &str) -> bool {
    let path = Path::new(value);
    path.is_absolute() && path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_secret_by_their_words() {
        for name in [
            "GITHUB_TOKEN",
            "TOKEN",
            "npm_config__authToken",
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASSWD",
            "SSHPASS_PASS",
            "AWS_SECRET_ACCESS_KEY",
            "OPENAI_API_KEY",
            "apiKey",
            "OPENAI_APIKEY",
            "DEPLOY_PRIVATE_KEY",
            "GOOGLE_CREDENTIALS",
            "SSH_AUTH_SOCK",
            "client-secret",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "PWD",
            "OLDPWD",
            "HOME",
            "TOKENIZERS_PARALLELISM",
            "AUTHOR",
            "GIT_AUTHOR_NAME",
            "XAUTHORITY",
            "KEYBOARD",
            "PRIMARY_KEY",
            "COMPASS_FILE",
            "PATTERN",
            "",
            "__",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn short_values_places_and_what_everybody_knows_are_no_secrets() {
        let variables: Vec<(String, String)> = [
            ("A_TOKEN", "long enough"),
            ("B_TOKEN", "short"),
            ("SSH_AUTH_SOCK", "/"),
            ("KEY_SECRET", std::env!("CARGO_MANIFEST_DIR")),
            ("C_PASSWORD", "/no/such/file/anywhere"),
            ("USER", "postgres"),
            ("PGPASSWORD", "postgres"),
            ("D_SECRET", " \n "),
            ("E_SECRET", " spaces around \n"),
            ("PLAIN", "not secret at all"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        let found = secrets(&variables);
        assert_eq!(
            found,
            [
                ("A_TOKEN", "long enough"),
                ("C_PASSWORD", "/no/such/file/anywhere"),
                ("E_SECRET", "spaces around")
            ]
        );
    }
}
