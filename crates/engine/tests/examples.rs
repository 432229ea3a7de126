//! The examples run, and print what they promise.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

fn example(name: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--package", "legwork", "--example", name])
        .env("SHELL", "/bin/sh")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn embed() {
    let printed = example("embed");
    for part in [
        "--- ExecCommand\nProcess exited with code 3\n\nstdout:\nhi\n",
        r#"{"stdout":"$HOME is not expanded\n","stderr":"","return_code":0,"timed_out":false}"#,
        r#""stdout":"ONE\n","stderr":"","exitCode":0"#,
        r#"{"tool_name":"ExecCommand","status":"success","summary_text":"command exited with status 3""#,
    ] {
        assert!(printed.contains(part), "{part}\nin\n{printed}");
    }
}

#[test]
fn own_tool() {
    let printed = example("own_tool");
    assert!(printed.starts_with("Files: 3\nCommand failed\n"), "{printed}");
    assert!(printed.contains("invalid_tool_input") && printed.contains("nowhere"), "{printed}");
}
