//! `legwork setup`: clients' files are changed in one place, and are as before when it is undone.

mod everything;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{program, text};

/// A home folder with a project in it.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Self { folder: TempDir::new().unwrap() };
        fs::create_dir(home.path("project")).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn setup(&self, arguments: &[&str]) -> Output {
        let mut setup = Command::new(program());
        setup.arg("setup").args(arguments).current_dir(self.path("project"));
        setup.env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME").env("PATH", "/none");
        setup.env_remove("XDG_STATE_HOME").env_remove("LEGWORK_STATE").output().unwrap()
    }

    /// The same, which must succeed.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.setup(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    }

    /// Everything that is in it but records of ours, with what is in the files.
    fn all(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with(".local") {
                    folders.push(path.clone());
                    found.push((path, String::new()));
                } else if path.is_file() {
                    let text = fs::read_to_string(&path).unwrap();
                    found.push((path, text));
                }
            }
        }
        found.sort();
        found
    }
}

/// Files as people have them.
const FILES: [(&str, &str); 9] = [
    (".claude.json", "{\"numStartups\": 3, \"mcpServers\": {\"x\": {\"command\": \"x\"}}}"),
    (".claude/settings.json", "{\n  \"permissions\": {\n    \"deny\": [\"WebFetch\"]\n  }\n}\n"),
    (".cursor/mcp.json", "{\r\n\t\"mcpServers\": {\r\n\t\t\"x\": {}\r\n\t}\r\n}\r\n"),
    (".config/Code/User/mcp.json", "\u{feff}{\n\t// mine\n\t\"servers\": {},\n}"),
    (".codex/config.toml", "# mine\nmodel = 'x' # best\n\n[features]\nweb = true\n"),
    (".gemini/settings.json", "{}\n"),
    (".config/opencode/opencode.jsonc", "{\n  // theme\n  \"theme\": \"x\", /* it */\n}\n"),
    (".config/zed/settings.json", "// Zed\n{\n  \"a\": 1 // last\n}\n"),
    (".codeium/windsurf/mcp_config.json", "{ \"mcpServers\": {} }"),
];

const ALL_PARTS: [&str; 7] =
    ["--hooks", "--rewrite", "--shell-off", "--workspace", ".", "--tools", "all"];

#[test]
fn every_file_is_byte_for_byte_as_before_when_it_is_undone() {
    for files in [&FILES[..], &[]] {
        let home = Home::new();
        for (name, text) in files {
            home.write(name, text);
        }
        let before = home.all();
        let clients = [
            "claude-code",
            "claude-desktop",
            "cursor",
            "vscode",
            "codex",
            "gemini",
            "opencode",
            "zed",
            "windsurf",
            "copilot",
            "kilo",
            "qwen",
            "droid",
            "kimi",
            "cline",
        ];
        // Those that need a workspace say so.
        assert_eq!(home.setup(&clients).status.code(), Some(125));
        let words: Vec<&str> = clients.into_iter().chain(ALL_PARTS).collect();
        home.done(&words);
        for (name, text) in files {
            let now = home.read(name);
            assert!(now != *text && now.contains(program()), "{name}: {now}");
            let kept = text.lines().filter(|line| line.contains("//") || line.contains('#'));
            for line in kept.map(|line| line.trim_end_matches(" // last")) {
                assert!(now.contains(line), "{name}: {line}: {now}");
            }
        }
        let after = home.all();
        let again = home.done(&words);
        assert!(again.matches("already set up").count() == clients.len(), "{again}");
        assert_eq!(home.all(), after, "twice is once");
        home.done(&[&clients[..], &["--remove"]].concat());
        assert_eq!(home.all(), before);
        assert!(!home.path(".local/state/legwork/setup").exists());
        let nothing = home.done(&[&clients[..], &["--remove"]].concat());
        assert!(nothing.matches("nothing of Legwork").count() == clients.len(), "{nothing}");
    }
}

#[test]
fn of_a_file_that_was_changed_since_only_what_is_ours_is_removed() {
    let home = Home::new();
    home.write(".claude.json", "{\n  \"a\": 1\n}\n");
    home.write(".codex/config.toml", "[features]\nshell_tool = true # mine\n");
    home.write(".config/opencode/opencode.json", "{\"permission\": {\"bash\": \"ask\"}}");
    home.done(&["claude-code", "codex", "opencode", "--hooks", "--shell-off"]);
    for name in [".claude.json", ".claude/settings.json", ".config/opencode/opencode.json"] {
        let mut value: Value = serde_json::from_str(&home.read(name)).unwrap();
        value["later"] = 2.into();
        home.write(name, &serde_json::to_string_pretty(&value).unwrap());
    }
    home.write(".codex/config.toml", &format!("{}# later\n", home.read(".codex/config.toml")));
    home.done(&["claude-code", "codex", "opencode", "--remove"]);
    for name in [".claude.json", ".claude/settings.json", ".config/opencode/opencode.json"] {
        let now = home.read(name);
        assert!(
            now.contains("later") && !now.contains("legwork") && !now.contains("Bash"),
            "{now}"
        );
        serde_json::from_str::<Value>(&now).unwrap();
    }
    let opencode: Value =
        serde_json::from_str(&home.read(".config/opencode/opencode.json")).unwrap();
    assert_eq!(opencode, serde_json::json!({ "permission": { "bash": "ask" }, "later": 2 }));
    let settings: Value = serde_json::from_str(&home.read(".claude/settings.json")).unwrap();
    assert_eq!(settings, serde_json::json!({ "later": 2 }), "what was made is not left empty");
    let codex = home.read(".codex/config.toml");
    assert!(codex.contains("shell_tool = true") && codex.contains("# later"), "{codex}");
    assert!(!codex.contains("legwork"), "{codex}");
}

#[test]
fn what_could_be_the_users_own_is_not_removed() {
    let home = Home::new();
    let own = "{\n  \"permissions\": {\n    \"deny\": [\n      \"Bash\"\n    ]\n  }\n}\n";
    home.write(".claude/settings.json", own);
    home.done(&["claude-code", "--shell-off"]);
    home.write(".claude/settings.json", &home.read(".claude/settings.json").replace("  ", "    "));
    home.done(&["claude-code", "--remove"]);
    assert!(home.read(".claude/settings.json").contains("\"Bash\""));
}

#[test]
fn a_file_with_a_mistake_is_refused_with_its_place_and_others_are_set_up() {
    let home = Home::new();
    home.write(".gemini/settings.json", "{\n  \"a\": 1\n  \"b\": 2\n}\n");
    home.write(".codex/config.toml", "model = \n");
    home.write(".config/zed/settings.json", "{}");
    home.write(".claude/settings.json", "{ \"permissions\": [] }");
    let before = home.all();
    let output = home.setup(&["gemini", "codex", "claude-code", "zed"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains(".gemini/settings.json:3:3: "), "{told}");
    assert!(told.contains(".codex/config.toml:1:"), "{told}");
    assert!(told.contains(".claude/settings.json:1:18: "), "{told}");
    // The first of Claude Code's files is not written if the second cannot be.
    let changed: Vec<_> = home.all().into_iter().filter(|it| !before.contains(it)).collect();
    assert!(changed.iter().all(|(path, _)| path.ends_with(".config/zed/settings.json")));
    assert_eq!(changed.len(), 1, "{changed:?}");
}

#[test]
fn links_stay_links_and_rights_stay_as_they_are() {
    let home = Home::new();
    home.write("dotfiles/codex.toml", "a = 1\n");
    let real = home.path("dotfiles/codex.toml");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(home.path(".codex")).unwrap();
    symlink("../dotfiles/codex.toml", home.path(".codex/config.toml")).unwrap();
    for arguments in [&["codex"][..], &["codex", "--remove"]] {
        home.done(arguments);
        assert!(home.path(".codex/config.toml").is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    }
    assert_eq!(home.read("dotfiles/codex.toml"), "a = 1\n");
    // A link to nothing is not written through.
    symlink("/nowhere/at/all", home.path(".mine.json")).unwrap();
    fs::create_dir(home.path(".gemini")).unwrap();
    symlink(home.path(".mine.json"), home.path(".gemini/settings.json")).unwrap();
    assert_eq!(home.setup(&["gemini"]).status.code(), Some(125));
}

#[test]
fn what_a_user_has_written_into_the_entry_stays_and_a_program_that_is_gone_is_renewed() {
    let home = Home::new();
    let entry = |program: &str| {
        format!(
            "{{\n  \"mcpServers\": {{\n    \"legwork\": {{ \"command\": \"{program}\", \"args\": [\"mcp\", \"--ask\", \"strict\"] }}\n  }}\n}}\n"
        )
    };
    home.write(".gemini/settings.json", &entry(program()));
    assert!(home.done(&["gemini"]).contains("already set up"));
    assert_eq!(home.read(".gemini/settings.json"), entry(program()));
    home.write(".gemini/settings.json", &entry("/gone/legwork"));
    home.done(&["gemini"]);
    assert_eq!(home.read(".gemini/settings.json"), entry(program()));
    home.done(&["gemini", "--remove"]);
    assert!(!home.read(".gemini/settings.json").contains("legwork"));
}

#[test]
fn print_shows_a_diff_and_writes_nothing() {
    let home = Home::new();
    home.write(".codex/config.toml", "a = 1\n");
    let before = home.all();
    let shown = home.done(&["--print"]);
    let added = format!("+[mcp_servers.legwork]\n+command = \"{}\"\n", program());
    assert!(shown.contains(&added) && shown.contains("@@ -1 +1,6 @@\n a = 1\n"), "{shown}");
    let json = home.done(&["codex", "claude-code", "--print", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["client"], "claude-code");
    assert_eq!(json[0]["files"][0]["result"], "would_change");
    assert_eq!(home.all(), before);
    assert!(!home.path(".local").exists());
}

#[test]
fn the_tools_that_are_asked_for_stand_in_the_clients_arguments() {
    let home = Home::new();
    let shown = home.done(&["codex", "--tools", "all", "--print"]);
    assert!(shown.contains("\"--tools\", \"all\""), "{shown}");
    home.done(&["cursor", "--tools", "all"]);
    let arguments = |home: &Home| -> Value {
        let entry: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
        entry["mcpServers"]["legwork"]["args"].clone()
    };
    assert!(arguments(&home).as_array().unwrap().ends_with(&["--tools".into(), "all".into()]));
    home.done(&["cursor", "--tools", "ExecCommand,run_shell_command"]);
    assert_eq!(
        arguments(&home).as_array().unwrap().last().unwrap(),
        "ExecCommand,run_shell_command"
    );
    let wrong = home.setup(&["cursor", "--tools", "Nothing"]);
    assert!(!wrong.status.success());
    assert!(text(&wrong.stderr).contains("there is no tool `Nothing`"), "{wrong:?}");
}

#[test]
fn a_project_has_files_of_its_own_and_some_clients_need_a_workspace() {
    let home = Home::new();
    home.done(&["claude-code", "vscode", "--scope", "project"]);
    let entry: Value = serde_json::from_str(&home.read("project/.mcp.json")).unwrap();
    assert_eq!(entry["mcpServers"]["legwork"]["command"], program());
    assert!(home.read("project/.vscode/mcp.json").contains("${workspaceFolder}"));
    assert!(!home.path(".claude.json").exists());
    home.done(&["claude-code", "vscode", "--scope", "project", "--remove"]);
    assert_eq!(fs::read_dir(home.path("project")).unwrap().count(), 0);
    for arguments in [&["windsurf"][..], &["windsurf", "--scope", "project"]] {
        assert_eq!(home.setup(arguments).status.code(), Some(125));
    }
    home.done(&["windsurf", "cursor", "--workspace", "."]);
    let project = home.path("project");
    for file in [".codeium/windsurf/mcp_config.json", ".cursor/mcp.json"] {
        let entry: Value = serde_json::from_str(&home.read(file)).unwrap();
        let arguments = entry["mcpServers"]["legwork"]["args"].as_array().unwrap();
        assert_eq!(arguments.len(), 3, "{arguments:?}");
        let named = arguments[2].as_str().unwrap();
        assert_eq!(Path::new(named), project.canonicalize().unwrap());
    }
    assert_eq!(home.setup(&["emacs"]).status.code(), Some(125));
}
