//! Where wardens run: everything that assumes a machine.

pub(crate) mod local;
pub(crate) mod owner;
pub(crate) mod paths;
pub(crate) mod pool;
pub(crate) mod roll_call;
pub(crate) mod sandbox;
