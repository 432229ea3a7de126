//! What a command printed: artifacts (all of it), previews (the part that fits a budget of tokens).

mod artifact;
mod clean;
mod complete;
mod cursor;
pub mod keys;
mod look;
mod mask;
mod order;
mod preview;
mod reading;
mod screen;
mod tail;
mod tokens;
mod view;

pub use artifact::{Artifact, SmallOutput, TaskFolder, TaskOutput, replay, replay_between};
pub use complete::Complete;
pub use cursor::{Cursor, Fresh, Selection};
pub use look::TextLook;
pub use mask::{Mask, MaskedStream, MaskedWriter, SharedMask};
pub use preview::{Preview, previews};
pub use reading::{ArtifactReading, Piece};
pub use screen::Screen;
pub use tail::OutputTail;
pub use tokens::estimate;
