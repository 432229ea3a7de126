//! `legwork completions`: what a shell needs to complete our words, made from the words themselves.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::{
    arguments::{Arguments, CompletionsOptions},
    render::print,
};

pub(crate) fn completions(options: &CompletionsOptions) -> ExitCode {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script))
}
