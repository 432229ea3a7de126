//! Artifacts are exact, previews are bounded.

use std::{fs, io::Read};

use serde_json::{Value, json};

use crate::common::{Scratch, fixture, parts, program, text};

/// Checks the numbered lines that the fixture writes, without holding them all.
fn assert_flood(path: &std::path::Path, bytes: u64) {
    assert_eq!(fs::metadata(path).unwrap().len(), bytes, "{}", path.display());
    let mut file = std::io::BufReader::new(fs::File::open(path).unwrap());
    let mut line = [0; 16];
    for number in 0..bytes / 16 {
        file.read_exact(&mut line).unwrap();
        assert_eq!(line, *format!("{number:015}\n").as_bytes());
    }
}

/// How much is a flood; ten gigabytes take minutes and a disk.
fn flood_bytes() -> u64 {
    std::env::var("LEGWORK_FLOOD_BYTES").map_or(200_000_000, |bytes| bytes.parse().unwrap())
}

#[test]
fn a_big_flood_is_exact_bounded_and_costs_no_memory() {
    let bytes = flood_bytes();
    let scratch = Scratch::new();
    let cmd = format!("{0} flood {bytes}; {0} parent-memory >&2", fixture());
    // The shell's parent is the warden; the fixture's parent is the shell: exec the last one.
    let cmd = cmd.replace("; ", "; exec ");
    // By default no more than 4 GiB are kept of a task.
    let policy = format!("[limits]\noutput_bytes_max = {}\n", 2 * bytes);
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 3_600_000 }).to_string();
    let mut call = scratch.guarded("call", "open", Some(&policy));
    let output = call.args(["ExecCommand", "--json", &input]).output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &envelope["result"];
    assert_eq!(result["truncated"], true);
    let artifact =
        &result["artifacts"][usize::try_from(result["stdout_artifact"].as_u64().unwrap()).unwrap()];
    assert_eq!(artifact["bytes"], bytes);
    assert_flood(artifact["path"].as_str().unwrap().as_ref(), bytes);
    let preview = result["stdout_preview"].as_str().unwrap();
    assert!(preview.len() < 32_000, "{}", preview.len());
    assert!(preview.starts_with("000000000000000\n"));
    assert!(preview.ends_with(&format!("{:015}", bytes / 16 - 1)));
    let shown = preview.lines().count() as u64 - 1;
    let left_out = bytes / 16 - shown;
    assert!(
        preview.contains(&format!("[... {} bytes, {left_out} lines left out", left_out * 16)),
        "{preview}"
    );
    let warden_kb: u64 = result["stderr_preview"].as_str().unwrap().parse().unwrap();
    assert!(warden_kb < 10_000, "the warden has {warden_kb} kB");
}

#[test]
fn two_floods_at_once_are_both_exact() {
    const BYTES: u64 = 3_000_000;
    let scratch = Scratch::new();
    let result = scratch.result(&format!("{} flood-both {BYTES}", fixture()));
    let folder = scratch.folder(&result["task_id"]);
    assert_flood(&folder.join("stdout"), BYTES);
    assert_flood(&folder.join("stderr"), BYTES);
    assert_eq!(result["artifacts"].as_array().unwrap().len(), 2);
}

#[test]
fn bytes_that_are_no_text_are_marked_and_stored_as_they_are() {
    let scratch = Scratch::new();
    let result = scratch.result(&format!("{} bytes 61ff62fe00630a", fixture()));
    assert_eq!(result["stdout_preview"], "a\u{fffd}b\u{fffd}\u{fffd}c");
    assert_eq!(result["flags"], json!(["invalid_utf8"]));
    let stored = scratch.printed(&result["task_id"]);
    assert_eq!(stored, b"a\xffb\xfe\0c\n");
}

#[test]
fn a_character_split_over_two_reads_is_whole() {
    let scratch = Scratch::new();
    let result = scratch.result(&format!("{} split-character", fixture()));
    assert_eq!(result["stdout_preview"], "ä");
    assert!(result.get("flags").is_none(), "{result}");
}

#[test]
fn control_sequences_stay_out_of_the_preview_and_in_the_artifact() {
    let scratch = Scratch::new();
    let result = scratch.result(r"printf '\033[31mred\033[0m 10%%\r\033[31mred\033[0m 99%%\n'");
    assert_eq!(result["stdout_preview"], "red 99%");
    let stored = scratch.printed(&result["task_id"]);
    assert_eq!(text(&stored), "\x1b[31mred\x1b[0m 10%\r\x1b[31mred\x1b[0m 99%\n");
}

#[test]
fn the_budget_is_kept_and_shared() {
    let scratch = Scratch::new();
    let cmd = format!("{0} flood 100000; {0} flood 100000 >&2", fixture());
    for (tokens, effective) in [(json!(500), 500), (json!(0), 8000), (json!(1_000_000), 64_000)] {
        let envelope = scratch.exec(&json!({ "cmd": cmd, "max_output_tokens": tokens }));
        let result = &envelope["result"];
        assert_eq!(result["command_diagnostics"]["effective_max_output_tokens"], effective);
        let used: u64 = ["stdout_preview", "stderr_preview"]
            .iter()
            .map(|name| legwork::output::estimate(result[name].as_str().unwrap()))
            .sum();
        assert!(used <= effective, "{used} of {effective}");
        assert!(used > effective / 2, "{used} of {effective}: too little shown");
    }
}

#[test]
fn the_last_bytes_before_the_end_are_never_lost() {
    let scratch = Scratch::new();
    // Each subshell writes right before it ends; the last one is the command itself.
    let result =
        scratch.result("i=0; while [ $i -lt 500 ]; do (printf x); i=$((i+1)); done; printf y");
    assert_eq!(result["stdout_preview"], format!("{}y", "x".repeat(500)));
}

#[test]
fn logs_give_back_both_streams() {
    let scratch = Scratch::new();
    let result = scratch.result("echo one; echo two >&2; echo three");
    let id = result["task_id"].as_str().unwrap();
    for name in ["@", id, &id[..8]] {
        let output = scratch.legwork("logs").arg(name).output().unwrap();
        assert_eq!(parts(&output), (Some(0), "one\nthree\n".into(), "two\n".into()));
    }
}

#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let result = scratch.result(&format!("{} flood-both 20000", fixture()));
    let folder = scratch.folder(&result["task_id"]);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(&scratch.state.path().join("ledger.db")), 0o600);
    let spec: Value = serde_json::from_slice(&fs::read(folder.join("spec")).unwrap()).unwrap();
    assert_eq!(spec["task_id"], result["task_id"]);
}

#[test]
fn a_small_output_is_in_the_ledger_and_touches_no_other_file() {
    let scratch = Scratch::new();
    let result = scratch.result("echo small; echo error >&2");
    assert!(scratch.folders().is_empty(), "no folder");
    let output = scratch.legwork("logs").arg("@").output().unwrap();
    assert_eq!(parts(&output), (Some(0), "small\n".into(), "error\n".into()));
    let shown = scratch.legwork("show").arg("@").output().unwrap();
    assert!(text(&shown.stdout).contains("stdout:       6 B, in the ledger"), "{shown:?}");
    assert_eq!(result["stdout_preview"], "small");
}

#[test]
fn big_long_and_cut_outputs_have_a_folder() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let opens = format!("(sleep 0.3; : > {gate}) & {} wait-for {gate}; wait", fixture());
    for (why, input) in [
        ("big", json!({ "cmd": format!("{} flood 70000", fixture()), "max_output_tokens": 64000 })),
        ("long", json!({ "cmd": opens })),
        ("cut", json!({ "cmd": format!("{} flood 3000", fixture()), "max_output_tokens": 200 })),
    ] {
        let envelope = scratch.exec(&input);
        let folder = scratch.folder(&envelope["result"]["task_id"]);
        assert!(folder.join("exit").exists(), "{why}: {envelope:#}");
    }
}

#[test]
fn logs_keep_the_order_of_the_streams() {
    let scratch = Scratch::new();
    scratch.result(&format!("{} in-turn", fixture()));
    let output = std::process::Command::new("sh")
        .args(["-c", "\"$0\" logs --state \"$1\" @ 2>&1", program()])
        .arg(scratch.state.path())
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "o1\ne1\no2\ne2\n");
}

#[test]
fn a_removed_folder_is_said_and_not_passed_off_as_silence() {
    let scratch = Scratch::new();
    let tasks = scratch.state.path().join("tasks");
    // Only once all of it is stored.
    let cmd = format!(
        "{} flood 20000; cd {}; until [ $(cat */stdout 2>/dev/null | wc -c) = 20000 ]; do :; done; \
         rm -r ./*",
        fixture(),
        tasks.display()
    );
    let result = scratch.result(&cmd);
    assert_eq!(result["flags"], json!(["output_missing"]));
    assert_eq!(result["exit_status"], 0);
}
