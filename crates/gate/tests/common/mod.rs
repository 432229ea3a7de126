//! What the tests share: checks in the manners of the tool that is named.

use legwork_gate::{Checked, Circumstances, Manners, Policy, Script};

/// Checks a command as the library's tool of this name would have it judged.
pub fn check(
    policy: &Policy,
    tool: &str,
    script: Script<'_>,
    circumstances: Circumstances<'_>,
) -> Checked {
    let strict = tool == "run_shell_command";
    let manners = Manners { asks_by_default: strict, refuses_substitution: strict };
    legwork_gate::check(policy, tool, script, Circumstances { manners, ..circumstances })
}
