//! The list of the tests that run against the program for Windows: every module is in it, with the
//! tests that do and the reason why the others do not; `docs/windows-tests.md` is made from it.

use std::{collections::BTreeMap, env, fs, path::Path, process::Command};

use serde::Deserialize;

use crate::common::text;

const LIST: &str = include_str!("windows.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    module: Vec<Module>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Module {
    name: String,
    /// Tests that run there, in CI too.
    #[serde(default)]
    ci: Vec<String>,
    /// Tests that run there where somebody asks for it.
    #[serde(default)]
    by_hand: Vec<String>,
    /// Why the others do not.
    because: Option<String>,
}

/// How many tests each module has, and their names.
fn tests() -> BTreeMap<String, Vec<String>> {
    let listed = Command::new(env::current_exe().unwrap()).arg("--list").output().unwrap();
    let mut modules = BTreeMap::<String, Vec<String>>::new();
    for line in text(&listed.stdout).lines() {
        let Some((module, test)) =
            line.strip_suffix(": test").and_then(|name| name.rsplit_once("::"))
        else {
            continue;
        };
        modules.entry(module.to_owned()).or_default().push(test.to_owned());
    }
    modules
}

fn page(list: &List, tests: &BTreeMap<String, Vec<String>>) -> String {
    let ci: usize = list.module.iter().map(|module| module.ci.len()).sum();
    let by_hand: usize = list.module.iter().map(|module| module.by_hand.len()).sum();
    let all: usize = tests.values().map(Vec::len).sum();
    let mut page = format!(
        "# End-to-end tests under wine\n\n\
         Which end-to-end tests run against `legwork.exe` under wine, and why the others do not.\n\n\
         {} of the {all} tests run there, by `.ci/windows e2e [NAME ...]`. {ci} of them passed 20 times or more on a busy\n\
         machine and never failed, and CI runs those (`.ci/windows e2e --ci`); the other {by_hand} take longer, or count on a machine that is not busy. The page is generated from\n\
         `crates/cli/tests/e2e/windows.toml`, which names each test: `LEGWORK_UPDATE_DOCS=1 cargo test -p legwork-cli --test e2e windows` updates it.\n\n\
         The tests stay on Linux, and drive the program from outside. Their scripts are for `sh`: `SHELL` names a small one of the tests, which stands for\n\
         Git's; what `run_shell_command` is given goes to `cmd.exe`.\n\n\
         | module | tests | in CI | by hand | why the others do not run |\n|---|---|---|---|---|\n",
        ci + by_hand,
    );
    for module in &list.module {
        let Module { name, ci, by_hand, because } = module;
        let (of, ci, by_hand) = (tests[name].len(), ci.len(), by_hand.len());
        let because = because.as_deref().unwrap_or_default();
        page.push_str(&format!("| `{name}` | {of} | {ci} | {by_hand} | {because} |\n"));
    }
    page
}

#[test]
fn every_module_says_which_tests_run_on_windows_and_why_the_others_do_not() {
    let list: List = toml::from_str(LIST).unwrap();
    let tests = tests();
    let named: Vec<&String> = list.module.iter().map(|module| &module.name).collect();
    assert_eq!(named, tests.keys().collect::<Vec<_>>(), "modules, in their order");
    for Module { name, ci, by_hand, because } in &list.module {
        for test in ci.iter().chain(by_hand) {
            assert!(tests[name].contains(test), "there is no {name}::{test}");
            assert!(!ci.contains(test) || !by_hand.contains(test), "{name}::{test} is there twice");
        }
        let is_all = ci.len() + by_hand.len() == tests[name].len();
        assert_eq!(because.is_none(), is_all, "{name}: why do the others not run?");
    }
    let page = page(&list, &tests);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/windows-tests.md");
    if env::var_os("LEGWORK_UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), page, "LEGWORK_UPDATE_DOCS=1 writes it anew");
}
