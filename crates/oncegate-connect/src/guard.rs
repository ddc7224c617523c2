//! Keeps requests from reaching what only this machine or its network can reach.
//!
//! An URL may come from a form or a webhook. Without this guard whoever fills in the form could have oncegate
//! call the cloud's metadata service or a database's admin page ("server-side request forgery"). What counts
//! is the address that is connected to: names are checked where they are resolved, in the same step from
//! which the connection is made, so a name that changes its mind in between (DNS rebinding) gains nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::address;
use crate::allow::{self, Kind, PrivateAllowance};

/// Why a request is not sent at all. The text says how to mend it and shows no path, query or header value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing to check certificates against.
    #[error(
        "this machine has no certificate authorities, so nothing can be called over https; install them \
         (Debian: apt-get install ca-certificates), or let SSL_CERT_FILE point at a bundle, and start again"
    )]
    NoRoots,
    /// Not an URL.
    #[error("the URL cannot be read ({why}); write it like https://host/path")]
    Url {
        /// What the parser said.
        why: String,
    },
    /// Neither `http` nor `https`.
    #[error("the URL begins with {scheme}:, but only http: and https: are called")]
    Scheme {
        /// What was written instead.
        scheme: String,
    },
    /// `https://user:password@host`: would show the password wherever the URL is shown.
    #[error("the URL for {host} holds a user name or password; take it out and send an Authorization header")]
    UserInfo {
        /// The host it was for.
        host: String,
    },
    /// The address is not on the public internet and not allowed by name.
    #[error(
        "{host_port} was not called: it is at {ip}, {what}, and only public addresses are called unless \
         allowed; if this is meant, add {host_port} to outgoing.allow_private"
    )]
    Blocked {
        /// Host and port of the URL, as an allowance is written.
        host_port: String,
        /// The address.
        ip: IpAddr,
        /// What kind of address it is, e.g. "a loopback address".
        what: &'static str,
    },
    /// A method that is no request for a resource.
    #[error("{method} requests are not sent; use GET, POST, PUT, PATCH or DELETE")]
    Method {
        /// `CONNECT` or `TRACE`.
        method: String,
    },
    /// A header that cannot be sent as it stands.
    #[error("the header {name:?} cannot be sent: {why}")]
    Header {
        /// Its name, shortened.
        name: String,
        /// What is wrong, and what to do.
        why: &'static str,
    },
}

/// Reads an URL and refuses what is never called, wherever it leads.
pub(crate) fn read_url(text: &str) -> Result<Url, Refusal> {
    let url = Url::parse(text).map_err(|e| Refusal::Url { why: e.to_string() })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refusal::Scheme { scheme: url.scheme().to_owned() });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::UserInfo { host: host_port(&url) });
    }
    Ok(url)
}

/// `host:port` with the port always written.
pub(crate) fn host_port(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or(""), url.port_or_known_default().unwrap_or(0))
}

/// Which resolver a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Every address is checked.
    Checked,
    /// The host is allowed by name, wherever it leads.
    Allowed,
}

/// The allow list, ready to be asked.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    hosts: Vec<(Host, Option<u16>)>,
    networks: Arc<[IpNet]>,
}

impl Guard {
    pub(crate) fn new(allowances: &[PrivateAllowance]) -> Self {
        let mut hosts = Vec::new();
        let mut networks = Vec::new();
        for PrivateAllowance(kind) in allowances {
            match kind {
                Kind::Host(host, port) => hosts.push((host.clone(), *port)),
                Kind::Network(net) => networks.push(*net),
            }
        }
        Self { hosts, networks: networks.into() }
    }

    /// Decides what can be decided before names are resolved. Addresses written in the URL must be checked
    /// here: the HTTP client does not ask its resolver for them.
    pub(crate) fn route(&self, url: &Url) -> Result<Route, Refusal> {
        let Some(host) = url.host().map(allow::canonical) else {
            return Err(Refusal::Url { why: "it names no host".to_owned() });
        };
        let port = url.port_or_known_default();
        if self.hosts.iter().any(|(h, p)| *h == host && p.is_none_or(|p| Some(p) == port)) {
            return Ok(Route::Allowed);
        }
        let ip = match host {
            Host::Domain(_) => return Ok(Route::Checked),
            Host::Ipv4(ip) => IpAddr::V4(ip),
            Host::Ipv6(ip) => IpAddr::V6(ip),
        };
        match self.check(ip) {
            Ok(()) => Ok(Route::Checked),
            Err(blocked) => Err(blocked.refusal(url)),
        }
    }

    fn check(&self, ip: IpAddr) -> Result<(), BlockedAddress> {
        match address::not_public(ip) {
            Some(what) if !self.networks.iter().any(|net| allow::holds(net, ip)) => {
                Err(BlockedAddress { ip, what })
            }
            _ => Ok(()),
        }
    }
}

/// How a refusal travels out of the resolver through the HTTP client's errors.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{ip} is {what}")]
pub(crate) struct BlockedAddress {
    ip: IpAddr,
    what: &'static str,
}

impl BlockedAddress {
    pub(crate) fn refusal(self, url: &Url) -> Refusal {
        Refusal::Blocked { host_port: host_port(url), ip: self.ip, what: self.what }
    }
}

/// Resolves names by the system's resolver and keeps only addresses that may be called.
#[derive(Debug)]
pub(crate) struct CheckedResolver(pub(crate) Guard);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let mut open = Vec::new();
            let mut blocked = None;
            // Port 0 is replaced by the URL's (`reqwest::dns::Resolve`).
            for address in tokio::net::lookup_host((name.as_str(), 0)).await? {
                match guard.check(address.ip()) {
                    Ok(()) => open.push(address),
                    Err(b) => blocked = Some(b),
                }
            }
            match blocked {
                Some(blocked) if open.is_empty() => Err(blocked.into()),
                _ => Ok(Box::new(open.into_iter()) as Addrs),
            }
        })
    }
}

/// Resolves names by the system's resolver, for hosts allowed by name.
#[derive(Debug)]
pub(crate) struct OpenResolver;

impl Resolve for OpenResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(entries: &[&str]) -> Guard {
        Guard::new(&entries.iter().map(|e| e.parse().unwrap()).collect::<Vec<_>>())
    }

    fn route(guard: &Guard, url: &str) -> Result<Route, Refusal> {
        guard.route(&read_url(url)?)
    }

    #[test]
    fn every_spelling_of_a_private_address_is_blocked() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "0x7f000001",
            "127.0.0.1.",
            "①②⑦.0.0.1",
            "[::1]",
            "[::]",
            "0.0.0.0",
            "0",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "169.254.169.254",
            "[fd00::1]",
            "[fe80::1]",
            "%31%32%37.0.0.1",
        ] {
            let refused = route(&guard(&[]), &format!("http://{host}/"));
            assert!(matches!(refused, Err(Refusal::Blocked { .. })), "{host}: {refused:?}");
        }
        assert_eq!(route(&guard(&[]), "https://1.1.1.1/"), Ok(Route::Checked));
        assert_eq!(route(&guard(&[]), "https://example.com/"), Ok(Route::Checked));
    }

    #[test]
    fn allowances_open_what_they_name_and_no_more() {
        let g = guard(&["127.0.0.1:9000", "10.0.0.0/8", "crm.internal:8443", "mail.internal"]);
        for (url, expected) in [
            ("http://127.0.0.1:9000/", Some(Route::Allowed)),
            ("http://[::ffff:127.0.0.1]:9000/", Some(Route::Allowed)),
            ("http://127.0.0.1:9001/", None),
            ("http://127.0.0.2:9000/", None),
            ("http://10.9.8.7/", Some(Route::Checked)),
            ("http://[::ffff:10.9.8.7]/", Some(Route::Checked)),
            ("http://11.0.0.1/", Some(Route::Checked)),
            ("http://192.168.0.1/", None),
            ("https://CRM.internal.:8443/", Some(Route::Allowed)),
            ("https://crm.internal/", Some(Route::Checked)),
            ("http://mail.internal/", Some(Route::Allowed)),
            ("https://x.mail.internal/", Some(Route::Checked)),
        ] {
            assert_eq!(route(&g, url).ok(), expected, "{url}");
        }
        let everything = guard(&["0.0.0.0/0", "::/0"]);
        assert_eq!(route(&everything, "http://[::1]/"), Ok(Route::Checked));
    }

    #[test]
    fn refusals_say_how_to_mend_and_show_no_secret() {
        let blocked = route(&guard(&[]), "http://127.0.0.1:8080/s3cret?s3cret").unwrap_err().to_string();
        assert!(blocked.contains("add 127.0.0.1:8080 to outgoing.allow_private"), "{blocked}");
        let texts = [
            blocked,
            read_url("ftp://h/s3cret").unwrap_err().to_string(),
            read_url("https://s3cret:s3cret@h/").unwrap_err().to_string(),
            read_url("https://s3cret@h/").unwrap_err().to_string(),
            read_url("/s3cret").unwrap_err().to_string(),
            read_url("https://h:s3cret/").unwrap_err().to_string(),
            read_url("").unwrap_err().to_string(),
        ];
        for text in texts {
            assert!(!text.contains("s3cret"), "{text}");
        }
        assert!(matches!(read_url("file:///etc/passwd"), Err(Refusal::Scheme { .. })));
    }
}
