//! What a post is told that a scheduler starts for one task. It travels as a line of text, in a
//! batch script, in a file or on stdin: never on a command line.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use data_encoding::BASE64;
use legwork_warden::protocol::Spec;
use serde::{Deserialize, Serialize};

use crate::place::far::message::{FarWanted, Opening, pack, unpack};

/// What the line begins with.
const MARK: &str = "#legwork-order:";

/// What names stdin where a file would be.
pub(crate) const STDIN: &str = "-";

/// Most bytes of such a line: Slurm takes scripts of four megabytes.
const LINE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A command to be started where a scheduler finds room for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobOrder {
    /// Who asks, and for which folder.
    pub opening: Opening,
    pub wanted: FarWanted,
    pub spec: Spec,
    pub workdir: PathBuf,
    /// What it is to read, where that is there already.
    pub given: Option<Vec<u8>>,
    /// What it inherits.
    pub environment: Vec<(String, String)>,
    /// The layers of the sandbox that were known to be missing when it was judged.
    pub missing: Vec<String>,
    /// The file that its program was when it was judged.
    pub real_program: Option<PathBuf>,
}

impl JobOrder {
    /// The order as a line.
    pub(crate) fn to_line(&self) -> io::Result<String> {
        let line = format!("{MARK}{}", BASE64.encode(&pack(self)?));
        if line.len() > LINE_BYTES_MAX {
            let problem = "the command and its environment are too long for a job";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        Ok(line)
    }

    /// Reads the order out of a text that has it in its last line, and keeps the text.
    pub(crate) fn read(from: &Path) -> io::Result<(Self, String)> {
        let text = if from == Path::new(STDIN) { of_stdin()? } else { fs::read_to_string(from)? };
        let line = text.lines().rev().find_map(|line| line.strip_prefix(MARK));
        let line = line.ok_or_else(|| io::Error::other("there is no order in that file"))?;
        let bytes = BASE64.decode(line.trim_end().as_bytes()).map_err(io::Error::other)?;
        Ok((unpack(&bytes)?, text))
    }
}

/// All that stdin has: cut off, it would not end with a line.
fn of_stdin() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    if text.ends_with('\n') { Ok(text) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
