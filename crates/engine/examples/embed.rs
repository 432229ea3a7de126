//! An agent's host program: every tool by name, with JSON in and JSON out.
//!
//! Run it with `cargo run --example embed`.

use legwork::{
    Caller, Engine, Options,
    gate::{Mode, Policy},
};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First of all: commands are started by a second start of this very program.
    legwork::init();
    let scratch = tempfile::tempdir()?;
    let mut options = Options::new(scratch.path());
    options.state = Some(scratch.path().join("state"));
    options.policy = Policy::from_layers(&[], Mode::Open)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = Engine::open(options)?;
        let caller = Caller::operator("example");
        for (tool, input) in [
            ("ExecCommand", json!({ "cmd": "echo hi; exit 3", "login": false })),
            ("execute_command", json!({ "command": "echo", "args": ["$HOME", "is not expanded"] })),
            ("run_shell_command", json!({ "command": "echo one | tr a-z A-Z" })),
        ] {
            // What a model reads, and what a program reads.
            let answer = engine.call(tool, input, &caller).await;
            println!("--- {tool}\n{}", answer.receipt());
            println!("{}", serde_json::to_string(answer.envelope())?);
        }
        Ok(())
    })
}
