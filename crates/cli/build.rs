//! Lets the linker put the functions that every start needs side by side, which are a tenth of the
//! program: half of the memory of an idle server and a seventh of the time of `legwork run` are
//! pages that are mapped for a few functions each.
//!
//! Only where the names of functions are those of `order.ld`, which `.cargo/config.toml` takes care
//! of, on the processors it was found on, and only with linkers that can do it: elsewhere the
//! program is the same, and larger in memory.

use std::env;

const ORDER: &str = "order.ld";

/// Linkers without the word that `order.ld` needs.
const OTHER_LINKERS: [&str; 3] = ["gold", "mold", "wild"];

fn main() {
    println!("cargo::rerun-if-changed={ORDER}");
    let variable = |name| env::var(name).unwrap_or_default();
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let linker = format!("{} {flags}", variable("RUSTC_LINKER"));
    let is_fit = variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ARCH") == "x86_64"
        && variable("PROFILE") == "release"
        && flags.contains("symbol-mangling-version=v0")
        && !OTHER_LINKERS.iter().any(|other| linker.contains(other));
    if is_fit {
        let folder = variable("CARGO_MANIFEST_DIR");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{folder}/{ORDER}");
    }
}
