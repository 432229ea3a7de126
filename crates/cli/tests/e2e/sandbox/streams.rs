//! What a command is given by its caller, and what it cannot do with it.

use std::{fs::File, process::Stdio};

use super::house::{House, TRUSTS};
use crate::common::{fixture, parts, program, text};

#[test]
fn a_folder_as_stdin_is_no_way_out() {
    for house in House::each() {
        house.file("home/.ssh/id_ed25519", "a secret");
        let folder = File::open(house.path("home")).unwrap();
        let mut command = house.verb("run");
        command.args(["--", fixture(), "probe", "open-at", "0", ".ssh/id_ed25519"]);
        let output = command.stdin(Stdio::from(folder)).output().unwrap();
        assert!(!text(&output.stdout).contains("allowed"), "{output:?}");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(text(&output.stderr).contains("stdin is a folder"), "{output:?}");
    }
}

#[test]
fn a_file_as_stdin_is_read_and_not_written() {
    for house in House::each() {
        house.file("outside/there", "as it was");
        for probe in ["read /proc/self/fd/0", "write /proc/self/fd/0", "truncate /dev/stdin"] {
            let file =
                File::options().read(true).write(true).open(house.path("outside/there")).unwrap();
            let mut command = house.verb("run");
            command.args(["--", fixture(), "probe"]).args(probe.split(' '));
            let output = command.stdin(Stdio::from(file)).output().unwrap();
            let expected = if probe.starts_with("read") { "allowed" } else { "refused" };
            assert!(text(&output.stdout).starts_with(expected), "{probe}: {output:?}");
        }
    }
}

#[test]
fn no_descriptor_is_inherited() {
    for house in House::each() {
        // The shell that starts Legwork has one open, into a folder with a secret.
        house.file("home/.ssh/id_ed25519", "a secret");
        for trust in TRUSTS {
            house.refuses(trust, &["descriptors"]);
        }
        let script = format!("exec 7<{}; exec \"$@\"", house.name("home"));
        let mut command = house.outside("sh");
        command.args(["-c", &script, "sh", program(), "run", "--state"]);
        command.arg(house.path("state")).args([
            "--",
            fixture(),
            "probe",
            "open-at",
            "7",
            ".ssh/id_ed25519",
        ]);
        let (code, stdout, stderr) = parts(&command.output().unwrap());
        assert!(stdout.starts_with("refused: "), "{code:?} {stdout} {stderr}");
    }
}
