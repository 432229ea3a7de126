//! `legwork completions`: prints a completion script for a shell. The script calls `legwork
//! complete-ids` when it needs ids.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{
    arguments::{Arguments, CompletionsOptions},
    render::print,
};

/// The verbs whose first argument is an id, and which ids those are.
const VERBS: [(&str, &str); 11] = [
    ("show", "tasks"),
    ("status", "tasks"),
    ("logs", "tasks"),
    ("attach", "running"),
    ("send", "running"),
    ("stop", "running"),
    ("kill", "running"),
    ("wait", "running"),
    ("approvals", "approvals"),
    ("approve", "approvals"),
    ("deny", "approvals"),
];

pub(crate) fn completions(options: &CompletionsOptions) -> ExitCode {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    print(&match options.shell {
        Shell::Bash => format!("{script}{}", bash()),
        Shell::Zsh => zsh(&script),
        Shell::Fish => format!("{script}{}", fish()),
        _ => script,
    })
}

/// Bash shows no descriptions: only the ids are added to what it knows already.
fn bash() -> String {
    let cases: String =
        VERBS.iter().map(|(verb, kind)| format!("        {verb}) kind={kind} ;;\n")).collect();
    format!(
        r#"
_legwork_with_ids() {{
    _legwork "$@"
    local word="${{COMP_WORDS[COMP_CWORD]}}" kind=""
    case "${{COMP_WORDS[1]}}" in
{cases}    esac
    if [[ -n "$kind" && "$COMP_CWORD" -gt 1 && "$word" != -* ]]; then
        local ids
        ids="$(legwork complete-ids "$kind" 2>/dev/null | cut -f 1)"
        COMPREPLY+=($(compgen -W "$ids" -- "$word"))
    fi
}}
complete -F _legwork_with_ids -o nosort -o bashdefault -o default legwork
"#
    )
}

/// Zsh describes each id; the arguments that are ids are known by their names.
fn zsh(script: &str) -> String {
    let functions: String = ["tasks", "running", "approvals"]
        .iter()
        .map(|kind| {
            format!(
                r#"
_legwork_ids_{kind}() {{
    local -a ids
    ids=(${{(f)"$(legwork complete-ids {kind} 2>/dev/null | sed -e 's/:/\\:/g' -e 's/	/:/')"}})
    _describe -V '{kind}' ids
}}
"#
            )
        })
        .collect();
    let mut out = String::new();
    let mut kind = None;
    for line in script.split_inclusive('\n') {
        let verb = line.trim().strip_prefix('(').and_then(|line| line.strip_suffix(')'));
        if let Some(verb) = verb {
            kind = VERBS.iter().find(|(known, _)| *known == verb).map(|(_, kind)| *kind);
        }
        let is_id = [":task", ":id", "*::tasks", "::task", "::id"]
            .iter()
            .any(|name| line.trim_start_matches(['\'', ' ']).starts_with(name));
        match kind.filter(|_| is_id) {
            Some(kind) => {
                out.push_str(&line.replace(":_default'", &format!(":_legwork_ids_{kind}'")));
            }
            None => out.push_str(line),
        }
    }
    match out.find("\n_legwork() {") {
        Some(at) => format!(
            "{}{functions}{}",
            out.get(..at).unwrap_or_default(),
            out.get(at..).unwrap_or_default()
        ),
        None => out,
    }
}

/// Fish describes each id.
fn fish() -> String {
    VERBS
        .iter()
        .map(|(verb, kind)| {
            format!(
                "complete -c legwork -n \"__fish_seen_subcommand_from {verb}\" -f -k \
                 -a \"(legwork complete-ids {kind} 2>/dev/null)\"\n"
            )
        })
        .collect()
}
