//! Options of the server over HTTP and of its tokens.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{
    common::{LogChoice, Rules, StateChoice, StatePlace, TrustName},
    examples, values,
};
use crate::{
    http::{
        Listen,
        tokens::{self, TokenRole},
    },
    platform::OPEN_HELP,
};

#[derive(Debug, Args)]
pub(crate) struct AcpOptions {
    /// Folder that commands run in [default: that of the editor's session]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    #[command(flatten)]
    pub state: StateChoice,
    /// Trust in the agent; a rule or a person has to allow each command of an untrusted one
    #[arg(long, value_enum, default_value = "trusted_operator", value_name = "LEVEL")]
    pub trust: TrustName,
    #[command(flatten)]
    pub rules: Rules,
    /// The agent's program and its arguments
    #[arg(last = true, required = true, value_name = "AGENT")]
    pub agent: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServeOptions {
    #[command(subcommand)]
    pub verb: Option<ServeVerb>,
    /// Address to listen on: HOST:PORT (port 0 is any free one) or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    pub listen: Listen,
    /// Certificate to speak TLS with (PEM, with its chain); read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM, without a password)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Allow an address that other machines reach: a proxy that speaks TLS stands in front of it
    #[arg(long)]
    pub behind_proxy: bool,
    #[arg(long, help = OPEN_HELP)]
    pub open: bool,
    /// A name that clients may use for this server in their Host and Origin headers, besides
    /// localhost and the address; may be repeated
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
    /// Close a connection that sends no request, or no end of its headers, for this long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::seconds)]
    pub idle_timeout: Duration,
    /// File of the tokens [default: tokens.json in the state folder]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub place: StatePlace,
    #[command(flatten)]
    pub rules: Rules,
    /// Add the JSON envelope to each MCP result as structuredContent (several clients then drop the
    /// text)
    #[arg(long)]
    pub structured: bool,
    #[command(flatten)]
    pub log: LogChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServeVerb {
    /// Print a link that signs in to the page of the running server, once
    #[command(after_help = examples::SERVE_LINK)]
    Link(ServeLinkOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ServeLinkOptions {
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Add a token and print it, once
    #[command(after_help = examples::TOKEN_ADD)]
    Add(TokenAddOptions),
    /// List the tokens, without their secrets
    #[command(after_help = examples::TOKEN_LIST)]
    List(TokenListOptions),
    /// Revoke a token
    #[command(after_help = examples::TOKEN_REVOKE)]
    Revoke(TokenRevokeOptions),
}

/// Where the tokens are.
#[derive(Debug, Args)]
pub(crate) struct TokenFileChoice {
    /// File of the tokens [default: tokens.json in the state folder]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct TokenAddOptions {
    /// Name of the token, for the list and the audit log
    #[arg(value_parser = tokens::name)]
    pub name: String,
    /// What its holder may do
    #[arg(long, value_enum)]
    pub role: TokenRole,
    /// Trust in its commands [default: by its role]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub trust: Option<TrustName>,
    /// Folder that its commands run in, and the only one whose tasks it sees [default: the
    /// server's folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Tools that it can call, separated by commas, or all [default: those that a model is offered]
    #[arg(long, value_name = "LIST|all")]
    pub tools: Option<String>,
    /// How long it counts, such as 12h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = values::seconds)]
    pub expires: Option<Duration>,
    /// Save the token in the state folder, which sandboxed commands cannot read, and print that
    /// file instead; `curl --header @FILE` sends it
    #[arg(long)]
    pub save: bool,
    #[command(flatten)]
    pub file: TokenFileChoice,
}

#[derive(Debug, Args)]
pub(crate) struct TokenListOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub file: TokenFileChoice,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeOptions {
    /// Name of the token
    pub name: String,
    #[command(flatten)]
    pub file: TokenFileChoice,
}
