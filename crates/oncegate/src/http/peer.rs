//! Whose address a request comes from: the connection's, or what a trusted proxy says.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderMap;
use ipnet::IpNet;

/// The other end of the connection; `None` if the system does not tell it any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) Option<IpAddr>);

/// The caller's address. `X-Forwarded-For` is read from its end, as each proxy adds the one that called it: the first
/// that is no trusted proxy is the caller. Anybody can write what stands before.
pub(crate) fn address(peer: Peer, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |ip: IpAddr| trusted.iter().any(|net| net.contains(&ip));
    let mut caller = peer.0.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)).to_canonical();
    let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    for line in lines.into_iter().rev() {
        for entry in line.to_str().unwrap_or_default().rsplit(',') {
            if !is_trusted(caller) {
                return caller;
            }
            match entry_address(entry.trim()) {
                Some(ip) => caller = ip.to_canonical(),
                // What cannot be read was not written by a proxy that is trusted.
                None => return caller,
            }
        }
    }
    caller
}

/// Some proxies add the port.
fn entry_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next());
    let with_port = || text.rsplit_once(':').and_then(|(ip, _)| ip.parse::<std::net::Ipv4Addr>().ok());
    bare.unwrap_or(text).parse().ok().or_else(|| with_port().map(IpAddr::V4))
}

/// What counts as one caller: an IPv4 address, or the /64 that one IPv6 customer has to itself.
pub(crate) fn neighbourhood(ip: IpAddr) -> IpNet {
    let bits = if ip.is_ipv4() { 32 } else { 64 };
    IpNet::new(ip, bits).map_or(ip.into(), |net| net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_trusted_proxy_says_counts() {
        let trusted = ["127.0.0.1/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let table: [(&str, &[&str], &str); 10] = [
            ("203.0.113.7", &[], "203.0.113.7"),
            ("203.0.113.7", &["198.51.100.1"], "203.0.113.7"),
            ("127.0.0.1", &[], "127.0.0.1"),
            ("127.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("127.0.0.1", &["1.1.1.1, 203.0.113.7, 10.0.0.3"], "203.0.113.7"),
            ("127.0.0.1", &["1.1.1.1", "203.0.113.7"], "203.0.113.7"),
            ("::ffff:127.0.0.1", &["203.0.113.7:4711"], "203.0.113.7"),
            ("127.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1"),
            ("127.0.0.1", &["203.0.113.7, unknown"], "127.0.0.1"),
            ("127.0.0.1", &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
        ];
        for (peer, forwarded, caller) in table {
            let mut headers = HeaderMap::new();
            for line in forwarded {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            let peer = Peer(Some(peer.parse().unwrap()));
            assert_eq!(address(peer, &headers, &trusted).to_string(), caller, "{peer:?} {forwarded:?}");
        }
    }

    #[test]
    fn one_ipv6_customer_is_one_caller() {
        let of = |text: &str| neighbourhood(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
        assert_eq!(of("203.0.113.7"), "203.0.113.7/32");
    }
}
