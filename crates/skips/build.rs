//! Gives the package a folder (`OUT_DIR`) that all test programs of one target folder share.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
