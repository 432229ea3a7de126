//! `legwork man`: writes a manual page for the program and for each verb, from the same words as
//! the help. Hidden, since it is for those who make packages.

use std::{fs, io, path::Path, process::ExitCode};

use clap::{Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use crate::{
    arguments::{Arguments, ManOptions},
    render::complain,
};

/// Paragraphs below the help that have a section of their own, by their first words.
const SECTIONS: [(&str, &str); 3] =
    [("Exit codes", "EXIT STATUS"), ("Environment:", "ENVIRONMENT"), ("Examples:", "EXAMPLES")];

/// Files that the program's own page names.
const FILES: [(&str, &str); 4] = [
    ("~/.config/legwork/config.toml", "Rules and settings of the user."),
    (".legwork.toml", "Rules of a project, in its folder: they only make more ask or deny."),
    ("/etc/legwork/config.toml", "Rules and settings of the machine."),
    ("~/.local/state/legwork/", "Records of tasks, questions and the audit log."),
];

pub(crate) fn man(options: &ManOptions) -> ExitCode {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let written =
        fs::create_dir_all(&options.folder).and_then(|()| write(&program, &options.folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("{}: {error}", options.folder.display())),
    }
}

/// Writes the page of a command, and those of its verbs.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write(verb, folder)?;
    }
    let version = command.get_version().unwrap_or_default();
    let page = Man::new(command.clone()).source(format!("legwork {version}")).manual("Legwork");
    // Without a date, so that equal programs write equal pages; nothing at all would let the
    // source stand in its place.
    let page = page.date(" ");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::default();
    if let Some(below) = command.get_after_help() {
        below_help(&mut rest, &below.to_string());
    }
    see_also(&mut rest, command);
    rest.to_writer(&mut text)?;
    fs::write(folder.join(page.get_filename()), text)
}

/// The text below the help, each kind of paragraph as a section.
fn below_help(page: &mut Roff, text: &str) {
    let mut section = "";
    for paragraph in text.split("\n\n") {
        let own = SECTIONS.iter().find(|(start, _)| paragraph.starts_with(start));
        let name = own.map_or("NOTES", |(_, name)| name);
        page.control(
            if name == section { "PP" } else { "SH" },
            Some(name).filter(|it| *it != section),
        );
        section = name;
        if name != "EXAMPLES" {
            let text = paragraph.strip_prefix("Environment: ").unwrap_or(paragraph);
            page.text([roman(text)]);
            continue;
        }
        // Examples are shown line by line.
        page.control("nf", []);
        for line in paragraph.lines().skip(1) {
            page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        page.control("fi", []);
    }
}

/// Where there is more.
fn see_also(page: &mut Roff, command: &Command) {
    let is_program = !command.get_bin_name().unwrap_or_default().contains(' ');
    if is_program {
        page.control("SH", ["FILES"]);
        for (path, what) in FILES {
            page.control("TP", []);
            page.text([roman(path)]);
            page.text([roman(what)]);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(if is_program {
        concat!("The pages in ", env!("CARGO_PKG_REPOSITORY"), "/tree/main/docs")
    } else {
        "legwork(1)"
    })]);
}
