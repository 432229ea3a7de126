//! Opens the sign-in link in the user's browser, for `serve --open`.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    platform::{OPENER, make_private, private_file},
    render::say,
};

/// The file in the state folder that leads to the link.
const FILE: &str = "sign-in.html";

/// Opens a link. The command line of a browser can be read by every user of this machine, and the
/// link is as good as a password: so a file that only its owner can read leads there.
pub(super) fn open(link: &str, state: &Path) {
    let begun = write(link, state).and_then(|file| {
        let (program, arguments) = OPENER.split_first().ok_or(io::ErrorKind::NotFound)?;
        Command::new(program)
            .args(arguments)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    });
    match begun {
        // Somebody has to wait for it; a browser may take as long as it likes.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => {
            say(&format!("legwork: cannot open a browser ({}): {error}", OPENER.join(" ")));
        }
    }
}

fn write(link: &str, state: &Path) -> io::Result<PathBuf> {
    let path = state.join(FILE);
    let _ = std::fs::remove_file(&path);
    let mut file = private_file().create_new(true).open(&path)?;
    make_private(&path)?;
    // A link has no character that HTML reads as its own.
    let text = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; url={link}\">\
         <title>Legwork</title><a href=\"{link}\">Sign in to Legwork</a>\n"
    );
    file.write_all(text.as_bytes())?;
    Ok(path)
}
