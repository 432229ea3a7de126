//! A connection through the proxy on standard input and output, for programs that want a command
//! for that: `ssh`, and `git` by it.

use std::{
    env,
    ffi::OsStr,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpStream},
    process::exit,
    thread,
};

use crate::network::PROXY_PORT;

/// The private argument that makes a start of this program such a connection.
pub const CONNECT_ARGUMENT: &str = "__legwork-connect";

/// Longest answer of the proxy that is read.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Becomes a connection to a host and its port, and never returns, if this process was started for
/// that.
pub(in crate::linux) fn be_connector_if_asked() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(CONNECT_ARGUMENT)) {
        return;
    }
    let words: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    let connected = match &words[..] {
        [host, port] => connect(host, port),
        _ => Err(io::Error::other("name a host and a port")),
    };
    if let Err(error) = &connected {
        // Whoever has started this shows it to the user.
        let _ = writeln!(io::stderr(), "legwork: {error}");
    }
    exit(i32::from(connected.is_err()));
}

fn connect(host: &str, port: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    stream.write_all(format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 || answer.len() > ANSWER_BYTES_MAX {
            break;
        }
        answer.extend_from_slice(&byte);
    }
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().next().unwrap_or_default();
    let (_, status) = line.split_once(' ').unwrap_or_default();
    if !status.starts_with("200") {
        let mut why = String::new();
        let _ = stream.read_to_string(&mut why);
        let why = why.trim_start_matches("legwork: ").trim_end();
        return Err(io::Error::other(if why.is_empty() { status.to_owned() } else { why.into() }));
    }
    let mut outward = stream.try_clone()?;
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut outward);
        let _ = outward.shutdown(Shutdown::Write);
    });
    let mut inward = stream;
    let mut buffer = [0; 8 * 1024];
    let mut stdout = io::stdout().lock();
    loop {
        let read = inward.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        stdout.write_all(buffer.get(..read).unwrap_or_default())?;
        stdout.flush()?;
    }
}
