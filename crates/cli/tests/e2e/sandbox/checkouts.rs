//! Repositories below a workspace that is a folder of checkouts: what is guarded of them, and what
//! is told.

use std::{fs, os::unix::fs::symlink, process::Output};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    house::{House, INTEGRATION, OPERATOR, UNTRUSTED},
    repository::warnings,
};
use crate::{
    common::{eventually, signal},
    mcp::Wire,
};

/// What git does in a folder, as this user and outside of any sandbox.
fn git(house: &House, folder: &str, words: &str) -> Output {
    let mut command = house.outside("git");
    command.args(["-c", "user.name=me", "-c", "user.email=me@example.org"]);
    command.args(["-c", "protocol.file.allow=always"]);
    let output = command.current_dir(house.path(folder)).args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "git {words}: {output:?}");
    output
}

/// A house with a checkout in the workspace.
fn with_checkout() -> Vec<House> {
    let houses = House::each();
    for house in &houses {
        house.folder("workspace/proj");
        git(house, "workspace/proj", "init -q -b main .");
        git(house, "workspace/proj", "commit -q --allow-empty -m first");
    }
    houses
}

/// Whether a hook runs when somebody works there without a sandbox.
fn runs_a_hook(house: &House, folder: &str) -> bool {
    git(house, folder, "commit -q --allow-empty -m more");
    let ran = house.path("home/ran");
    let did = ran.exists();
    let _ = fs::remove_file(ran);
    did
}

/// The text of a command that writes a hook which leaves a mark in the home.
fn plant(house: &House, folder: &str) -> String {
    let mark = house.name("home/ran");
    format!(
        "mkdir -p {folder}; printf '#!/bin/sh\\ntouch {mark}\\n' > {folder}/post-commit; chmod +x {folder}/post-commit"
    )
}

/// Runs a text as a script, which no gate understands.
fn run(house: &House, trust: &str, text: &str) -> Value {
    house.script("workspace/script.sh", &format!("set -e; {text}"));
    house.exec(trust, "./script.sh")
}

#[test]
fn hooks_of_a_checkout_cannot_be_planted_nor_their_folders_replaced() {
    for house in with_checkout() {
        fs::remove_dir_all(house.path("workspace/proj/.git/hooks")).unwrap();
        for trust in [OPERATOR, INTEGRATION, UNTRUSTED] {
            house.refuses(
                trust,
                &[
                    "write proj/.git/hooks/post-checkout",
                    "plant proj/.git/hooks post-commit",
                    "replace proj/.git/hooks",
                    "replace proj/.git",
                    "rename proj/.git moved",
                    "rename proj moved",
                    "write /proc/self/cwd/proj/.git/hooks/post-checkout",
                ],
            );
        }
        house.allows(OPERATOR, &["write proj/.git/description", "write proj/.git/config"]);
        house.refuses(INTEGRATION, &["write proj/.git/config", "rename proj/.git/config away"]);
        run(&house, OPERATOR, &plant(&house, "proj/.git/hooks"));
        assert!(!runs_a_hook(&house, "workspace/proj"));
    }
}

#[test]
fn what_a_command_puts_around_a_guarded_checkout_takes_no_guard_off() {
    let ways = [
        "git init -q .",
        "echo x > .git",
        "touch HEAD; mkdir objects",
        "git init -q --bare store; echo 'gitdir: store' > .git",
        "for i in $(seq 70); do mkdir -p z$i/objects; echo x > z$i/HEAD; done",
        "rm group/logs/deep/.git/HEAD 2> /dev/null || true",
    ];
    for way in ways {
        let Some(house) = with_checkout().into_iter().find(|house| !house.is_root()) else {
            return;
        };
        house.folder("workspace/group/logs/deep");
        git(&house, "workspace/group/logs/deep", "init -q -b main .");
        let mut server = Wire::spawn(house.legwork("mcp", INTEGRATION));
        server.initialize();
        let mut run = |text: &str| {
            house.script("workspace/script.sh", text);
            server.tool("ExecCommand", &json!({ "cmd": "sh script.sh", "login": false }))
        };
        run(way);
        for folder in ["proj", "group/logs/deep"] {
            run(&format!(
                "echo '[core]' >> {folder}/.git/config; {}",
                plant(&house, &format!("{folder}/.git/hooks"))
            ));
            let config = house.path(&format!("workspace/{folder}/.git/config"));
            let text = fs::read_to_string(config).unwrap();
            assert_eq!(text.matches("[core]").count(), 1, "{way}: {folder}");
            let hook = house.path(&format!("workspace/{folder}/.git/hooks/post-commit"));
            assert!(!hook.exists(), "{way}: {folder}");
        }
    }
}

#[test]
fn a_setting_of_a_checkout_is_told() {
    for house in with_checkout() {
        let result = house.exec(OPERATOR, "git -C proj config core.hooksPath ../evil");
        assert!(warnings(&result).contains("proj/.git/config: `core.hookspath`"), "{result:#}");
        let again = house.exec(OPERATOR, "git -C proj config user.name somebody");
        assert_eq!(warnings(&again), "", "only what is new is told");
    }
}

#[test]
fn a_folder_that_a_setting_names_for_hooks_is_guarded_from_then_on() {
    let Some(house) = with_checkout().into_iter().find(|house| !house.is_root()) else { return };
    house.folder("workspace/proj/mine");
    let mut server = Wire::spawn(house.legwork("mcp", OPERATOR));
    server.initialize();
    let mut run = |text: &str| {
        house.script("workspace/script.sh", text);
        server.tool("ExecCommand", &json!({ "cmd": "sh script.sh", "login": false }))
    };
    let told = run("git -C proj config core.hooksPath mine");
    assert!(told.contains("`core.hookspath` was set"), "{told}");
    run(&plant(&house, "proj/mine"));
    assert!(!house.path("workspace/proj/mine/post-commit").exists());
}

#[test]
fn every_way_to_bring_a_hook_into_a_repository_that_a_command_makes_is_told() {
    let ways = [
        // Where it is made, the hook, and the repository that is used afterwards.
        ("git init -q sub; HOOK", "sub/.git/hooks", "sub"),
        ("mkdir -p a/b/c; git init -q a/b/c; HOOK", "a/b/c/.git/hooks", "a/b/c"),
        // Under another name, and moved where it belongs.
        ("git init -q x; mv x/.git x/y; HOOK; mv x/y x/.git", "x/y/hooks", "x"),
        ("git init -q x; HOOK; mv x z", "x/.git/hooks", "z"),
        // A folder that is in its place while it is written.
        ("git init -q x; HOOK; mv x away; mkdir x; rmdir x; mv away x", "x/.git/hooks", "x"),
        ("git init -q --bare x.git; git clone -q x.git w; HOOK", "w/.git/hooks", "w"),
        // A repository whose folder is elsewhere.
        ("git init -q --separate-git-dir=store w; HOOK", "store/hooks", "w"),
        ("git init -q w; mv w/.git store; ln -s ../store w/.git; HOOK", "store/hooks", "w"),
        // Hooks are elsewhere.
        ("git init -q w; git -C w config core.hooksPath ../mine; HOOK", "mine", "w"),
        (
            "git init -q w; printf '[core]\\nhooksPath = ../mine\\n' > inc; git -C w config include.path ../../inc; HOOK",
            "mine",
            "w",
        ),
    ];
    for (text, hooks, used) in ways {
        let Some(house) = House::ordinary() else { return };
        let result = run(&house, OPERATOR, &text.replace("HOOK", &plant(&house, hooks)));
        assert_eq!(result["exit_status"], 0, "{text}: {result:#}");
        let told = warnings(&result);
        let shown = told.contains("post-commit") || told.contains("core.hookspath");
        assert!(shown, "{text}: {told}");
        assert!(runs_a_hook(&house, &format!("workspace/{used}")), "{text}: it proves nothing");
        let again = house.exec(OPERATOR, "true");
        assert_eq!(warnings(&again), "", "{text}: told once");
    }
}

#[test]
fn a_name_in_a_warning_does_not_hide_it() {
    let Some(house) = House::ordinary() else { return };
    let hook = plant(&house, "\"$odd\"/.git/hooks");
    let text = format!("odd=$(printf 'z\\r\\033[2Knext'); git init -q \"$odd\"; {hook}");
    let told = warnings(&run(&house, OPERATOR, &text));
    assert!(told.contains(r"z\\u{d}\\u{1b}[2Knext/.git/hooks/post-commit"), "{told}");
}

#[test]
fn a_repository_that_a_command_made_is_guarded_from_the_next_one() {
    for house in House::each() {
        assert_eq!(warnings(&run(&house, OPERATOR, "git init -q sub")), "");
        house.refuses(OPERATOR, &["plant sub/.git/hooks post-commit", "rename sub/.git sub/x"]);
    }
}

#[test]
fn a_bare_repository_and_one_in_another_writable_folder_are_guarded() {
    for house in House::each() {
        house.folder("elsewhere/deep");
        git(&house, "workspace", "init -q --bare group/x.git");
        git(&house, "elsewhere/deep", "init -q .");
        let name = house.name("elsewhere");
        let house = house.with_policy(&format!("[sandbox]\nwritable = [\"{name}\"]\n"));
        house.refuses(
            OPERATOR,
            &["plant group/x.git/hooks update", "plant ../elsewhere/deep/.git/hooks post-commit"],
        );
        house.allows(OPERATOR, &["write ../elsewhere/deep/file", "write group/x.git/description"]);
    }
}

#[test]
fn worktrees_and_submodules_of_a_checkout_are_used_without_a_warning_and_guarded() {
    for house in with_checkout() {
        git(&house, "workspace", "init -q part");
        git(&house, "workspace/part", "commit -q --allow-empty -m part");
        let text = "cd proj; git worktree add -q ../tree -b other\n\
            git -c protocol.file.allow=always submodule --quiet add ../part sub";
        let result = run(&house, OPERATOR, text);
        assert_eq!(result["exit_status"], 0, "{result:#}");
        assert_eq!(warnings(&result), "");
        house.refuses(
            OPERATOR,
            &["plant proj/.git/modules/sub/hooks post-commit", "plant proj/.git/hooks post-commit"],
        );
        let text = "cd tree && echo x > x && git add x && git -c user.name=m -c user.email=m@e commit -qm x";
        assert_eq!(run(&house, OPERATOR, text)["exit_status"], 0);
        // It is not in the way of what is usual.
        let removed = run(&house, OPERATOR, "git -C proj worktree remove ../tree");
        assert_eq!(removed["exit_status"], 0, "{removed:#}");
        // A file that leads elsewhere is told.
        let led = run(
            &house,
            OPERATOR,
            "git init -q evil; echo 'gitdir: ../../evil/.git' > proj/sub/.git",
        );
        assert!(warnings(&led).contains("proj/sub/.git"), "{led:#}");
    }
}

#[test]
fn a_workspace_below_a_repository_has_that_guarded_and_its_own_ones_told() {
    for house in House::each() {
        git(&house, "", "init -q .");
        run(&house, OPERATOR, "git init -q inner");
        for trust in [OPERATOR, INTEGRATION] {
            house.refuses(trust, &["plant ../.git/hooks post-commit"]);
        }
        let result = run(&house, OPERATOR, &plant(&house, "inner/.git/hooks"));
        assert!(warnings(&result).contains("inner/.git/hooks/post-commit"), "{result:#}");
        // One in the workspace itself shadows the one above it.
        let result =
            run(&house, OPERATOR, &format!("git init -q .; {}", plant(&house, ".git/hooks")));
        assert!(warnings(&result).contains("workspace/.git/hooks/post-commit"), "{result:#}");
    }
}

#[test]
fn a_hook_that_is_another_file_elsewhere_is_told_when_that_is_written() {
    for house in House::each() {
        house.folder("workspace/proj");
        git(&house, "workspace/proj", "init -q .");
        house.script("workspace/hook.sh", "true");
        let hooks = house.path("workspace/proj/.git/hooks");
        fs::hard_link(house.path("workspace/hook.sh"), hooks.join("pre-push")).unwrap();
        let result = run(&house, OPERATOR, "echo evil >> hook.sh");
        assert!(warnings(&result).contains("hooks/pre-push"), "{result:#}");
    }
}

#[test]
fn files_by_which_agents_and_editors_run_programs_are_told() {
    for house in House::each() {
        house.file("workspace/proj/.vscode/tasks.json", "{}");
        house.file("workspace/.mcp.json", "{}");
        house.file("workspace/package.json", "{}");
        let text = "echo >> .mcp.json; mkdir -p .claude sub/.cursor .husky\n\
            for it in .claude/settings.json sub/.cursor/mcp.json .husky/pre-commit .envrc proj/.vscode/tasks.json src.json package.json\n\
            do echo '{}' >> $it; done";
        let result = run(&house, OPERATOR, text);
        let told = warnings(&result);
        for name in [
            "/.mcp.json",
            "/.claude/settings.json",
            "/sub/.cursor/mcp.json",
            "/.husky/pre-commit",
            "/.envrc",
            "/proj/.vscode/tasks.json",
        ] {
            assert!(told.contains(&format!("{name}: it came or was changed")), "{name}: {told}");
        }
        assert_eq!(told.lines().count(), 6, "{told}");
        assert_eq!(warnings(&house.exec(OPERATOR, "cat .mcp.json")), "");
    }
}

#[test]
fn a_repository_among_the_files_of_another_can_be_removed_and_what_comes_into_it_is_told() {
    for house in with_checkout() {
        run(&house, OPERATOR, "git init -q proj/target/test/x");
        let result = run(&house, OPERATOR, &plant(&house, "proj/target/test/x/.git/hooks"));
        assert!(warnings(&result).contains("hooks/post-commit"), "{result:#}");
        let removed = run(&house, OPERATOR, "rm -rf proj/target && git init -q proj/target/test/x");
        assert_eq!((&removed["exit_status"], warnings(&removed)), (&0.into(), String::new()));
    }
}

#[test]
fn a_hook_that_a_process_writes_which_was_left_running_is_told_with_the_next_command() {
    let Some(house) = House::ordinary() else { return };
    let mut server = Wire::spawn(house.legwork("mcp", OPERATOR));
    server.initialize();
    let text = format!(
        "git init -q sub; (until [ -e go ]; do sleep 0.02; done; {}; touch done) > /dev/null 2>&1 & exit 0",
        plant(&house, "sub/.git/hooks")
    );
    house.script("workspace/later.sh", &text);
    let mut exec = |cmd: &str| server.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
    let first = exec("./later.sh");
    assert!(!first.contains("post-commit"), "{first}");
    house.file("workspace/go", "");
    eventually("the hook", || house.path("workspace/done").exists().then_some(()));
    let next = exec("true");
    assert!(next.contains("hooks/post-commit: a hook came"), "{next}");
    let last = exec("true");
    assert!(!last.contains("post-commit"), "told once: {last}");
}

#[test]
fn what_a_task_in_the_background_brought_is_told_wherever_its_end_is() {
    let Some(house) = House::ordinary() else { return };
    let mut server = Wire::spawn(house.legwork("mcp", OPERATOR));
    server.initialize();
    let text = format!(
        "git init -q sub; until [ -e go ]; do sleep 0.02; done; {}",
        plant(&house, "sub/.git/hooks")
    );
    house.script("workspace/script.sh", &text);
    let input = json!({ "cmd": "sh script.sh", "login": false, "yield_time_ms": 100 });
    let begun = server.tool("ExecCommand", &input);
    let id = begun.split("Task: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let id = id.to_owned();
    house.file("workspace/go", "");
    let until = json!({ "task_ids": [id], "timeout_ms": 60_000 });
    let news = "sub/.git/hooks/post-commit: a hook came";
    for (tool, input) in [
        ("TaskWait", until),
        ("TaskStatus", json!({ "task_id": id })),
        ("TaskOutput", json!({ "task_id": id })),
    ] {
        let told = server.tool(tool, &input);
        assert!(told.contains("Warnings:\n") && told.contains(news), "{tool}: {told}");
    }
    assert!(house.verb_of(&["show", &id]).contains(news));
    assert!(house.verb_of(&["audit", "show", "--json"]).contains(news));
    drop(server);
    house.script("workspace/script.sh", &text.replace("sub", "other"));
    let output = house
        .verb("run")
        .args(["--", "sh", "script.sh"])
        .current_dir(house.path("workspace"))
        .output()
        .unwrap();
    let told = crate::common::text(&output.stderr);
    assert!(told.contains("legwork: warning: ") && told.contains("other/.git/hooks"), "{told}");
}

/// A house with a checkout in the workspace, whose user has a configuration; `WS` in its text
/// stands for the workspace.
fn with_users_config(text: &str) -> Option<House> {
    let house = with_checkout().into_iter().find(|house| !house.is_root())?;
    house.file("home/.gitconfig", &text.replace("WS", &house.name("workspace")));
    Some(house)
}

#[test]
fn what_comes_into_files_that_the_users_own_configuration_names_is_told() {
    let ways = [
        (
            "[includeIf \"gitdir:WS/\"]\npath = WS/.gitconfig",
            "git config -f .gitconfig alias.st '!echo'",
            ".gitconfig: `alias.st` was set",
        ),
        (
            "[core]\nhooksPath = tools/hooks",
            "mkdir -p proj/tools/hooks; echo > proj/tools/hooks/pre-commit",
            "proj/tools/hooks/pre-commit: a hook came",
        ),
    ];
    for (config, text, news) in ways {
        let Some(house) = with_users_config(config) else { return };
        let result = run(&house, OPERATOR, text);
        assert!(warnings(&result).contains(news), "{text}: {result:#}");
        assert_eq!(warnings(&house.exec(OPERATOR, "true")), "", "{text}: told once");
    }
}

#[test]
fn hooks_that_the_users_configuration_includes_and_what_that_links_to_are_guarded() {
    let Some(house) = with_users_config("[include]\npath = more") else { return };
    let hooks = house.name("workspace/hooks");
    house.folder("workspace/hooks");
    house.file("home/more", &format!("[core]\nhooksPath = {hooks}\n"));
    house.refuses(OPERATOR, &["plant hooks pre-commit"]);
    let linked = house.file("workspace/dotfiles/gitconfig", "");
    fs::remove_file(house.path("home/.gitconfig")).unwrap();
    symlink(linked, house.path("home/.gitconfig")).unwrap();
    house.refuses(OPERATOR, &["write dotfiles/gitconfig", "rename dotfiles moved"]);
}

#[test]
fn hooks_of_a_relative_path_are_told_in_every_working_tree() {
    for house in with_checkout() {
        git(&house, "workspace", "init -q part");
        git(&house, "workspace/part", "commit -q --allow-empty -m part");
        git(&house, "workspace/proj", "worktree add -q ../tree -b other");
        git(&house, "workspace/proj", "submodule --quiet add ../part lib");
        for folder in ["proj", "tree", "proj/lib"] {
            git(&house, &format!("workspace/{folder}"), "config core.hooksPath hk");
        }
        for folder in ["tree", "proj/lib"] {
            let result = run(&house, OPERATOR, &plant(&house, &format!("{folder}/hk")));
            let news = format!("{folder}/hk/post-commit: a hook came");
            assert!(warnings(&result).contains(&news), "{result:#}");
            assert!(runs_a_hook(&house, &format!("workspace/{folder}")), "it proves nothing");
        }
        // They are not in the way of what is usual.
        let removed = run(&house, OPERATOR, "git -C proj worktree remove --force ../tree");
        assert_eq!(removed["exit_status"], 0, "{removed:#}");
    }
}

#[test]
fn a_checkout_that_gets_another_common_folder_is_told_with_the_hooks_there() {
    for house in House::each() {
        house.folder("workspace/worktrees");
        git(&house, "workspace/worktrees", "init -q .");
        let text = format!(
            "mkdir objects refs; echo ../.. > worktrees/.git/commondir; {}",
            plant(&house, "hooks")
        );
        let told = warnings(&run(&house, OPERATOR, &text));
        assert!(told.contains("worktrees/.git/commondir: it came"), "{told}");
        assert!(told.contains("workspace/hooks/post-commit: a hook came"), "{told}");
        assert!(runs_a_hook(&house, "workspace/worktrees"), "it proves nothing");
    }
}

#[test]
fn a_submodule_of_a_linked_working_tree_is_used_without_a_warning() {
    for house in with_checkout() {
        git(&house, "workspace", "init -q part");
        git(&house, "workspace/part", "commit -q --allow-empty -m part");
        git(&house, "workspace/proj", "submodule --quiet add ../part lib");
        git(&house, "workspace/proj", "commit -q -m lib");
        git(&house, "workspace/proj", "worktree add -q ../tree -b other");
        let text = "git -C tree -c protocol.file.allow=always submodule update --quiet --init";
        let result = run(&house, OPERATOR, text);
        assert_eq!((&result["exit_status"], warnings(&result)), (&0.into(), String::new()));
    }
}

#[test]
fn a_task_that_outlives_its_server_says_that_it_was_not_compared() {
    for is_adopted in [true, false] {
        let Some(house) = with_checkout().into_iter().find(|house| !house.is_root()) else {
            return;
        };
        let text = "until [ -e go ]; do sleep 0.02; done; git -C proj config alias.st '!echo'";
        house.script("workspace/script.sh", text);
        let mut first = Wire::spawn(house.legwork("mcp", OPERATOR));
        first.initialize();
        let input = json!({ "cmd": "sh script.sh", "login": false, "yield_time_ms": 100 });
        let begun = first.tool("ExecCommand", &input);
        let id = begun.split("Task: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let id = id.unwrap().to_owned();
        signal(first.child.id(), Signal::KILL);
        first.child.wait().unwrap();
        let news = "did not compare what this task changed in repositories";
        if is_adopted {
            let mut second = Wire::spawn(house.legwork("mcp", OPERATOR));
            second.initialize();
            house.file("workspace/go", "");
            let until = json!({ "task_ids": [id], "timeout_ms": 60_000 });
            let told = second.tool("TaskWait", &until);
            assert!(told.contains("Warnings:\n") && told.contains(news), "{told}");
        } else {
            house.file("workspace/go", "");
            let shown = || Some(house.verb_of(&["show", &id])).filter(|it| it.contains(news));
            eventually("the end of the task", shown);
        }
        assert!(house.verb_of(&["show", &id]).contains(news));
    }
}

#[test]
fn a_task_that_outlives_its_server_is_not_compared_in_another_writable_folder_either() {
    let Some(house) = House::ordinary() else { return };
    house.folder("elsewhere");
    house.folder("home/.config/legwork");
    let roots = format!("roots = [\"{}\"]\n", house.name("elsewhere"));
    house.file("home/.config/legwork/config.toml", &roots);
    let text = "until [ -e go ]; do sleep 0.02; done; git init -q ../elsewhere/x";
    house.script("workspace/script.sh", text);
    let mut server = Wire::spawn(house.legwork("mcp", OPERATOR));
    server.initialize();
    let input = json!({ "cmd": "sh script.sh", "login": false, "yield_time_ms": 100 });
    let begun = server.tool("ExecCommand", &input);
    let id = begun.split("Task: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    signal(server.child.id(), Signal::KILL);
    server.child.wait().unwrap();
    house.file("workspace/go", "");
    let news = "did not compare what this task changed in repositories";
    let shown = || Some(house.verb_of(&["show", id])).filter(|it| it.contains("Exit status:"));
    let shown = eventually("the end of the task", shown);
    assert!(shown.contains(news), "{shown}");
}

#[test]
fn another_folder_in_the_place_of_the_workspace_is_guarded_and_told() {
    let Some(house) = with_checkout().into_iter().find(|house| !house.is_root()) else { return };
    let mut server = Wire::spawn(house.legwork("mcp", OPERATOR));
    server.initialize();
    let mut exec = |cmd: &str| server.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
    exec("true");
    fs::rename(house.path("workspace"), house.path("old")).unwrap();
    for folder in ["workspace/proj", "workspace/sub"] {
        house.folder(folder);
        git(&house, folder, "init -q -b main .");
        git(&house, folder, "commit -q --allow-empty -m first");
    }
    let text = |folder: &str| plant(&house, &format!("{folder}/.git/hooks"));
    let text = format!("echo {{}} > sub/.mcp.json; {}; {}", text("proj"), text("sub"));
    house.script("workspace/script.sh", &text);
    let told = exec("./script.sh");
    assert!(told.contains("sub/.mcp.json: it came or was changed"), "{told}");
    for folder in ["workspace/proj", "workspace/sub"] {
        assert!(!runs_a_hook(&house, folder), "{folder}: {told}");
    }
}

#[test]
fn another_folder_in_the_place_of_a_linked_worktree_has_its_own_repository() {
    let Some(house) = House::ordinary() else { return };
    house.folder("main");
    git(&house, "main", "init -q -b main .");
    git(&house, "main", "commit -q --allow-empty -m first");
    fs::remove_dir_all(house.path("workspace")).unwrap();
    git(&house, "main", "worktree add -q ../workspace -b other");
    let mut server = Wire::spawn(house.legwork("mcp", OPERATOR));
    server.initialize();
    let mut exec = |cmd: &str| server.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
    let write = format!("echo x > {}", house.name("main/.git/file"));
    exec(&write);
    fs::remove_file(house.path("main/.git/file")).expect("a worktree writes into its repository");
    fs::rename(house.path("workspace"), house.path("old")).unwrap();
    house.folder("workspace");
    git(&house, "workspace", "init -q -b main .");
    house.script("workspace/script.sh", &format!("echo x > .git/file; {write}"));
    let told = exec("sh script.sh");
    assert!(house.path("workspace/.git/file").exists(), "{told}");
    assert!(!house.path("main/.git/file").exists(), "{told}");
}

#[test]
fn where_the_search_ends_is_said_by_a_result_and_by_doctor() {
    let Some(house) = House::ordinary() else { return };
    for number in 0..20_100 {
        fs::create_dir_all(house.path("workspace").join(format!("{}/{number}", number % 100)))
            .unwrap();
    }
    let mut server = Wire::spawn(house.legwork("mcp", OPERATOR));
    server.initialize();
    let mut exec = || server.tool("ExecCommand", &json!({ "cmd": "true", "login": false }));
    let first = exec();
    assert!(first.contains("were not searched for repositories"), "{first}");
    assert!(!exec().contains("not searched"), "said once");
    let doctor = house.verb("doctor").output().unwrap();
    let doctor = crate::common::text(&doctor.stdout);
    assert!(doctor.contains("repositories   ok      too many folders"), "{doctor}");
}
