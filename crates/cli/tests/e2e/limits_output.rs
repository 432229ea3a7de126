//! Output past its limit, and disks with little room: head and tail are kept, the rest is counted
//! and said.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Scratch, announced, eventually, fixture, on_small_disk, open, parent, parts, program, signal,
    text,
};

const CAP: u64 = 1_000_000;

fn policy() -> String {
    format!("[limits]\noutput_bytes_max = {CAP}")
}

/// The numbered lines of 16 bytes that a flood has at an offset.
fn flood(from: u64, bytes: u64) -> Vec<u8> {
    let lines = (from / 16..=(from + bytes) / 16).map(|line| format!("{line:015}\n"));
    let text: String = lines.collect();
    let start = usize::try_from(from % 16).unwrap();
    text.as_bytes()[start..start + usize::try_from(bytes).unwrap()].to_vec()
}

/// Checks that an artifact has what a flood printed, but for one gap, and returns the gap.
fn assert_gap(path: &Path, came: u64) -> (u64, u64) {
    let notes = fs::File::open(path.with_file_name("exit")).unwrap();
    let mut bytes = [0; 36];
    notes.read_exact_at(&mut bytes, 4096).unwrap();
    let gaps = legwork_warden::gaps::Gaps::from_bytes(&bytes).unwrap();
    let is_stdout = path.file_name().unwrap() != "stderr";
    let gap = if is_stdout { gaps.stdout } else { gaps.stderr }.unwrap();
    let file = fs::File::open(path).unwrap();
    for (from, to) in [(0, gap.from), (gap.to, came)] {
        let mut stored = vec![0; usize::try_from(to - from).unwrap()];
        file.read_exact_at(&mut stored, from).unwrap();
        assert!(stored == flood(from, to - from), "bytes {from} to {to} are not what was printed");
    }
    (gap.from, gap.to)
}

#[test]
fn past_its_limit_head_and_tail_are_kept_and_the_rest_is_counted_and_said() {
    const BYTES: u64 = 30_000_000;
    let scratch = Scratch::new();
    let cmd = format!("{0} flood {BYTES}; exec {0} parent-memory >&2", fixture());
    let result = scratch.limited(&policy(), &cmd);
    assert_eq!((&result["exit_status"], &result["flags"]), (&json!(0), &json!(["output_dropped"])));
    let (kept, dropped) = (&result["artifacts"][0]["bytes"], &result["dropped_bytes"]);
    let (kept, dropped) = (kept.as_u64().unwrap(), dropped.as_u64().unwrap());
    assert_eq!(kept + dropped, BYTES);
    assert!((CAP * 9 / 10..=CAP).contains(&kept), "{kept}");
    let path = result["artifacts"][0]["path"].as_str().unwrap();
    let (from, to) = assert_gap(Path::new(path), BYTES);
    assert_eq!(to - from, dropped);
    assert!(from >= kept * 4 / 10 && BYTES - to >= kept * 4 / 10, "{from} {to}");
    let on_disk = fs::metadata(path).unwrap().blocks() * 512;
    assert!(on_disk < CAP + 100_000, "{on_disk} bytes of disk");
    let preview = result["stdout_preview"].as_str().unwrap();
    assert!(preview.contains(&format!("; {dropped} of them were dropped and are not stored")));
    assert!(preview.ends_with(&format!("{:015}", BYTES / 16 - 1)), "the last line is there");
    let warden_kb: u64 = result["stderr_preview"].as_str().unwrap().parse().unwrap();
    assert!(warden_kb < 10_000, "the warden has {warden_kb} kB");
    let receipt = scratch.legwork("show").arg("@").output().unwrap();
    assert!(text(&receipt.stdout).contains("Not stored:   "), "{receipt:?}");
}

#[test]
fn below_its_limit_nothing_is_dropped_whichever_stream_it_is_on() {
    let scratch = Scratch::new();
    for cmd in ["flood 1000000", "flood-both 500000"] {
        let result = scratch.limited(&policy(), &format!("{} {cmd}", fixture()));
        assert_eq!(result.get("flags"), None, "{cmd}: {}", result["flags"]);
    }
}

#[test]
fn the_smaller_stream_is_spared() {
    let scratch = Scratch::new();
    let cmd = format!("{0} flood 50000 >&2; {0} flood 3000000; {0} flood 50000 >&2", fixture());
    let result = scratch.limited(&policy(), &cmd);
    let folder = scratch.folder(&result["task_id"]);
    assert_eq!(fs::metadata(folder.join("stderr")).unwrap().len(), 100_000);
    assert_gap(&folder.join("stdout"), 3_000_000);
    let result = scratch.limited(&policy(), &format!("{} flood-both 3000000", fixture()));
    let folder = scratch.folder(&result["task_id"]);
    let kept: u64 = ["stdout", "stderr"]
        .map(|name| assert_gap(&folder.join(name), 3_000_000))
        .iter()
        .map(|(from, to)| 3_000_000 - (to - from))
        .sum();
    assert!(kept <= CAP && kept > CAP * 9 / 10, "{kept}");
}

#[test]
fn a_small_limit_is_exact_and_said_at_its_place() {
    let scratch = Scratch::new();
    let policy = "[limits]\noutput_bytes_max = 1600";
    let result = scratch.limited(policy, &format!("{} flood 160000", fixture()));
    let folder = scratch.folder(&result["task_id"]);
    let (from, to) = assert_gap(&folder.join("stdout"), 160_000);
    assert_eq!((from, 160_000 - to), (750, 750), "a sixteenth is given up at a time");
    // The lines that were cut are not shown: 14 bytes of the one, 14 of the other.
    let dropped = to - from;
    let said = format!(
        "[... {dropped} bytes were dropped and are not stored, 28 beside them are not shown ...]"
    );
    let preview = result["stdout_preview"].as_str().unwrap();
    let head = text(&flood(0, 736));
    assert!(preview.starts_with(&format!("{head}\n{said}\n000000000009954\n")), "{preview}");
    assert!(preview.ends_with("000000000009999"), "{preview}");
    let task = result["task_id"].as_str().unwrap();
    // A reader with a cursor is told too, and only once.
    let read = |after: &Value| {
        scratch.get(
            "TaskOutput",
            &json!({ "task_id": task, "after": after, "max_output_tokens": 300 }),
        )
    };
    let first = scratch.get("TaskOutput", &json!({ "task_id": task }));
    assert_eq!(first["output_preview"].as_str().unwrap(), preview);
    let mut cursor = legwork::output::Cursor::default().to_text(&task.to_owned().into());
    let mut all = String::new();
    loop {
        let shown = read(&json!(cursor));
        let Some(more) = shown["output_preview"].as_str() else { break };
        all.push_str(more);
        shown["next_cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
    assert_eq!(all.trim_end(), preview.trim_end());
    let logs = scratch.legwork("logs").args([task, "--raw"]).output().unwrap();
    let (code, printed, complaint) = parts(&logs);
    assert_eq!((code, printed.len()), (Some(0), 1500));
    let logs = scratch.legwork("logs").arg(task).output().unwrap();
    assert_eq!(text(&logs.stdout), format!("{head}{}", text(&flood(159_264, 736))));
    assert!(
        complaint.contains(&format!("{} bytes of stdout were dropped", to - from)),
        "{complaint}"
    );
    let json = scratch.legwork("logs").args([task, "--raw", "--json"]).output().unwrap();
    assert!(text(&json.stdout).contains(&format!("\"missing_bytes\":{dropped}")), "{json:?}");
}

#[test]
fn complete_results_say_what_was_dropped() {
    let scratch = Scratch::new();
    let mut call = scratch.guarded("call", "open", Some("[limits]\noutput_bytes_max = 1600"));
    let input = json!({ "command": fixture(), "args": ["flood", "160000"] }).to_string();
    let output = call.args(["execute_command", "--json", &input]).output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &envelope["result"];
    let stdout = result["stdout"].as_str().unwrap();
    assert!(stdout.contains("158528 bytes left out; 158500 of them were dropped"), "{stdout}");
    assert_eq!((&result["truncated"], &result["return_code"]), (&json!(true), &json!(0)));
}

#[test]
fn what_is_dropped_is_passed_on_all_the_same_if_it_could_be() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let script = format!("{0} flood 80000; {0} wait-for {gate}; {0} flood 40000", fixture());
    let mut run = scratch.guarded("run", "open", Some("[limits]\noutput_bytes_max = 100000"));
    let child = run
        .args(["--", "sh", "-c", &script])
        .stdout(fs::File::create(scratch.file("out")).unwrap())
        .spawn();
    let mut child = child.unwrap();
    let passed_on = || fs::metadata(scratch.file("out")).unwrap().len();
    eventually("the first part is passed on", || (passed_on() == 80_000).then_some(()));
    open(&gate);
    // The second part pushes some of the first out of the artifact, but that is through already.
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(passed_on(), 120_000);
    assert_eq!(scratch.tasks()[0]["outcome"]["flags"], json!(["output_dropped"]));
}

#[test]
fn a_killed_warden_leaves_an_artifact_that_does_not_lie() {
    let scratch = Scratch::new();
    let (ready, gate) = (scratch.file("ready"), scratch.file("gate"));
    let script = format!(
        "{0} flood 5000000; {0} ignore-term {ready} & {0} wait-for {gate}; {0} flood 99999999999",
        fixture()
    );
    let mut run = scratch.guarded("run", "open", Some(&policy()));
    let child = run.args(["--", "sh", "-c", &script]).stdout(std::process::Stdio::null()).spawn();
    let mut child = child.unwrap();
    let warden = parent(parent(announced(&ready)));
    open(&gate);
    let folder = scratch.folder(&scratch.tasks()[0]["task_id"]);
    let grown = || fs::metadata(folder.join("stdout")).is_ok_and(|data| data.len() > 60_000_000);
    eventually("the second flood is under way", || grown().then_some(()));
    signal(warden, Signal::KILL);
    child.wait().unwrap();
    // The second flood begins at 5000000, a multiple of 16: its lines are numbered anew from there.
    let came = fs::metadata(folder.join("stdout")).unwrap().len();
    let mut notes = [0; 36];
    fs::File::open(folder.join("exit")).unwrap().read_exact_at(&mut notes, 4096).unwrap();
    let gap = legwork_warden::gaps::Gaps::from_bytes(&notes).unwrap().stdout.unwrap();
    assert!(gap.from < 5_000_000 && gap.to > 5_000_000 && gap.to < came, "{gap:?} of {came}");
    let file = fs::File::open(folder.join("stdout")).unwrap();
    let mut tail = vec![0; usize::try_from(came - gap.to).unwrap()];
    file.read_exact_at(&mut tail, gap.to).unwrap();
    assert!(tail == flood(gap.to - 5_000_000, came - gap.to), "the tail is not what was printed");
}

#[test]
fn where_the_disk_has_little_room_output_stops_growing_and_the_command_goes_on() {
    let scratch = Scratch::new();
    let policy = scratch.file("policy.toml");
    fs::write(&policy, "[limits]\ndisk_free_bytes_min = 4000000").unwrap();
    let input = json!({ "cmd": format!("{} flood 20000000; exit 7", fixture()), "login": false });
    let script = format!(
        "$LW call ExecCommand '{input}' --json --mode open --policy {policy} --state $DISK/state; \
         df --output=avail -B1 $DISK | tail -1 >&2"
    );
    let Some(output) = on_small_disk(&scratch, "size=8m", &script) else { return };
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &envelope["result"];
    assert_eq!(result["exit_status"], 7, "the exit code is exact: {output:?}");
    assert_eq!(result["flags"], json!(["output_dropped", "low_disk"]));
    let kept = result["artifacts"][0]["bytes"].as_u64().unwrap();
    assert_eq!(result["dropped_bytes"].as_u64().unwrap() + kept, 20_000_000);
    let preview = result["stdout_preview"].as_str().unwrap();
    assert!(preview.ends_with(&format!("{:015}", 20_000_000 / 16 - 1)), "the last line is there");
    let free: u64 = text(&output.stderr).trim().parse().unwrap();
    assert!(free > 3_400_000, "{free} bytes are left free");
}

#[test]
fn a_file_that_cannot_be_written_costs_output_but_not_the_exit_code() {
    let scratch = Scratch::new();
    let input = json!({ "cmd": format!("{} flood 3000000; exit 7", fixture()), "login": false });
    // No file of ours may be longer than 1 MiB.
    let script = "ulimit -f 2048; exec \"$0\" \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, program(), "call", "--mode", "open", "--state"])
        .arg(scratch.state.path())
        .args(["ExecCommand", "--json", &input.to_string()])
        .current_dir(scratch.workspace.path())
        .output()
        .unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &envelope["result"];
    assert_eq!(result["exit_status"], 7, "{result:#}");
    assert_eq!(result["flags"], json!(["output_dropped", "write_failed"]));
    let (from, to) = assert_gap_at_end(&scratch.folder(&result["task_id"]).join("stdout"));
    assert_eq!((from, to), (1024 * 1024, 3_000_000));
    assert_eq!(result["dropped_bytes"], to - from);
}

/// Checks that an artifact has what a flood printed up to its gap, which is the end.
fn assert_gap_at_end(path: &Path) -> (u64, u64) {
    let mut notes = [0; 36];
    fs::File::open(path.with_file_name("exit")).unwrap().read_exact_at(&mut notes, 4096).unwrap();
    let gap = legwork_warden::gaps::Gaps::from_bytes(&notes).unwrap().stdout.unwrap();
    assert!(fs::read(path).unwrap() == flood(0, gap.from));
    (gap.from, gap.to)
}

#[test]
fn a_disk_that_is_full_at_the_end_has_room_for_the_exit_record() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let input = json!({
        "cmd": format!("echo before; {} wait-for {gate}; exit 7", fixture()), "login": false,
    });
    let script = format!(
        "$LW call ExecCommand '{input}' --mode open --state $DISK/state & \
         until ls $DISK/state/tasks/*/exit >/dev/null 2>&1; do :; done; \
         dd if=/dev/zero of=$DISK/fill bs=1k >/dev/null 2>&1 || true; \
         : > {gate}; wait; rm $DISK/fill; \
         $LW ps --json --state $DISK/state >&2"
    );
    let Some(output) = on_small_disk(&scratch, "size=2m", &script) else { return };
    let listed: Value = serde_json::from_slice(&output.stderr)
        .unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let task = &listed["tasks"][0];
    assert_eq!((&task["outcome"]["exit_status"], &task["status"]), (&json!(7), &json!("failed")));
    assert!(text(&output.stdout).starts_with("Process exited with code 7"), "{output:?}");
}

#[test]
fn no_half_of_a_secret_shows_at_a_gap() {
    let scratch = Scratch::new();
    let secret = "hunter2-hunter2-hunter2-hunter2";
    // Lines of 42 bytes, all of them the secret: wherever it is cut, one of them is.
    let cmd = "i=0; while [ $i -lt 2000 ]; do echo \"value is $MY_TOKEN\"; i=$((i+1)); done";
    let mut call = scratch.guarded("call", "open", Some("[limits]\noutput_bytes_max = 8000"));
    let input = json!({ "cmd": cmd, "login": false }).to_string();
    let call = call.env("MY_TOKEN", secret).args(["ExecCommand", "--json", &input]);
    let envelope: Value = serde_json::from_slice(&call.output().unwrap().stdout).unwrap();
    let result = &envelope["result"];
    let preview = result["stdout_preview"].as_str().unwrap();
    assert!(preview.contains("bytes were dropped"), "{preview}");
    assert!(preview.contains("[masked:MY_TOKEN]"), "{preview}");
    assert!(!preview.contains("unter2"), "{preview}");
    let task = result["task_id"].as_str().unwrap();
    for more in [&[][..], &["--json"]] {
        let mut logs = scratch.legwork("logs");
        let output = logs.env("MY_TOKEN", secret).arg(task).args(more).output().unwrap();
        let shown = text(&output.stdout);
        assert!(shown.contains("value is [masked:MY_TOKEN]"), "{shown}");
        assert!(!shown.contains("unter2"), "{shown}");
    }
}
