//! A wall clock that a test moves while a program runs.

use std::{fs, process::Command};

use crate::common::{Scratch, has_program, text};

/// The clock of the programs that are given it; time since boot goes on as ever.
pub struct MovableClock {
    path: String,
    library: String,
}

impl MovableClock {
    /// One that is right; none where `faketime` is not here.
    pub fn new(scratch: &Scratch) -> Option<Self> {
        if !has_program("faketime", &["-f", "+1d", "true"]) {
            return None;
        }
        // The program `faketime` only says where its library is.
        let preload =
            Command::new("faketime").args(["-f", "+0", "printenv", "LD_PRELOAD"]).output().unwrap();
        let library = text(&preload.stdout).trim().to_owned();
        let clock = Self { path: scratch.file("clock"), library };
        clock.set("+0");
        Some(clock)
    }

    /// Moves it, to so much before or after the right time.
    pub fn set(&self, offset: &str) {
        let half = format!("{}.half", self.path);
        fs::write(&half, offset).unwrap();
        fs::rename(half, &self.path).unwrap();
    }

    /// Lets a program have it.
    pub fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command.env("FAKETIME_TIMESTAMP_FILE", &self.path).env("FAKETIME_NO_CACHE", "1");
    }
}
