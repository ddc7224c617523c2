//! The entries of `outgoing.allow_private`: what may be called although it is not on the public internet.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::Deserialize;
use url::Host;

/// One entry: a host with or without a port, or a network.
///
/// - `crm.internal:8443` or `crm.internal`: URLs that name this host (and port), wherever the name leads.
/// - `127.0.0.1:9000`, `[::1]:9000`: URLs that write this address and port.
/// - `10.1.2.3`, `10.0.0.0/8`, `fd00::/8`: every URL whose host is or resolves to such an address, on any port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PrivateAllowance(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Network(IpNet),
    Host(Host, Option<u16>),
}

/// An entry of `outgoing.allow_private` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is not a host, a host:port or a network; write e.g. crm.internal:8443 or 10.0.0.0/8")]
pub struct AllowanceError {
    entry: String,
}

/// One spelling per host: addresses out of their IPv6 wrapping, names without the root's dot.
pub(crate) fn canonical(host: Host<&str>) -> Host {
    let address = match host {
        Host::Domain(name) => return Host::Domain(name.strip_suffix('.').unwrap_or(name).to_lowercase()),
        Host::Ipv4(ip) => IpAddr::V4(ip),
        Host::Ipv6(ip) => IpAddr::V6(ip),
    };
    match address.to_canonical() {
        IpAddr::V4(ip) => Host::Ipv4(ip),
        IpAddr::V6(ip) => Host::Ipv6(ip),
    }
}

fn read(text: &str) -> Option<Kind> {
    if text.contains('/') {
        return text.parse().ok().map(Kind::Network);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(Kind::Network(ip.to_canonical().into()));
    }
    let (host, port) = match text.rsplit_once(':') {
        // The colons inside an address's brackets are not a port's.
        _ if text.ends_with(']') => (text, None),
        Some((host, port)) => (host, Some(port.parse::<u16>().ok().filter(|port| *port != 0)?)),
        None => (text, None),
    };
    // A `*` would be taken for a letter of a name and match nothing.
    if host.contains('*') {
        return None;
    }
    let host = Host::parse(host).ok()?;
    let host = match &host {
        Host::Domain(name) => canonical(Host::Domain(name.as_str())),
        Host::Ipv4(ip) => canonical(Host::Ipv4(*ip)),
        Host::Ipv6(ip) => canonical(Host::Ipv6(*ip)),
    };
    match (host, port) {
        (Host::Ipv4(ip), None) => Some(Kind::Network(IpAddr::V4(ip).into())),
        (Host::Ipv6(ip), None) => Some(Kind::Network(IpAddr::V6(ip).into())),
        (host, port) => Some(Kind::Host(host, port)),
    }
}

impl FromStr for PrivateAllowance {
    type Err = AllowanceError;
    fn from_str(text: &str) -> Result<Self, AllowanceError> {
        read(text.trim()).map(Self).ok_or_else(|| AllowanceError { entry: text.to_owned() })
    }
}

impl TryFrom<String> for PrivateAllowance {
    type Error = AllowanceError;
    fn try_from(text: String) -> Result<Self, AllowanceError> {
        text.parse()
    }
}

impl fmt::Display for PrivateAllowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Network(net) => write!(f, "{net}"),
            Kind::Host(host, Some(port)) => write!(f, "{host}:{port}"),
            Kind::Host(host, None) => write!(f, "{host}"),
        }
    }
}

/// Whether `net` holds `ip` or the IPv4 address inside it.
pub(crate) fn holds(net: &IpNet, ip: IpAddr) -> bool {
    let embedded = match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => embedded(ip),
    };
    net.contains(&ip) || embedded.is_some_and(|ip| net.contains(&ip))
}

fn embedded(ip: Ipv6Addr) -> Option<IpAddr> {
    crate::address::embedded_v4(ip).map(IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_written() {
        let table = [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("::1", "::1/128"),
            ("[::1]", "::1/128"),
            ("[::1]:80", "[::1]:80"),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80"),
            ("fd00::/8", "fd00::/8"),
            (" CRM.Internal. ", "crm.internal"),
            ("localhost:1", "localhost:1"),
            ("0x7f.1:80", "127.0.0.1:80"),
        ];
        for (text, written) in table {
            assert_eq!(text.parse::<PrivateAllowance>().unwrap().to_string(), written, "{text}");
        }
        for text in
            ["", " ", "a:b", "a:0", "a:70000", "http://a", "*.internal", "10.0.0.0/33", "a b", "[::1", "a@b"]
        {
            assert!(text.parse::<PrivateAllowance>().is_err(), "{text}");
        }
    }

    #[test]
    fn entries_are_read_from_the_configuration() {
        let list: Vec<PrivateAllowance> =
            serde_json::from_str(r#"["127.0.0.1:9000", "10.0.0.0/8"]"#).unwrap();
        assert_eq!(list.len(), 2);
        let error = serde_json::from_str::<PrivateAllowance>(r#""a:b""#).unwrap_err().to_string();
        assert!(error.contains("a:b") && error.contains("10.0.0.0/8"), "{error}");
    }
}
