//! Prints the list of skipped tests. It is a macro since nothing else of ours runs at the end of
//! `cargo test`: doc tests come last, rustdoc keeps what they print, and expands macros itself.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use proc_macro::TokenStream;

/// Prints the tests that this run of `cargo test` has skipped, and keeps them as `skipped.tsv`
/// beside the built programs.
#[proc_macro]
pub fn print(_nothing: TokenStream) -> TokenStream {
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let lines = taken(&folder);
    let _ = std::io::stderr().write_all(listed(&lines).as_bytes());
    TokenStream::new()
}

/// The lines of this run. What others have left, which never came to their end, is removed.
fn taken(folder: &Path) -> String {
    let own = folder.join(format!("skipped-{}", run()));
    let lines = fs::read_to_string(&own).unwrap_or_default();
    // target/debug/build/skips-HASH/out
    if let Some(profile) = folder.ancestors().nth(3) {
        let _ = fs::write(profile.join("skipped.tsv"), &lines);
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !is_under_way(&entry.file_name().to_string_lossy()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    lines
}

/// Whether another `cargo test` still writes this file.
fn is_under_way(name: &str) -> bool {
    let run_of_it = name.strip_prefix("skipped-").unwrap_or_default();
    run_of_it != run().to_string() && Path::new("/proc").join(run_of_it).exists()
}

#[cfg(unix)]
fn run() -> u32 {
    std::os::unix::process::parent_id()
}

#[cfg(not(unix))]
fn run() -> u32 {
    0
}

/// The list, by reasons.
fn listed(lines: &str) -> String {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in lines.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(program), Some(test), Some(reason)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let tests = reasons.entry(reason).or_default();
        let test = format!("{program} {test}");
        if !tests.contains(&test) {
            tests.push(test);
        }
    }
    if reasons.is_empty() {
        return "\nNo test was skipped.\n".to_owned();
    }
    let mut text = "\nSkipped on this machine, all of it or a part:\n".to_owned();
    for (reason, mut tests) in reasons {
        tests.sort();
        let _ = writeln!(text, "  {reason}");
        for test in tests {
            let _ = writeln!(text, "    {test}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_listed_once_by_what_they_lack() {
        let lines = "e2e\tb::two\tno docker\ne2e\ta::one\tno docker\ne2e\ta::one\tno docker\n\
                     plain\tp\tonly root can: do that\n";
        assert_eq!(
            listed(lines),
            "\nSkipped on this machine, all of it or a part:\n  no docker\n    e2e a::one\n    e2e b::two\n  \
             only root can: do that\n    plain p\n"
        );
        assert_eq!(listed(""), "\nNo test was skipped.\n");
    }

    #[test]
    fn only_files_of_runs_that_are_over_are_removed() {
        assert!(is_under_way("skipped-1"));
        assert!(!is_under_way(&format!("skipped-{}", run())));
        assert!(!is_under_way("skipped-4194305"));
    }
}
