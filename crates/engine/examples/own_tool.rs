//! A tool of your own beside those of the library, on the same engine.
//!
//! Run it with `cargo run --example own_tool`.

use legwork::{
    Caller, Definition, Engine, Options, Registry, Tool, ToolError,
    tools::{Success, ToolFuture},
};
use serde_json::{Value, json};

/// Counts the files below a folder, with a command that the engine runs and records.
struct CountFiles {
    definition: Definition,
}

impl CountFiles {
    fn new() -> Self {
        Self {
            definition: Definition {
                tags: &["files", "count"],
                instructions: "Use CountFiles to learn how big a project is.",
                read_only: true,
                ..Definition::new(
                    "CountFiles",
                    "Counts the files below a folder of the workspace.",
                    json!({
                        "type": "object",
                        "properties": {
                            "folder": { "type": "string", "description": "The folder. Default: all." }
                        },
                        "additionalProperties": false,
                    }),
                )
            },
        }
    }
}

impl Tool for CountFiles {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn call<'a>(&'a self, engine: &'a Engine, input: Value, caller: &'a Caller) -> ToolFuture<'a> {
        Box::pin(async move {
            let folder = input.get("folder").and_then(Value::as_str).unwrap_or(".");
            // Through the same gate and into the same ledger as all others, for the caller who
            // asked.
            let find = engine.program("find").args([folder, "-type", "f", "-printf", "x"]);
            let found = find.tool("CountFiles").caller(caller).await?;
            if !found.success() {
                return Err(ToolError::invalid_field("CountFiles", "folder", found.stderr()));
            }
            let files = found.stdout().len();
            Ok(Success::new(json!({ "files": files })).summary(format!("{files} files")))
        })
    }

    fn render(&self, result: &Value) -> String {
        let files = result.get("files").unwrap_or(&Value::Null);
        format!("Files: {files}")
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    legwork::init();
    let scratch = tempfile::tempdir()?;
    let workspace = scratch.path().join("workspace");
    std::fs::create_dir(&workspace)?;
    for name in ["a", "b", "c"] {
        std::fs::write(workspace.join(name), name)?;
    }
    let options = Options::new(&workspace).state(scratch.path().join("state"));
    let mut registry = Registry::builtin();
    registry.add(CountFiles::new()); // the one line
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = Engine::open_with(options, registry)?;
        let caller = Caller::operator("example");
        for input in [json!({}), json!({ "folder": "nowhere" })] {
            let answer = engine.call("CountFiles", input, &caller).await;
            println!("{}", answer.receipt());
        }
        Ok(())
    })
}
