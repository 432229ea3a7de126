//! Network by name as data: the names that a command may connect to, and the answer for each.
//!
//! Whoever makes the rules decides; the proxy only compares. A host is judged by its name before it
//! is resolved, then by the address that it resolves to. Everything in here is pure: texts and
//! bytes go in, answers come out.

mod address;
mod hello;
mod host;
mod request;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use self::{
    address::{AddressKind, special},
    hello::{ClientHello, read_hello},
    host::{BadHost, HostName},
    request::{HeadError, HttpBody, HttpRequest, RequestKind, read_request},
};

/// The port on the sandbox's own loopback where the proxy is reached.
///
/// It is outside of the range that the kernel gives to connections, so that none has it by chance.
pub const PROXY_PORT: u16 = 61_128;

/// The ports of a name that is written without one.
const WEB_PORTS: [u16; 2] = [80, 443];

/// The port on which nothing but TLS passes: there the name can be seen.
pub const TLS_PORT: u16 = 443;

/// The rule that refuses what no other rule speaks of.
pub const UNKNOWN_NAME: &str = "network-names";

/// The rule that refuses addresses of this machine and of networks around it.
pub const SPECIAL_ADDRESS: &str = "network-addresses";

/// The rule that refuses a TLS connection whose server name is another one.
pub const SERVER_NAME: &str = "network-server-name";

/// The rule that holds the limits of a task's connections.
pub const CONNECTION_LIMITS: &str = "network-limits";

/// What the names are called, together, that are too many to be told one by one.
pub const OTHER_NAMES: &str = "(others)";

/// The names that a command may connect to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRules {
    /// Names that are allowed.
    pub allow: Vec<NameRule>,
    /// Names that are denied, whatever else allows them.
    pub deny: Vec<NameRule>,
    /// Whether a person is asked about a name that no rule speaks of.
    pub asks: bool,
    /// What the connections of a task may use.
    pub limits: ConnectionLimits,
}

/// A rule on names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRule {
    /// What results call it.
    pub id: String,
    /// The hosts that it speaks of.
    pub host: HostPattern,
    /// Their ports.
    pub ports: PortPattern,
}

/// The hosts that a rule speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPattern {
    /// Every name, and no address.
    AnyName,
    /// This name.
    Name(String),
    /// All names below this one.
    Below(String),
    /// Addresses that begin with these bits.
    Addresses {
        /// One of them.
        address: IpAddr,
        /// How many bits count.
        bits: u8,
    },
}

/// The ports that a rule speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortPattern {
    /// Those of HTTP and HTTPS.
    Web,
    /// This one.
    One(u16),
    /// All.
    All,
}

/// What the connections of one task may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLimits {
    /// Connections at a time.
    pub connections_max: u32,
    /// Bytes that they send, all together.
    pub bytes_out_max: Option<u64>,
    /// Time until a connection is there.
    pub connect_ms_max: u64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { connections_max: 64, bytes_out_max: None, connect_ms_max: 10_000 }
    }
}

/// The answer for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameVerdict<'r> {
    /// This rule allows it.
    Allowed(&'r NameRule),
    /// This rule denies it.
    Denied(&'r NameRule),
    /// A person is to be asked.
    Asked,
    /// No rule speaks of it.
    Unknown,
}

/// Why an address is refused that a name resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRefusal<'r> {
    /// This rule denies it.
    Denied(&'r NameRule),
    /// It belongs to this machine or a network around it, and no rule allows it.
    Special(AddressKind),
}

/// What became of connections to one name. Between processes it is its number, in JSON its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionVerdict {
    /// They were let through.
    Allowed,
    /// A person let them through.
    Approved,
    /// They were refused by a rule.
    Refused,
    /// A person refused them, or nobody could be asked.
    NotApproved,
    /// They were let through, and could not be made.
    Failed,
    /// They were cut off because a limit was reached.
    Limited,
}

impl ConnectionVerdict {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Approved => "approved",
            Self::Refused => "refused",
            Self::NotApproved => "not_approved",
            Self::Failed => "failed",
            Self::Limited => "limited",
        }
    }

    /// Whether something of ours kept a connection from being made or from going on.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Refused | Self::NotApproved | Self::Limited)
    }
}

/// What the connections of a task to one name came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTotal {
    /// The name, or the address where that was asked for.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What became of them.
    pub verdict: ConnectionVerdict,
    /// The rule that decided.
    pub rule: String,
    /// Why, where they were refused or failed.
    pub reason: String,
    /// How many there were.
    pub count: u64,
    /// Bytes that the command sent.
    pub bytes_out: u64,
    /// Bytes that it received.
    pub bytes_in: u64,
}

impl ConnectionTotal {
    /// Adds what other connections came to.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
    }

    /// Takes away what was told before.
    pub fn subtract(&mut self, other: &Self) {
        self.count = self.count.saturating_sub(other.count);
        self.bytes_out = self.bytes_out.saturating_sub(other.bytes_out);
        self.bytes_in = self.bytes_in.saturating_sub(other.bytes_in);
    }

    /// Whether it is about the same name, with the same verdict by the same rule.
    pub fn is_alike(&self, other: &Self) -> bool {
        (&self.host, self.port, self.verdict, &self.rule)
            == (&other.host, other.port, other.verdict, &other.rule)
    }

    /// Whether there was no connection and no byte.
    pub fn is_nothing(&self) -> bool {
        (self.count, self.bytes_out, self.bytes_in) == (0, 0, 0)
    }
}

/// A name that a person is asked about while its connections wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldName {
    /// Its number among those of this run.
    pub number: u64,
    /// The name, or the address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HeldName {
    /// The name as a rule would have it.
    pub fn pattern(&self) -> String {
        pattern_of(&self.host, self.port)
    }
}

/// A host and its port as a rule would have them; both web ports are one.
pub fn pattern_of(host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if PortPattern::Web.covers(port) { host } else { format!("{host}:{port}") }
}

impl PortPattern {
    /// Whether it speaks of a port.
    pub fn covers(self, port: u16) -> bool {
        match self {
            Self::Web => WEB_PORTS.contains(&port),
            Self::One(one) => one == port,
            Self::All => true,
        }
    }
}

impl HostPattern {
    /// Whether it speaks of a host.
    pub fn covers(&self, host: &HostName) -> bool {
        match (self, host) {
            (Self::AnyName, HostName::Name(_)) => true,
            (Self::Name(known), HostName::Name(name)) => known == name,
            (Self::Below(above), HostName::Name(name)) => {
                let below = name.strip_suffix(above.as_str());
                below.is_some_and(|below| below.len() > 1 && below.ends_with('.'))
            }
            (Self::Addresses { address, bits }, HostName::Address(one)) => {
                is_within(*one, *address, *bits)
            }
            _ => false,
        }
    }
}

impl NameRule {
    fn covers(&self, host: &HostName, port: u16) -> bool {
        self.host.covers(host) && self.ports.covers(port)
    }
}

impl NameRules {
    /// Judges a host by its name.
    pub fn judge(&self, host: &HostName, port: u16) -> NameVerdict<'_> {
        let find = |rules: &'_ [NameRule]| rules.iter().position(|rule| rule.covers(host, port));
        let denied = find(&self.deny).and_then(|place| self.deny.get(place));
        let allowed = find(&self.allow).and_then(|place| self.allow.get(place));
        match (denied, allowed) {
            (Some(rule), _) => NameVerdict::Denied(rule),
            (None, Some(rule)) => NameVerdict::Allowed(rule),
            (None, None) if self.asks => NameVerdict::Asked,
            (None, None) => NameVerdict::Unknown,
        }
    }

    /// Judges an address that a name resolves to, on a machine that has these addresses; none is
    /// that it may be connected to.
    pub fn refusal(
        &self,
        address: IpAddr,
        port: u16,
        own: &[IpAddr],
    ) -> Option<AddressRefusal<'_>> {
        let host = HostName::Address(address::canonical(address));
        if let Some(rule) = self.deny.iter().find(|rule| rule.covers(&host, port)) {
            return Some(AddressRefusal::Denied(rule));
        }
        let is_own = |it: &IpAddr| address::canonical(*it) == address::canonical(address);
        let own = || own.iter().any(is_own).then_some(AddressKind::Own);
        let kind = special(address).or_else(own)?;
        let is_allowed = self.allow.iter().any(|rule| rule.covers(&host, port));
        (!is_allowed).then_some(AddressRefusal::Special(kind))
    }
}

fn is_within(one: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (one, network) {
        (IpAddr::V4(one), IpAddr::V4(network)) => {
            let ignored = u32::from(32_u8.saturating_sub(bits));
            let shift = |address: u32| address.checked_shr(ignored).unwrap_or(0);
            shift(one.to_bits()) == shift(network.to_bits())
        }
        (IpAddr::V6(one), IpAddr::V6(network)) => {
            let ignored = u32::from(128_u8.saturating_sub(bits));
            let shift = |address: u128| address.checked_shr(ignored).unwrap_or(0);
            shift(one.to_bits()) == shift(network.to_bits())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(host: HostPattern, ports: PortPattern) -> NameRule {
        NameRule { id: format!("{host:?}"), host, ports }
    }

    fn host(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    fn rules() -> NameRules {
        let within =
            |text: &str, bits| HostPattern::Addresses { address: text.parse().unwrap(), bits };
        NameRules {
            allow: vec![
                rule(HostPattern::Name("index.test".into()), PortPattern::Web),
                rule(HostPattern::Below("files.test".into()), PortPattern::One(8443)),
                rule(within("10.1.0.0", 16), PortPattern::All),
            ],
            deny: vec![
                rule(HostPattern::Name("bad.files.test".into()), PortPattern::All),
                rule(within("10.1.2.3", 32), PortPattern::All),
            ],
            ..NameRules::default()
        }
    }

    #[test]
    fn a_name_is_allowed_by_a_rule_with_its_port_and_a_deny_wins() {
        let rules = rules();
        let allowed =
            |text: &str, port| matches!(rules.judge(&host(text), port), NameVerdict::Allowed(_));
        assert!(allowed("index.test", 443) && allowed("INDEX.test.", 80));
        assert!(!allowed("index.test", 22), "another port");
        assert!(!allowed("xindex.test", 443) && !allowed("a.index.test", 443));
        assert!(allowed("a.files.test", 8443) && allowed("b.a.files.test", 8443));
        assert!(!allowed("files.test", 8443), "only what is below");
        assert!(!allowed("xfiles.test", 8443) && !allowed("a.files.test", 443));
        let denied = rules.judge(&host("bad.files.test"), 8443);
        assert!(matches!(denied, NameVerdict::Denied(_)), "{denied:?}");
        assert_eq!(rules.judge(&host("example.org"), 443), NameVerdict::Unknown);
        let asking = NameRules { asks: true, ..rules };
        assert_eq!(asking.judge(&host("example.org"), 443), NameVerdict::Asked);
    }

    #[test]
    fn an_address_around_here_needs_a_rule_of_its_own() {
        let rules = rules();
        let own = ["198.41.0.4", "2606:2800::1"].map(|text| text.parse().unwrap());
        let refused = |text: &str| rules.refusal(text.parse().unwrap(), 443, &own);
        assert_eq!(refused("93.184.216.34"), None);
        assert_eq!(refused("10.1.9.9"), None, "a rule allows it");
        assert!(matches!(refused("10.1.2.3"), Some(AddressRefusal::Denied(_))));
        assert!(matches!(refused("::ffff:10.1.2.3"), Some(AddressRefusal::Denied(_))));
        for text in ["198.41.0.4", "::ffff:198.41.0.4", "2606:2800::1"] {
            let kind = AddressRefusal::Special(AddressKind::Own);
            assert_eq!(refused(text), Some(kind), "{text}");
        }
        for text in ["10.2.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"] {
            assert!(matches!(refused(text), Some(AddressRefusal::Special(_))), "{text}");
        }
    }

    #[test]
    fn every_name_is_no_address() {
        let rules =
            NameRules { allow: vec![rule(HostPattern::AnyName, PortPattern::All)], ..rules() };
        assert!(matches!(rules.judge(&host("a.test"), 1), NameVerdict::Allowed(_)));
        assert_eq!(rules.judge(&host("93.184.216.34"), 443), NameVerdict::Unknown);
    }
}
