//! What of a repository is guarded, and what is told of it.

use std::{fs, os::unix::fs::symlink};

use serde_json::Value;

use super::house::{House, INTEGRATION, OPERATOR, UNTRUSTED};

fn git(house: &House, words: &str) {
    let mut command = house.outside("git");
    command.args(["-c", "user.name=me", "-c", "user.email=me@example.org"]);
    let output = command.args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "git {words}: {output:?}");
}

fn with_repository() -> Vec<House> {
    let houses = House::each();
    for house in &houses {
        git(house, "init -q -b main .");
        git(house, "commit -q --allow-empty -m first");
    }
    houses
}

pub fn warnings(result: &Value) -> String {
    result["warnings"].as_array().into_iter().flatten().map(|text| format!("{text}\n")).collect()
}

#[test]
fn hooks_cannot_be_planted_nor_their_folder_replaced() {
    for house in with_repository() {
        fs::remove_dir_all(house.path("workspace/.git/hooks")).unwrap();
        for trust in [OPERATOR, INTEGRATION, UNTRUSTED] {
            house.refuses(
                trust,
                &[
                    "write .git/hooks/post-checkout",
                    "plant .git/hooks post-commit",
                    "replace .git/hooks",
                    "replace .git",
                    "rename .git moved",
                    "chmod .git/hooks 777",
                    "write /proc/self/cwd/.git/hooks/post-checkout",
                ],
            );
        }
        house.allows(OPERATOR, &["write .git/description", "write .git/config"]);
        house.refuses(
            INTEGRATION,
            &[
                "write .git/config",
                "truncate .git/config",
                "rename .git/config away",
                "chmod .git/config 666",
            ],
        );
        house.allows(INTEGRATION, &["write .git/description"]);
        let hooks = fs::read_dir(house.path("workspace/.git/hooks")).unwrap().count();
        assert_eq!(hooks, 0, "nothing is in the folder that was made");
    }
}

#[test]
fn a_setting_by_which_git_runs_programs_is_told_to_an_operator_and_refused_to_others() {
    for house in with_repository() {
        let result = house.exec(OPERATOR, "git config core.hooksPath /tmp/hooks");
        assert_eq!(result["exit_status"], 0, "{result:#}");
        assert!(warnings(&result).contains("core.hookspath"), "{result:#}");
        let again = house.exec(OPERATOR, "git config user.name somebody");
        assert_eq!(warnings(&again), "", "only what is new is told");
        git(&house, "config --unset core.hooksPath");
        let before = fs::read(house.path("workspace/.git/config")).unwrap();
        let result = house.exec(INTEGRATION, "git config core.hooksPath /tmp/hooks");
        assert_ne!(result["exit_status"], 0, "{result:#}");
        assert_eq!(fs::read(house.path("workspace/.git/config")).unwrap(), before);
    }
}

#[test]
fn settings_that_are_written_in_unusual_ways_are_told_too() {
    let Some(house) = House::own() else { return };
    git(&house, "init -q -b main .");
    let ways = [
        ("[core] hooksPath = x", "core.hookspath"),
        ("[alias] a = \\\\\n!sh", "alias.a"),
        ("[core]\tfsmonitor=./x", "core.fsmonitor"),
        ("[ \"x\"]\n[filter \"a]b\"] clean = y", ".clean"),
        ("[hook \"x\"]\n command = y", "hook.x.command"),
    ];
    for (text, key) in ways {
        house.script("workspace/set.sh", &format!("printf '{text}\\n' >> .git/config"));
        let result = house.exec(OPERATOR, "./set.sh");
        assert!(warnings(&result).contains(key), "{text}: {result:#}");
        git_reset(&house);
    }
}

fn git_reset(house: &House) {
    fs::write(house.path("workspace/.git/config"), "[core]\n\tbare = false\n").unwrap();
}

#[test]
fn another_place_for_hooks_and_settings_is_told() {
    for trust in [OPERATOR, INTEGRATION] {
        for house in with_repository() {
            // Git then takes both from there, wherever it points.
            let result = house.exec(trust, "mkdir -p evil/hooks && echo ../evil > .git/commondir");
            assert!(warnings(&result).contains("commondir"), "{result:#}");
        }
    }
}

#[test]
fn a_repository_that_a_command_makes_with_hooks_is_told() {
    for trust in [OPERATOR, INTEGRATION] {
        for house in House::each() {
            house.script(
                "workspace/make.sh",
                "git init -q . && echo '#!/bin/sh' > .git/hooks/post-commit",
            );
            let result = house.exec(trust, "./make.sh");
            assert_eq!(result["exit_status"], 0, "{result:#}");
            assert!(warnings(&result).contains("post-commit"), "{result:#}");
        }
    }
}

#[test]
fn a_hook_behind_a_link_is_told() {
    let Some(house) = House::own() else { return };
    git(&house, "init -q -b main .");
    fs::remove_dir_all(house.path("workspace/.git/hooks")).unwrap();
    house.folder("workspace/elsewhere");
    symlink("../elsewhere", house.path("workspace/.git/hooks")).unwrap();
    house.refuses(OPERATOR, &["write elsewhere/post-commit", "write .git/hooks/post-commit"]);
    house.script(
        "workspace/make.sh",
        "rm .git/hooks && mkdir .git/hooks && echo > .git/hooks/post-commit",
    );
    let result = house.exec(OPERATOR, "./make.sh");
    assert!(warnings(&result).contains("post-commit"), "{result:#}");
}

#[test]
fn worktrees_work_and_their_repository_is_guarded() {
    for house in with_repository() {
        let added = house.exec(OPERATOR, "git worktree add -q tree");
        assert_eq!(added["exit_status"], 0, "{added:#}");
        let printed =
            house.prints(OPERATOR, "cd tree && git status --short && git log --format=%s");
        assert_eq!(printed.trim(), "first");
        // The same from the worktree as the workspace.
        let repository = house.path("repository");
        fs::rename(house.path("workspace"), &repository).unwrap();
        let mut add = house.outside("git");
        let output = add
            .current_dir(&repository)
            .args(["worktree", "add", "-q", "../workspace", "-b", "other"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        house.prints(
            OPERATOR,
            "echo x > x && git add x && git -c user.name=me -c user.email=m@e commit -qm more",
        );
        let guarded = [
            "write ../repository/.git/hooks/post-commit".to_owned(),
            "plant ../repository/.git/hooks post-commit".to_owned(),
            "write .git".to_owned(),
            "rename .git away".to_owned(),
            "write ../repository/.git/worktrees/workspace/commondir".to_owned(),
            "write ../repository/.git/worktrees/workspace/gitdir".to_owned(),
        ];
        for trust in [OPERATOR, INTEGRATION] {
            house.refuses(trust, &guarded);
        }
        house.refuses(INTEGRATION, &["write ../repository/.git/config"]);
    }
}

#[test]
fn hooks_of_a_submodule_and_of_another_root_are_guarded() {
    for house in House::each() {
        let nested = "workspace/.git/modules/part/modules/deep/er";
        for name in ["workspace/.git/modules/part", nested, "second/.git"] {
            house.folder(&format!("{name}/objects"));
            house.file(&format!("{name}/HEAD"), "ref: refs/heads/main\n");
            house.file(&format!("{name}/config"), "");
        }
        house.folder("workspace/.git/objects");
        house.file("workspace/.git/HEAD", "ref: refs/heads/main\n");
        let roots = format!("roots = [\"{}\"]\n", house.name("second"));
        let house = house.with_policy(&roots);
        for trust in [OPERATOR, INTEGRATION] {
            house.refuses(
                trust,
                &[
                    "plant .git/modules/part/hooks post-checkout",
                    "plant .git/modules/part/modules/deep/er/hooks post-checkout",
                    "plant ../second/.git/hooks post-commit",
                ],
            );
            house.allows(
                trust,
                &["write .git/modules/part/FETCH_HEAD", "write ../second/.git/FETCH_HEAD"],
            );
        }
        house.refuses(
            INTEGRATION,
            &["write .git/modules/part/config", "write ../second/.git/config"],
        );
    }
}

#[test]
fn hooks_are_guarded_where_the_configuration_says_that_they_are() {
    for house in House::each() {
        house.folder("workspace/.git/objects");
        house.file("workspace/.git/HEAD", "ref: refs/heads/main\n");
        house.file("workspace/.git/config", "[core]\n\thooksPath = .husky\n");
        house.file("home/.gitconfig", "[CORE] hookspath = ../workspace/githooks\n");
        house.file("workspace/.husky/pre-commit", "true");
        house.file("workspace/githooks/pre-push", "true");
        for trust in [OPERATOR, INTEGRATION] {
            let attempts =
                ["plant .husky post-commit", "write .husky/pre-commit", "write githooks/pre-push"];
            house.refuses(trust, &attempts);
        }
    }
}

#[test]
fn a_start_up_file_that_was_not_there_is_told() {
    for house in House::each() {
        let house = house.with_home("workspace");
        house.script("workspace/make.sh", "touch .zshenv mine .legwork.toml");
        let result = house.exec(OPERATOR, "./make.sh");
        let told = warnings(&result);
        assert!(told.contains(".zshenv") && told.contains(".legwork.toml"), "{result:#}");
        assert!(!told.contains("mine"), "{result:#}");
        house.refuses(OPERATOR, &["write .zshenv", "write .legwork.toml"]);
    }
}

#[test]
fn a_link_in_the_place_of_a_repository_does_not_weaken_the_next_sandbox() {
    for target in ["/proc/self/fd", "/dev/pts", "/etc", "/nowhere"] {
        let Some(house) = House::own() else { return };
        let house = house.with_policy("[sandbox]\nrequired = true\n");
        house.prints(OPERATOR, &format!("ln -s {target} .git"));
        house.prints(OPERATOR, "true");
        house.prints(INTEGRATION, "true");
    }
}

#[test]
fn a_link_in_the_place_of_a_repository_opens_nothing() {
    for house in House::each() {
        for trust in [OPERATOR, INTEGRATION] {
            let outside = house.name("outside");
            house.prints(trust, &format!("ln -sfn {outside} .git"));
            house.refuses(trust, &[format!("write {outside}/new"), "write .git/new".to_owned()]);
            fs::remove_file(house.path("workspace/.git")).unwrap();
        }
        // The same for a cache, where the home is the workspace.
        let house = house.with_home("workspace");
        let outside = house.name("outside");
        house.script(
            "workspace/make.sh",
            &format!(
                "mkdir -p .cargo && ln -sfn {outside} .cargo/registry; ln -sfn {outside} .npm; true"
            ),
        );
        house.prints(OPERATOR, "./make.sh");
        house.refuses(OPERATOR, &[format!("write {outside}/new")]);
    }
}
