//! Links that sign in to the page: a person at the terminal sees one when the server starts, and
//! `legwork serve link` asks for another by a socket in the state folder, which no sandboxed
//! command can reach. Nothing that a file or a log keeps has one.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
};

use data_encoding::BASE32_NOPAD;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::{HttpFace, opener};
use crate::{
    arguments::ServeLinkOptions,
    platform::{UnixListener, listen_in, make_folder, read_socket},
    render::{complain, print, say, tell_person},
};

/// The folder of the sockets, in the state folder.
const FOLDER: &str = "serving";

/// The end of the names of sockets.
const SUFFIX: &str = ".sock";

/// The mode of the folder.
const OWNER_ONLY: u32 = 0o700;

/// The answer of a server to a request for a link.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Given {
    Link(String),
    Problem(String),
}

/// The socket at which links are asked for.
pub(super) struct LinkDesk {
    /// The address of the page; none where no browser connects.
    base: Option<String>,
    /// Whoever asks, where there are sockets.
    asked: Option<UnixListener>,
    /// The socket.
    path: PathBuf,
}

impl Drop for LinkDesk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl LinkDesk {
    /// Opens it, and shows a link to the person who started the server. `base` is the address of
    /// the page, for the name that this machine has for itself.
    pub(super) fn open(
        face: &HttpFace,
        base: impl FnOnce(Option<String>) -> Option<String>,
        in_browser: bool,
        state: &Path,
    ) -> Self {
        let folder = state.join(FOLDER);
        let _ = make_folder(&folder, OWNER_ONLY);
        let base = base(own_name().ok());
        let socket = random().map(|random| format!("{random}{SUFFIX}")).unwrap_or_default();
        let asked = listen_in(&folder, &socket).ok();
        let desk = Self { base, asked, path: folder.join(socket) };
        if let Ok(link) = desk.link(face) {
            let shown = tell_person(&format!("Sign in once, within 10 minutes: {link}"));
            if !shown && desk.asked.is_some() {
                say("`legwork serve link` prints a link that signs in to the page");
            }
            if in_browser {
                opener::open(&link, state);
            }
        }
        desk
    }

    /// A link that signs in to the page once.
    fn link(&self, face: &HttpFace) -> Result<String, String> {
        let Some(base) = &self.base else {
            return Err(
                "no browser connects to a unix socket: name the host of the proxy in front of it \
                 with --behind-proxy --allow-host HOST"
                    .into(),
            );
        };
        Ok(format!("{base}/#code={}", face.sign_ins.new_code()?))
    }

    /// Gives links to those who ask; never ends.
    pub(super) async fn attend(&self, face: &HttpFace) {
        let Some(asked) = &self.asked else { return std::future::pending().await };
        while let Ok((mut stream, _)) = asked.accept().await {
            let given = self.link(face).map_or_else(Given::Problem, Given::Link);
            let text = serde_json::to_string(&given).unwrap_or_default();
            // So few bytes are taken at once; who does not read them is not waited for.
            let _ = stream.write_all(text.as_bytes()).await;
        }
        std::future::pending::<()>().await;
    }
}

/// A name for the pages of this server below `.localhost`, which browsers look for on this machine
/// and nowhere else. Nobody can guess it, and each start has another one: the page's origin is one
/// that no other program has ever had, also none that took the port while no server ran, and no
/// service worker and no cached script of one is in it.
fn own_name() -> Result<String, String> {
    Ok(format!("lw-{}.localhost", random()?))
}

/// A name that nobody can guess.
fn random() -> Result<String, String> {
    let mut bits = [0; 10];
    getrandom::fill(&mut bits).map_err(|error| error.to_string())?;
    Ok(BASE32_NOPAD.encode(&bits).to_lowercase())
}

/// Prints a link of each server that works on a state folder.
pub(crate) fn print_link(options: &ServeLinkOptions) -> ExitCode {
    let state = match options.state.path() {
        Ok(path) => path,
        Err(error) => return complain(&error.to_string()),
    };
    let folder = state.join(FOLDER);
    let (mut links, mut problems) = (String::new(), Vec::new());
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(SUFFIX) {
            continue;
        }
        match read_socket(&folder, &name) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(Given::Link(link)) => links.push_str(&format!("{link}\n")),
                Ok(Given::Problem(problem)) => problems.push(problem),
                Err(_) => problems.push("a server is ending".into()),
            },
            // Its server was killed.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(entry.path());
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    if links.is_empty() {
        let none = || format!("no server runs on {}: start `legwork serve`", state.display());
        return complain(&problems.pop().unwrap_or_else(none));
    }
    for problem in problems {
        say(&format!("legwork: {problem}"));
    }
    say("Sign in once, within 10 minutes:");
    print(&links)
}
