//! The sandbox: what a command inside cannot do, what it can, and what is said where a protection
//! is missing.
//!
//! Attempts are made by a program (`fixture probe`), as root and as an ordinary user, at every
//! level.

mod checkouts;
pub mod degraded;
mod ending;
mod everyday;
pub mod house;
mod left_running;
mod let_out;
mod once;
mod refused;
mod repository;
mod state;
mod streams;
