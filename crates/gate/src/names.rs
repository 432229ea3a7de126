//! Names that commands may connect to, as they are written: patterns, sets of them, and rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::{
    data::shipped_set,
    policy::{Layer, LayerReader, Placed, PolicyError},
    proposal::quoted,
    rule::Decision,
    verdict::Trust,
};

/// The network that a command has, from lax to strict.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// All of the machine's.
    #[default]
    All,
    /// Hosts that rules allow, by their names.
    Names,
    /// Nothing but a loopback of its own.
    None,
}

impl NetworkMode {
    /// Their names.
    pub(crate) const NAMES: [&'static str; 3] =
        [Self::All.as_str(), Self::Names.as_str(), Self::None.as_str()];

    /// The name in configuration and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Names => "names",
            Self::None => "none",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::All, Self::Names, Self::None].into_iter().find(|mode| mode.as_str() == name)
    }
}

/// The hosts of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternHost {
    /// `*`: every name, and no address.
    AnyName,
    /// This name.
    Name(String),
    /// `*.example.org`: all names below this one.
    Below(String),
    /// Addresses that begin with these bits.
    Addresses(IpAddr, u8),
}

/// The ports of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternPorts {
    /// None is written: those of HTTP and HTTPS.
    Web,
    /// This one.
    One(u16),
    /// `*`.
    All,
}

/// A pattern of names, such as `*.example.org`, `docs.example.net:8443` or `10.0.0.0/8:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    /// Its hosts.
    pub host: PatternHost,
    /// Their ports.
    pub ports: PatternPorts,
}

impl NamePattern {
    /// Reads a pattern; an error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, ports) = split_port(text)?;
        Ok(Self { host: parse_host(host)?, ports })
    }
}

/// Takes the port off the end, if there is one.
fn split_port(text: &str) -> Result<(&str, PatternPorts), &'static str> {
    let is_in_brackets = |rest: &str| rest.contains(']');
    let Some((host, port)) = text.rsplit_once(':').filter(|(_, port)| !is_in_brackets(port)) else {
        return Ok((text, PatternPorts::Web));
    };
    if host.contains(':') && !host.starts_with('[') {
        return Err("write an IPv6 address in brackets");
    }
    match port {
        "*" => Ok((host, PatternPorts::All)),
        _ if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port = port.parse().ok().filter(|port| *port > 0);
            Ok((host, PatternPorts::One(port.ok_or("a port is a number from 1 to 65535")?)))
        }
        _ => Err("a port is a number from 1 to 65535, or `*`"),
    }
}

fn parse_host(text: &str) -> Result<PatternHost, &'static str> {
    if text == "*" {
        return Ok(PatternHost::AnyName);
    }
    let (host, bits) = match text.split_once('/') {
        Some((host, bits)) => {
            (host, Some(bits.parse::<u8>().map_err(|_| "write the bits as in `10.0.0.0/8`")?))
        }
        None => (text, None),
    };
    let address = match host.strip_prefix('[') {
        Some(inside) => {
            let inside = inside.strip_suffix(']').ok_or("a bracket is not closed")?;
            let six: Ipv6Addr = inside.parse().map_err(|_| "this is no IPv6 address")?;
            Some(six.to_ipv4_mapped().map_or(IpAddr::V6(six), IpAddr::V4))
        }
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    };
    if let Some(address) = address {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        let problem = "an address has not that many bits";
        return if bits <= most { Ok(PatternHost::Addresses(address, bits)) } else { Err(problem) };
    }
    if bits.is_some() {
        return Err("only an address has bits");
    }
    let (below, name) = match host.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, host),
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_part);
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err("write a name such as `example.org`, `*.example.org` or `example.org:8443`");
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("write an address as four decimal numbers");
    }
    Ok(if below { PatternHost::Below(name) } else { PatternHost::Name(name) })
}

/// A rule on a name, `[[connect]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectRule {
    /// What results call it.
    pub id: String,
    /// Allow or deny.
    pub decision: Decision,
    /// The name, as it is written.
    pub name: String,
    /// The only workspace that it counts for.
    pub workspace: Option<String>,
    /// The least trust of a caller that it counts for.
    pub trust: Option<Trust>,
}

/// A rule in a file, that allows connections to a name in a workspace from this trust on.
pub fn connect_proposal(id: &str, name: &str, workspace: &str, trust: Trust) -> String {
    format!(
        "[[connect]]\nid = {}\ndecision = \"allow\"\nname = {}\nworkspace = {}\ntrust = \"{}\"\n",
        quoted(id),
        quoted(name),
        quoted(workspace),
        trust.as_str()
    )
}

impl LayerReader<'_, '_> {
    /// Reads every `[[connect]]`.
    pub(crate) fn read_connects(
        &self,
        value: &Placed<'_>,
        rules: &mut Vec<ConnectRule>,
    ) -> Result<(), PolicyError> {
        for item in self.array(value, "connect")? {
            let DeValue::Table(table) = item.get_ref() else {
                let problem = "a rule on a name is not a table";
                return Err(self.error(item.span().start, problem, "write `[[connect]]`"));
            };
            self.check_keys(table, "connect")?;
            rules.push(self.read_connect(table, item.span().start, rules.len())?);
        }
        Ok(())
    }

    fn read_connect(
        &self,
        table: &DeTable<'_>,
        at: usize,
        count: usize,
    ) -> Result<ConnectRule, PolicyError> {
        let text = |key: &str| -> Result<Option<(&str, usize)>, PolicyError> {
            let Some(value) = table.get(key) else { return Ok(None) };
            Ok(Some((self.string(value, key)?, value.span().start)))
        };
        let missing = |key: &str, remedy: &str| {
            self.error(at, &format!("a rule on a name has no `{key}`"), remedy)
        };
        let (decision, decision_at) = text("decision")?
            .ok_or_else(|| missing("decision", "write `decision = \"allow\"` or `\"deny\"`"))?;
        let decision = match decision {
            "allow" => Decision::Allow,
            "deny" => Decision::Deny,
            _ => return Err(self.choice(decision, decision_at, &["allow", "deny"])),
        };
        self.check_direction(decision, decision_at)?;
        let (name, _) =
            text("name")?.ok_or_else(|| missing("name", "write `name = \"example.org\"`"))?;
        let id = text("id")?.map_or_else(|| format!("connect-{}", count + 1), |(id, _)| id.into());
        let workspace = text("workspace")?;
        let trust = text("trust")?;
        Ok(ConnectRule {
            id,
            decision,
            name: name.to_owned(),
            workspace: workspace
                .map(|(path, at)| self.workspace(path, at, decision))
                .transpose()?,
            trust: trust.map(|(name, at)| self.trust(name, at, decision)).transpose()?,
        })
    }

    /// Checks every name of the layer; sets may be written in any of the layers.
    pub(crate) fn check_names(&self, sets: &[String]) -> Result<(), PolicyError> {
        let table = self.parse()?;
        let table = table.get_ref();
        let network = table.get("network").and_then(|value| value.get_ref().as_table());
        for key in ["allow", "deny"] {
            if let Some(value) = network.and_then(|network| network.get(key)) {
                self.check_patterns(value, key, Some(sets))?;
            }
        }
        let written = network.and_then(|network| network.get("sets"));
        for (name, value) in written.into_iter().filter_map(|it| it.get_ref().as_table()).flatten()
        {
            self.check_patterns(value, name.get_ref(), None)?;
        }
        let connects = table.get("connect").and_then(|value| value.get_ref().as_array());
        for item in connects.into_iter().flatten() {
            if let Some(name) = item.get_ref().as_table().and_then(|rule| rule.get("name")) {
                self.check_pattern(name, "name", Some(sets))?;
            }
        }
        Ok(())
    }

    fn check_patterns(
        &self,
        value: &Placed<'_>,
        key: &str,
        sets: Option<&[String]>,
    ) -> Result<(), PolicyError> {
        for item in self.array(value, key)? {
            self.check_pattern(item, key, sets)?;
        }
        Ok(())
    }

    fn check_pattern(
        &self,
        item: &Placed<'_>,
        key: &str,
        sets: Option<&[String]>,
    ) -> Result<(), PolicyError> {
        let (text, at) = (self.string(item, key)?, item.span().start);
        match (text.strip_prefix('@'), sets) {
            (Some(set), Some(known)) => {
                if known.iter().any(|it| it == set) || shipped_set(set).is_some() {
                    return Ok(());
                }
                let problem = format!("there is no set of names `@{set}`");
                let remedy = format!("write it: `[network.sets]` with `{set} = [\"…\"]`");
                Err(self.error(at, &problem, &remedy))
            }
            (Some(_), None) => {
                let problem = format!("`{text}`: a set has names in it, and no other set");
                Err(self.error(at, &problem, "write the names"))
            }
            (None, _) => NamePattern::parse(text).map(drop).map_err(|remedy| {
                self.error(at, &format!("`{text}` is no pattern of names"), remedy)
            }),
        }
    }

    /// The names of the sets that the layer has.
    pub(crate) fn set_names(&self) -> Result<Vec<String>, PolicyError> {
        let table = self.parse()?;
        let network = table.get_ref().get("network").and_then(|value| value.get_ref().as_table());
        let sets = network.and_then(|network| network.get("sets")?.get_ref().as_table());
        Ok(sets.into_iter().flatten().map(|(name, _)| name.get_ref().to_string()).collect())
    }
}

/// Checks the names of all layers.
pub(crate) fn check_names(layers: &[Layer<'_>]) -> Result<(), PolicyError> {
    let mut sets = Vec::new();
    for layer in layers {
        sets.extend(LayerReader { layer }.set_names()?);
    }
    for layer in layers {
        LayerReader { layer }.check_names(&sets)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Origin, Policy};

    #[test]
    fn patterns_are_names_addresses_and_ports() {
        use PatternHost::{Addresses, AnyName, Below, Name};
        use PatternPorts::{All, One, Web};
        let four = |text: &str| IpAddr::V4(text.parse().unwrap());
        for (text, host, ports) in [
            ("Example.org", Name("example.org".into()), Web),
            ("example.org.", Name("example.org".into()), Web),
            ("*.example.org", Below("example.org".into()), Web),
            ("*", AnyName, Web),
            ("*:*", AnyName, All),
            ("docs.example.net:8443", Name("docs.example.net".into()), One(8443)),
            ("10.0.0.0/8:*", Addresses(four("10.0.0.0"), 8), All),
            ("127.0.0.1:80", Addresses(four("127.0.0.1"), 32), One(80)),
            ("[::1]:80", Addresses("::1".parse().unwrap(), 128), One(80)),
            ("[fd00::]/8", Addresses("fd00::".parse().unwrap(), 8), Web),
            ("[::ffff:10.0.0.1]", Addresses(four("10.0.0.1"), 32), Web),
        ] {
            assert_eq!(NamePattern::parse(text), Ok(NamePattern { host, ports }), "{text}");
        }
        for text in [
            "",
            "a b",
            "https://example.org",
            "example.org/path",
            "a.*.org",
            "**",
            "*org",
            "1.2.3",
            "10.0.0.0/33",
            "[::1",
            "::1",
            "example.org:0",
            "example.org:x",
            "user@example.org",
            "b\u{fc}cher.example",
            "a..b",
        ] {
            assert!(NamePattern::parse(text).is_err(), "{text}");
        }
    }

    fn read(text: &str) -> Result<Policy, PolicyError> {
        let layer = Layer { origin: Origin::User, name: "f.toml", text };
        Policy::from_layers(&[layer], Mode::Guarded)
    }

    #[test]
    fn a_mistake_in_a_name_is_told_with_its_place() {
        for (text, place, word) in [
            ("[network]\nallow = [\"a.org\", \"b c\"]", "f.toml:2:19", "no pattern"),
            ("[network]\ndeny = [\"@nosuch\"]", "f.toml:2:9", "@nosuch"),
            ("[network.sets]\nx = [\"@python\"]", "f.toml:2:6", "no other set"),
            ("[[connect]]\ndecision = \"allow\"\nname = \"https://a\"", "f.toml:3:8", "no pattern"),
            ("[[connect]]\nname = \"a.org\"", "f.toml:1:1", "decision"),
            ("[[connect]]\nname = \"a.org\"\ndecision = \"ask\"", "f.toml:3:12", "ask"),
            ("[network]\nmode = \"some\"", "f.toml:2:8", "some"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(place) && error.contains(word), "{text}: {error}");
        }
        assert!(
            read("[network]\nallow = [\"@python\", \"@own\"]\n[network.sets]\nown = [\"a.org\"]")
                .is_ok()
        );
    }

    #[test]
    fn what_an_answer_saves_can_be_read_back() {
        let text = connect_proposal("approved-x", "a.org:22", "/w", Trust::TrustedOperator);
        let policy = read(&text).unwrap();
        let [rule] = policy.connects() else { panic!("{policy:?}") };
        assert_eq!((rule.name.as_str(), rule.decision), ("a.org:22", Decision::Allow));
        assert_eq!(rule.workspace.as_deref(), Some("/w"));
    }

    #[test]
    fn a_project_cannot_allow_a_name() {
        let text = "[[connect]]\nname = \"a.org\"\ndecision = \"allow\"";
        let layer = Layer { origin: Origin::Project, name: "f.toml", text };
        assert!(Policy::from_layers(&[layer], Mode::Guarded).is_err());
    }
}
