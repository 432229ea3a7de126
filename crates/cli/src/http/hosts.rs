//! The names that clients may use for this server.
//!
//! A page of another site can make a browser connect to this machine under a name of its own (DNS
//! rebinding). The Host header then has that name, and the Origin header the name of the page's
//! site: whatever is not on the list is refused before anything else is looked at.

use axum::http::{HeaderMap, StatusCode, header, uri::Authority};

use super::{listen::Listen, refusal::HttpRefusal};

/// The names that are allowed, in lower case and without a port. Names below `.localhost` are, too:
/// no DNS has them (RFC 6761), and the page has such a name of its own.
#[derive(Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn new(listen: &Listen, more: &[String]) -> Self {
        let mut names: Vec<String> =
            ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        if let Listen::Tcp(address) = listen {
            names.extend(host(address));
        }
        names.extend(more.iter().map(|name| host(name).unwrap_or_else(|| name.to_lowercase())));
        Self(names)
    }

    /// Refuses a request that names another server, or that comes from another server's page.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let mut given = headers.get_all(header::HOST).iter();
        let named = match (given.next(), given.next()) {
            (Some(one), None) => one.to_str().ok().and_then(host),
            _ => None,
        };
        if !named.is_some_and(|named| self.has(&named)) {
            let message = "the Host header does not name this server";
            return Err(HttpRefusal::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message)
                .hint("start the server with --allow-host NAME to serve it under another name"));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if origins.all(|origin| origin.to_str().ok().is_some_and(|origin| self.is_ours(origin))) {
            return Ok(());
        }
        let message = "the Origin header names another site";
        Err(HttpRefusal::new(StatusCode::FORBIDDEN, "wrong_origin", message)
            .hint("start the server with --allow-host NAME if that site is its own"))
    }

    /// Whether an origin is a page of a server on the list.
    fn is_ours(&self, origin: &str) -> bool {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.and_then(host).is_some_and(|named| self.has(&named))
    }

    fn has(&self, name: &String) -> bool {
        name.ends_with(".localhost") || self.0.contains(name)
    }
}

/// The name in an authority, without its port.
fn host(authority: &str) -> Option<String> {
    let parsed: Authority = authority.parse().ok()?;
    // Whoever writes a user before the name wants it to be misread.
    if authority.contains('@') {
        return None;
    }
    Some(parsed.host().to_lowercase())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn allowed(host: &str, origin: Option<&'static str>) -> bool {
        let listen = Listen::Tcp("127.0.0.1:7117".into());
        let hosts = Hosts::new(&listen, &["legwork.example:443".into()]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        hosts.check(&headers).is_ok()
    }

    #[test]
    fn only_our_own_names_are_served() {
        for ours in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:7117",
            "[::1]:7117",
            "legwork.example",
            "lw.localhost:1",
        ] {
            assert!(allowed(ours, None), "{ours}");
        }
        let others =
            ["evil.example", "localhost.evil.example", "localhost@evil.example", "127.0.0.2", ""];
        for other in others {
            assert!(!allowed(other, None), "{other}");
        }
        assert!(allowed("localhost", Some("http://localhost:3000")));
        assert!(allowed("localhost", Some("https://legwork.example")));
        for other in ["null", "http://evil.example", "http://localhost@evil.example", "localhost"] {
            assert!(!allowed("localhost", Some(other)), "{other}");
        }
    }
}
