//! `top`: not on Windows yet.

use std::process::ExitCode;

use crate::{arguments::TopOptions, render::complain};

/// Refuses.
#[expect(clippy::unused_async, reason = "the signature is that of Unix")]
pub(crate) async fn top(_options: TopOptions) -> ExitCode {
    complain("`legwork top` is not there on Windows yet: use `legwork ps --watch`")
}
