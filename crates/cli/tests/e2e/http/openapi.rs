//! The `OpenAPI` document is one.

use std::process::Command;

use super::{Serving, token};
use crate::{
    common::Scratch,
    python_client::{environment, python_is_here},
};

#[test]
fn the_document_passes_a_validator() {
    if !python_is_here() {
        return;
    }
    let scratch = Scratch::new();
    let viewer = token(&scratch, "viewer", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let reply = serving.get("/api/v1/openapi.json", &viewer);
    let path = scratch.file("openapi.json");
    std::fs::write(&path, reply.good().to_string()).unwrap();
    let python = environment("openapi", &["openapi-spec-validator==0.9.0"]);
    let checked = Command::new(python).args(["-m", "openapi_spec_validator", &path]).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{checked:?}");
}
