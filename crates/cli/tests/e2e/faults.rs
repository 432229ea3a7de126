//! The fault matrix: every fault is held by a test that exists, or says why none can;
//! `docs/faults.md` is made from it.

use std::{fs, path::PathBuf};

use serde::Deserialize;

const MATRIX: &str = include_str!("faults.toml");
const ATTACKS: &str = include_str!("attacks.toml");

/// The numbers of a matrix with so many rows; there never was a 44.
fn numbers(rows: usize) -> impl Iterator<Item = u32> {
    (1..).filter(|number| *number != 44).take(rows)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    number: u32,
    fault: String,
    expected: String,
    #[serde(default)]
    held_by: Vec<String>,
    /// Why no test can inject it, or not all of it.
    because: Option<String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether there is a test of this name where the name says.
fn exists(test: &str) -> bool {
    let Some((place, name)) = test.rsplit_once("::") else { return false };
    if place == "windows" {
        let checks = include_str!("../../../../.ci/windows_session.py");
        return checks.contains(&format!("\nasync def {name}("));
    }
    let crates = root().join("crates");
    let files = if place.contains('/') {
        vec![crates.join(place)]
    } else {
        let module = crates.join("cli/tests/e2e").join(place.replace("::", "/"));
        vec![module.with_extension("rs"), module.join("mod.rs")]
    };
    let source: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let Some((before, _)) = source.split_once(&format!("fn {name}(")) else { return false };
    // Between the attribute and the name there are other attributes at most.
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    attributes.contains("test]")
        || attributes.contains("::test(")
        || attributes.contains("proptest!")
}

fn page(rows: &[Row], title: &str, name: &str, column: &str) -> String {
    let mut page = format!(
        "# {title}\n\n\
         Each row is one {column}, what Legwork must do, and the tests for it. Names are modules of the end-to-end\n\
         tests, or files below `crates/`; `windows` is the session under wine (docs/windows.md). The page is generated from `crates/cli/tests/e2e/{name}.toml`:\n\
         `LEGWORK_UPDATE_FAULTS=1 cargo test -p legwork-cli --test e2e faults` updates it.\n\n\
         | # | {column} | what must happen | held by |\n|---|---|---|---|\n",
    );
    for row in rows {
        let mut held: Vec<String> = row.held_by.iter().map(|test| format!("`{test}`")).collect();
        held.extend(row.because.as_ref().map(|because| format!("*{because}*")));
        let (number, fault, expected) = (row.number, &row.fault, &row.expected);
        page.push_str(&format!("| {number} | {fault} | {expected} | {} |\n", held.join("<br>")));
    }
    page
}

#[test]
fn every_fault_is_held_by_a_test_or_says_why_not() {
    let matrix: Matrix = toml::from_str(MATRIX).unwrap();
    let found: Vec<u32> = matrix.row.iter().map(|row| row.number).collect();
    assert_eq!(found, numbers(found.len()).collect::<Vec<_>>());
    let title = "Faults, and the tests for each";
    check_page(&matrix.row, title, "faults", "fault");
}

#[test]
fn every_attack_is_held_by_a_test() {
    let matrix: Matrix = toml::from_str(ATTACKS).unwrap();
    let title = "Attacks, and the tests for each";
    check_page(&matrix.row, title, "attacks", "attack");
}

/// Every row names tests that exist, and the page is made from the rows.
#[track_caller]
fn check_page(rows: &[Row], title: &str, name: &str, column: &str) {
    for row in rows {
        assert!(row.because.is_some() || !row.held_by.is_empty(), "{}: {}", row.number, row.fault);
        for test in &row.held_by {
            assert!(exists(test), "{}: there is no test {test}", row.number);
        }
    }
    let path = root().join("docs").join(name).with_extension("md");
    let made = page(rows, title, name, column);
    if std::env::var_os("LEGWORK_UPDATE_FAULTS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/{name}.md is not made from {name}.toml: LEGWORK_UPDATE_FAULTS=1");
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    assert!(exists("faults::a_test_that_is_not_there_is_noticed"));
    assert!(exists("warden/src/record.rs::every_torn_prefix_is_found"));
    for missing in [
        "faults::no_such_test",
        "faults::exists",
        "nowhere::help",
        "help",
        "x/y.rs::help",
        "windows::x",
    ] {
        assert!(!exists(missing), "{missing}");
    }
}
