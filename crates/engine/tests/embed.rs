//! A host program: `legwork::init` first, then a command through the library.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use legwork::{Caller, Engine, Options};
use serde_json::json;

fn main() {
    legwork::init();
    let workspace = tempfile::tempdir().unwrap();
    let mut options = Options::new(workspace.path());
    options.state = Some(workspace.path().join("state"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::open(options).unwrap();
        let input = json!({ "cmd": "echo from a host program", "login": false });
        let answer = engine.call("ExecCommand", input, &Caller::operator("host")).await;
        assert_eq!(answer.receipt(), "Process exited with code 0\n\nstdout:\nfrom a host program");
        // The receipt can be rebuilt from the envelope alone.
        let tool = engine.registry().get("ExecCommand").unwrap();
        assert_eq!(tool.render(answer.envelope().result.as_ref().unwrap()), answer.receipt());
        assert_eq!(engine.tasks(true, 10).await.unwrap().len(), 1);
    });
    println!("test embed ... ok");
}
