//! The list of functions that the linker puts first (`crates/cli/order.ld`) does not go stale
//! unnoticed: it has no effect on what the program does, only on how much of it is in memory.

use std::{collections::BTreeSet, fs, process::Command};

use regex::Regex;

use crate::common::text;

/// Of functions that are moved or renamed the list knows the old names.
const KNOWN_MIN_PERCENT: usize = 60;

#[test]
fn most_functions_that_the_linker_puts_first_are_still_there() {
    let order = concat!(env!("CARGO_MANIFEST_DIR"), "/order.ld");
    let order = fs::read_to_string(order).unwrap();
    let listed: Vec<&str> = order
        .lines()
        .filter_map(|line| line.trim().strip_prefix("*(.text*.")?.strip_suffix(')'))
        // Functions of ours without parameters of types: those have one name in every build.
        .filter(|name| name.starts_with("_RNv") && name.contains("legwork"))
        .filter(|name| !name.ends_with('*'))
        .collect();
    assert!(listed.len() > 500, "only {} functions of ours are listed", listed.len());
    let names = Command::new("nm").arg(env!("CARGO_BIN_EXE_legwork")).output().unwrap();
    // As in the list: without what differs from one build to the next.
    let hash = Regex::new("Cs[0-9A-Za-z]+_").unwrap();
    let names = text(&names.stdout);
    let names = hash.replace_all(&names, "Cs*_");
    let there: BTreeSet<&str> = names.split_whitespace().collect();
    if !there.iter().any(|name| name.starts_with("_RNv") && name.contains("legwork")) {
        skips::skip("RUSTFLAGS has replaced what .cargo/config.toml says of names");
        return;
    }
    let known = listed.iter().filter(|name| there.contains(*name)).count();
    assert!(
        known * 100 >= listed.len() * KNOWN_MIN_PERCENT,
        "of {} functions {known} are left: run `just order`",
        listed.len()
    );
}
