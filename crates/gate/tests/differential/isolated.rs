//! Runs texts where they can reach nothing: in namespaces of their own.

use std::{
    ffi::OsStr,
    io::Write,
    process::{Command, Stdio},
};

/// Gives texts to a driver, and returns what it recorded of each; nothing where isolation is not to
/// be had.
pub fn run(driver: &str, arguments: &[&OsStr], texts: &[String]) -> Option<Vec<String>> {
    let answers = answers(driver, arguments, texts)?;
    let records: Vec<String> = answers.split('\0').skip(1).map(str::to_owned).collect();
    (records.len() == texts.len()).then_some(records)
}

/// Gives texts to a driver, and returns what it prints.
pub fn answers(driver: &str, arguments: &[&OsStr], texts: &[String]) -> Option<String> {
    let namespaces =
        ["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"];
    let mut child = Command::new("unshare")
        .args(namespaces)
        .args(["bash", "--noprofile", "--norc", "-c", driver, "driver"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let input: Vec<u8> = texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().ok()?;
    drop(writer.join());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(printed)
}
