//! ACP, which stands between an editor and its agent: not on Windows yet.

use std::process::ExitCode;

use crate::{arguments::AcpOptions, render::complain};

/// Refuses.
#[expect(clippy::unused_async, reason = "the signature is that of Unix")]
pub(crate) async fn serve(_options: AcpOptions) -> ExitCode {
    complain("`legwork acp` is not there on Windows yet")
}
