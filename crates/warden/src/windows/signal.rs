//! Signals by their usual numbers, as the protocol has them. Only two of them can be sent here.

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal(i32);

impl Signal {
    /// The console or the terminal has gone.
    pub const HUP: Self = Self(1);
    /// Ctrl-C.
    pub const INT: Self = Self(2);
    /// Ctrl-\\ on a terminal.
    pub const QUIT: Self = Self(3);
    /// The end of everything.
    pub const KILL: Self = Self(9);
    /// For programs to give a meaning to.
    pub const USR1: Self = Self(10);
    /// The same.
    pub const USR2: Self = Self(12);
    /// The polite end: Ctrl-C, here.
    pub const TERM: Self = Self(15);

    /// Its number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}
