//! The page, in a real Chromium that is driven by the scripts of `tests/page`.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::json;

use super::{Serving, link, token};
use crate::{
    common::{Scratch, program, text},
    harness::watch::Times,
    node::Node,
    trials::can_try,
};

/// How long a test may take on a busy machine; about ten seconds are usual.
const TIMES: Times = Times::at_most(Duration::from_secs(600));

/// The folder of the page's sources.
fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("web")
}

/// Node with what the page is built with and driven by. None where it cannot be had.
fn node() -> Option<Node> {
    let node = Node::with("page", &web(), &["ci"])?;
    for name in ["src", "build.mjs", "tsconfig.json"] {
        node.bring(&web().join(name), name);
    }
    node.bring(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page"), ".");
    Some(node)
}

/// Whether there is a Chromium; where programs are required it must be there.
fn chromium() -> Option<String> {
    for name in ["chromium", "chromium-browser", "google-chrome"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        let path = found.map(|output| text(&output.stdout).trim().to_owned()).unwrap_or_default();
        if !path.is_empty() {
            return Some(path);
        }
    }
    assert!(std::env::var_os("LEGWORK_REQUIRE_PROGRAMS").is_none(), "no chromium");
    skips::skip("the page is tested in Chromium, which is not here (Debian: chromium)");
    None
}

/// A server that a browser looks at.
struct Stage {
    /// Ends before the scratch place looks what is left.
    serving: Option<Serving>,
    scratch: Scratch,
    mode: &'static [&'static str],
}

impl Stage {
    fn new(mode: &'static [&'static str]) -> Self {
        let mut stage = Self { scratch: Scratch::with(TIMES), mode, serving: None };
        stage.serve("127.0.0.1:0");
        stage
    }

    fn serve(&mut self, listen: &str) {
        let mut command = self.scratch.guarded("serve", self.mode[0], None);
        command.args(&self.mode[1..]).args(["--listen", listen]);
        self.serving = Some(Serving::spawn(command));
    }

    /// Kills the server in the middle of whatever it does, and starts another one.
    fn restart(&mut self) {
        let old = self.serving.take().unwrap();
        let listen = old.address.strip_prefix("http://").unwrap().to_owned();
        old.end(Signal::KILL);
        self.serve(&listen);
    }
}

/// A script under way, which may ask for a new server.
fn attend(mut script: Child, stage: &mut Stage) -> String {
    let mut answers = script.stdin.take().unwrap();
    let mut said = String::new();
    for line in BufReader::new(script.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "@restart" {
            stage.restart();
            writeln!(answers, "{}", link(&stage.scratch)).unwrap();
        } else {
            println!("{line}");
            said.push_str(&format!("{line}\n"));
        }
    }
    let ended = script.wait_with_output().unwrap();
    let problems = text(&ended.stderr);
    assert!(ended.status.success() && said.ends_with("all well\n"), "{said}\n{problems}");
    said
}

/// Runs a script in the browser against a server of this mode.
fn drive(script: &str, mode: &'static [&'static str]) {
    let Some(chromium) = chromium() else { return };
    let Some(node) = node() else { return };
    let mut stage = Stage::new(mode);
    let roles = ["operator", "agent", "viewer"];
    let tokens = roles.map(|role| token(&stage.scratch, role, &["--role", role]));
    let pictures = std::env::var_os("LEGWORK_UPDATE_PICTURES").map(|_| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
        fs::create_dir_all(&folder).unwrap();
        folder
    });
    let link = link(&stage.scratch);
    let given = json!({
        "chromium": chromium,
        "program": program(),
        // The page is another origin under each name; the tests stay with that of the link.
        "address": link.split("/#").next(),
        "server": stage.serving.as_ref().unwrap().address,
        "link": link,
        "tokens": { "operator": tokens[0], "agent": tokens[1], "viewer": tokens[2] },
        "state": stage.scratch.state.path(),
        "workspace": stage.scratch.workspace.path(),
        "pictures": pictures,
    });
    let mut command = node.run(script, &[]);
    command.env("LEGWORK_PAGE_TEST", given.to_string());
    // Else the browser leaves its settings in the home of whoever runs the tests.
    command.env("HOME", stage.scratch.state.path());
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_CACHE_HOME");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    attend(command.spawn().unwrap(), &mut stage);
}

#[test]
fn the_built_page_is_that_of_its_sources() {
    let Some(node) = node() else { return };
    let mut check = node.run("node_modules/typescript/bin/tsc", &["--noEmit"]);
    let checked = check.output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stdout));
    let scratch = Scratch::new();
    let built = scratch.file("dist");
    let ran = node.run("build.mjs", &[&built]).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let names = |folder: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let dist = web().join("dist");
    assert_eq!(names(Path::new(&built)), names(&dist));
    for name in names(&dist) {
        let is_same =
            fs::read(dist.join(&name)).unwrap() == fs::read(Path::new(&built).join(&name)).unwrap();
        assert!(is_same, "web/dist/{} is not built from web/src: npm run build", name.display());
    }
}

#[test]
fn questions_arrive_on_a_phone_are_understood_and_answered() {
    drive("questions.mjs", &["guarded"]);
}

#[test]
fn typing_at_a_question_on_the_page_allows_nothing() {
    drive("typing.mjs", &["guarded"]);
}

#[test]
fn keys_on_the_page_answer_what_is_seen_and_the_answer_stays_to_be_read() {
    drive("unseen.mjs", &["guarded"]);
}

#[test]
fn the_page_decides_about_keys_as_the_terminal_does() {
    let Some(node) = node() else { return };
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answering.json");
    node.bring(&cases, "answering.json");
    let ran = node.run("answering.mjs", &[]).output().unwrap();
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
}

#[test]
fn a_command_is_tried_first_on_the_page_and_trials_are_listed() {
    if can_try() {
        drive("trials.mjs", &["guarded"]);
    }
}

#[test]
fn vim_is_edited_in_the_page() {
    drive("terminal.mjs", &["open"]);
}

#[test]
fn output_is_live_and_what_is_hostile_in_it_does_no_harm() {
    drive("output.mjs", &["open"]);
}

#[test]
fn a_thousand_tasks_and_every_view_in_both_colour_schemes() {
    drive("views.mjs", &["guarded", "--sandbox", "none"]);
}

#[test]
fn a_server_on_another_port_gets_nothing_of_the_page_that_answers_a_question() {
    drive("origin.mjs", &["guarded"]);
}

#[test]
fn tabs_share_a_session_and_say_why_it_has_ended() {
    drive("signin.mjs", &["guarded"]);
}

#[test]
fn a_page_goes_on_when_its_server_was_killed() {
    drive("restart.mjs", &["open"]);
}
