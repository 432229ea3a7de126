//! A warden serves one command after another: nothing of one ever reaches who asked about another.

use serde_json::json;

use crate::{common::Scratch, mcp::Wire};

#[test]
fn progress_is_of_the_call_that_asked_for_it() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let mut told = 0;
    for number in 0..250 {
        let own = format!("run-{number}-");
        let input = json!({ "cmd": format!("echo {own}"), "login": false });
        let params = json!({ "name": "ExecCommand", "arguments": input,
                             "_meta": { "progressToken": number } });
        let call = wire.send("tools/call", &params);
        loop {
            let message = wire.read();
            if message["id"] == call {
                let text = message["result"]["content"][0]["text"].as_str().unwrap();
                assert!(text.contains(&own), "{text}");
                break;
            }
            let about = &message["params"];
            let line = about["message"].as_str().unwrap();
            // What was told of a call just before its answer may leave just after it.
            let token = about["progressToken"].as_u64().unwrap();
            assert_eq!(line, format!("run-{token}-"), "{message}");
            told += 1;
        }
    }
    assert!(told > 0, "a command that prints and ends is seen to print, now and then");
}
