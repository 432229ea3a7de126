//! This program as a file, and where its user's sockets are.

use std::{
    env,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;

/// This program, also where its file was replaced.
pub(crate) fn own_program() -> io::Result<File> {
    File::open("/proc/self/exe")
}

/// Reads the program and makes its hash.
pub(crate) fn hash() -> io::Result<String> {
    let (mut program, mut hash) = (own_program()?, Sha256::new());
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match program.read(&mut bytes)? {
            0 => break,
            read => hash.update(bytes.get(..read).unwrap_or_default()),
        }
    }
    Ok(HEXLOWER.encode(&hash.finalize()))
}

/// The folder for sockets of this user, if there is one.
pub(crate) fn runtime_folder() -> Option<PathBuf> {
    env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
}
