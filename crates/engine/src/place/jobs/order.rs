//! What a post is told that a scheduler starts for one task. It travels as a line of text, in a
//! batch script or in a file: never on a command line.

use std::{fs, io, path::Path, path::PathBuf};

use data_encoding::BASE64;
use legwork_warden::protocol::Spec;
use serde::{Deserialize, Serialize};

use crate::place::far::message::{FarWanted, Opening, pack, unpack};

/// What the line begins with.
const MARK: &str = "#legwork-order:";

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

    /// Reads the order out of a file that has it in its last line.
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(file)?;
        let line = text.lines().rev().find_map(|line| line.strip_prefix(MARK));
        let line = line.ok_or_else(|| io::Error::other("there is no order in that file"))?;
        let bytes = BASE64.decode(line.trim_end().as_bytes()).map_err(io::Error::other)?;
        unpack(&bytes)
    }
}
