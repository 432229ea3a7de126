//! The rooms of the library, and which may call which: the arrows point one way.
//!
//! A room that is not in the table, or an arrow that is not, fails here. Whoever needs a new one
//! changes the table, sees that no circle comes of it, and says in ARCHITECTURE.md why.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// What differs between operating systems: every room may call it.
const ANYBODYS: &str = "platform";

/// Each room with those that it may call. A room only calls rooms that stand above it in this list.
const ROOMS: [(&str, &[&str]); 22] = [
    (ANYBODYS, &[]),
    ("clock", &[]),
    ("threads", &[]),
    ("id", &[]),
    ("plain_file", &[]),
    ("inotify", &[]),
    ("presence", &[]),
    ("meters", &[]),
    ("trace", &[]),
    ("model", &["clock", "id", "trace"]),
    ("output", &["id", "plain_file"]),
    ("error", &["output"]),
    ("state", &["clock", "id", "output"]),
    ("trial", &["clock", "id", "model"]),
    ("events", &["clock", "id", "inotify", "model"]),
    (
        "place",
        &[
            "clock",
            "id",
            "inotify",
            "meters",
            "model",
            "output",
            "plain_file",
            "presence",
            "state",
            "threads",
            "trial",
        ],
    ),
    (
        "store",
        &[
            "clock",
            "error",
            "events",
            "id",
            "inotify",
            "meters",
            "model",
            "output",
            "place",
            "plain_file",
            "presence",
            "state",
            "threads",
            "trial",
        ],
    ),
    (
        "judge",
        &[
            "clock",
            "error",
            "events",
            "id",
            "model",
            "output",
            "plain_file",
            "presence",
            "store",
            "threads",
        ],
    ),
    (
        "task",
        &[
            "clock", "error", "events", "id", "judge", "meters", "model", "output", "place",
            "state", "store", "threads", "trace", "trial",
        ],
    ),
    (
        "engine",
        &[
            "error", "events", "id", "judge", "meters", "model", "output", "place", "state",
            "store", "task", "threads", "trial",
        ],
    ),
    ("tools", &["clock", "engine", "error", "id", "judge", "model", "output", "store", "task"]),
    ("service", &["engine", "error", "events", "meters", "model"]),
];

/// The names by which models call the tools.
const TOOLS: [&str; 9] = [
    "ExecCommand",
    "TaskInput",
    "TaskList",
    "TaskOutput",
    "TaskStatus",
    "TaskStop",
    "TaskWait",
    "execute_command",
    "run_shell_command",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn source_folder(package: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src")
}

/// The code of a file without its tests and its comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let is_tests = path.components().any(|part| part.as_os_str() == "tests");
    if is_tests || path.file_stem().is_some_and(|stem| stem == "tests") {
        return String::new();
    }
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The room of a file: the first part of its path below `src`.
fn room_of(path: &Path, src: &Path) -> String {
    let first = path.strip_prefix(src).unwrap().components().next().unwrap();
    Path::new(first.as_os_str()).file_stem().unwrap().to_str().unwrap().to_owned()
}

/// The rooms that a piece of code names, as `crate::room` or in a braced list after `crate::`.
fn called(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for (place, found) in code.match_indices("crate::") {
        let rest = code.get(place + found.len()..).unwrap();
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut name = String::new();
            for character in list.chars() {
                match character {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => rooms.push(std::mem::take(&mut name)),
                    _ if depth == 0 => name.push(character),
                    _ => {}
                }
            }
            rooms.push(name);
        } else {
            rooms.push(rest.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect());
        }
    }
    let first = |room: &String| {
        let room = room.trim();
        let end = room.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(room.len());
        room.get(..end).unwrap().to_owned()
    };
    rooms.iter().map(first).filter(|room| !room.is_empty()).collect()
}

#[test]
fn arrows_point_one_way() {
    let rooms: BTreeMap<&str, &[&str]> = ROOMS.into_iter().collect();
    // No circle: whatever a room may call stands before it.
    for (place, (room, may_call)) in ROOMS.iter().enumerate() {
        for other in *may_call {
            let before = ROOMS.iter().take(place).any(|(earlier, _)| earlier == other);
            assert!(before, "{room} may call {other}, which does not stand above it");
        }
    }
    let src = source_folder("engine");
    let mut wrong = Vec::new();
    for path in sources(&src) {
        let room = room_of(&path, &src);
        if room == "lib" {
            continue;
        }
        let Some(may_call) = rooms.get(room.as_str()) else { panic!("an unknown room: {room}") };
        for other in called(&code(&path)) {
            let fine = other == room
                || other == ANYBODYS
                || may_call.contains(&other.as_str())
                // A macro or a word of the whole crate.
                || !rooms.contains_key(other.as_str());
            if !fine {
                wrong.push(format!("{}: {room} calls {other}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_tool_is_known_by_its_name_in_its_own_file_only() {
    let mut wrong = Vec::new();
    for package in ["engine", "warden"] {
        let src = source_folder(package);
        for path in sources(&src) {
            let code = code(&path);
            for tool in TOOLS.iter().filter(|tool| code.contains(&format!("\"{tool}\""))) {
                let own = path.parent().is_some_and(|parent| parent.ends_with("tools"))
                    && code.contains(&format!("NAME: &str = \"{tool}\""));
                if !own {
                    wrong.push(format!("{}: {tool}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_local_place_asks_this_machine() {
    // What dials, forks, or looks at processes and boots.
    const MACHINE: [&str; 9] = [
        "legwork_warden::connect",
        "is_alive,",
        "end_left_by,",
        "Spawner,",
        "socket_pair",
        "/proc/",
        "current_exe",
        "var_os(",
        "env::var(",
    ];
    // Of this machine by their nature: the state folder's and the configuration's own places, the
    // secrets of our own environment, and what the kernel tells of files.
    const OWN: [&str; 7] = [
        "state.rs",
        "config.rs",
        "names.rs",
        "mask/mod.rs",
        "inotify.rs",
        "trial/tree.rs",
        "platform/windows.rs",
    ];
    let src = source_folder("engine");
    let mut wrong = Vec::new();
    for path in sources(&src) {
        let shown = path.display().to_string();
        // A post works on its own machine.
        let is_here = ["/place/local/", "/place/post/", "/src/place/windows/"]
            .iter()
            .any(|here| shown.contains(here));
        if is_here || OWN.iter().any(|own| shown.ends_with(own)) {
            continue;
        }
        for word in MACHINE.iter().filter(|word| code(&path).contains(**word)) {
            wrong.push(format!("{shown}: {word}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_library_speaks_of_no_command_line() {
    // Verbs and flags belong to one face; its words are in `crates/cli/src/hints.rs`.
    const VERBS: [&str; 10] =
        ["approve", "approvals", "attach", "deny", "doctor", "gc", "logs", "ps", "show", "stop"];
    const FLAGS: [&str; 5] = ["--state", "--mode", "--policy", "--config", "--workspace"];
    let src = source_folder("engine");
    let mut wrong = Vec::new();
    for path in sources(&src) {
        let code = code(&path);
        let verbs = VERBS.map(|verb| format!("legwork {verb}"));
        let found =
            verbs.iter().map(String::as_str).chain(FLAGS).filter(|word| code.contains(word));
        wrong.extend(found.map(|word| format!("{}: {word}", path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names that a module keeps to itself may be used again elsewhere; what others can see means one
/// thing in the whole workspace.
#[test]
fn the_name_of_a_type_is_defined_once() {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in ["gate", "warden", "engine", "cli"] {
        let src = source_folder(package);
        // What stands in the place of something else on another system has its name.
        let inside = |path: &PathBuf| path.strip_prefix(&src).unwrap().display().to_string();
        let is_other = |path: &PathBuf| inside(path).contains("windows");
        for path in sources(&src).into_iter().filter(|path| !is_other(path)) {
            for line in code(&path).lines().map(str::trim_start).filter(|it| it.starts_with("pub"))
            {
                let words: Vec<&str> =
                    line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
                let kind = words
                    .iter()
                    .position(|word| ["struct", "enum", "trait", "type"].contains(word));
                let name = kind.and_then(|at| words.get(at + 1)).filter(|name| !name.is_empty());
                if let Some(name) = name.filter(|_| !line.contains("fn ")) {
                    let place = format!("{package}/{}", path.strip_prefix(&src).unwrap().display());
                    defined.entry((*name).to_owned()).or_default().push(place);
                }
            }
        }
    }
    assert!(defined.len() > 100, "{} types were found", defined.len());
    defined.retain(|_, places| places.len() > 1);
    assert!(defined.is_empty(), "defined more than once: {defined:#?}");
}
