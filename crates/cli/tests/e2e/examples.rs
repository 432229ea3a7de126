//! The examples of `examples/`, as a reader would run them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::{
    common::{Scratch, eventually, has_program, program, text},
    libraries::repository,
    python_client::{environment, python_is_here},
};

/// Runs an example of Python, with the library and these packages; what it printed.
fn python(name: &str, packages: &[&str]) -> Option<String> {
    if !python_is_here() {
        return None;
    }
    let scratch = Scratch::new();
    let environment = environment(&format!("example-{name}"), packages);
    let mut command = Command::new(environment);
    at_home(&mut command, &scratch)
        .arg(repository("examples/python").join(format!("{name}.py")))
        .arg(scratch.workspace.path())
        .env("PYTHONPATH", repository("clients/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    Some(text(&output.stdout))
}

/// Gives a command the program, a state folder and a home of its own.
fn at_home<'a>(command: &'a mut Command, scratch: &Scratch) -> &'a mut Command {
    let folder = Path::new(program()).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    command
        .env("PATH", path)
        .env("LEGWORK_PROGRAM", program())
        .env("LEGWORK_STATE", scratch.state.path())
        .env("HOME", scratch.workspace.path())
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
}

#[test]
fn the_agent_loop_runs_tools_for_both_kinds_of_models() {
    let Some(printed) = python("agent_loop", &[]) else { return };
    let line = "It printed 42; the other was approval_refused.";
    assert_eq!(printed, format!("OpenAI:    {line}\nAnthropic: {line}\n"));
}

#[test]
fn an_agent_of_langchain_runs_a_command_over_mcp() {
    let packages = ["langchain==1.4.7", "langchain-openai==1.7.3", "langchain-mcp-adapters==0.3.2"];
    let Some(printed) = python("langchain_agent", &packages) else { return };
    assert!(printed.ends_with("six times seven is 42\n"), "{printed}");
}

#[test]
fn an_agent_of_openais_sdk_runs_a_command_over_mcp() {
    let Some(printed) = python("openai_agents", &["openai-agents==0.24.0"]) else { return };
    assert!(printed.ends_with("six times seven is 42\n"), "{printed}");
}

#[test]
fn a_ci_job_runs_its_steps_under_a_policy() {
    let scratch = Scratch::new();
    let job = |steps: &[&str]| -> Output {
        let mut command = Command::new(repository("examples/ci/check.sh"));
        at_home(&mut command, &scratch).args(steps).current_dir(scratch.workspace.path());
        command.output().unwrap()
    };
    let well = job(&["echo built > out", "cat out"]);
    assert!(well.status.success(), "{}", text(&well.stderr));
    assert!(text(&well.stdout).contains("== cat out\nbuilt\n== what ran\n"));
    let failed = job(&["exit 3", "echo never"]);
    assert_eq!(failed.status.code(), Some(3));
    assert!(!text(&failed.stdout).contains("never"));
    let denied = job(&["git push"]);
    assert_eq!(denied.status.code(), Some(126), "{}", text(&denied.stderr));
}

#[test]
fn the_systemd_unit_is_valid_and_its_command_serves() {
    let scratch = Scratch::new();
    let unit = fs::read_to_string(repository("examples/systemd/legwork.service")).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let folder = scratch.workspace.path().to_str().unwrap();
    if has_program("systemd-analyze", &["--version"]) {
        let mut words = line.split(' ');
        let here = unit.replace(words.next().unwrap(), program());
        let file = PathBuf::from(folder).join("legwork.service");
        fs::write(&file, here).unwrap();
        let mut verify = Command::new("systemd-analyze");
        let verified = verify.args(["--user", "verify"]).arg(&file).output().unwrap();
        let problems = text(&verified.stderr);
        let own: Vec<&str> =
            problems.lines().filter(|line| line.contains("legwork.service")).collect();
        assert!(own.is_empty(), "{own:?}");
    }
    let line = line.replace("%h/.cargo/bin/legwork", program());
    let line = line.replace("%h", folder).replace("%t", folder);
    let words: Vec<&str> = line.split(' ').collect();
    let mut serve = Command::new(words[0]);
    at_home(&mut serve, &scratch).args(&words[1..]);
    let mut server = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let socket = Path::new(folder).join("legwork.sock");
    eventually("the socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    server.kill().unwrap();
    server.wait().unwrap();
}
