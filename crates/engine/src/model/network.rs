//! Network by name as data: what was configured, the rules that a proxy compares with, and what
//! the connections of a command came to.

use std::collections::BTreeMap;

use legwork_gate::{
    ConnectRule, Decision, NamePattern, NetworkMode, PatternHost, PatternPorts, Trust, shipped_set,
};
use legwork_warden::network::{
    AddressRefusal, BadHost, ConnectionLimits, ConnectionTotal, ConnectionVerdict, HostName,
    HostPattern, NameRule, NameRules, NameVerdict, OTHER_NAMES, PortPattern, SPECIAL_ADDRESS,
    UNKNOWN_NAME,
};
use serde::{Deserialize, Serialize};

use super::{Denial, RefusedBy};

/// What was configured about the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkSettings {
    /// The network of callers who have one by their trust.
    pub mode: Option<NetworkMode>,
    /// Names that commands may connect to.
    pub allow: Vec<String>,
    /// Names that they may not connect to.
    pub deny: Vec<String>,
    /// Whether a person is asked about a name that no rule speaks of.
    pub ask: bool,
    /// Sets of names.
    pub sets: BTreeMap<String, Vec<String>>,
    /// Whether integrations, who have no network by their trust, may connect by name.
    pub integrations_connect: bool,
    /// The same for callers who are not trusted.
    pub untrusted_connect: bool,
    /// What the connections of a task may use.
    pub limits: ConnectionLimits,
}

impl NetworkSettings {
    /// The network of a caller.
    pub(crate) fn of(&self, trust: Trust) -> NetworkMode {
        let lent = |connects| if connects { NetworkMode::Names } else { NetworkMode::None };
        match trust {
            Trust::TrustedOperator | Trust::TrustedSystem => self.mode.unwrap_or_default(),
            Trust::TrustedIntegration => lent(self.integrations_connect),
            Trust::UntrustedExternal => lent(self.untrusted_connect),
        }
    }

    /// The rules that the commands of a caller connect by.
    pub(crate) fn rules(
        &self,
        connects: &[ConnectRule],
        workspace: &str,
        trust: Trust,
    ) -> NameRules {
        let written = |key: &str, names: &[String]| -> Vec<NameRule> {
            names
                .iter()
                .flat_map(|name| self.named(&format!("network.{key} {name}"), name))
                .collect()
        };
        let (mut allow, mut deny) = (written("allow", &self.allow), written("deny", &self.deny));
        for rule in connects {
            let counts = rule.workspace.as_deref().is_none_or(|only| only == workspace)
                && rule.trust.is_none_or(|least| trust.reaches(least));
            if counts {
                let rules = if rule.decision == Decision::Allow { &mut allow } else { &mut deny };
                rules.extend(self.named(&rule.id, &rule.name));
            }
        }
        // A name that is denied without a port is denied on all of them.
        for rule in deny.iter_mut().filter(|rule| rule.ports == PortPattern::Web) {
            rule.ports = PortPattern::All;
        }
        NameRules { allow, deny, asks: self.ask, limits: self.limits }
    }

    /// The rules of a name, or of each in a set. What is written was checked before.
    fn named(&self, id: &str, name: &str) -> Vec<NameRule> {
        let rule = |name: &str| {
            let NamePattern { host, ports } = NamePattern::parse(name).ok()?;
            Some(NameRule {
                id: id.to_owned(),
                host: host_pattern(host),
                ports: port_pattern(ports),
            })
        };
        match name.strip_prefix('@') {
            Some(set) => {
                let Some(own) = self.sets.get(set) else {
                    let names = shipped_set(set).unwrap_or_default();
                    return names.iter().copied().filter_map(rule).collect();
                };
                own.iter().map(String::as_str).filter_map(rule).collect()
            }
            None => rule(name).into_iter().collect(),
        }
    }
}

fn host_pattern(host: PatternHost) -> HostPattern {
    match host {
        PatternHost::AnyName => HostPattern::AnyName,
        PatternHost::Name(name) => HostPattern::Name(name),
        PatternHost::Below(name) => HostPattern::Below(name),
        PatternHost::Addresses(address, bits) => HostPattern::Addresses { address, bits },
    }
}

fn port_pattern(ports: PatternPorts) -> PortPattern {
    match ports {
        PatternPorts::Web => PortPattern::Web,
        PatternPorts::One(port) => PortPattern::One(port),
        PatternPorts::All => PortPattern::All,
    }
}

/// What would be said of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionCheck {
    /// The host in its one spelling.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The verdict.
    pub verdict: Decision,
    /// The rule that decides.
    pub rule: String,
    /// Why, in words.
    pub reason: String,
}

impl ConnectionCheck {
    /// What callers with this network would hear.
    pub(crate) fn new(
        mode: NetworkMode,
        rules: &NameRules,
        host: &str,
        port: u16,
    ) -> Result<Self, BadHost> {
        let host = HostName::parse(host)?;
        let (verdict, rule, reason) = match mode {
            NetworkMode::All => {
                (Decision::Allow, "network.mode".into(), "all of the network can be used".into())
            }
            NetworkMode::None => {
                (Decision::Deny, "network.mode".into(), "these commands have no network".into())
            }
            NetworkMode::Names => judged(rules, &host, port),
        };
        Ok(Self { host: host.to_string(), port, verdict, rule, reason })
    }
}

fn judged(rules: &NameRules, host: &HostName, port: u16) -> (Decision, String, String) {
    let unknown = UNKNOWN_NAME.to_owned();
    match rules.judge(host, port) {
        NameVerdict::Denied(rule) => {
            (Decision::Deny, rule.id.clone(), format!("denied by the rule {}", rule.id))
        }
        NameVerdict::Asked => {
            (Decision::Ask, unknown, "no rule speaks of it: a person is asked".into())
        }
        NameVerdict::Unknown => (Decision::Deny, unknown, "no rule allows it".into()),
        NameVerdict::Allowed(rule) => {
            let address = match host {
                HostName::Address(address) => rules.refusal(*address, port, &[]),
                HostName::Name(_) => None,
            };
            match address {
                Some(AddressRefusal::Denied(rule)) => {
                    (Decision::Deny, rule.id.clone(), format!("denied by the rule {}", rule.id))
                }
                Some(AddressRefusal::Special(kind)) => (
                    Decision::Deny,
                    SPECIAL_ADDRESS.to_owned(),
                    format!("it is {}, and no rule allows that", kind.as_str()),
                ),
                None => (
                    Decision::Allow,
                    rule.id.clone(),
                    format!(
                        "allowed by the rule {}; its addresses are judged when it is resolved",
                        rule.id
                    ),
                ),
            }
        }
    }
}

/// What the connections of a command to one name came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// The name, or the address where that was asked for.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What became of them.
    pub verdict: ConnectionVerdict,
    /// The rule that decided.
    pub rule: String,
    /// Why they were not made, or did not go on.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// How many there were.
    pub count: u64,
    /// Bytes that the command sent.
    pub bytes_out: u64,
    /// Bytes that it received.
    pub bytes_in: u64,
}

impl From<&ConnectionTotal> for ConnectionRecord {
    fn from(total: &ConnectionTotal) -> Self {
        Self {
            host: total.host.clone(),
            port: total.port,
            verdict: total.verdict,
            rule: total.rule.clone(),
            reason: total.reason.clone(),
            count: total.count,
            bytes_out: total.bytes_out,
            bytes_in: total.bytes_in,
        }
    }
}

/// The layer of a refused connection.
pub(crate) const NETWORK_LAYER: &str = "network";

impl ConnectionRecord {
    /// Whether something of ours kept them from being made or from going on.
    pub fn is_refusal(&self) -> bool {
        self.verdict.is_refusal()
    }

    /// The refusal, for receipts.
    pub(crate) fn denial(&self) -> Option<Denial> {
        let Self { host, port, rule, reason, count, .. } = self;
        self.is_refusal().then(|| Denial {
            layer: NETWORK_LAYER.into(),
            what: if host == OTHER_NAMES {
                format!("{count} connections to further hosts")
            } else {
                format!("connection to {host}:{port}: {reason} (rule {rule})")
            },
            program: None,
            arguments: Vec::new(),
            rule: Some(rule.clone()).filter(|rule| !rule.is_empty()),
            by: RefusedBy::Rule,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> NetworkSettings {
        NetworkSettings {
            mode: Some(NetworkMode::Names),
            allow: vec!["@python".into(), "docs.test:8443".into()],
            deny: vec!["*.bad.test".into()],
            ..NetworkSettings::default()
        }
    }

    fn check(rules: &NameRules, host: &str, port: u16) -> (Decision, String) {
        let check = ConnectionCheck::new(NetworkMode::Names, rules, host, port).unwrap();
        (check.verdict, check.rule)
    }

    #[test]
    fn sets_are_the_users_own_before_the_shipped_ones() {
        let operator = Trust::TrustedOperator;
        let shipped = settings().rules(&[], "/w", operator);
        assert_eq!(
            check(&shipped, "pypi.org", 443),
            (Decision::Allow, "network.allow @python".into())
        );
        let sets = BTreeMap::from([("python".to_owned(), vec!["index.test".to_owned()])]);
        let own = NetworkSettings { sets, ..settings() }.rules(&[], "/w", operator);
        assert_eq!(check(&own, "index.test", 443).0, Decision::Allow);
        assert_eq!(check(&own, "pypi.org", 443), (Decision::Deny, "network-names".into()));
        assert_eq!(check(&own, "docs.test", 8443).0, Decision::Allow);
        assert_eq!(check(&own, "docs.test", 443).0, Decision::Deny, "another port");
        for port in [1, 80] {
            assert_eq!(check(&own, "a.bad.test", port).1, "network.deny *.bad.test", "{port}");
        }
    }

    #[test]
    fn a_saved_rule_is_for_its_workspace_and_no_lower_trust() {
        let rule = ConnectRule {
            id: "approved-x".into(),
            decision: Decision::Allow,
            name: "a.test".into(),
            workspace: Some("/w".into()),
            trust: Some(Trust::TrustedSystem),
        };
        let verdict = |workspace: &str, trust| {
            let rules = settings().rules(std::slice::from_ref(&rule), workspace, trust);
            check(&rules, "a.test", 443).0
        };
        assert_eq!(verdict("/w", Trust::TrustedOperator), Decision::Allow);
        assert_eq!(verdict("/v", Trust::TrustedOperator), Decision::Deny);
        assert_eq!(verdict("/w", Trust::UntrustedExternal), Decision::Deny);
    }

    #[test]
    fn a_caller_without_a_network_connects_by_name_at_most() {
        let settings = settings();
        assert_eq!(settings.of(Trust::TrustedOperator), NetworkMode::Names);
        assert_eq!(settings.of(Trust::TrustedIntegration), NetworkMode::None);
        let lent = NetworkSettings { untrusted_connect: true, ..NetworkSettings::default() };
        assert_eq!(lent.of(Trust::UntrustedExternal), NetworkMode::Names);
        assert_eq!(lent.of(Trust::TrustedOperator), NetworkMode::All);
    }
}
