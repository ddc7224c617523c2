//! `--public`: is the gate reached where senders send to, by its name, over TLS, and is it this one?

use std::net::IpAddr;
use std::time::Duration;

use oncegate_connect::{certificate_life, not_public, outside_client};
use oncegate_core::policy::in_words;
use oncegate_core::time::Timestamp;
use oncegate_store::clock::{Clock as _, SystemClock};
use serde_json::Value;
use url::Url;

use super::report::Finding;

/// For one request, its connection included.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Caddy and certbot renew a certificate when a third of its life is left, 30 days of 90. With a fifth left they did
/// not.
const RENEWED_BEFORE: u32 = 5;
/// A source that nobody declares, so that nothing is stored.
const NO_SOURCE: &str = "/in/oncegate-doctor";

/// What was seen from outside, as far as this machine can look from there.
pub(super) struct Public {
    /// As it is configured; `None`: it is not.
    pub(super) url: Option<String>,
    /// What the name leads to; `None` where the configured host is an address.
    pub(super) addresses: Option<Result<Vec<IpAddr>, String>>,
    pub(super) reached: Result<Reached, String>,
    pub(super) now: Timestamp,
}

/// What answered.
pub(super) struct Reached {
    /// To a webhook for a source that is not there.
    pub(super) webhook: Reply,
    /// By what it calls its store, if it tells.
    pub(super) store: Option<String>,
    /// How the gate on this machine calls its own, if one answers.
    pub(super) ours: Option<String>,
    pub(super) took: Duration,
    /// From when until when the certificate is good.
    pub(super) certificate: Option<(Timestamp, Timestamp)>,
}

pub(super) struct Reply {
    pub(super) status: u16,
    /// The code of a problem document, as only a gate writes it.
    pub(super) code: Option<String>,
    /// Where it sends whoever asks.
    pub(super) location: Option<String>,
}

/// Looks from here at where senders send to.
///
/// # Errors
/// No client can be set up.
pub(super) async fn look(url: Option<&str>, ours: Option<String>) -> Result<Public, String> {
    let clock = SystemClock::new();
    let Some(url) = url.map(|url| url.trim_end_matches('/')) else {
        let reached = Err(String::new());
        return Ok(Public { url: None, addresses: None, reached, now: clock.read().wall });
    };
    let client = outside_client().map_err(|e| e.to_string())?;
    let begun = clock.read().monotonic;
    let webhook = client.post(format!("{url}{NO_SOURCE}")).timeout(ANSWER_MAX).body("{}").send().await;
    let took = clock.read().monotonic.saturating_sub(begun);
    let reached = match webhook {
        Err(error) => Err(told(&error)),
        Ok(answer) => {
            let certificate = certificate_life(&answer);
            let webhook = reply(answer).await;
            let store = client.get(format!("{url}/readyz")).timeout(ANSWER_MAX).send().await.ok();
            let store = match store {
                Some(answer) => document(answer).await.and_then(|d| d["store"].as_str().map(str::to_owned)),
                None => None,
            };
            Ok(Reached { webhook, store, ours, took, certificate })
        }
    };
    let (url, addresses) = (Some(url.to_owned()), addresses(url).await);
    Ok(Public { url, addresses, reached, now: clock.read().wall })
}

async fn addresses(url: &str) -> Option<Result<Vec<IpAddr>, String>> {
    let url: Url = url.parse().ok()?;
    let port = url.port_or_known_default()?;
    let host = match url.host()? {
        url::Host::Domain(host) => host.to_owned(),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => return None,
    };
    let found = tokio::time::timeout(ANSWER_MAX, tokio::net::lookup_host((host, port))).await;
    Some(match found {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the name server does not answer".to_owned()),
    })
}

async fn reply(answer: reqwest::Response) -> Reply {
    let status = answer.status().as_u16();
    let location = answer.headers().get("location").and_then(|v| v.to_str().ok()).map(str::to_owned);
    let code = document(answer).await.and_then(|d| d["code"].as_str().map(str::to_owned));
    Reply { status, code, location }
}

/// A short JSON document; whatever else answers may be long.
async fn document(mut answer: reqwest::Response) -> Option<Value> {
    const BYTES_MAX: usize = 64 * 1024;
    let mut bytes = Vec::new();
    while let Some(more) = answer.chunk().await.ok()? {
        if bytes.len() + more.len() > BYTES_MAX {
            return None;
        }
        bytes.extend_from_slice(&more);
    }
    serde_json::from_slice(&bytes).ok()
}

/// The innermost reason is the one that says something.
fn told(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match error.is_timeout() {
        true => format!("nothing answered within {} s", ANSWER_MAX.as_secs()),
        false => cause.to_string(),
    }
}

/// The findings about it.
pub(super) fn findings(public: &Public) -> [Finding; 3] {
    [name(public), address(public), certificate(public)]
}

fn name(public: &Public) -> Finding {
    const NAME: &str = "public name";
    match (&public.url, &public.addresses) {
        (None, _) => Finding::problem(
            NAME,
            "there is no public_url, so nobody outside knows where to send to",
            "set public_url in oncegate.yaml to the address that senders shall use (docs/get-online.md)",
        ),
        (Some(url), None) => Finding::warn(
            NAME,
            format!("{url} has a number in place of a name: there are no certificates for most of these"),
            "give the machine a name, or use a tunnel that has one (docs/get-online.md)",
        ),
        (Some(url), Some(Err(why))) => Finding::problem(
            NAME,
            format!("the name in {url} leads nowhere: {why}"),
            "make an A or AAAA record for it at whoever keeps your domain; a new one may take an hour to be seen",
        ),
        (Some(url), Some(Ok(found))) => {
            let told: Vec<String> = found.iter().map(IpAddr::to_string).collect();
            let inside = found.iter().find_map(|ip| Some((ip, not_public(*ip)?)));
            match inside {
                Some((ip, what)) => Finding::problem(
                    NAME,
                    format!("{url} leads to {ip}, {what}, which senders cannot reach"),
                    "point the record to the public address of your router or server, or use a tunnel",
                ),
                None => Finding::ok(NAME, format!("{url} leads to {}", told.join(", "))),
            }
        }
    }
}

fn address(public: &Public) -> Finding {
    const NAME: &str = "public address";
    let Some(url) = &public.url else { return Finding::skipped(NAME, "there is no public_url") };
    let Reached { webhook, store, ours, took, .. } = match &public.reached {
        Ok(reached) => reached,
        Err(why) => {
            return Finding::problem(
                NAME,
                format!("{url} cannot be reached from here: {why}"),
                "look at the proxy, the firewall and the router's port 443; some routers do not let a machine call its own \
                 public address, so try it from a telephone before you change anything",
            );
        }
    };
    let said = match (&webhook.location, webhook.status, webhook.code.as_deref()) {
        (_, 404, Some("unknown_source")) => None,
        (Some(location), 300..=399, _) => Some(format!(
            "{url} answers {} and sends on to {location}; senders of webhooks do not follow",
            webhook.status
        )),
        (_, 401 | 403, None) => {
            Some(format!("{url} answers {}: something in front wants to know who calls", webhook.status))
        }
        (_, status, _) => Some(format!("something answers {status} at {url}/in/, but not as a gate does")),
    };
    if let Some(said) = said {
        return Finding::problem(
            NAME,
            said,
            "let the proxy pass /in/ on to this gate as it comes: path, headers and body unchanged, no login before it",
        );
    }
    match (store, ours) {
        (Some(theirs), Some(ours)) if theirs != ours => Finding::problem(
            NAME,
            format!("another gate answers at {url}: its store is {theirs}, the one here is {ours}"),
            "point the proxy, the tunnel or the name to this gate; or doctor to that one, with --url",
        ),
        (Some(_), Some(_)) => Finding::ok(NAME, format!("this gate answers at {url}, in {took:.0?}")),
        (None, _) => Finding::ok(
            NAME,
            format!(
                "a gate answers at {url}, in {took:.0?}; as /readyz is kept from others, it may be another"
            ),
        ),
        (Some(_), None) => Finding::warn(
            NAME,
            format!("a gate answers at {url}, but none where this machine's should"),
            "name where it listens with --url, so that it can be told whether it is the same",
        ),
    }
}

fn certificate(public: &Public) -> Finding {
    const NAME: &str = "certificate";
    match (&public.url, &public.reached) {
        (None, _) => Finding::skipped(NAME, "there is no public_url"),
        (_, Err(_)) => Finding::skipped(NAME, "nothing was reached that could show one"),
        (Some(url), Ok(_)) if url.starts_with("http://") => Finding::problem(
            NAME,
            "there is none: payloads and the tokens in call-back URLs travel readable, and most tools send to https only",
            "put Caddy in front, which gets one by itself (docs/get-online.md), and write https://",
        ),
        (_, Ok(Reached { certificate: None, .. })) => {
            Finding::skipped(NAME, "it is trusted here, but does not say when it ends")
        }
        (_, Ok(Reached { certificate: Some((begin, end)), .. })) => {
            let left = end.since(public.now);
            let said = format!("trusted, ends in {}", days(left));
            match left > end.since(*begin) / RENEWED_BEFORE {
                true => Finding::ok(NAME, said),
                false => Finding::warn(
                    NAME,
                    format!("{said}: it should have been renewed by now"),
                    "look at the log of the proxy that renews it; it needs port 80 or 443 open from outside",
                ),
            }
        }
    }
}

fn days(left: Duration) -> String {
    match left.as_secs() / 86_400 {
        0 | 1 => in_words(left),
        days => format!("{days} days"),
    }
}
