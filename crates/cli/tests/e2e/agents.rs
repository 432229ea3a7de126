//! Real coding agents after `legwork setup`, driven by a model that follows a script: `just
//! agents`.

use std::process::Command;

use crate::common::{program, text};

#[test]
fn real_agents_use_our_tools_after_setup_and_have_their_files_back_after_remove() {
    let Some(modules) = std::env::var_os("LEGWORK_AGENTS") else {
        skips::skip("LEGWORK_AGENTS does not name a folder with the agents: `just agents`");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/drive.py");
    let output = Command::new("python3").arg(script).arg(program()).arg(modules).output().unwrap();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}", text(&output.stderr));
}
