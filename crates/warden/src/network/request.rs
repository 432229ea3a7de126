//! Reads the head of an HTTP request to a proxy, strictly.
//!
//! Whatever two programs could read in two ways is refused: bare line ends, folded lines, two
//! lengths, a host beside the one in the target. What is passed on is written anew, for one request
//! on a connection of its own.

use super::host::{BadHost, HostName};

/// Longest head that is read.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Most headers of a request.
const HEADERS_MAX: usize = 128;

/// Headers that are about one connection, and not passed on.
const OF_CONNECTION: [&str; 9] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// Why a head is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It is no request that a proxy takes.
    #[error("{0}")]
    Malformed(&'static str),
    /// It is too long.
    #[error("the head of the request is over {HEAD_BYTES_MAX} bytes")]
    TooLong,
    /// Its host is none.
    #[error("{0}")]
    Host(#[from] BadHost),
}

/// What comes after the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpBody {
    /// This many bytes, and nothing else.
    Bytes(u64),
    /// Pieces, each with its length.
    Chunked,
}

/// What a request asks of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestKind {
    /// A connection, whatever goes through it.
    Tunnel,
    /// One request.
    Forward {
        /// The head that is passed on.
        head: Vec<u8>,
        /// What follows it.
        body: HttpBody,
    },
}

/// A request to a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
    /// What it asks for.
    pub kind: RequestKind,
    /// How long the head is.
    pub head_bytes: usize,
}

/// Reads a request; none if its head is not all there.
pub fn read_request(bytes: &[u8]) -> Result<Option<HttpRequest>, HeadError> {
    let bounded = bytes.get(..HEAD_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = bounded.windows(4).position(|it| it == b"\r\n\r\n") else {
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(HeadError::TooLong);
        }
        // A line that ends in another way never becomes one that ends like this.
        return match bounded.iter().position(|byte| *byte == b'\n') {
            Some(at) if at == 0 || bounded.get(at - 1) != Some(&b'\r') => {
                Err(HeadError::Malformed("a line ends with a bare line feed"))
            }
            _ => Ok(None),
        };
    };
    let head = bounded.get(..end).unwrap_or_default();
    if head.iter().any(|byte| *byte == 0 || *byte >= 0x80) {
        return Err(HeadError::Malformed("the head has bytes that are no text"));
    }
    let text = std::str::from_utf8(head).unwrap_or_default();
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let headers = lines.map(header).collect::<Result<Vec<_>, _>>()?;
    if headers.len() > HEADERS_MAX {
        return Err(HeadError::TooLong);
    }
    let (host, port, kind) = request(line, &headers)?;
    Ok(Some(HttpRequest { host, port, kind, head_bytes: end + 4 }))
}

fn header(line: &str) -> Result<(&str, &str), HeadError> {
    let malformed = HeadError::Malformed("a header is malformed");
    let (name, value) = line.split_once(':').ok_or(malformed.clone())?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_text = |byte: u8| byte == b'\t' || (b' '..0x7f).contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) || !value.bytes().all(is_text) {
        return Err(malformed);
    }
    Ok((name, value.trim_matches([' ', '\t'])))
}

fn request(
    line: &str,
    headers: &[(&str, &str)],
) -> Result<(HostName, u16, RequestKind), HeadError> {
    let malformed = HeadError::Malformed;
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return Err(malformed("this is no HTTP request"));
    };
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return Err(malformed("this is no version of HTTP that is spoken here"));
    }
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(malformed("this is no method of HTTP"));
    }
    let body = body(headers)?;
    if method == "CONNECT" {
        if body != HttpBody::Bytes(0) {
            return Err(malformed("a CONNECT has no body"));
        }
        let (host, port) = authority(target, None)?;
        return Ok((host, port, RequestKind::Tunnel));
    }
    let rest = target
        .get(..7)
        .filter(|scheme| scheme.eq_ignore_ascii_case("http://"))
        .and_then(|_| target.get(7..))
        .ok_or(malformed(
            "this is a proxy: name the host by CONNECT, or by http:// and its name",
        ))?;
    let (named, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = authority(named, Some(80))?;
    let mut said = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let (first, second) = (said.next(), said.next());
    if second.is_some() {
        return Err(malformed("there are two headers with a host"));
    }
    if let Some((_, said)) = first
        && authority(said, Some(80))? != (host.clone(), port)
    {
        return Err(malformed("the header names another host than the target"));
    }
    if !path.bytes().all(|byte| (b'!'..0x7f).contains(&byte) && byte != b'#') {
        return Err(malformed("the path is malformed"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let head = passed_on(&format!("{method} {path} {version}"), named, headers);
    Ok((host, port, RequestKind::Forward { head, body }))
}

/// What follows the head, by the only header that says so.
fn body(headers: &[(&str, &str)]) -> Result<HttpBody, HeadError> {
    let all = |wanted: &str| -> Vec<&str> {
        let found = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| *value).collect()
    };
    match (&all("content-length")[..], &all("transfer-encoding")[..]) {
        ([], []) => Ok(HttpBody::Bytes(0)),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(HttpBody::Chunked),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let problem = HeadError::Malformed("the length is malformed");
            length.parse().map(HttpBody::Bytes).map_err(|_| problem)
        }
        _ => Err(HeadError::Malformed("the length of the body is not clear")),
    }
}

/// A host and its port; a port that is absent is the usual one, where there is one.
fn authority(text: &str, usual: Option<u16>) -> Result<(HostName, u16), HeadError> {
    let no_port = || HeadError::Malformed("the port is missing or malformed");
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None => usual.ok_or_else(no_port)?,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port > 0).ok_or_else(no_port)?
        }
        Some(_) => return Err(no_port()),
    };
    Ok((HostName::parse(host)?, port))
}

/// The head that a server gets: of this one request, on a connection of its own.
fn passed_on(line: &str, host: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut dropped: Vec<String> = OF_CONNECTION.map(str::to_owned).to_vec();
    for (_, value) in headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        dropped.extend(value.split(',').map(|name| name.trim().to_ascii_lowercase()));
    }
    // These say how long the body is: whatever a client calls them, they stay.
    let stays = |name: &str| matches!(name, "content-length" | "transfer-encoding");
    let mut head = format!("{line}\r\nHost: {host}\r\n");
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        if stays(&lower) || !dropped.contains(&lower) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str("Connection: close\r\n\r\n");
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<HttpRequest>, HeadError> {
        read_request(text.as_bytes())
    }

    fn refused(text: &str) -> bool {
        matches!(read(text), Err(HeadError::Malformed(_) | HeadError::Host(_)))
    }

    #[test]
    fn a_tunnel_names_a_host_and_a_port() {
        let request =
            read("CONNECT Index.test:443 HTTP/1.1\r\nHost: x\r\n\r\nmore").unwrap().unwrap();
        assert_eq!((request.host.to_string().as_str(), request.port), ("index.test", 443));
        assert_eq!((request.kind, request.head_bytes), (RequestKind::Tunnel, 44));
        let six = read("CONNECT [::1]:8 HTTP/1.1\r\n\r\n").unwrap().unwrap();
        assert_eq!((six.host.to_string().as_str(), six.port), ("::1", 8));
        assert_eq!(read("CONNECT index.test:443 HTTP/1.1\r\nHost: x\r\n"), Ok(None));
        assert_eq!(read("CONN"), Ok(None));
        for text in [
            "CONNECT index.test HTTP/1.1\r\n\r\n",
            "CONNECT index.test:0 HTTP/1.1\r\n\r\n",
            "CONNECT index.test:99999 HTTP/1.1\r\n\r\n",
            "CONNECT index.test:+80 HTTP/1.1\r\n\r\n",
            "CONNECT user@index.test:80 HTTP/1.1\r\n\r\n",
            "CONNECT 2130706433:80 HTTP/1.1\r\n\r\n",
            "CONNECT index.test:80 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            "CONNECT index.test:80 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "CONNECT  index.test:80 HTTP/1.1\r\n\r\n",
            "CONNECT index.test:80 HTTP/2.0\r\n\r\n",
            "CONNECT index.test:80 HTTP/1.1\n\n",
        ] {
            assert!(refused(text), "{text:?}: {:?}", read(text));
        }
    }

    #[test]
    fn a_request_is_written_anew_for_one_connection() {
        let text = "GET http://Index.test/a?b HTTP/1.1\r\nHost: index.test\r\nAccept: */*\r\n\
            Connection: x-secret, close\r\nX-Secret: 1\r\nProxy-Connection: keep-alive\r\n\r\n";
        let request = read(text).unwrap().unwrap();
        assert_eq!((request.host.to_string().as_str(), request.port), ("index.test", 80));
        let RequestKind::Forward { head, body } = request.kind else { panic!("a tunnel") };
        let expected =
            "GET /a?b HTTP/1.1\r\nHost: Index.test\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!((std::str::from_utf8(&head).unwrap(), body), (expected, HttpBody::Bytes(0)));
        let query = read("GET http://index.test?b HTTP/1.0\r\n\r\n").unwrap().unwrap();
        let RequestKind::Forward { head, .. } = query.kind else { panic!("a tunnel") };
        assert!(head.starts_with(b"GET /?b HTTP/1.0\r\nHost: index.test\r\n"), "{head:?}");
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let with = |headers: &str| format!("POST http://index.test/ HTTP/1.1\r\n{headers}\r\n\r\n");
        let length = |text: &str| match read(&with(text)).unwrap().unwrap().kind {
            RequestKind::Forward { body, .. } => body,
            RequestKind::Tunnel => panic!("a tunnel"),
        };
        assert_eq!(length("Content-Length: 5"), HttpBody::Bytes(5));
        assert_eq!(length("Transfer-Encoding: chunked"), HttpBody::Chunked);
        for headers in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: +5",
            "Content-Length: 5, 5",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "X: a\r\n folded",
            "X: a\nContent-Length: 5",
            "X\u{0}: a",
            "Host: other.test",
            "Host: index.test\r\nHost: index.test",
            "no colon",
            ": empty",
        ] {
            assert!(refused(&with(headers)), "{headers:?}: {:?}", read(&with(headers)));
        }
        for line in [
            "GET / HTTP/1.1",
            "GET https://index.test/ HTTP/1.1",
            "GET http://user@index.test/ HTTP/1.1",
            "GET http://index.test/a b HTTP/1.1",
            "GET http://index.test/a#b HTTP/1.1",
            "GET http:///a HTTP/1.1",
            "GET http://index.test\\@evil.test/ HTTP/1.1",
            "get http://index.test/ HTTP/1.1",
            "GET http://index.test/",
        ] {
            assert!(refused(&format!("{line}\r\n\r\n")), "{line}");
        }
        let long = format!("GET http://index.test/ HTTP/1.1\r\nX: {}", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(read(&long), Err(HeadError::TooLong));
    }

    #[test]
    fn a_header_that_says_how_long_the_body_is_cannot_be_dropped() {
        let text = "POST http://index.test/ HTTP/1.1\r\nContent-Length: 3\r\n\
            Connection: content-length\r\n\r\n";
        let RequestKind::Forward { head, .. } = read(text).unwrap().unwrap().kind else {
            panic!("a tunnel")
        };
        assert!(String::from_utf8(head).unwrap().contains("Content-Length: 3\r\n"));
    }
}
