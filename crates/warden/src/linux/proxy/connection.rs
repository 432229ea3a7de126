//! One connection of a command: what it asks for, whether it may, and the way to there.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    net::{Shutdown, shutdown},
};

use super::{
    counts::NameCounts,
    opening, own, relay, resolve,
    shared::{Decided, Proxy},
};
use crate::network::{
    AddressRefusal, CONNECTION_LIMITS, ClientHello, ConnectionVerdict, HeadError, HostName,
    HttpBody, NameVerdict, RequestKind, SERVER_NAME, SPECIAL_ADDRESS, TLS_PORT, UNKNOWN_NAME,
    pattern_of, read_hello, read_request,
};

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(30);

/// One read of a head.
const READ_BYTES: usize = 8 * 1024;

/// The port of plain HTTP.
const HTTP_PORT: u16 = 80;

/// The fatal alert "access denied" of TLS.
const TLS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// The first byte of SOCKS, version 5.
const SOCKS: u8 = 5;

/// How the client speaks with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speech {
    Http,
    Socks,
}

/// What a client wants.
struct Wish {
    host: HostName,
    port: u16,
    kind: RequestKind,
    speech: Speech,
    /// What it has sent already.
    rest: Vec<u8>,
}

/// Why a connection is not made.
struct NotMade {
    verdict: ConnectionVerdict,
    rule: String,
    /// What is told, without the host.
    reason: String,
}

/// A name that may be connected to.
struct Passed {
    verdict: ConnectionVerdict,
    rule: String,
}

/// Serves one connection to its end.
pub(super) fn serve(proxy: &Proxy, client: &OwnedFd) {
    let Some(wish) = hear(client) else { return };
    let host = wish.host.to_string();
    let passed = match judge(proxy, &wish, client) {
        Some(Ok(passed)) => passed,
        Some(Err(refused)) => return refuse(proxy, client, &wish, &refused),
        None => return,
    };
    if wish.port == TLS_PORT && matches!(wish.kind, RequestKind::Forward { .. }) {
        let (verdict, rule) = (ConnectionVerdict::Refused, SERVER_NAME.to_owned());
        let reason = "only TLS passes on port 443".to_owned();
        return refuse(proxy, client, &wish, &NotMade { verdict, rule, reason });
    }
    let server = match reach(proxy, &wish, &passed) {
        Ok(server) => server,
        Err(problem) => return refuse(proxy, client, &wish, &problem),
    };
    let decided = Decided { verdict: passed.verdict, rule: &passed.rule, reason: "" };
    let counted = proxy.count(&host, wish.port, &decided);
    let note = |why: &NotMade| {
        let NotMade { verdict, rule, reason } = why;
        proxy.count(&host, wish.port, &Decided { verdict: *verdict, rule, reason })
    };
    let mut heard = Heard { counted, bytes: 0 };
    let first = match first_bytes(client, &server, &wish, &mut heard) {
        Ok(first) => first,
        Err(why) => {
            // It was none of those that are let through.
            counted.connections.fetch_sub(1, Relaxed);
            counted.bytes_in.fetch_sub(heard.bytes, Relaxed);
            note(&why).bytes_in.fetch_add(heard.bytes, Relaxed);
            let _ = relay::write_all(client, &TLS_DENIED, Instant::now() + PATIENCE);
            return relay::see_off(client);
        }
    };
    if let Some(first) = first
        && let Err(why) = pass(proxy, client, &server, &first, counted)
    {
        note(&why);
    }
}

/// Reads what a client wants; none if it goes, or if it was told that it makes no sense.
fn hear(client: &OwnedFd) -> Option<Wish> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    loop {
        if bytes.first() == Some(&SOCKS) {
            return hear_socks(client, bytes, until);
        }
        match read_request(&bytes) {
            Ok(Some(request)) => {
                let rest = bytes.split_off(request.head_bytes.min(bytes.len()));
                let (host, port, kind) = (request.host, request.port, request.kind);
                return Some(Wish { host, port, kind, speech: Speech::Http, rest });
            }
            Ok(None) => {}
            Err(problem) => {
                let status = match problem {
                    HeadError::TooLong => "431 Request Header Fields Too Large",
                    _ => "400 Bad Request",
                };
                answer(client, status, &format!("legwork: {problem}\n"));
                return None;
            }
        }
        read_more(client, &mut bytes, until)?;
    }
}

/// Reads more; none is the end.
fn read_more(client: &OwnedFd, bytes: &mut Vec<u8>, until: Instant) -> Option<()> {
    relay::wait(client, PollFlags::IN, until).ok()?;
    let mut buffer = [0; READ_BYTES];
    let read = relay::read(client, &mut buffer).ok().filter(|read| *read > 0)?;
    bytes.extend_from_slice(buffer.get(..read).unwrap_or_default());
    Some(())
}

/// Takes the next bytes of a client, as many as these.
fn expect(client: &OwnedFd, bytes: &mut Vec<u8>, count: usize, until: Instant) -> Option<Vec<u8>> {
    while bytes.len() < count {
        read_more(client, bytes, until)?;
    }
    Some(bytes.drain(..count).collect())
}

/// Reads what a client wants that speaks SOCKS: no password, a connection, by name or address.
fn hear_socks(client: &OwnedFd, mut bytes: Vec<u8>, until: Instant) -> Option<Wish> {
    const NO_PASSWORD: u8 = 0;
    const CONNECT: u8 = 1;
    let greeting = expect(client, &mut bytes, 2, until)?;
    let methods = expect(client, &mut bytes, usize::from(*greeting.get(1)?), until)?;
    let taken = if methods.contains(&NO_PASSWORD) { NO_PASSWORD } else { 0xff };
    relay::write_all(client, &[SOCKS, taken], until).ok()?;
    if taken != NO_PASSWORD {
        return None;
    }
    let request = expect(client, &mut bytes, 4, until)?;
    let [SOCKS, command, 0, kind] = request[..] else {
        relay::write_all(client, &socks_reply(1), until).ok()?;
        return None;
    };
    let host = match kind {
        1 => {
            let four: [u8; 4] = expect(client, &mut bytes, 4, until)?.try_into().ok()?;
            Ok(HostName::of(IpAddr::from(four)))
        }
        4 => {
            let six: [u8; 16] = expect(client, &mut bytes, 16, until)?.try_into().ok()?;
            Ok(HostName::of(IpAddr::from(six)))
        }
        3 => {
            let length = expect(client, &mut bytes, 1, until)?;
            let name = expect(client, &mut bytes, usize::from(*length.first()?), until)?;
            HostName::parse(std::str::from_utf8(&name).unwrap_or_default())
        }
        _ => {
            relay::write_all(client, &socks_reply(8), until).ok()?;
            return None;
        }
    };
    let port: [u8; 2] = expect(client, &mut bytes, 2, until)?.try_into().ok()?;
    let (Ok(host), CONNECT) = (host, command) else {
        let code = if command == CONNECT { 2 } else { 7 };
        relay::write_all(client, &socks_reply(code), until).ok()?;
        return None;
    };
    let port = u16::from_be_bytes(port);
    Some(Wish { host, port, kind: RequestKind::Tunnel, speech: Speech::Socks, rest: bytes })
}

fn socks_reply(code: u8) -> [u8; 10] {
    [SOCKS, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Judges a host by its name; none is that the client has not waited for the answer.
fn judge(proxy: &Proxy, wish: &Wish, client: &OwnedFd) -> Option<Result<Passed, NotMade>> {
    let refused = |verdict, rule: &str, reason: String| {
        Some(Err(NotMade { verdict, rule: rule.to_owned(), reason }))
    };
    match proxy.rules.judge(&wish.host, wish.port) {
        NameVerdict::Allowed(rule) => {
            Some(Ok(Passed { verdict: ConnectionVerdict::Allowed, rule: rule.id.clone() }))
        }
        NameVerdict::Denied(rule) => {
            let reason = format!("denied by the rule {}", rule.id);
            refused(ConnectionVerdict::Refused, &rule.id, reason)
        }
        NameVerdict::Unknown => {
            let name = pattern_of(&wish.host.to_string(), wish.port);
            let reason = format!("no rule allows it; to allow it: [network] allow = [\"{name}\"]");
            refused(ConnectionVerdict::Refused, UNKNOWN_NAME, reason)
        }
        NameVerdict::Asked => {
            if proxy.ask(&wish.host.to_string(), wish.port, client)? {
                let rule = UNKNOWN_NAME.to_owned();
                return Some(Ok(Passed { verdict: ConnectionVerdict::Approved, rule }));
            }
            let reason = "asked about, and not approved".to_owned();
            refused(ConnectionVerdict::NotApproved, UNKNOWN_NAME, reason)
        }
    }
}

/// Resolves a name, judges its addresses and connects to the first that answers.
fn reach(proxy: &Proxy, wish: &Wish, passed: &Passed) -> Result<OwnedFd, NotMade> {
    let failed = |reason: String| NotMade {
        verdict: ConnectionVerdict::Failed,
        rule: passed.rule.clone(),
        reason,
    };
    let until = Instant::now() + Duration::from_millis(proxy.rules.limits.connect_ms_max);
    let addresses = match &wish.host {
        // It was judged as it is, also where a person said so.
        HostName::Address(address) => vec![*address],
        HostName::Name(name) => {
            let found = resolve::resolve(name, until)
                .map_err(|error| failed(format!("its name cannot be resolved: {error}")))?;
            // Asked anew each time: interfaces come and go.
            let own = own::addresses().map_err(|error| {
                failed(format!("this machine's addresses are not known: {error}"))
            })?;
            let refusal = |address: &IpAddr| proxy.rules.refusal(*address, wish.port, &own);
            let first = found.iter().find_map(|it| Some((*it, refusal(it)?)));
            let open: Vec<IpAddr> =
                found.iter().copied().filter(|it| refusal(it).is_none()).collect();
            match first {
                Some((address, why)) if open.is_empty() => {
                    return Err(refused_address(address, why));
                }
                _ => open,
            }
        }
    };
    let mut problem = "its name has no address".to_owned();
    let mut others = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        // One that never answers leaves time for the others.
        let left = until.saturating_duration_since(Instant::now());
        let turn = Instant::now() + left / others.max(1);
        others = others.saturating_sub(1);
        match opening::connect(SocketAddr::new(address, wish.port), turn) {
            Ok(server) => return Ok(server),
            Err(error) => problem = format!("{address}: {error}"),
        }
    }
    Err(failed(problem))
}

fn refused_address(address: IpAddr, why: AddressRefusal<'_>) -> NotMade {
    let (rule, reason) = match why {
        AddressRefusal::Denied(rule) => {
            (rule.id.clone(), format!("its address {address} is denied by the rule {}", rule.id))
        }
        AddressRefusal::Special(kind) => (
            SPECIAL_ADDRESS.to_owned(),
            format!(
                "it resolves to {address}, {}, and no rule allows that; to allow it: [network] \
                 allow = [\"{}\"]",
                kind.as_str(),
                pattern_of(&address.to_string(), 0).trim_end_matches(":0"),
            ),
        ),
    };
    NotMade { verdict: ConnectionVerdict::Refused, rule, reason }
}

/// Tells a client that there is no connection, and counts that.
fn refuse(proxy: &Proxy, client: &OwnedFd, wish: &Wish, why: &NotMade) {
    let host = wish.host.to_string();
    let NotMade { verdict, rule, reason } = why;
    proxy.count(&host, wish.port, &Decided { verdict: *verdict, rule, reason });
    let failed = *verdict == ConnectionVerdict::Failed;
    match wish.speech {
        Speech::Http => {
            let status = if failed {
                format!("502 legwork: no connection to {host}")
            } else {
                format!("403 legwork: {host} is not allowed ({})", one_line(rule))
            };
            answer(client, &status, &format!("legwork: {host}:{}: {reason} ({rule})\n", wish.port));
        }
        Speech::Socks => {
            let until = Instant::now() + PATIENCE;
            let _ = relay::write_all(client, &socks_reply(if failed { 4 } else { 2 }), until);
        }
    }
}

/// A text that cannot end a line.
fn one_line(text: &str) -> String {
    text.chars().map(|it| if it.is_ascii_graphic() || it == ' ' { it } else { '?' }).collect()
}

/// Answers a request by ourselves.
fn answer(client: &OwnedFd, status: &str, text: &str) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    let until = Instant::now() + PATIENCE;
    if relay::write_all(client, format!("{head}{text}").as_bytes(), until).is_ok() {
        relay::see_off(client);
    }
}

/// What a server has said before its client did, and where that is counted.
struct Heard<'a> {
    counted: &'a NameCounts,
    bytes: u64,
}

/// What goes to a server first, and how much more of the client may follow.
struct FirstBytes {
    bytes: Vec<u8>,
    body: Option<u64>,
}

/// Makes a client say something, if it has not, and looks at it before any of it goes out. None is
/// that the client has gone.
fn first_bytes(
    client: &OwnedFd,
    server: &OwnedFd,
    wish: &Wish,
    heard: &mut Heard<'_>,
) -> Result<Option<FirstBytes>, NotMade> {
    let RequestKind::Forward { head, body } = &wish.kind else {
        let reply: &[u8] = match wish.speech {
            Speech::Http => b"HTTP/1.1 200 Connection established\r\n\r\n",
            Speech::Socks => &socks_reply(0),
        };
        if relay::write_all(client, reply, Instant::now() + PATIENCE).is_err() {
            return Ok(None);
        }
        let bytes = inspect(client, server, wish, heard)?;
        return Ok(bytes.map(|bytes| FirstBytes { bytes, body: None }));
    };
    let (most, whole) = match body {
        HttpBody::Bytes(bytes) => (usize::try_from(*bytes).unwrap_or(usize::MAX), Some(*bytes)),
        HttpBody::Chunked => (usize::MAX, None),
    };
    let rest = wish.rest.get(..most.min(wish.rest.len())).unwrap_or_default();
    let body = whole.map(|whole| whole.saturating_sub(rest.len() as u64));
    Ok(Some(FirstBytes { bytes: [head, rest].concat(), body }))
}

/// Lets bytes through until both sides are done; an error is what of ours cut it off.
fn pass(
    proxy: &Proxy,
    client: &OwnedFd,
    server: &OwnedFd,
    first: &FirstBytes,
    counted: &NameCounts,
) -> Result<(), NotMade> {
    let FirstBytes { bytes, body } = first;
    let granted = proxy.reserve(bytes.len());
    counted.bytes_out.fetch_add(granted as u64, Relaxed);
    let allowed = bytes.get(..granted).unwrap_or_default();
    let sent = relay::write_all(server, allowed, Instant::now() + PATIENCE);
    if granted < bytes.len() {
        return Err(limited(proxy));
    }
    if sent.is_err() {
        return Ok(());
    }
    match relay::both_ways(proxy, client, server, *body, counted) {
        relay::RelayEnd::Done => Ok(()),
        relay::RelayEnd::Limited => Err(limited(proxy)),
    }
}

fn limited(proxy: &Proxy) -> NotMade {
    let most = proxy.rules.limits.bytes_out_max.unwrap_or(u64::MAX);
    NotMade {
        verdict: ConnectionVerdict::Limited,
        rule: CONNECTION_LIMITS.to_owned(),
        reason: format!("the task has sent {most} bytes, and may not send more (bytes_out_max)"),
    }
}

/// Reads the first bytes of a tunnel before any of them goes out: TLS has to name the server that
/// was asked for. What the server says meanwhile goes in. None is that the client has gone.
fn inspect(
    client: &OwnedFd,
    server: &OwnedFd,
    wish: &Wish,
    heard: &mut Heard<'_>,
) -> Result<Option<Vec<u8>>, NotMade> {
    let mut first = wish.rest.clone();
    let mut server_speaks = true;
    loop {
        let problem = match read_hello(&first) {
            ClientHello::Incomplete => None,
            ClientHello::NotTls if wish.port == TLS_PORT => {
                Some("only TLS passes on port 443".to_owned())
            }
            // Here the host could be named by the request, which is not read.
            ClientHello::NotTls if wish.port == HTTP_PORT && !first.is_empty() => {
                Some("plain HTTP passes as a request to the proxy, not through a tunnel".to_owned())
            }
            ClientHello::NotTls => return Ok(Some(first)),
            ClientHello::Named(Some(name)) if name == wish.host => return Ok(Some(first)),
            ClientHello::Named(None) if matches!(wish.host, HostName::Address(_)) => {
                return Ok(Some(first));
            }
            ClientHello::Named(Some(name)) => Some(format!("TLS names the server {name}")),
            ClientHello::Named(None) => Some("TLS names no server".to_owned()),
            ClientHello::Malformed => Some("its TLS cannot be read".to_owned()),
        };
        if let Some(reason) = problem {
            let (verdict, rule) = (ConnectionVerdict::Refused, SERVER_NAME.to_owned());
            return Err(NotMade { verdict, rule, reason });
        }
        match relay::first_of(client, server_speaks.then_some(server)) {
            Some(relay::Side::Client) => {
                let mut buffer = [0; READ_BYTES];
                match relay::read(client, &mut buffer) {
                    Ok(0) | Err(_) => return Ok(None),
                    Ok(read) => first.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                }
            }
            Some(relay::Side::Server) => {
                let mut buffer = [0; READ_BYTES];
                match relay::read(server, &mut buffer) {
                    Ok(0) => {
                        server_speaks = false;
                        let _ = shutdown(client, Shutdown::Write);
                    }
                    Ok(read) => {
                        heard.bytes += read as u64;
                        heard.counted.bytes_in.fetch_add(read as u64, Relaxed);
                        let bytes = buffer.get(..read).unwrap_or_default();
                        if relay::write_all(client, bytes, Instant::now() + PATIENCE).is_err() {
                            return Ok(None);
                        }
                    }
                    Err(_) => return Ok(None),
                }
            }
            None => return Ok(None),
        }
    }
}
