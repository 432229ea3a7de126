//! `docs/configuration.md` is made from the table of keys.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::{fmt::Write, fs, path::Path};

use legwork_gate::{
    keys::{KEYS, Key, Kind, PLACES, Project, Unset, is_listed},
    unit_example,
};

/// What the page begins with.
const HEAD: &str = "\
# Configuration

Legwork reads TOML files in this order: `/etc/legwork/config.toml`, `~/.config/legwork/config.toml`,
`.legwork.toml` in the workspace, and files that are given with `--policy` or `--config`. A later file
replaces what an earlier one sets, and adds to its lists. A command may have written the workspace's
own file, so the column *project* says what that file may do with a key; the rest of it is ignored. A
mistake is an error, with file, line, column and what to write instead: nothing starts with it.

Servers that run read a file again before the next command when it has changed, also one that was not
there before ([policy](policy.md#changes-count-at-once)).

This page is generated from the table in `crates/gate/src/keys.rs`:
`LEGWORK_UPDATE_DOCS=1 cargo test -p legwork-gate --test configuration` updates it.
";

/// What is said of a section.
fn introduction(section: &str) -> &'static str {
    match section {
        "" => "Above the first section.",
        "rule" => "As often as wanted; [policy.md](policy.md) has examples.",
        "connect" => "As often as wanted: [network.md](network.md).",
        "network" => "Hosts that commands connect to: [network.md](network.md).",
        "approval" => "Questions to a person: [policy.md](policy.md).",
        "audit" => "The log of what was asked, decided and done: [ledger.md](ledger.md).",
        "environment" => "Variables that commands get or do not get from us.",
        "mcp" => "The server that clients talk to: `legwork mcp`.",
        "hook" => {
            "The gate for agents that keep their own shell: [`legwork hook`](clients.md#hooks)."
        }
        "limits" => {
            "What a command may use, with everything that it starts: [limits.md](limits.md)."
        }
        "sandbox" => "What commands are confined to: [sandbox.md](sandbox.md).",
        "output" => "What results show of a command's output.",
        "run_shell_command" => "The tool of this name.",
        "retention" => "How long and how much is kept of tasks that are over.",
        "place" => "Other machines that commands can run on: [places.md](places.md).",
        "place.*" => "As often as wanted, each with its own name: [places.md](places.md).",
        other => panic!("say what [{other}] is"),
    }
}

fn value(kind: Kind) -> String {
    match kind {
        Kind::Flag => "`true` or `false`".into(),
        Kind::Number(unit) => match unit_example(unit) {
            Some(example) => format!("number of {unit}, or `\"{example}\"`"),
            None => format!("number of {unit}"),
        },
        Kind::Text => "text".into(),
        Kind::Choice(known) => {
            let quoted: Vec<String> = known.iter().map(|name| format!("`\"{name}\"`")).collect();
            quoted.join(", ")
        }
        Kind::Texts => "list of texts".into(),
        Kind::Words => "list of texts or lists".into(),
        Kind::Tables => "tables".into(),
        Kind::Lists => "table of lists".into(),
    }
}

fn unset(key: &Key) -> String {
    match (key.unset, key.kind) {
        (Unset::None, _) => "none".into(),
        (Unset::Required, _) => "must be set".into(),
        (Unset::Said(text), _) => text.into(),
        (Unset::Is(number), Kind::Number("bytes")) => {
            let bytes: u64 = number.parse().unwrap();
            let (mut size, mut unit) = (bytes, 0);
            while size % 1024 == 0 && unit < 3 {
                (size, unit) = (size / 1024, unit + 1);
            }
            format!("`{number}` ({size} {})", ["B", "KiB", "MiB", "GiB"][unit])
        }
        (Unset::Is(value), _) => format!("`{value}`"),
    }
}

fn project(key: &Key) -> &'static str {
    match key.project {
        Project::Nothing => "no",
        Project::Refused => "refused",
        Project::Tighten => "only stricter",
        Project::All => "yes",
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut section = None;
    for key in KEYS {
        if section != Some(key.section) {
            section = Some(key.section);
            let title = match key.section {
                "" => "Top level".to_owned(),
                PLACES => "`[place.NAME]`".to_owned(),
                listed if is_listed(listed) => format!("`[[{listed}]]`"),
                name => format!("`[{name}]`"),
            };
            let introduction = introduction(key.section);
            let head = "| key | value | default | project | meaning |\n|---|---|---|---|---|";
            writeln!(page, "\n## {title}\n\n{introduction}\n\n{head}").unwrap();
        }
        let (name, meaning) = (key.name, key.meaning);
        let (value, unset, project) = (value(key.kind), unset(key), project(key));
        writeln!(page, "| `{name}` | {value} | {unset} | {project} | {meaning} |").unwrap();
    }
    page
}

#[test]
fn the_page_about_the_configuration_is_made_from_the_table_of_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let made = page();
    if std::env::var_os("LEGWORK_UPDATE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/configuration.md is not made from the table: LEGWORK_UPDATE_DOCS=1 cargo test -p \
         legwork-gate --test configuration"
    );
}

#[test]
fn the_keys_of_a_section_stand_together_and_no_key_twice() {
    let mut seen: Vec<&str> = Vec::new();
    for key in KEYS {
        if seen.last() != Some(&key.section) {
            assert!(!seen.contains(&key.section), "{key:?}");
            seen.push(key.section);
        }
        let same = |other: &&Key| (other.section, other.name) == (key.section, key.name);
        assert_eq!(KEYS.iter().filter(same).count(), 1, "{key:?}");
    }
}
