//! Reads the first message of a TLS client, as far as the server's name in it.
//!
//! The message may be cut into several records, and a record into several packets; nothing is said
//! before all of it is there.

use super::host::HostName;

/// Longest first message that is read.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// The type of a record that carries the handshake.
const HANDSHAKE: u8 = 22;

/// The type of the first message of a client.
const CLIENT_HELLO: u8 = 1;

/// The extension that names the server.
const SERVER_NAME: u16 = 0;

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHello {
    /// Too few to say.
    Incomplete,
    /// Something other than TLS.
    NotTls,
    /// TLS, for the server of this name, if it names one.
    Named(Option<HostName>),
    /// TLS that cannot be read.
    Malformed,
}

/// Reads the first bytes that a client sends.
pub fn read_hello(bytes: &[u8]) -> ClientHello {
    match bytes.first() {
        None => return ClientHello::Incomplete,
        Some(&HANDSHAKE) => {}
        Some(_) => return ClientHello::NotTls,
    }
    let message = match message(bytes) {
        Ok(Some(message)) => message,
        Ok(None) if bytes.len() <= HELLO_BYTES_MAX => return ClientHello::Incomplete,
        _ => return ClientHello::Malformed,
    };
    server_name(&message).unwrap_or(ClientHello::Malformed)
}

struct Malformed;

/// The first message, put together from its records; none if it is not all there.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut message = Vec::new();
    loop {
        if let Some(([kind, a, b, c], rest)) = message.split_first_chunk::<4>() {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if *kind != CLIENT_HELLO || length > HELLO_BYTES_MAX {
                return Err(Malformed);
            }
            if let Some(body) = rest.get(..length) {
                return Ok(Some(body.to_vec()));
            }
        }
        let Some(([kind, major, _, high, low], rest)) = bytes.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let length = usize::from(*high) << 8 | usize::from(*low);
        if *kind != HANDSHAKE || *major != 3 || length == 0 {
            return Err(Malformed);
        }
        let Some((record, next)) = rest.split_at_checked(length) else { return Ok(None) };
        message.extend_from_slice(record);
        bytes = next;
    }
}

/// The message with the name in it; none if it cannot be read.
fn server_name(message: &[u8]) -> Option<ClientHello> {
    let mut rest = message.get(34..)?;
    take(&mut rest, 1)?;
    take(&mut rest, 2)?;
    take(&mut rest, 1)?;
    if rest.is_empty() {
        return Some(ClientHello::Named(None));
    }
    let mut extensions = take(&mut rest, 2)?;
    let mut found = None;
    while !extensions.is_empty() {
        let (kind, after) = extensions.split_first_chunk::<2>()?;
        extensions = after;
        let content = take(&mut extensions, 2)?;
        if u16::from_be_bytes(*kind) == SERVER_NAME && found.replace(one_name(content)?).is_some() {
            // Two names, and nobody knows which the server takes.
            return None;
        }
    }
    Some(ClientHello::Named(found))
}

/// The only name in the extension.
fn one_name(mut content: &[u8]) -> Option<HostName> {
    let mut names = take(&mut content, 2)?;
    let (kind, after) = names.split_first()?;
    names = after;
    let name = take(&mut names, 2)?;
    if *kind != 0 || !names.is_empty() || !content.is_empty() {
        return None;
    }
    HostName::parse(std::str::from_utf8(name).ok()?).ok()
}

/// Takes what stands behind a length of one or two bytes.
fn take<'b>(bytes: &mut &'b [u8], length_bytes: usize) -> Option<&'b [u8]> {
    let (length, rest) = bytes.split_at_checked(length_bytes)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(bytes: &[u8], length_bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[4 - length_bytes..], bytes].concat()
    }

    fn extension(name: &str) -> Vec<u8> {
        let entry = [&[0][..], &sized(name.as_bytes(), 2)].concat();
        [&[0, 0][..], &sized(&sized(&entry, 2), 2)].concat()
    }

    /// A message with these extensions, in records of this size.
    fn hello(extensions: &[u8], record_bytes: usize) -> Vec<u8> {
        let ahead = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
        let body = [ahead, sized(extensions, 2)].concat();
        let message = [&[CLIENT_HELLO][..], &sized(&body, 3)].concat();
        message
            .chunks(record_bytes)
            .flat_map(|piece| [&[HANDSHAKE, 3, 1][..], &sized(piece, 2)].concat())
            .collect()
    }

    fn named(name: &str) -> ClientHello {
        ClientHello::Named(Some(HostName::parse(name).unwrap()))
    }

    #[test]
    fn the_name_is_found_however_the_message_is_cut() {
        let other = [&[0, 43][..], &sized(&[2, 3, 4], 2)].concat();
        let extensions = [other, extension("Index.test")].concat();
        for record_bytes in [1, 7, 50, 1000] {
            let whole = hello(&extensions, record_bytes);
            assert_eq!(read_hello(&whole), named("index.test"), "{record_bytes}");
            for cut in 1..whole.len() {
                assert_eq!(
                    read_hello(&whole[..cut]),
                    ClientHello::Incomplete,
                    "{record_bytes} {cut}"
                );
            }
        }
    }

    #[test]
    fn what_has_no_name_or_two_or_makes_no_sense_is_told_apart() {
        assert_eq!(read_hello(b""), ClientHello::Incomplete);
        assert_eq!(read_hello(b"SSH-2.0-x\r\n"), ClientHello::NotTls);
        assert_eq!(read_hello(&hello(&[], 1000)), ClientHello::Named(None));
        let twice = [extension("a.test"), extension("b.test")].concat();
        assert_eq!(read_hello(&hello(&twice, 1000)), ClientHello::Malformed);
        assert_eq!(read_hello(&hello(&extension("a b"), 1000)), ClientHello::Malformed);
        assert_eq!(read_hello(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), ClientHello::Malformed);
        assert_eq!(read_hello(&[22, 9, 1, 0, 1, 1]), ClientHello::Malformed);
        let endless = vec![[22, 3, 1, 0, 1, 0]; 100].concat();
        assert_eq!(read_hello(&endless), ClientHello::Malformed);
    }
}
