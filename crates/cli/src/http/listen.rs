//! The address that `serve` listens on, and whether it may.

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use axum::http::uri::Authority;
use tokio::net::{TcpListener, TcpStream, lookup_host};

use crate::platform::{UnixListener, UnixStream, listen_unix, notice_silence};

/// The addresses that `localhost`, and every name below it, stands for.
const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// How long a client may be silent before it is asked for, and then until it is given up.
const SILENCE: Duration = Duration::from_secs(30);

/// How often it is asked for meanwhile.
const ASKED: u32 = 3;

/// An address to listen on, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    /// `HOST:PORT`; port 0 is any free one.
    Tcp(String),
    /// `unix:PATH`.
    Unix(PathBuf),
}

impl Listen {
    /// The kind of connection, in the words of OpenTelemetry.
    pub(super) fn transport(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Unix(_) => "unix",
        }
    }
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write HOST:PORT, such as 127.0.0.1:7117, or unix:PATH";
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(EXPECTED) } else { Ok(Self::Unix(path.into())) };
        }
        let is_address = text
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if is_address { Ok(Self::Tcp(text.to_owned())) } else { Err(EXPECTED) }
    }
}

/// Tries to find a free port that is free on both loopback addresses.
const PAIRS: usize = 16;

/// A socket that is listened on.
pub(super) enum Listener {
    /// With the other address that `localhost` stands for: a browser tries both, so whoever
    /// listened there would be the page.
    Tcp(TcpListener, Option<TcpListener>),
    Unix(UnixListener, PathBuf),
}

/// A connection that was accepted.
pub(super) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum HttpPeer {
    /// Another address, or this machine's own.
    Address(IpAddr),
    /// A process of this machine, over a unix socket.
    Local,
}

impl fmt::Display for HttpPeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(formatter, "{address}"),
            Self::Local => formatter.write_str("the unix socket"),
        }
    }
}

impl Listener {
    /// Listens, if that exposes nothing: plain HTTP carries tokens in the clear, so an address that
    /// other machines reach needs TLS, here or in a proxy that is said to stand in front of it.
    pub(super) async fn open(listen: &Listen, protected: bool) -> Result<Self, String> {
        match listen {
            Listen::Unix(path) => Ok(Self::Unix(listen_unix(path)?, path.clone())),
            Listen::Tcp(address) => {
                let failed = |error: io::Error| format!("cannot listen on {address}: {error}");
                let found: Vec<SocketAddr> = lookup_host(address).await.map_err(failed)?.collect();
                let exposed = found.iter().find(|found| !found.ip().is_loopback());
                if let Some(exposed) = exposed.filter(|_| !protected) {
                    return Err(format!(
                        "refusing to listen on {exposed}: other machines reach it, and plain HTTP \
                         would show them the tokens; give --tls-cert and --tls-key, listen on \
                         127.0.0.1 or unix:PATH, or say --behind-proxy if only a proxy that speaks \
                         TLS reaches this address"
                    ));
                }
                for _ in 0..PAIRS {
                    let listener = TcpListener::bind(found.as_slice()).await.map_err(failed)?;
                    let own = listener.local_addr().map_err(failed)?;
                    let Some(other) = other_of(own) else { return Ok(Self::Tcp(listener, None)) };
                    match TcpListener::bind(other).await {
                        Ok(twin) => return Ok(Self::Tcp(listener, Some(twin))),
                        // Another free port may be free on both.
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                            if found.iter().all(|found| found.port() != 0) {
                                return Err(describe_taken(other));
                            }
                        }
                        // This machine has no such address, so nobody listens there.
                        Err(_) => return Ok(Self::Tcp(listener, None)),
                    }
                }
                Err(format!(
                    "cannot listen on {address}: no port is free on both loopback addresses"
                ))
            }
        }
    }

    /// The address for people: port 0 has become a number.
    pub(super) fn address(&self, scheme: &str) -> String {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().map_or_else(
                |_| format!("{scheme}://?"),
                |address| format!("{scheme}://{address}"),
            ),
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// The address of the page for a browser: under the first name that is allowed, else under a
    /// name of our own where only this machine connects. None where no browser does.
    pub(super) fn page(
        &self,
        scheme: &str,
        behind_proxy: bool,
        names: &[String],
        own: Option<String>,
    ) -> Option<String> {
        if let Some(name) = names.first().filter(|_| behind_proxy) {
            return Some(format!("https://{name}"));
        }
        let Self::Tcp(listener, _) = self else { return None };
        let address = listener.local_addr().ok()?;
        let is_local = LOCALHOST.contains(&address.ip()) && scheme == "http";
        let host = match (names.first(), own) {
            // A name may say its port: that of a forwarding in front of us.
            (Some(name), _) if name.parse::<Authority>().is_ok_and(|it| it.port().is_some()) => {
                return Some(format!("{scheme}://{name}"));
            }
            (Some(name), _) => name.clone(),
            (None, Some(own)) if is_local => own,
            // Nobody connects to "every address"; this machine does to its own.
            (None, _) if address.ip().is_unspecified() => "localhost".into(),
            (None, _) => host_of(address),
        };
        Some(format!("{scheme}://{host}:{}", address.port()))
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<(Accepted, HttpPeer)> {
        match self {
            Self::Tcp(listener, twin) => {
                let at_twin = async {
                    match twin {
                        Some(twin) => twin.accept().await,
                        None => std::future::pending().await,
                    }
                };
                let (stream, address) = tokio::select! {
                    accepted = listener.accept() => accepted?,
                    accepted = at_twin => accepted?,
                };
                // Answers are small, and Nagle's algorithm would hold each back for 40 ms.
                stream.set_nodelay(true)?;
                // Its machine was cut off, or a network between has forgotten the connection.
                notice_silence(&stream, SILENCE, ASKED)?;
                Ok((Accepted::Tcp(stream), HttpPeer::Address(address.ip().to_canonical())))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Accepted::Unix(stream), HttpPeer::Local))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

/// The other address behind the names of this machine, at the same port: none where a link does not
/// say `localhost`.
fn other_of(address: SocketAddr) -> Option<SocketAddr> {
    let [v4, v6] = LOCALHOST;
    let other = match address.ip() {
        ip if ip == v4 || ip == IpAddr::V4(Ipv4Addr::UNSPECIFIED) => v6,
        ip if ip == v6 => v4,
        _ => return None,
    };
    Some(SocketAddr::new(other, address.port()))
}

fn describe_taken(other: SocketAddr) -> String {
    format!(
        "another program listens on {other}: a browser could take it for the page, since `localhost` \
         stands for both; end it, or choose another port"
    )
}

/// The host of an address, as a link has it.
fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_has_the_other_loopback_address_is_not_taken_for_the_page() {
        let [v4, v6] = LOCALHOST;
        let Ok(squatter) = TcpListener::bind(SocketAddr::new(v6, 0)).await else {
            return; // Without IPv6 there is no other address.
        };
        let port = squatter.local_addr().unwrap().port();
        let own = SocketAddr::new(v4, port).to_string();
        let refused = Listener::open(&Listen::Tcp(own.clone()), false).await.err().unwrap();
        assert!(refused.contains(&format!("another program listens on [::1]:{port}")), "{refused}");
        drop(squatter);
        let listener = Listener::open(&Listen::Tcp(own), false).await;
        let listener = listener.unwrap_or_else(|problem| panic!("{problem}"));
        assert!(TcpListener::bind(SocketAddr::new(v6, port)).await.is_err(), "it is taken");
        let (arrived, accepted) =
            tokio::join!(TcpStream::connect(SocketAddr::new(v6, port)), listener.accept());
        assert!(arrived.is_ok() && accepted.is_ok());
    }

    #[test]
    fn an_address_is_a_host_with_a_port_or_a_socket() {
        assert_eq!("unix:/run/x".parse(), Ok(Listen::Unix("/run/x".into())));
        for good in ["127.0.0.1:0", "localhost:7117", "[::1]:80"] {
            assert_eq!(good.parse(), Ok(Listen::Tcp(good.into())));
        }
        for wrong in ["", "7117", ":7117", "localhost", "localhost:x", "localhost:70000", "unix:"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }
}
