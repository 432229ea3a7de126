//! Addresses that are no part of the open network: this machine's, its neighbours', and those that
//! stand for another one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is special.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// This machine.
    Loopback,
    /// This machine, as others reach it.
    Own,
    /// The network that this machine is on; also where clouds tell a machine its credentials.
    LinkLocal,
    /// A network that is not part of the open one.
    Private,
    /// Nobody's, everybody's, or one that carries another address.
    Reserved,
}

impl AddressKind {
    /// What it is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "a loopback address",
            Self::Own => "an address of this machine",
            Self::LinkLocal => "a link-local address",
            Self::Private => "a private address",
            Self::Reserved => "a reserved address",
        }
    }
}

/// The address itself, where it is written as another kind.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Why an address is special; none if it is one of the open network.
pub fn special(address: IpAddr) -> Option<AddressKind> {
    match canonical(address) {
        IpAddr::V4(four) => special_four(four),
        IpAddr::V6(six) => special_six(six),
    }
}

fn special_four(address: Ipv4Addr) -> Option<AddressKind> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => Some(AddressKind::Loopback),
        (169, 254, _) => Some(AddressKind::LinkLocal),
        // Where Azure tells a machine its credentials.
        _ if address == Ipv4Addr::new(168, 63, 129, 16) => Some(AddressKind::LinkLocal),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => {
            Some(AddressKind::Private)
        }
        (0 | 224..=255, ..)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18..=19, _)
        | (198, 51, 100)
        | (203, 0, 113) => Some(AddressKind::Reserved),
        _ => None,
    }
}

fn special_six(address: Ipv6Addr) -> Option<AddressKind> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(AddressKind::Loopback),
        [0xfe80..=0xfebf, ..] => Some(AddressKind::LinkLocal),
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => Some(AddressKind::Private),
        // Nothing, what carries a version 4 address (also by translation and by tunnels),
        // documentation, benchmarks, groups.
        [0 | 0x2002 | 0x3fff | 0x5f00 | 0xff00..=0xffff, ..]
        | [0x64, 0xff9b, ..]
        | [0x100, 0, 0, 0, ..]
        | [0x2001, 0..=0x1ff | 0xdb8, ..] => Some(AddressKind::Reserved),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_around_here_are_known_in_every_form() {
        use AddressKind::{LinkLocal, Loopback, Private, Reserved};
        for (text, kind) in [
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:7f00:1", Loopback),
            ("169.254.169.254", LinkLocal),
            ("168.63.129.16", LinkLocal),
            ("::ffff:169.254.169.254", LinkLocal),
            ("fe80::1", LinkLocal),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("100.64.0.1", Private),
            ("fd00:ec2::254", Private),
            ("0.0.0.0", Reserved),
            ("0.1.2.3", Reserved),
            ("255.255.255.255", Reserved),
            ("224.0.0.1", Reserved),
            ("::", Reserved),
            ("::127.0.0.1", Reserved),
            ("64:ff9b::7f00:1", Reserved),
            ("2002:7f00:1::", Reserved),
            ("2001::1", Reserved),
            ("ff02::1", Reserved),
        ] {
            assert_eq!(special(text.parse().unwrap()), Some(kind), "{text}");
        }
        for text in ["93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:2800:220:1::1"] {
            assert_eq!(special(text.parse().unwrap()), None, "{text}");
        }
    }
}
