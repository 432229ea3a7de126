//! What lets `cargo test` pass wherever the clone lies, whoever runs it and however it is started.
//!
//! - [`stage`]: the programs under test are copied to where every user and every sandbox finds
//!   them.
//! - [`clock`]: a wall clock that a test moves.
//! - [`signals`]: what the run was started to ignore is not ignored by what the tests start.
//! - [`windows`]: the same tests for the program that is built for Windows, under wine.
//! - [`watch`]: each test has a time limit, and fails if it leaves a process behind.

pub mod clock;
mod signals;
pub mod stage;
mod tests;
pub mod watch;
pub mod windows;
