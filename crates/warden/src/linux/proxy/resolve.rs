//! Resolves names, with a limit of time, as what they are: none gets a search domain added, which
//! would be another name than the one that was judged.

use std::{
    fs, io,
    net::{IpAddr, ToSocketAddrs},
    sync::mpsc,
    thread,
    time::Instant,
};

use super::STACK_BYTES;

/// Most addresses of a name that are looked at.
const ADDRESSES_MAX: usize = 16;

/// The machine's own list of names. The C library does not find those with a dot at their end.
const HOSTS: &str = "/etc/hosts";

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
        if let Some(listed) = fs::read_to_string(HOSTS).ok().and_then(|text| listed(&wanted, &text))
        {
            let _ = sender.send(Ok(listed));
            return;
        }
        // With a dot at its end it is looked up as it is.
        let found = (format!("{wanted}.").as_str(), 0).to_socket_addrs();
        let _ = sender.send(found.map(|found| found.map(|it| it.ip()).collect::<Vec<_>>()));
    })?;
    let left = until.saturating_duration_since(Instant::now());
    let found =
        receiver.recv_timeout(left).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    Ok(each_once(found?))
}

/// The addresses that a list of names has for one; none if it has none.
fn listed(name: &str, hosts: &str) -> Option<Vec<IpAddr>> {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let found = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(name)).then_some(address)
    });
    Some(found.collect()).filter(|found: &Vec<IpAddr>| !found.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_is_read_as_the_c_library_does() {
        let hosts = "# 10.0.0.9 index.test\n10.0.0.1\tindex.test other # files.test\n\
            10.0.0.2 Files.test.\n::1 index.test\nnonsense index.test\n";
        let found = |name: &str| {
            let found = listed(name, hosts)?;
            Some(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(found("index.test").as_deref(), Some("10.0.0.1 ::1"));
        assert_eq!(found("other").as_deref(), Some("10.0.0.1"));
        assert_eq!(found("files.test").as_deref(), Some("10.0.0.2"));
        assert_eq!(found("test"), None);
    }
}
