//! Reads hosts: a name in its one spelling, or an address.
//!
//! Programs write one host in many ways: in capitals, with a dot at its end, an address as one
//! number, in octal or in hexadecimal. Names get one spelling; what is an address for some programs
//! and a name for others is refused.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::address::canonical;

/// Longest name, and longest part of one.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host that a command wants to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A name: lower case, without a dot at its end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// Why a text is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// It is neither a name nor an address.
    #[error("this is no name of a host")]
    Malformed,
    /// It is an address in a form that not all programs read alike.
    #[error("write the address as four decimal numbers")]
    OddAddress,
}

impl HostName {
    /// Reads a host as it stands in an address of the web: version 6 addresses in brackets.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        if let Some(inside) = text.strip_prefix('[') {
            let inside = inside.strip_suffix(']').ok_or(BadHost::Malformed)?;
            let address: Ipv6Addr = inside.parse().map_err(|_| BadHost::Malformed)?;
            return Ok(Self::of(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::of(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(BadHost::Malformed);
        }
        if !name.split('.').all(is_label) {
            return Err(BadHost::Malformed);
        }
        // What ends with a number is an address to whoever reads it the old way.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if last.bytes().all(|byte| byte.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(is_hex)
        {
            return Err(BadHost::OddAddress);
        }
        Ok(Self::Name(name))
    }

    /// An address in its plainest form.
    pub fn of(address: IpAddr) -> Self {
        Self::Address(canonical(address))
    }
}

fn is_label(label: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_part)
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(address) => address.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        let name = |text: &str| HostName::parse(text).unwrap().to_string();
        assert_eq!(name("Example.ORG"), "example.org");
        assert_eq!(name("example.org."), "example.org");
        assert_eq!(name("localhost"), "localhost");
        assert_eq!(name("xn--bcher-kva.example"), "xn--bcher-kva.example");
        assert_eq!(name("127.0.0.1"), "127.0.0.1");
        assert_eq!(name("[::ffff:127.0.0.1]"), "127.0.0.1");
        assert_eq!(name("[::1]"), "::1");
    }

    #[test]
    fn an_address_in_an_odd_form_is_refused() {
        for text in [
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "127.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "example.0x1",
            "0X7F.1",
            "127.0.0.1.",
        ] {
            assert_eq!(HostName::parse(text), Err(BadHost::OddAddress), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a b",
            "a@b",
            "a/b",
            "a%00b",
            "::1",
            "[::1",
            "[fe80::1%eth0]",
            "b\u{fc}cher.example",
            "a\\b",
            "a:80",
            "[127.0.0.1]",
            &"a".repeat(64),
        ] {
            assert_eq!(HostName::parse(text), Err(BadHost::Malformed), "{text}");
        }
    }
}
