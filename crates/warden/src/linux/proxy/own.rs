//! The addresses of this machine's interfaces.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// All of them, in the network namespace that the calling process is in.
pub(super) fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the C library fills the pointer, with a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: each entry is valid until the list is freed, and the last has no next.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an entry has an address of its own, or none.
        found.extend(unsafe { address(entry.ifa_addr) });
        next = entry.ifa_next;
    }
    // SAFETY: this list came from the C library, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The IP address in a socket's; none if it is of another family.
///
/// # Safety
///
/// It is null, or leads to an address as long as its family says.
unsafe fn address(socket: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: every address begins with its family.
    let family = i32::from(unsafe { socket.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: of this family it is such a structure, wherever that lies.
            let four = unsafe { socket.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { socket.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(six.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_one_of_them() {
        assert!(addresses().unwrap().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
