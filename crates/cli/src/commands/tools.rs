//! `legwork tools`: what the registry has.

use std::{fmt::Write, process::ExitCode};

use legwork::Registry;

use crate::{
    arguments::ToolsOptions,
    render::{print, print_json},
};

pub(crate) fn tools(options: &ToolsOptions) -> ExitCode {
    let registry = Registry::builtin();
    if options.json {
        return print_json(&registry.definitions().collect::<Vec<_>>());
    }
    let mut text = String::new();
    for tool in registry.definitions() {
        let shown = if options.instructions { tool.instructions } else { tool.description };
        let _ = if options.instructions {
            writeln!(text, "# {}\n\n{shown}\n", tool.name)
        } else {
            writeln!(text, "{} ({})\n  {shown}", tool.name, tool.family)
        };
    }
    print(&text)
}
