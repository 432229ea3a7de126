//! `legwork tools`: lists the tools, or prints their definitions for a protocol or a model
//! provider.

use std::{fmt::Write, process::ExitCode};

use legwork::{Registry, tools::export::export};

use crate::{
    arguments::{ToolsOptions, chosen},
    render::{complain, print, print_json},
};

pub(crate) fn tools(options: &ToolsOptions) -> ExitCode {
    let registry = match chosen(&options.tools) {
        Ok(registry) => registry,
        Err(problem) => return complain(&problem),
    };
    if let Some(format) = options.format {
        return print_json(&export(registry.definitions(), format.format()));
    }
    if options.json {
        return print_json(&registry.definitions().collect::<Vec<_>>());
    }
    print(&for_people(&registry, options.instructions))
}

fn for_people(registry: &Registry, instructions: bool) -> String {
    let mut text = String::new();
    for tool in registry.definitions() {
        let _ = if instructions {
            writeln!(text, "# {}\n\n{}\n", tool.name, tool.instructions)
        } else {
            writeln!(text, "{} ({})\n  {}", tool.name, tool.family, tool.description)
        };
    }
    text
}
