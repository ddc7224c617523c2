//! Which addresses belong to the public internet.
//!
//! Source: the IANA special-purpose address registries (RFC 6890 and its updates), read as *what is not
//! globally reachable is not public*. IPv6 is read the other way round, because only 2000::/3 has been given
//! out as global unicast (RFC 4291 §2.4): all else, known or not, is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(a: u16, b: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), bits)
}

const NOT_PUBLIC_V4: &[(Ipv4Net, &str)] = &[
    (v4(0, 0, 0, 0, 8), "an unspecified address"),
    (v4(10, 0, 0, 0, 8), "a private address"),
    (v4(100, 64, 0, 0, 10), "a carrier-grade NAT address"),
    (v4(127, 0, 0, 0, 8), "a loopback address"),
    // Cloud metadata services live here (169.254.169.254).
    (v4(169, 254, 0, 0, 16), "a link-local address"),
    (v4(172, 16, 0, 0, 12), "a private address"),
    (v4(192, 0, 0, 0, 24), "a reserved address"),
    (v4(192, 0, 2, 0, 24), "a documentation address"),
    (v4(192, 88, 99, 0, 24), "a reserved address"),
    (v4(192, 168, 0, 0, 16), "a private address"),
    (v4(198, 18, 0, 0, 15), "a benchmarking address"),
    (v4(198, 51, 100, 0, 24), "a documentation address"),
    (v4(203, 0, 113, 0, 24), "a documentation address"),
    (v4(224, 0, 0, 0, 4), "a multicast address"),
    (v4(240, 0, 0, 0, 4), "a reserved address"),
];

/// Inside 2000::/3.
const NOT_PUBLIC_V6: &[(Ipv6Net, &str)] = &[
    // Protocol assignments; among them Teredo, which embeds an IPv4 address (RFC 4380).
    (v6(0x2001, 0, 23), "a reserved address"),
    (v6(0x2001, 0xdb8, 32), "a documentation address"),
    (v6(0x3fff, 0, 20), "a documentation address"),
];

/// Outside it, only to name what it is.
const NAMED_V6: &[(Ipv6Net, &str)] = &[
    (v6(0xfc00, 0, 7), "a private address"),
    (v6(0xfe80, 0, 10), "a link-local address"),
    (v6(0xff00, 0, 8), "a multicast address"),
];

/// What `ip` is, if it is not a public address; words that fit after "is".
pub fn not_public(ip: IpAddr) -> Option<&'static str> {
    let ip = match ip {
        IpAddr::V4(ip) => return named(NOT_PUBLIC_V4, |net| net.contains(&ip)),
        IpAddr::V6(ip) => ip,
    };
    if let Some(embedded) = embedded_v4(ip) {
        return not_public(embedded.into());
    }
    if let Some(what) = named(NOT_PUBLIC_V6, |net| net.contains(&ip)) {
        return Some(what);
    }
    if ip.segments()[0] & 0xe000 == 0x2000 {
        return None;
    }
    Some(match ip {
        Ipv6Addr::LOCALHOST => "a loopback address",
        Ipv6Addr::UNSPECIFIED => "an unspecified address",
        _ => named(NAMED_V6, |net| net.contains(&ip)).unwrap_or("a reserved address"),
    })
}

/// The IPv4 address that packets to `ip` end up at: mapped (RFC 4291 §2.5.5.2), 6to4 (RFC 3056), and NAT64
/// under its well-known prefix (RFC 6052), which IPv6-only hosts need for public receivers.
pub(crate) fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let o = ip.octets();
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            Some(Ipv4Addr::new(o[12], o[13], o[14], o[15]))
        }
        [0x2002, ..] => Some(Ipv4Addr::new(o[2], o[3], o[4], o[5])),
        _ => None,
    }
}

fn named<N>(nets: &[(N, &'static str)], holds: impl Fn(&N) -> bool) -> Option<&'static str> {
    nets.iter().find(|(net, _)| holds(net)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let public = [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "3ffe::1",
        ];
        for ip in public {
            assert_eq!(not_public(ip.parse().unwrap()), None, "{ip}");
        }
        let not = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1.1.1.1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
            "4000::1",
        ];
        for ip in not {
            assert!(not_public(ip.parse().unwrap()).is_some(), "{ip}");
        }
        assert_eq!(not_public("::ffff:127.0.0.1".parse().unwrap()), Some("a loopback address"));
        assert_eq!(not_public("fd00::1".parse().unwrap()), Some("a private address"));
    }
}
