//! The client libraries of `clients/` against the built program, and their types.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Mutex,
};

use crate::{
    book::page::Page,
    common::{Scratch, program, text},
    node::Node,
    python_client::{environment, python_is_here},
};

/// A folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

#[track_caller]
pub fn succeeded(output: &Output) {
    let (shown, problems) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}\n{problems}");
}

/// Python with the library and these packages.
fn python(name: &str, packages: &[&str]) -> Option<Command> {
    if !python_is_here() {
        return None;
    }
    let mut command = Command::new(environment(name, packages));
    command
        .env("PYTHONPATH", repository("clients/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LEGWORK_PROGRAM", program())
        .current_dir(repository("clients/python"));
    Some(command)
}

#[test]
fn the_python_library_keeps_its_promises() {
    let Some(mut python) = python("plain", &[]) else { return };
    python.args(["-W", "error::ResourceWarning", "-m", "unittest", "discover", "-s", "tests"]);
    succeeded(&python.output().unwrap());
}

#[test]
fn the_python_library_is_typed() {
    let Some(mut python) = python("mypy", &["mypy==2.4.1"]) else { return };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mypy-cache");
    python.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache).args(["src", "tests"]);
    succeeded(&python.output().unwrap());
}

/// The files of the TypeScript library, its tests among them.
const TYPESCRIPT: [&str; 12] = [
    "src/bin.ts",
    "src/conversation.ts",
    "src/errors.ts",
    "src/http.ts",
    "src/index.ts",
    "src/legwork.ts",
    "src/model.ts",
    "src/program.ts",
    "src/stdio.ts",
    "tests/library.test.ts",
    "tsconfig.build.json",
    "tsconfig.json",
];

/// Whether the TypeScript library is built: one test does it for all.
static BUILT: Mutex<bool> = Mutex::new(false);

/// Node with the TypeScript library, checked strictly and built.
fn typescript() -> Option<Node> {
    let mut is_built = BUILT.lock().unwrap();
    let node = Node::install("library", &repository("clients/typescript"), &TYPESCRIPT)?;
    if std::mem::replace(&mut *is_built, true) {
        return Some(node);
    }
    let compiler = "node_modules/typescript/bin/tsc";
    succeeded(&node.run(compiler, &[]).output().unwrap());
    succeeded(&node.run(compiler, &["--project", "tsconfig.build.json"]).output().unwrap());
    Some(node)
}

#[test]
fn the_typescript_library_is_strictly_typed_and_keeps_its_promises() {
    let Some(node) = typescript() else { return };
    let mut tests = node.run("built/tests/library.test.js", &[]);
    succeeded(&tests.env("LEGWORK_PROGRAM", program()).output().unwrap());
}

/// The programs of the page in a language, each with what it prints.
fn programs_of_the_page(language: &str) -> Vec<(String, String)> {
    let page = Page::read("docs/libraries.md");
    let blocks = page.blocks();
    let pairs = blocks.iter().zip(blocks.iter().skip(1));
    let found: Vec<_> = pairs
        .filter(|(program, printed)| program.info == language && printed.info == "text")
        .map(|(program, printed)| (program.body.to_owned(), printed.body.to_owned()))
        .collect();
    let count = blocks.iter().filter(|block| block.info == language).count();
    assert!(count > 0 && found.len() == count, "each program is followed by what it prints");
    found
}

/// Runs a program of the page in a folder of its own.
#[track_caller]
fn prints(mut command: Command, shown: &str, printed: &str) {
    let scratch = Scratch::new();
    let output = command
        .current_dir(scratch.workspace.path())
        .env("LEGWORK_PROGRAM", program())
        .env("LEGWORK_STATE", scratch.state.path())
        .env("HOME", scratch.workspace.path())
        .env("SHELL", "/bin/sh")
        .output()
        .unwrap();
    assert!(output.status.success(), "{shown}\n{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), printed, "{shown}");
}

#[test]
fn the_python_programs_of_the_page_print_what_it_says() {
    for (shown, printed) in programs_of_the_page("python") {
        let Some(mut python) = python("plain", &[]) else { return };
        python.args(["-c", &shown]);
        prints(python, &shown, &printed);
    }
}

#[test]
fn the_typescript_programs_of_the_page_print_what_it_says() {
    let Some(node) = typescript() else { return };
    for (number, (shown, printed)) in programs_of_the_page("typescript").into_iter().enumerate() {
        let file = format!("page-{number}.ts");
        std::fs::write(node.place.join(&file), &shown).unwrap();
        prints(node.run(file, &[]), &shown, &printed);
    }
}
