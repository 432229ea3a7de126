//! Trees in which folders come, go and change places.

use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

fn finder(top: &Path, lives_on: bool) -> Finder {
    let hidden = top.join("state");
    let mut finder = Finder::new(vec![top.to_owned()], hidden, TrustedNames::shipped());
    finder.looks = if lives_on { LOOKS_WITHOUT } else { LOOKS_WITHOUT + 1 };
    if !lives_on {
        finder.watches_max = 0;
    }
    finder
}

fn repository(folder: &Path) {
    fs::create_dir_all(folder.join("objects/aa")).unwrap();
    fs::create_dir_all(folder.join("hooks")).unwrap();
    fs::write(folder.join("HEAD"), "ref: refs/heads/main\n").unwrap();
}

/// What is found, without the folder of the test.
fn names(finder: &mut Finder, top: &Path) -> Vec<String> {
    let found = finder.look();
    let all = found.repositories.iter().chain(&found.pointers).chain(&found.trusted);
    all.map(|path| path.strip_prefix(top).unwrap().display().to_string()).collect()
}

/// Does something in a folder, once with one who lives on and once without watches; what both
/// find has to be the same.
fn each(work: impl Fn(&Path, &mut dyn FnMut(&[&str]))) {
    for lives_on in [true, false] {
        let scratch = TempDir::new().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let mut finder = finder(&top, lives_on);
        work(&top, &mut |expected| {
            assert_eq!(names(&mut finder, &top), expected, "lives on: {lives_on}");
        });
    }
}

#[test]
fn repositories_are_found_by_whatever_name_and_wherever_they_come_from() {
    each(|top, finds| {
        repository(&top.join("a/.git"));
        repository(&top.join("bare.git"));
        repository(&top.join("state/.git"));
        finds(&["bare.git", "a/.git"]);
        // Submodules, one inside the other, with a slash in the name.
        repository(&top.join("a/.git/modules/x/y"));
        repository(&top.join("a/.git/modules/x/y/modules/z"));
        // What is in there is not looked for by git.
        repository(&top.join("a/.git/objects/bb"));
        finds(&["bare.git", "a/.git", "a/.git/modules/x/y", "a/.git/modules/x/y/modules/z"]);
        fs::remove_dir_all(top.join("a/.git/modules")).unwrap();
        fs::remove_dir_all(top.join("a/.git/objects/bb")).unwrap();
        fs::rename(top.join("a/.git"), top.join("a/moved")).unwrap();
        finds(&["bare.git", "a/moved"]);
        repository(&top.join("a/.git"));
        finds(&["bare.git", "a/.git", "a/moved"]);
        // A folder above it moves, and another one takes its place.
        fs::rename(top.join("a"), top.join("b")).unwrap();
        fs::create_dir(top.join("a")).unwrap();
        finds(&["bare.git", "b/.git", "b/moved"]);
        fs::rename(top.join("b/moved"), top.join("a/.git")).unwrap();
        finds(&["bare.git", "a/.git", "b/.git"]);
        // Away and back, with something new inside.
        fs::rename(top.join("b"), top.join("c")).unwrap();
        repository(&top.join("c/new"));
        fs::rename(top.join("c"), top.join("b")).unwrap();
        finds(&["bare.git", "a/.git", "b/.git", "b/new"]);
        fs::remove_dir_all(top.join("b")).unwrap();
        fs::remove_file(top.join("bare.git/HEAD")).unwrap();
        finds(&["a/.git"]);
        fs::create_dir_all(top.join("b/sub")).unwrap();
        finds(&["a/.git"]);
        // Entries that come one after the other.
        fs::create_dir_all(top.join("b/sub/.git/objects")).unwrap();
        finds(&["a/.git"]);
        fs::write(top.join("b/sub/.git/HEAD"), "").unwrap();
        finds(&["a/.git", "b/sub/.git"]);
    });
}

#[test]
fn another_folder_in_the_place_of_a_top_is_searched_and_watched() {
    for lives_on in [true, false] {
        let scratch = TempDir::new().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (top, old, new) = (base.join("top"), base.join("old"), base.join("new"));
        repository(&top.join("a/.git"));
        fs::create_dir(top.join("sub")).unwrap();
        repository(&new.join("sub/.git"));
        fs::write(new.join(".mcp.json"), "{}").unwrap();
        let mut finder = finder(&top, lives_on);
        assert_eq!(names(&mut finder, &top), ["a/.git"]);
        fs::rename(&top, &old).unwrap();
        fs::rename(&new, &top).unwrap();
        assert!(!finder.is_quiet());
        assert_eq!(names(&mut finder, &top), ["sub/.git", ".mcp.json"]);
        // The one that is elsewhere is of no interest any longer.
        repository(&old.join("b/.git"));
        repository(&top.join("c/.git"));
        assert_eq!(names(&mut finder, &top), ["c/.git", "sub/.git", ".mcp.json"]);
        fs::rename(&top, &new).unwrap();
        assert_eq!(names(&mut finder, &top), [""; 0]);
        fs::rename(&old, &top).unwrap();
        assert_eq!(names(&mut finder, &top), ["a/.git", "b/.git"]);
    }
}

#[test]
fn what_leads_to_a_repository_and_what_tools_trust_is_found() {
    each(|top, finds| {
        fs::create_dir_all(top.join("p/.vscode")).unwrap();
        fs::create_dir_all(top.join("p/.husky/_")).unwrap();
        finds(&[]);
        fs::write(top.join("p/.git"), "gitdir: elsewhere\n").unwrap();
        symlink("elsewhere", top.join(".git")).unwrap();
        for name in ["p/.mcp.json", "p/.vscode/tasks.json", "p/.vscode/other.json", "tasks.json"] {
            fs::write(top.join(name), "{}").unwrap();
        }
        fs::write(top.join("p/.husky/pre-commit"), "").unwrap();
        finds(&[".git", "p/.git", "p/.mcp.json", "p/.husky/pre-commit", "p/.vscode/tasks.json"]);
        fs::remove_file(top.join("p/.husky/pre-commit")).unwrap();
        fs::remove_file(top.join(".git")).unwrap();
        finds(&["p/.git", "p/.mcp.json", "p/.vscode/tasks.json"]);
    });
}

#[test]
fn a_repository_among_the_files_of_another_is_told_from_a_submodule_and_a_neighbour() {
    let scratch = TempDir::new().unwrap();
    let top = scratch.path().canonicalize().unwrap();
    for name in [
        "a/.git",
        "a/.git/modules/b",
        "a/target/x/.git",
        "a/bare.git",
        "ab/.git",
        "bare.git",
        "tree/y/.git",
        "not/y/.git",
    ] {
        repository(&top.join(name));
    }
    for (name, text) in [
        ("a/b/.git", "gitdir: ../.git/modules/b\n"),
        ("tree/.git", "gitdir: ../bare.git\n"),
        ("not/.git", "gitdir: ../nowhere\n"),
        (".git", "x\n"),
    ] {
        fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
        fs::write(top.join(name), text).unwrap();
    }
    let found = finder(&top, true).look();
    assert_eq!((found.repositories.len(), found.pointers.len()), (8, 4));
    let free = found.free_standing().map(|path| path.strip_prefix(&top).unwrap());
    let free: BTreeSet<_> = free.map(|path| path.to_str().unwrap()).collect();
    let expected = ["a/.git", "a/.git/modules/b", "ab/.git", "bare.git", "not/y/.git"];
    assert_eq!(free, BTreeSet::from(expected));
}

#[test]
fn a_folder_with_the_files_of_a_repository_hides_none_of_its_folders() {
    each(|top, finds| {
        for name in ["logs/p/.git", "objects/p/.git", "refs/lfs/.git"] {
            repository(&top.join(name));
        }
        let all = ["logs/p/.git", "objects/p/.git", "refs/lfs/.git"];
        finds(&all);
        fs::write(top.join("HEAD"), "").unwrap();
        fs::create_dir_all(top.join("objects")).unwrap();
        repository(&top.join("logs/q/.git"));
        let more = ["", "logs/p/.git", "logs/q/.git", "objects/p/.git", "refs/lfs/.git"];
        finds(&more);
        repository(&top.join("objects/db/.git"));
        repository(&top.join("x.git"));
        repository(&top.join("x.git/lfs/.git"));
        finds(&[
            "",
            "x.git",
            "logs/p/.git",
            "logs/q/.git",
            "objects/db/.git",
            "objects/p/.git",
            "refs/lfs/.git",
            "x.git/lfs/.git",
        ]);
    });
}

#[test]
fn a_folder_that_could_not_be_read_is_read_when_it_can_be() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root can read everything");
        return;
    }
    each(|top, finds| {
        repository(&top.join("a/.git"));
        let rights = |mode| fs::set_permissions(top.join("a"), fs::Permissions::from_mode(mode));
        rights(0o000).unwrap();
        finds(&[]);
        rights(0o311).unwrap();
        finds(&[]);
        let unlisted = finder(top, false).look().unlisted.clone();
        assert_eq!(unlisted, [top.join("a")]);
        rights(0o700).unwrap();
        finds(&["a/.git"]);
    });
}

#[test]
fn a_large_tree_is_read_once_and_then_only_what_changed() {
    let scratch = TempDir::new().unwrap();
    let top = scratch.path().canonicalize().unwrap();
    for number in 0..3000 {
        let folder = top.join(format!("{}/{number}", number % 30));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..10 {
            fs::write(folder.join(file.to_string()), "").unwrap();
        }
    }
    let mut finder = finder(&top, true);
    assert_eq!(names(&mut finder, &top), [""; 0]);
    assert_eq!(finder.reads, 3031);
    assert!(finder.is_quiet() && finder.unwatched.is_empty());
    let same = finder.look();
    assert!(Arc::ptr_eq(&same, &finder.look()) && finder.reads == 3031);
    // Files that are of no interest cost nothing but being told.
    fs::write(top.join("7/7/more"), "").unwrap();
    assert!(!finder.is_quiet());
    assert!(Arc::ptr_eq(&same, &finder.look()) && finder.reads == 3031);
    repository(&top.join("7/7/.git"));
    assert_eq!(names(&mut finder, &top), ["7/7/.git"]);
    // The folder that it is in, itself, and that of its hooks.
    assert_eq!(finder.reads, 3034);
}

#[test]
fn a_folder_beyond_the_bound_is_named_and_the_nearest_are_not_beyond() {
    each(|top, _| {
        for number in 0..40 {
            fs::create_dir_all(top.join(format!("a/deep/deeper/{number}"))).unwrap();
        }
        repository(&top.join("z/.git"));
        let mut finder = finder(top, true);
        finder.folders_max = 20;
        assert_eq!(names(&mut finder, top), ["z/.git"]);
        let found = finder.look();
        assert!(found.beyond.as_ref().unwrap().starts_with(top.join("a/deep/deeper")));
        // What comes later is found where it is nearer.
        repository(&top.join("y/.git"));
        assert_eq!(names(&mut finder, top), ["y/.git", "z/.git"]);
        fs::remove_dir_all(top.join("a")).unwrap();
        assert_eq!(finder.look().beyond, None);
    });
}

#[test]
fn a_folder_in_the_place_of_another_is_told_from_it_though_they_are_of_one_time() {
    let scratch = TempDir::new().unwrap();
    let top = scratch.path().canonicalize().unwrap();
    fs::create_dir_all(top.join("a/b")).unwrap();
    repository(&top.join("z/b/.git"));
    let mut finder = finder(&top, false);
    assert_eq!(names(&mut finder, &top), ["z/b/.git"]);
    for (one, other) in [("a", "c"), ("z", "a"), ("c", "z")] {
        fs::rename(top.join(one), top.join(other)).unwrap();
    }
    // Clocks of filesystems may be coarse enough for that.
    for (path, folder) in finder.folders.iter_mut().filter(|(path, _)| **path != top) {
        folder.state.changed = FolderState::of(path).changed;
    }
    assert_eq!(names(&mut finder, &top), ["a/b/.git"]);
}

#[test]
fn more_changes_than_are_told_are_found_all_the_same() {
    let scratch = TempDir::new().unwrap();
    let top = scratch.path().canonicalize().unwrap();
    let mut finder = finder(&top, true);
    assert_eq!(names(&mut finder, &top), [""; 0]);
    // The kernel keeps 16384 by default.
    let told = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    for number in 0..told.trim().parse::<u32>().unwrap().min(100_000) {
        fs::write(top.join(number.to_string()), "").unwrap();
    }
    repository(&top.join("late/.git"));
    assert_eq!(names(&mut finder, &top), ["late/.git"]);
}

#[test]
fn who_looks_again_and_again_watches() {
    let scratch = TempDir::new().unwrap();
    let top = scratch.path().canonicalize().unwrap();
    fs::create_dir_all(top.join("a/b")).unwrap();
    let mut finder = Finder::new(vec![top.clone()], top.join("state"), TrustedNames::shipped());
    for _ in 1..LOOKS_WITHOUT {
        assert_eq!(names(&mut finder, &top), [""; 0]);
        assert_eq!(finder.by_watch.len(), 0);
    }
    assert!(!finder.is_quiet());
    assert_eq!(names(&mut finder, &top), [""; 0]);
    assert_eq!((finder.by_watch.len(), finder.unwatched.len()), (3, 0));
}

#[test]
fn a_tree_is_watched_no_further_than_there_are_watches() {
    each(|top, _| {
        fs::create_dir_all(top.join("a/b/c/d")).unwrap();
        let mut finder = finder(top, true);
        finder.watches_max = 2;
        assert_eq!(names(&mut finder, top), [""; 0]);
        assert_eq!((finder.by_watch.len(), finder.unwatched.len()), (2, 3));
        repository(&top.join("a/b/c/d/.git"));
        assert_eq!(names(&mut finder, top), ["a/b/c/d/.git"]);
    });
}
