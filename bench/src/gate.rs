//! What judging one command takes.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{
    measure::{median, micros},
    report::Report,
};

/// What agents ask for, from the shortest to a longer script.
const COMMANDS: [&str; 8] = [
    "ls",
    "git status --short && git diff --stat",
    "cargo test --workspace 2>&1 | tail -20",
    "cd crates/engine && grep -rn 'fn main' --include='*.rs' . | head",
    "for f in *.txt; do wc -l \"$f\"; done",
    "find . -name '*.py' -not -path './node_modules/*' | xargs sed -n '1,5p'",
    "FOO=bar python3 -c 'import sys; print(sys.version)' > /tmp/out; cat /tmp/out",
    "if [ -f package.json ]; then npm run build -- --mode production; else make -j\"$(nproc)\"; fi",
];

/// Judges many commands in one process, and takes its start off.
pub fn gate(legwork: &Path, quick: bool, report: &mut Report) {
    let commands = if quick { 4_000 } else { 40_000 };
    let few = COMMANDS.len();
    let samples: Vec<f64> = (0..5)
        .map(|_| {
            let many = micros(|| judge(legwork, commands));
            (many - micros(|| judge(legwork, few))) / (commands - few) as f64
        })
        .collect();
    report.note("judging a command (policy check --batch)", median(&samples), "us", "");
}

fn judge(legwork: &Path, commands: usize) {
    let question = |(id, input)| format!("{}\n", json!({ "id": id, "input": input }));
    let questions: String =
        COMMANDS.into_iter().cycle().take(commands).enumerate().map(question).collect();
    let mut child = Command::new(legwork)
        .args(["policy", "check", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(questions.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
