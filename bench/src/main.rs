//! Measures legwork against a raw spawn of the same command, in the same run.
//!
//! Every figure is a ratio: the machine, its load and its kernel are in both halves. What is
//! compared is interleaved, round by round, so that a disturbance hits both. Medians are reported,
//! and minima, which are what the code costs when nothing disturbs it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark may panic, and its figures have few digits"
)]

mod client;
mod crowd;
mod gate;
mod history;
mod http;
mod login;
mod measure;
mod names;
mod places;
mod report;
mod stop;
mod svg;
mod trials;
mod workloads;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Parser;
use tempfile::TempDir;

use crate::report::Report;

/// Measures legwork against a raw spawn of the same command.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program to measure
    #[arg(long, default_value = "target/release/legwork")]
    legwork: PathBuf,
    /// Only workloads whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Fewer rounds: for a quick look
    #[arg(long)]
    quick: bool,
    /// Also write the figures as CSV to this file
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Also draw each workload into this folder
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() {
    // One workload is a host program: commands are started by a second start of this one.
    legwork::init();
    let arguments = Arguments::parse();
    let installed = install(&arguments.legwork);
    let legwork = installed.path().join("legwork");
    let mut report = Report::default();
    for (name, workload) in workloads::ALL {
        if arguments.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            eprintln!("{name} ...");
            report.begin(name);
            workload(&legwork, arguments.quick, &mut report);
        }
    }
    if let Some(path) = arguments.csv {
        fs::write(path, report.csv()).unwrap();
    }
    if let Some(folder) = arguments.svg {
        fs::create_dir_all(&folder).unwrap();
        for (name, _) in workloads::ALL {
            if let Some(drawing) = svg::draw(&report, name) {
                fs::write(folder.join(format!("{name}.svg")), drawing).unwrap();
            }
        }
    }
}

/// Copies a program as an installation does. What a linker has written lies in the kernel's memory
/// page by page, and takes longer to map than any installed program.
fn install(program: &Path) -> TempDir {
    let program = program.canonicalize().unwrap();
    let folder = TempDir::with_prefix_in("installed-", program.parent().unwrap()).unwrap();
    fs::copy(&program, folder.path().join("legwork")).unwrap();
    folder
}
