//! Plain English: what the command line prints has the words that a reader would search for.

use std::{fs, path::Path, process::Command};

use crate::common::{program, text};

/// Phrases that were ours alone, and nobody else's.
const RIDDLES: [&str; 23] = [
    "complete our words",
    "take part in",
    "past their time",
    "mend the file",
    "every page is whole",
    "makes code of",
    "what became of",
    "cannot be known",
    "a process could not be made",
    "words of ours",
    "speaks of",
    "cage",
    " news",
    "whatever else is so",
    "something else is so",
    "see to its",
    "what is known of",
    "how far the caller",
    "leaves it)",
    "all whole",
    "that makes a shell",
    "is to read it",
    "nobody came back",
];

/// Verbs that have verbs of their own.
const GROUPS: [&str; 3] = ["audit", "policy", "token"];

/// The help of every verb, and of the program itself.
fn helps(width: &str) -> Vec<(String, String)> {
    let help = |verbs: &[&str]| {
        let mut command = Command::new(program());
        let output = command.args(verbs).arg("--help").env("COLUMNS", width).output().unwrap();
        assert!(output.status.success(), "{verbs:?}");
        text(&output.stdout)
    };
    let mut found = vec![("legwork".to_owned(), help(&[]))];
    for verb in verbs(&found[0].1) {
        let shown = help(&[&verb]);
        if GROUPS.contains(&verb.as_str()) {
            for inner in verbs(&shown) {
                found.push((format!("{verb} {inner}"), help(&[&verb, &inner])));
            }
        }
        found.push((verb, shown));
    }
    found
}

/// The verbs that a help lists.
fn verbs(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let names = list.lines().take_while(|line| line.starts_with("  "));
    // What is indented further goes on with the line before.
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn no_help_text_is_a_riddle_and_each_has_an_example() {
    let helps = helps("100");
    assert!(helps.len() > 20, "{}", helps.len());
    for (verb, help) in &helps {
        let lower = help.to_lowercase();
        for riddle in RIDDLES {
            assert!(!lower.contains(riddle), "`{riddle}` in the help of {verb}:\n{help}");
        }
        let is_group = GROUPS.contains(&verb.as_str());
        assert!(is_group || help.contains("Examples:\n"), "{verb} has no example");
    }
}

/// The texts in the sources of the command line, without comments and tests.
fn literals(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            literals(&path, found);
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let source = source.split("#[cfg(test)]").next().unwrap();
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: Vec<&str> = code.collect();
        let texts = code.join("\n");
        let texts = texts.split('"').skip(1).step_by(2);
        let name = path.display().to_string();
        found.extend(texts.map(|text| (name.clone(), text.to_lowercase())));
    }
}

#[test]
fn no_text_of_the_command_line_is_a_riddle() {
    let mut found = Vec::new();
    literals(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 300);
    for (file, text) in found {
        for riddle in RIDDLES {
            assert!(!text.contains(riddle), "`{riddle}` in {file}: {text}");
        }
    }
}

#[test]
fn help_in_its_widths() {
    for width in ["60", "80", "120"] {
        let all: String =
            helps(width).iter().map(|(verb, help)| format!("===== {verb}\n{help}\n")).collect();
        insta::assert_snapshot!(format!("help_{width}"), all);
    }
}
