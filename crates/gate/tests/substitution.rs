//! Substitutions are found by the shell's quoting rules, and never by searching.

use legwork_gate::substitution;

/// The cases: what is expected, and the text.
fn cases() -> Vec<(String, String)> {
    let file = include_str!("data/substitutions.txt").trim_end_matches('\n');
    let mut blocks = file.split("\n=\n");
    assert!(blocks.next().is_some_and(|head| head.starts_with('#')));
    blocks
        .map(|block| {
            let (expected, text) = block.split_once('\n').unwrap_or_default();
            (expected.to_owned(), text.to_owned())
        })
        .collect()
}

#[test]
fn the_first_substitution_is_found_where_it_is() {
    let mut wrong = Vec::new();
    for (expected, text) in cases() {
        let found = match substitution(&text) {
            Some(found) => format!("{} {}", found.construct, found.offset),
            None => "none".to_owned(),
        };
        if found != expected {
            wrong.push(format!("{text:?}: {found}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
