//! `legwork token`: the tokens of `legwork serve`.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use legwork::open_state;
use serde_json::json;

use super::listed::{age, in_time};
use crate::{
    arguments::{
        StateChoice, TokenAddOptions, TokenListOptions, TokenRevokeOptions, TokenVerb, TrustName,
        chosen, tell_of_repair,
    },
    http::tokens::{Token, TokenFile, new_secret, shown_digest},
    platform::{make_folder, make_private, private_file},
    render::{complain, complain_of, escaped, now_ms, print, print_json, say},
    style::{Style, Tone},
    table::{Table, TableCell},
};

pub(crate) fn token(verb: TokenVerb) -> ExitCode {
    let done = match verb {
        TokenVerb::Add(options) => add(options),
        TokenVerb::List(options) => list(&options),
        TokenVerb::Revoke(options) => revoke(&options),
    };
    done.unwrap_or_else(|problem| complain(&problem))
}

/// The file of tokens, whether it exists or not.
fn file(named: Option<&PathBuf>, state: &StateChoice) -> Result<TokenFile, String> {
    let path = state.path().map_err(|error| error.to_string())?;
    Ok(TokenFile::new(named.map(PathBuf::as_path), &path))
}

fn add(options: TokenAddOptions) -> Result<ExitCode, String> {
    let file = file(options.file.token_file.as_ref(), &options.file.state)?;
    let state = options.file.state.path().map_err(|error| error.to_string())?;
    if options.file.token_file.is_none() || options.save {
        // It is made, readable by its owner only.
        if let Err(error) = open_state(&state, tell_of_repair) {
            return Ok(complain_of(&error.into()));
        }
    }
    let tools = options.tools.as_deref().map(|list| -> Result<Vec<String>, String> {
        Ok(chosen(list)?.definitions().map(|tool| tool.name.to_owned()).collect())
    });
    let workspace = options.workspace.as_ref().map(|path| {
        let real = path.canonicalize();
        real.map_err(|error| format!("the workspace {}: {error}", path.display()))
    });
    let secret = new_secret()?;
    let now = now_ms();
    let lifetime = options.expires.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let token = Token {
        name: options.name,
        role: options.role,
        trust: options.trust.map_or(options.role.usual_trust(), TrustName::trust),
        workspace: workspace.transpose()?,
        tools: tools.transpose()?,
        sha256: shown_digest(&secret),
        created_at_ms: now,
        expires_at_ms: lifetime.map(|lifetime| now.saturating_add(lifetime)),
    };
    let (name, role) = (token.name.clone(), token.role.as_str());
    file.change(|tokens| {
        if tokens.iter().any(|known| known.name == token.name) {
            return Err(format!(
                "there is a token `{}` already: revoke it first, or choose another name",
                token.name
            ));
        }
        tokens.push(token);
        Ok(())
    })?;
    if options.save {
        let saved = save(&state, &name, &secret)?;
        say(&format!("Token `{name}` ({role}), for `curl --header @FILE`:"));
        return Ok(print(&format!("{}\n", saved.display())));
    }
    say(&format!("Token `{name}` ({role}). It is shown only now:"));
    Ok(print(&format!("{secret}\n")))
}

/// The file in the state folder that has a token which was saved.
fn saved(state: &Path, name: &str) -> PathBuf {
    state.join("saved").join(format!("{name}.header"))
}

/// Saves a token as the header that sends it, and returns the file.
fn save(state: &Path, name: &str, secret: &str) -> Result<PathBuf, String> {
    let path = saved(state, name);
    let written = make_folder(&state.join("saved"), 0o700).and_then(|()| {
        // What a token of this name left behind.
        let _ = fs::remove_file(&path);
        let mut file = private_file().create_new(true).open(&path)?;
        make_private(&path)?;
        writeln!(file, "Authorization: Bearer {secret}")
    });
    let failed = |error: io::Error| format!("cannot save the token in {}: {error}", path.display());
    written.map_err(failed)?;
    Ok(path)
}

fn list(options: &TokenListOptions) -> Result<ExitCode, String> {
    let tokens = file(options.file.token_file.as_ref(), &options.file.state)?.read()?;
    if options.json {
        let shown: Vec<_> = tokens.iter().map(described).collect();
        return Ok(print_json(&json!({ "tokens": shown })));
    }
    if tokens.is_empty() {
        return Ok(print("No tokens\n"));
    }
    let mut table = Table::new(["NAME", "ROLE", "TRUST", "AGE", "EXPIRES", "TOOLS", "WORKSPACE"]);
    for token in &tokens {
        let workspace = token.workspace.as_ref().map(|path| path.display().to_string());
        let expires = match token.expires_at_ms {
            None => TableCell::from("never".to_owned()),
            Some(_) if token.is_expired(now_ms()) => TableCell::new(Tone::Bad, "expired"),
            Some(end) => format!("in {}", in_time(end)).into(),
        };
        table.add([
            token.name.clone().into(),
            token.role.as_str().to_owned().into(),
            token.trust.as_str().to_owned().into(),
            age(token.created_at_ms).into(),
            expires,
            token.tools.as_ref().map_or("default".into(), |tools| tools.join(",")).into(),
            workspace.map_or_else(|| "the server's".to_owned(), |path| escaped(&path)).into(),
        ]);
    }
    Ok(print(&table.render(Style::of_stdout().uncut())))
}

/// A token without its hash.
fn described(token: &Token) -> serde_json::Value {
    let mut described = serde_json::to_value(token).unwrap_or_default();
    if let serde_json::Value::Object(fields) = &mut described {
        fields.remove("sha256");
        fields.insert("expired".into(), token.is_expired(now_ms()).into());
    }
    described
}

fn revoke(options: &TokenRevokeOptions) -> Result<ExitCode, String> {
    let file = file(options.file.token_file.as_ref(), &options.file.state)?;
    let name = &options.name;
    let unknown = || format!("there is no token `{name}`: `legwork token list` shows them");
    if file.read()?.is_empty() {
        return Err(unknown());
    }
    file.change(|tokens| {
        let before = tokens.len();
        tokens.retain(|token| token.name != *name);
        if tokens.len() == before { Err(unknown()) } else { Ok(()) }
    })?;
    if let Ok(state) = options.file.state.path() {
        let _ = fs::remove_file(saved(&state, name));
    }
    Ok(print(&format!("Token `{name}` revoked\n")))
}
