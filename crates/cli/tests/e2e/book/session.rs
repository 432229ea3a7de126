//! Console blocks of a page, run one after another by somebody with a fresh home.
//!
//! A block is a list of `$ COMMAND` lines, each followed by what it prints; `> ` goes on with the
//! command, `…` alone in a line stands for any lines, and `[N]` at the end is an exit code that is
//! not 0. A block without `$` is a list of commands that print nothing. A block of another language
//! with
//! `file=PATH` behind it is written to that file. What differs from run to run (ids, times, pids,
//! cursors) is compared by its kind; an id that a page shows can be used in its later commands.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    page::{Block, Page, root},
    updating,
};
use crate::{
    common::{has_program, program, stop_tasks, text},
    harness::{
        stage,
        watch::{Times, Watch},
    },
};

/// Commands that build what is tested here, or that start it anew.
const NOT_RUN: [&str; 2] = ["cargo ", "just "];

/// The home that the pages show.
const HOME: &str = "/home/you";

/// The port that the pages show.
const PORT: &str = "8123";

/// Words before a number that is another one each time.
const COUNTERS: [&str; 4] = ["pid", "process", "pids", "processes"];

/// Words behind such a number.
const UNITS: [&str; 3] = ["ms", "s", "min"];

/// Ends of words that are such a number with its unit.
const DURATIONS: [&str; 4] = ["ms", "s", "m", "h"];

/// Characters of an id behind its prefix.
const ID: usize = 26;

/// Characters of the shortest beginning of an id that is shown.
const SHORT_ID: usize = 4;

/// Somebody who follows a page.
struct Reader {
    base: TempDir,
    port: String,
    /// Ids that the page shows, and those that they stand for.
    ids: Vec<(String, String)>,
    watch: Watch,
}

/// A command and what it prints.
#[derive(Debug, PartialEq)]
struct Exchange {
    command: String,
    printed: String,
}

impl Reader {
    #[track_caller]
    fn new() -> Self {
        let base = TempDir::new_in(stage::folder()).unwrap();
        let watch = Watch::new(&[base.path().to_owned()], Times::USUAL);
        fs::create_dir_all(base.path().join("you/project")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        Self { base, port, ids: Vec::new(), watch }
    }

    fn home(&self) -> PathBuf {
        self.base.path().join("you")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", stage::folder().display());
        command.env_clear().env("PATH", path).env("HOME", self.home()).env("SHELL", "/bin/sh");
        command.env("LANG", "C.UTF-8").env("TZ", "UTC").env("COLUMNS", "100");
        // The clone of these tests is not the repository around it.
        command.env("GIT_CEILING_DIRECTORIES", stage::folder());
        // Nobody at the terminal of this test is asked anything.
        command.process_group(0).current_dir(self.home().join("project")).stdin(Stdio::null());
        command
    }

    /// Writes a file of the page.
    fn write(&self, name: &str, body: &str) {
        let path = match name.strip_prefix("~/") {
            Some(name) => self.home().join(name),
            None => self.home().join("project").join(name),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, body).unwrap();
    }

    /// Runs a command of the page, and returns what the page would show.
    fn run(&self, shown: &str) -> String {
        let mut command = shown.replace(PORT, &self.port).replace(HOME, &self.base_home());
        for (shown, meant) in &self.ids {
            command = command.replace(shown, meant);
        }
        let output =
            self.command("/bin/sh").args(["-c", &format!("exec 2>&1\n{command}")]).output();
        let output = output.unwrap();
        let mut printed = text(&output.stdout).replace(&self.base_home(), HOME);
        printed = printed.replace(&self.port, PORT);
        if !output.status.success() {
            let end = output.status.code().map_or("signal".to_owned(), |code| code.to_string());
            printed = format!("{}\n[{end}]", printed.trim_end());
        }
        printed.trim_end().trim_start_matches('\n').to_owned()
    }

    /// Files that commands can read, with a token in them: below the home, but for the state
    /// folder.
    fn exposed(&self) -> impl Iterator<Item = String> {
        let mut command = self.command("/bin/sh");
        command.args(["-c", "grep -rl 'lwt_' ~ --exclude-dir=legwork"]);
        let found = text(&command.output().unwrap().stdout);
        found.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
    }

    fn base_home(&self) -> String {
        self.home().to_str().unwrap().to_owned()
    }

    /// Learns which id a page means by one that it shows.
    fn learn(&mut self, shown: &str, printed: &str) {
        for (shown, meant) in ids(shown).into_iter().zip(ids(printed)) {
            if self.ids.iter().all(|(known, _)| *known != shown) {
                self.ids.push((shown, meant));
            }
        }
    }

    /// A text with the ids that the page shows.
    fn told(&self, printed: &str) -> String {
        let replaced = |told: String, (shown, meant): &(String, String)| told.replace(meant, shown);
        self.ids.iter().fold(printed.to_owned(), replaced)
    }

    /// Runs a block; returns it as it should be, and what differs.
    fn follow(&mut self, page: &str, block: &Block<'_>) -> (String, Vec<String>) {
        let (mut body, mut wrong) = (String::new(), Vec::new());
        for Exchange { command, printed: shown } in exchanges(block.body) {
            if NOT_RUN.iter().any(|prefix| command.starts_with(prefix)) {
                return (block.body.to_owned(), wrong);
            }
            let mut printed = self.run(&command);
            let place = format!("{page}:{}: $ {command}", block.line);
            self.learn(&shown, &printed);
            printed = self.told(&printed);
            if agree(&shown, &printed) {
                printed = shown;
            } else {
                wrong.push(format!("{place}\n--- shown\n{shown}\n--- printed\n{printed}\n"));
            }
            let command = command.replace('\n', "\n> ");
            body.push_str(&format!("$ {command}\n{printed}"));
            if !printed.is_empty() {
                body.push('\n');
            }
        }
        (body, wrong)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            stop_tasks(|verb| {
                let mut command = self.command(program());
                command.arg(verb);
                command
            });
        }
        self.watch.finish();
    }
}

/// The ids in a text.
fn ids(text: &str) -> Vec<String> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| is_id(word)).map(str::to_owned).collect()
}

fn is_id(word: &str) -> bool {
    let bits = word.strip_prefix("t_").or_else(|| word.strip_prefix("a_"));
    bits.is_some_and(|bits| bits.len() == ID && bits.bytes().all(is_bit))
}

/// Whether a word contains an id, the beginning of one, or a name that is made of one.
fn is_random(word: &str) -> bool {
    let mut parts = word.split(|it: char| !it.is_ascii_alphanumeric());
    let is_bits = |bits: &str| !bits.is_empty() && bits.bytes().all(is_bit);
    let begins = ["t_", "a_"].iter().filter_map(|prefix| word.strip_prefix(prefix));
    begins.into_iter().any(|bits| bits.len() >= SHORT_ID && is_bits(bits))
        || parts.any(|part| part.len() == ID && is_bits(part))
}

fn is_bit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte)
}

fn exchanges(body: &str) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = Vec::new();
    let prompted = body.lines().any(|line| line.starts_with("$ "));
    for line in body.lines() {
        let command = if prompted { line.strip_prefix("$ ") } else { Some(line) };
        if let Some(command) = command {
            found.push(Exchange { command: command.to_owned(), printed: String::new() });
            continue;
        }
        let last = found.last_mut().unwrap();
        match line.strip_prefix("> ").filter(|_| last.printed.is_empty()) {
            Some(more) => last.command.push_str(&format!("\n{more}")),
            None => last.printed.push_str(&format!("{line}\n")),
        }
    }
    for exchange in &mut found {
        exchange.printed.truncate(exchange.printed.trim_end().len());
    }
    found
}

/// Whether a page shows what was printed.
fn agree(shown: &str, printed: &str) -> bool {
    let lines = |text: &str| steady(text).lines().map(str::to_owned).collect::<Vec<_>>();
    fits(&lines(shown), &lines(printed))
}

fn fits(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line.trim() == "…" => {
            (0..=printed.len()).any(|skipped| fits(rest, &printed[skipped..]))
        }
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(first, more)| line == first && fits(rest, more))
        }
    }
}

/// A text without what differs from run to run.
fn steady(text: &str) -> String {
    let mut among_processes = false;
    let mut steady = String::new();
    for line in without_pid(text).lines() {
        let indent = line.len() - line.trim_start().len();
        steady.push_str(&line[..indent]);
        let words: Vec<&str> = line.split_whitespace().collect();
        among_processes = match words.as_slice() {
            ["Background", "processes:", ..] | ["Ended:"] => true,
            [] => false,
            _ => among_processes,
        };
        let word = |at: usize| {
            let before = at.checked_sub(1).map_or("", |at| words[at]);
            let behind = words.get(at + 1).copied().unwrap_or_default();
            let begins = at == 0 && among_processes;
            if changes(before, words[at], behind) || (begins && is_number(words[at])) {
                "*".to_owned()
            } else {
                words[at].to_owned()
            }
        };
        let line: Vec<String> = (0..words.len()).map(word).collect();
        steady.push_str(&line.join(" "));
        steady.push('\n');
    }
    steady
}

/// A text without the process ids in JSON that is written in one line.
fn without_pid(text: &str) -> String {
    let mut parts = text.split("\"pid\":");
    let mut without = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|it: char| it.is_ascii_digit());
        without.push_str(&format!("\"pid\":{rest}"));
    }
    without
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Whether a word differs from run to run.
fn changes(before: &str, word: &str, behind: &str) -> bool {
    let bare = |word: &str| {
        word.trim_matches(|it: char| !it.is_alphanumeric() && it != '_').to_lowercase()
    };
    let (name, it) = (bare(before), bare(word));
    let digits = it.bytes().filter(u8::is_ascii_digit).count();
    let is_date = ['-', '/'].iter().any(|between| it.matches(*between).count() == 2);
    let is_time = digits >= 4 && (it.contains(':') || is_date);
    let is_duration = DURATIONS.iter().any(|unit| it.strip_suffix(unit).is_some_and(is_number));
    let is_counted = COUNTERS.contains(&name.as_str()) || name.ends_with("_ms");
    let is_unit = |word: &str| UNITS.contains(&word);
    let is_measured = is_unit(&bare(behind));
    name == "cursor"
        || name == "next_cursor"
        || is_random(word)
        || is_time
        || is_duration
        || (is_number(&it) && (is_counted || is_measured))
        || (is_number(&name) && is_unit(&it))
}

/// Whether commands are confined here as the pages show it; says so where not.
fn is_as_shown() -> bool {
    static COMPLETE: LazyLock<bool> = LazyLock::new(|| {
        let reader = Reader::new();
        let mut call = reader.command(program());
        let output = call.args(["call", "ExecCommand", r#"{"cmd": "true"}"#, "--json"]).output();
        let envelope: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        envelope["sandbox_missing"].is_null()
    });
    if !stage::is_seen_in_sandboxes() {
        return false;
    }
    if !*COMPLETE {
        skips::skip(if rustix::process::geteuid().is_root() {
            "the pages show results of a machine with every protection"
        } else {
            "only root has every protection here, as the pages show it"
        });
    }
    *COMPLETE
}

/// Follows a page; returns it as it should be, and what differs.
fn followed(page: &Page) -> (String, Vec<String>) {
    let mut reader = Reader::new();
    let (mut written, mut at, mut all) = (String::new(), 0, Vec::new());
    for block in page.blocks() {
        if let Some((_, name)) = block.info.split_once(" file=") {
            reader.write(name, block.body);
        }
        if block.info != "console" {
            continue;
        }
        let (body, wrong) = reader.follow(&page.name, &block);
        written.push_str(&page.text[at..block.range.start]);
        written.push_str(if wrong.is_empty() { block.body } else { &body });
        at = block.range.end;
        all.extend(wrong);
    }
    written.push_str(&page.text[at..]);
    all.extend(reader.exposed().map(|path| format!("{}: a token is in {path}", page.name)));
    (written, all)
}

#[test]
fn console_blocks_print_what_the_pages_show() {
    if !is_as_shown() {
        return;
    }
    let mut all = Vec::new();
    for page in Page::all() {
        let blocks = page.blocks();
        let console = blocks.iter().any(|block| block.info == "console");
        let needs = |program: &str| blocks.iter().any(|block| block.body.contains(program));
        let lacks_python = needs("python3 ") && !has_program("python3", &["-c", "0"]);
        let lacks_curl = needs("$ curl ") && !has_program("curl", &["--version"]);
        if !console || lacks_python || lacks_curl {
            continue;
        }
        let (written, wrong) = followed(&page);
        if updating() {
            fs::write(root().join(&page.name), written).unwrap();
        }
        all.extend(wrong);
    }
    assert!(
        updating() || all.is_empty(),
        "{}LEGWORK_UPDATE_DOCS=1 cargo test -p legwork-cli --test e2e book writes what is printed",
        all.join("\n")
    );
}

#[test]
fn blocks_that_are_not_run_are_few() {
    let pages = Page::all();
    let marked = |page: &Page| page.blocks().iter().any(|block| block.info.starts_with("console "));
    let places: Vec<&str> =
        pages.iter().filter(|page| marked(page)).map(|page| page.name.as_str()).collect();
    // Commands of other programs, which are not here, one that waits for a person, and builds.
    let allowed = [
        "README.md",
        "docs/clients.md",
        "docs/how-to/approvals.md",
        "docs/install.md",
        "docs/releasing.md",
    ];
    assert_eq!(places, allowed);
}

#[test]
fn a_page_that_shows_something_else_is_noticed() {
    let id = "t_abcdefghijklmnopqrstuvwxyz";
    assert!(is_id(id));
    assert!(agree(&format!("Task: {id}\nDuration: 3 ms"), &format!("Task: {id}\nDuration: 17 ms")));
    assert!(agree("t_abcd  0s  exit 3", "t_zyxw  1.5s  exit 3"));
    assert!(agree("first\n…\nlast", "first\na\nb\nlast"));
    assert!(agree("2026-01-31 12:00:00  allow", "2027-02-28 01:02:03  allow"));
    for (shown, printed) in [
        ("Process exited with code 3", "Process exited with code 4"),
        ("first\n…\nlast", "first\na\nb"),
        ("", "something"),
        ("42", "43"),
        ("[126]", "[125]"),
    ] {
        assert!(!agree(shown, printed), "{shown} / {printed}");
    }
}

#[test]
fn a_block_is_read_as_commands_and_what_they_print() {
    let exchange = |command: &str, printed: &str| Exchange {
        command: command.to_owned(),
        printed: printed.to_owned(),
    };
    assert_eq!(exchanges("a b\nc\n"), [exchange("a b", ""), exchange("c", "")]);
    let shown = "$ cat <<X\n> one\n> X\none\n\n> two\n$ false\n[1]\n$ true\n";
    let read = [
        exchange("cat <<X\none\nX", "one\n\n> two"),
        exchange("false", "[1]"),
        exchange("true", ""),
    ];
    assert_eq!(exchanges(shown), read);
}
