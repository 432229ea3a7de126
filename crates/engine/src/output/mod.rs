//! What a command printed: artifacts (all of it), previews (the part that fits a budget of tokens).

mod artifact;
mod clean;
mod preview;
mod tokens;

pub use artifact::{Artifact, SmallOutput, TaskFolder, TaskOutput, replay};
pub use preview::{Preview, previews};
pub use tokens::estimate;
