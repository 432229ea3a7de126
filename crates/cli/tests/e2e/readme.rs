//! README's commands are what CI runs; its examples are run with those of all pages (`book`).

use std::collections::HashSet;

const README: &str = include_str!("../../../../README.md");
const CI: &str = include_str!("../../../../.ci/run");

/// Whether README has a console block of this command alone.
fn shows(command: &str) -> bool {
    README.contains(&format!("\n```console\n{command}\n```\n"))
}

/// The commands that `.ci/run` runs as an ordinary user: those of its steps, with their settings.
fn steps() -> impl Iterator<Item = String> {
    CI.lines().filter_map(|line| {
        let (settings, step) = line.split_once("step ")?;
        let (_, command) = step.split_once(' ')?;
        (settings.is_empty() || settings.starts_with("RUSTDOCFLAGS="))
            .then(|| format!("{settings}{command}"))
    })
}

#[test]
fn the_command_that_runs_the_tests_is_what_ci_runs() {
    let command = "cargo test --workspace --locked";
    assert!(shows(command) && steps().any(|step| step == command), "{command}");
}

#[test]
fn the_command_that_installs_names_the_package_of_the_program() {
    assert!(shows("cargo install --locked --path crates/cli"));
    let manifest: toml::Table = toml::from_str(include_str!("../../Cargo.toml")).unwrap();
    assert_eq!(manifest["bin"][0]["name"].as_str(), Some("legwork"));
}

#[test]
fn what_ci_checks_is_what_the_recipes_of_a_person_do() {
    let justfile = include_str!("../../../../justfile");
    let recipe = |name: &str| {
        let (_, rest) = justfile.split_once(&format!("\n{name}:\n")).unwrap();
        rest.lines().take_while(|line| line.starts_with("    ")).map(str::trim)
    };
    let recipes = ["lint", "doc", "test", "windows"];
    let by_hand: HashSet<String> = recipes.into_iter().flat_map(recipe).map(String::from).collect();
    assert_eq!(by_hand, steps().collect());
}
