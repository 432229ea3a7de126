//! The keys of the configuration, in one table: from it come the names that a file may have, the
//! checks of their values, the hints about names that it may not have, and
//! `docs/configuration.md`.

use crate::{names::NetworkMode, policy::Mode, rule::Level, verdict::Trust};

/// A key of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The section that it stands in; empty for none.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The value that counts where none is set.
    pub unset: Unset,
    /// What the file of a project may do with it.
    pub project: Project,
    /// What it is for, in one sentence.
    pub meaning: &'static str,
}

/// The values that a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number, of this unit.
    Number(&'static str),
    /// A string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A list of strings.
    Texts,
    /// A list of strings, or of lists of them.
    Words,
    /// A table of lists of strings, under names of the user's own.
    Lists,
    /// Tables, each with keys of its own.
    Tables,
}

/// The value that counts where none is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unset {
    /// None.
    None,
    /// This one, as it would be written.
    Is(&'static str),
    /// What is said here.
    Said(&'static str),
    /// There is none: it has to be set.
    Required,
}

/// What the file of a project may do with a key; it may be a command's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Project {
    /// Nothing: it is passed over there.
    Nothing,
    /// Not even name it.
    Refused,
    /// Make it stricter than all other files do.
    Tighten,
    /// Everything.
    All,
}

const fn setting(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    unset: Unset,
    meaning: &'static str,
) -> Key {
    Key { section, name, kind, unset, project: Project::Nothing, meaning }
}

const fn limit(name: &'static str, unit: &'static str, unset: Unset, meaning: &'static str) -> Key {
    let (section, kind) = ("limits", Kind::Number(unit));
    Key { section, name, kind, unset, project: Project::Tighten, meaning }
}

const fn rule(name: &'static str, kind: Kind, unset: Unset, meaning: &'static str) -> Key {
    Key { section: "rule", name, kind, unset, project: Project::All, meaning }
}

const fn network_limit(
    name: &'static str,
    unit: &'static str,
    unset: Unset,
    meaning: &'static str,
) -> Key {
    let (section, kind) = ("network", Kind::Number(unit));
    Key { section, name, kind, unset, project: Project::Tighten, meaning }
}

const fn connect(name: &'static str, kind: Kind, unset: Unset, meaning: &'static str) -> Key {
    Key { section: "connect", name, kind, unset, project: Project::All, meaning }
}

const fn place(name: &'static str, kind: Kind, unset: Unset, meaning: &'static str) -> Key {
    Key { section: PLACES, name, kind, unset, project: Project::Nothing, meaning }
}

/// The sections of places: one for each, with its name in the place of the star.
pub const PLACES: &str = "place.*";

const MS: Kind = Kind::Number("milliseconds");
const BYTES: Kind = Kind::Number("bytes");
const TOKENS: Kind = Kind::Number("tokens");
const LEVELS: Kind = Kind::Choice(&Level::NAMES);
const NETWORKS: Kind = Kind::Choice(&NetworkMode::NAMES);
/// The networks of callers who have none by their trust.
const LENT_NETWORKS: Kind = Kind::Choice(&["names", "none"]);

/// The section of the tool that runs a script to its end.
pub const RUN_SHELL_COMMAND: &str = "run_shell_command";

/// All keys.
pub const KEYS: &[Key] = &[
    Key {
        section: "",
        name: "coreTools",
        kind: Kind::Texts,
        unset: Unset::Is("[]"),
        project: Project::Refused,
        meaning: "Short forms of rules that allow",
    },
    Key {
        section: "",
        name: "excludeTools",
        kind: Kind::Texts,
        unset: Unset::Is("[]"),
        project: Project::All,
        meaning: "Short forms of rules that deny",
    },
    Key {
        section: "",
        name: "rule",
        kind: Kind::Tables,
        unset: Unset::None,
        project: Project::Tighten,
        meaning: "A rule: `[[rule]]`, as often as wanted",
    },
    Key {
        section: "",
        name: "connect",
        kind: Kind::Tables,
        unset: Unset::None,
        project: Project::Tighten,
        meaning: "A rule on a name that commands connect to: `[[connect]]`, as often as wanted",
    },
    setting(
        "",
        "roots",
        Kind::Texts,
        Unset::Is("[]"),
        "Folders that commands may run in besides the workspace",
    ),
    setting(
        "",
        "orphan_ttl_ms",
        MS,
        Unset::Is("600000"),
        "How long a command may run on without any server before it is stopped",
    ),
    setting(
        "",
        "ask",
        Kind::Choice(&Mode::ASKS),
        Unset::Is("\"guarded\""),
        "When a person is asked: never, as the tools and rules say, or (strict) about all that no rule allows",
    ),
    rule("id", Kind::Text, Unset::Said("`rule-N`"), "The name by which verdicts name it"),
    rule(
        "decision",
        Kind::Choice(&["allow", "try", "ask", "deny"]),
        Unset::Required,
        "What it decides; a project's file cannot allow",
    ),
    rule("program", Kind::Text, Unset::Required, "The program, as a whole word"),
    rule("args", Kind::Words, Unset::Is("[]"), "Alternatives for each argument, from the first on"),
    rule("exact", Kind::Flag, Unset::Is("false"), "Whether no further arguments may follow"),
    rule("tool", Kind::Text, Unset::None, "The only tool that it is for; absent: all"),
    rule(
        "workspace",
        Kind::Text,
        Unset::None,
        "The only workspace that an allow is for, by its absolute path; absent: all",
    ),
    rule(
        "trust",
        Kind::Choice(&Trust::NAMES),
        Unset::None,
        "The least trust of a caller that an allow is for; absent: any",
    ),
    rule("deny_flags", Kind::Texts, Unset::Is("[]"), "Arguments with which it does not match"),
    rule(
        "redirect",
        Kind::Choice(&["none", "workspace", "any"]),
        Unset::Is("\"none\""),
        "Where the command may redirect its output to",
    ),
    rule(
        "sandbox",
        LEVELS,
        Unset::None,
        "The level of its sandbox; a project's file can only choose `read-only`",
    ),
    rule(
        "network",
        NETWORKS,
        Unset::None,
        "The network of its command, where the caller has at least that: `all`, `names` or `none`",
    ),
    rule("because", Kind::Text, Unset::None, "The reason that is shown with the verdict"),
    rule("match", Kind::Texts, Unset::Is("[]"), "Examples that it must match"),
    rule("no_match", Kind::Texts, Unset::Is("[]"), "Examples that it must not match"),
    connect("id", Kind::Text, Unset::Said("`connect-N`"), "The name by which results name it"),
    connect(
        "decision",
        Kind::Choice(&["allow", "deny"]),
        Unset::Required,
        "What it decides; a project's file cannot allow",
    ),
    connect("name", Kind::Text, Unset::Required, "The name, as in `[network] allow`"),
    connect(
        "workspace",
        Kind::Text,
        Unset::None,
        "The only workspace that an allow is for, by its absolute path; absent: all",
    ),
    connect(
        "trust",
        Kind::Choice(&Trust::NAMES),
        Unset::None,
        "The least trust of a caller that an allow is for; absent: any",
    ),
    setting(
        "approval",
        "wait_ms",
        MS,
        Unset::Is("0"),
        "How long a call waits for an approval where nobody is known to be there",
    ),
    setting("approval", "expires_ms", MS, Unset::Is("600000"), "How long a question stays open"),
    setting(
        "approval",
        "notify",
        Kind::Texts,
        Unset::Is("[]"),
        "A program with its arguments that is run when a question opens; it gets the question as a line of JSON",
    ),
    setting(
        "approval",
        "elicit",
        Kind::Flag,
        Unset::Is("true"),
        "Whether the MCP client is asked to show questions, where it says that it can",
    ),
    setting(
        "mcp",
        "answer_within_ms",
        MS,
        Unset::Is("50000"),
        "How long a call of a client that asks for no progress waits at most: several clients give up after 60 s",
    ),
    setting(
        "hook",
        "on_failure",
        Kind::Choice(&["deny", "allow"]),
        Unset::Is("\"deny\""),
        "What `legwork hook` answers about a command that it cannot judge: deny it, or let the agent decide",
    ),
    setting(
        "environment",
        "keep",
        Kind::Texts,
        Unset::Is("[]"),
        "Variables that commands get although the client has set them for itself",
    ),
    setting(
        "environment",
        "drop",
        Kind::Texts,
        Unset::Is("[]"),
        "Variables that commands do not get",
    ),
    setting(
        "audit",
        "anchor",
        Kind::Texts,
        Unset::Is("[]"),
        "Where a server sends the end of the audit log: a program with its arguments, which gets a line of JSON, \
         or `syslog`",
    ),
    limit("wall_ms_max", "milliseconds", Unset::None, "Time until the command is stopped"),
    limit("cpu_ms_max", "milliseconds", Unset::None, "Processor time of the whole tree"),
    limit("processes_max", "processes", Unset::Is("4096"), "Processes and threads of the tree"),
    limit("memory_bytes_max", "bytes", Unset::None, "Memory of the tree, swap included"),
    limit("open_files_max", "files", Unset::None, "Open files of each process"),
    limit("file_bytes_max", "bytes", Unset::None, "Size of each file that is written"),
    limit(
        "output_bytes_max",
        "bytes",
        Unset::Is("4294967296"),
        "Output that is kept of both streams together",
    ),
    limit(
        "disk_free_bytes_min",
        "bytes",
        Unset::Said("1 GiB, or 5 % of the disk if that is less"),
        "Room on the disk of the state folder that output may not take",
    ),
    limit(
        "tasks_max",
        "tasks",
        Unset::Is("4096"),
        "Tasks that run at a time, of all processes of the state folder",
    ),
    setting(
        "sandbox",
        "level",
        LEVELS,
        Unset::Said("by the caller's trust"),
        "The level, where the caller's trust does not ask for a stricter one",
    ),
    setting(
        "sandbox",
        "network",
        Kind::Flag,
        Unset::Said("by the caller's trust"),
        "Whether there is a network, where the caller's trust allows one",
    ),
    setting(
        "sandbox",
        "required",
        Kind::Flag,
        Unset::Is("false"),
        "Whether nothing starts unless every layer is in force",
    ),
    setting(
        "sandbox",
        "writable",
        Kind::Texts,
        Unset::Is("[]"),
        "Paths that may be written besides",
    ),
    setting(
        "sandbox",
        "unreadable",
        Kind::Texts,
        Unset::Is("[]"),
        "Paths that may not be read besides",
    ),
    setting(
        "sandbox",
        "trial_bytes_max",
        Kind::Number("bytes"),
        Unset::Is("10737418240"),
        "Size of what a command may write that is only tried; beyond it the command is stopped",
    ),
    Key {
        section: "network",
        name: "mode",
        kind: NETWORKS,
        unset: Unset::Said("`all`"),
        project: Project::Tighten,
        meaning: "The network of callers who have one by their trust: all of it, hosts by name, or none",
    },
    setting(
        "network",
        "allow",
        Kind::Texts,
        Unset::Is("[]"),
        "Names that commands may connect to: `example.org`, `*.example.org`, `example.org:8443`, `10.0.0.0/8`, `@python`",
    ),
    Key {
        section: "network",
        name: "deny",
        kind: Kind::Texts,
        unset: Unset::Is("[]"),
        project: Project::Tighten,
        meaning: "Names that they may not connect to, whatever else allows them",
    },
    setting(
        "network",
        "ask",
        Kind::Flag,
        Unset::Is("false"),
        "Whether a person is asked about a name that no rule matches, while the connection waits",
    ),
    setting(
        "network",
        "sets",
        Kind::Lists,
        Unset::None,
        "Sets of names, each a key with a list: `python = [\"index.example\"]` is used as `@python`",
    ),
    setting(
        "network",
        "trusted_integration",
        LENT_NETWORKS,
        Unset::Is("\"none\""),
        "The network of callers of this trust, who have none otherwise",
    ),
    setting(
        "network",
        "untrusted_external",
        LENT_NETWORKS,
        Unset::Is("\"none\""),
        "The network of callers of this trust, who have none otherwise",
    ),
    network_limit(
        "connections_max",
        "connections",
        Unset::Is("64"),
        "Connections of a task at a time",
    ),
    network_limit(
        "bytes_out_max",
        "bytes",
        Unset::None,
        "Bytes that all connections of a task may send",
    ),
    network_limit(
        "connect_ms_max",
        "milliseconds",
        Unset::Is("10000"),
        "Time until a name is resolved and its server connected",
    ),
    setting(
        "output",
        "default_tokens",
        TOKENS,
        Unset::Is("8000"),
        "Output that is shown where the caller does not say how much",
    ),
    setting(
        "output",
        "max_tokens",
        TOKENS,
        Unset::Is("64000"),
        "Most output that is shown, whatever the caller says",
    ),
    setting(
        "output",
        "complete_bytes_max",
        BYTES,
        Unset::Is("1048576"),
        "Size up to which a stream is shown whole by tools that promise that",
    ),
    setting(
        RUN_SHELL_COMMAND,
        "timeout_ms",
        MS,
        Unset::Is("600000"),
        "Time until a command of this tool is stopped",
    ),
    setting(
        "retention",
        "days",
        Kind::Number("days"),
        Unset::Is("7"),
        "How long tasks are kept that are over",
    ),
    setting(
        "retention",
        "bytes_max",
        BYTES,
        Unset::Is("10737418240"),
        "Room that the ledger and the tasks' folders may take",
    ),
    setting(
        "place",
        "default",
        Kind::Text,
        Unset::Is("\"local\""),
        "The place that commands run at whose caller does not name one; `local` is this machine",
    ),
    place(
        "kind",
        Kind::Choice(&["ssh", "docker", "slurm"]),
        Unset::Required,
        "How the place is reached: over OpenSSH, in a container, or as jobs of Slurm",
    ),
    place("host", Kind::Text, Unset::None, "The host, as `ssh` takes it; for `ssh`"),
    place(
        "container",
        Kind::Text,
        Unset::None,
        "The name of a container that runs; for `docker`, in the place of `image`",
    ),
    place(
        "image",
        Kind::Text,
        Unset::None,
        "The image that a container is made of for each task; for `docker`, in the place of `container`",
    ),
    place(
        "options",
        Kind::Texts,
        Unset::Is("[]"),
        "Arguments for `ssh`, `docker exec`, `docker run` or `sbatch`, before ours",
    ),
    place(
        "workspace",
        Kind::Text,
        Unset::Said("the workspace's own path"),
        "The folder there that commands run in",
    ),
    place(
        "program",
        Kind::Text,
        Unset::Said(
            "this program is sent there once; for `slurm` and `image`, copied into `state`",
        ),
        "The program `legwork` there, of the same version",
    ),
    place(
        "state",
        Kind::Text,
        Unset::Said("`~/.local/state/legwork-post`"),
        "The folder there that running tasks are kept in",
    ),
];

/// The keys of a section.
pub(crate) fn keys_of(section: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.section == section)
}

/// A key of a section.
pub(crate) fn find(section: &str, name: &str) -> Option<&'static Key> {
    keys_of(section).find(|key| key.name == name)
}

/// Whether a section is one of rules or places, of which there are as many as wanted.
pub fn is_listed(section: &str) -> bool {
    matches!(section, "rule" | "connect" | PLACES)
}

/// Whether there is a section of this name that has settings.
pub(crate) fn is_section(name: &str) -> bool {
    !name.is_empty() && !is_listed(name) && keys_of(name).next().is_some()
}

/// The names that may stand in a section; at the top those of sections, too.
pub(crate) fn names_in(section: &str) -> Vec<&'static str> {
    let mut names: Vec<_> = keys_of(section).map(|key| key.name).collect();
    if section.is_empty() {
        for name in KEYS.iter().map(|key| key.section).filter(|name| is_section(name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// What to write in the place of a name that is not known in a section.
pub(crate) fn hint(section: &str, written: &str) -> String {
    let known = names_in(section);
    let elsewhere = KEYS.iter().find(|key| key.name == written && !is_listed(key.section));
    match (elsewhere, nearest(written, &known)) {
        (Some(key), _) if key.section.is_empty() => "it belongs above the first section".into(),
        (Some(key), _) => format!("it belongs into `[{}]`", key.section),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => format!("known here are: {}", known.join(", ")),
    }
}

/// The known name that is nearest to what was written, if it is near at all; case counts little.
pub(crate) fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let fold = |text: &str| text.to_lowercase().replace('-', "_").chars().take(64).collect();
    let folded: String = fold(written);
    let distance = |name: &str| strsim::osa_distance(&folded, &fold(name));
    let near = known.iter().map(|name| (distance(name), *name));
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    let most = (written.chars().count().max(name.chars().count()) / 2).max(1);
    (distance <= most).then_some(name)
}
