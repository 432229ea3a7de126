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

/// A socket that is listened on.
pub(super) enum Listener {
    Tcp(TcpListener),
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
                Ok(Self::Tcp(TcpListener::bind(found.as_slice()).await.map_err(failed)?))
            }
        }
    }

    /// The address for people: port 0 has become a number.
    pub(super) fn address(&self, scheme: &str) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or_else(
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
        let Self::Tcp(listener) = self else { return None };
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
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
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
