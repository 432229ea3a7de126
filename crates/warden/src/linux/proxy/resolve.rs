//! Resolves names, with a limit of time.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs},
    sync::mpsc,
    thread,
    time::Instant,
};

use super::STACK_BYTES;

/// Most addresses of a name that are looked at.
const ADDRESSES_MAX: usize = 16;

/// The addresses of a name, each once.
pub(super) fn resolve(name: &str, until: Instant) -> io::Result<Vec<IpAddr>> {
    #[cfg(debug_assertions)]
    if let Some(file) = std::env::var_os("LEGWORK_TEST_HOSTS") {
        return from_file(name, std::path::Path::new(&file));
    }
    let (sender, receiver) = mpsc::channel();
    let wanted = name.to_owned();
    // The C library cannot be interrupted: who does not wait for it leaves it to itself.
    thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let found = (wanted.as_str(), 0).to_socket_addrs();
        let _ = sender.send(found.map(|found| found.map(|it| it.ip()).collect::<Vec<_>>()));
    })?;
    let left = until.saturating_duration_since(Instant::now());
    let found =
        receiver.recv_timeout(left).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    Ok(each_once(found?))
}

fn each_once(found: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The same from a file of a test, with an address and a name in each line, and from nothing else.
#[cfg(debug_assertions)]
fn from_file(name: &str, file: &std::path::Path) -> io::Result<Vec<IpAddr>> {
    let text = std::fs::read_to_string(file)?;
    let entries = text.lines().filter_map(|line| {
        let (address, known) = line.split_once(' ')?;
        (known.trim() == name).then(|| address.parse().ok()).flatten()
    });
    let found = each_once(entries.collect());
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no such name in the test's file"));
    }
    Ok(found)
}
