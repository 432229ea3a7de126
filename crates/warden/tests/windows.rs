//! A warden of Windows, by its protocol alone: run by `.ci/windows test`. On other systems there is
//! nothing to do here.
//!
//! It has a `main` of its own, since a warden is a second start of the same program.

#![cfg_attr(
    windows,
    expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")
)]

#[cfg(windows)]
#[path = "windows/engine.rs"]
mod engine;

fn main() {
    #[cfg(windows)]
    engine::main();
}
