//! A host program that forgot `legwork::init` is told so, and its `main` is not run twice.

use legwork::{Caller, Engine, ErrorKind, Options};
use serde_json::json;

#[tokio::test]
async fn a_missing_init_is_a_clear_error() {
    let workspace = tempfile::tempdir().unwrap();
    let mut options = Options::new(workspace.path());
    options.state = Some(workspace.path().join("state"));
    let engine = Engine::open(options).unwrap();
    let answer =
        engine.call("ExecCommand", json!({ "cmd": "true" }), &Caller::operator("host")).await;
    let error = answer.error().unwrap();
    assert_eq!(error.kind, ErrorKind::ToolExecutionFailed);
    assert!(
        error.message.contains("call legwork::init() as the first statement of main"),
        "{}",
        error.message
    );
    assert!(engine.tasks(true, 10).await.unwrap().is_empty(), "no half task");
}
