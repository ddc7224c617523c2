//! Whether a request is to be believed: by its signature, or by a secret that the sender shows.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64, HEXLOWER};
use serde::{Deserialize, Deserializer};
use subtle::ConstantTimeEq;

use super::Provider;
use super::body::Body;
use super::field::is_header_name;
use super::reading;
use super::request::{Headers, Request};
use super::rules::{Answer, Signature};
use super::signature::{SIGNATURE_HEADER_BYTES_MAX, SecretError, SignatureError};
use crate::key::{StoreSecret, sha256};
use crate::secret::Secret;
use crate::time::Timestamp;

/// By what the requests of one source are believed.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Any of them is enough: the new one first, the old one while it is being replaced.
    pub secrets: Vec<Secret>,
    /// Where a sender that signs nothing shows the secret; `None`: at any of the usual places.
    pub secret_in: Option<SecretPlace>,
    /// What a provider says when it tests the address (Meta).
    pub verify_token: Option<Secret>,
    /// The only organisation that is believed (Salesforce), by its id.
    pub organization: Option<String>,
}

impl Trust {
    /// Believes whoever knows one of the secrets.
    pub fn of(secrets: impl Into<Vec<Secret>>) -> Self {
        Self { secrets: secrets.into(), ..Self::default() }
    }
}

/// Where a sender that signs nothing shows the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretPlace {
    /// `query:NAME`: a parameter of the address.
    Query(String),
    /// `path`: behind the source's own address.
    Path,
    /// `header:NAME`, the name in lower case.
    Header(String),
}

/// Why a text names no place for a secret; the sentence a user reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no place for a secret; write `query:NAME`, `header:NAME` or `path`")]
pub struct SecretPlaceError(String);

impl FromStr for SecretPlace {
    type Err = SecretPlaceError;

    fn from_str(text: &str) -> Result<Self, SecretPlaceError> {
        let wrong = || SecretPlaceError(text.to_owned());
        match text.split_once(':') {
            None if text == "path" => Ok(Self::Path),
            Some(("query", name)) if !name.trim().is_empty() => Ok(Self::Query(name.trim().to_owned())),
            Some(("header", name)) if is_header_name(name.trim()) => {
                Ok(Self::Header(name.trim().to_ascii_lowercase()))
            }
            _ => Err(wrong()),
        }
    }
}

impl<'de> Deserialize<'de> for SecretPlace {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

/// Where people put a secret when nobody told them where.
const USUAL_QUERY: [&str; 4] = ["k", "key", "secret", "token"];
const USUAL_HEADERS: [&str; 3] = ["x-shared-secret", "x-webhook-secret", "authorization"];

/// The secrets that a request shows: few, whatever was sent.
fn shown<'a>(req: &Request<'a>, place: Option<&SecretPlace>) -> Vec<Cow<'a, str>> {
    const SHOWN_MAX: usize = 8;
    let mut found: Vec<Cow<'a, str>> = vec![];
    let usual = place.is_none();
    for (name, value) in req.query() {
        let here = match place {
            Some(SecretPlace::Query(named)) => *named == name,
            None => USUAL_QUERY.contains(&&*name),
            Some(SecretPlace::Path | SecretPlace::Header(_)) => false,
        };
        // Whoever pasted a `+` meant one.
        found.extend((here && value.contains(' ')).then(|| Cow::Owned(value.replace(' ', "+"))));
        found.extend(here.then_some(value));
    }
    if (usual || place == Some(&SecretPlace::Path))
        && let Some(tail) = req.tail
    {
        found.push(percent_encoding::percent_decode_str(tail).decode_utf8_lossy());
    }
    for (name, value) in req.headers.iter() {
        let here = match place {
            Some(SecretPlace::Header(named)) => named == name,
            None => USUAL_HEADERS.contains(&name),
            Some(SecretPlace::Query(_) | SecretPlace::Path) => false,
        };
        if here && value.len() <= SIGNATURE_HEADER_BYTES_MAX {
            found.push(Cow::Owned(value.to_owned()));
            found.extend(within_a_scheme(value).map(Cow::Owned));
        }
    }
    found.retain(|shown| !shown.trim().is_empty());
    found.truncate(SHOWN_MAX);
    found
}

/// The secret of `Bearer SECRET`, the password of `Basic …`.
fn within_a_scheme(value: &str) -> Option<String> {
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(rest.as_bytes()).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// Compared by their hashes, so that neither content nor length shows in the time it takes.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    bool::from(sha256(one).ct_eq(&sha256(other)))
}

fn shared_secret(req: &Request<'_>, trust: &Trust) -> Result<(), SignatureError> {
    let place = trust.secret_in.as_ref();
    let told = || match place {
        None => SignatureError::USUAL_PLACES.to_owned(),
        Some(SecretPlace::Query(name)) => format!("`?{name}=SECRET` in the address"),
        Some(SecretPlace::Path) => "`/SECRET` at the end of the path".to_owned(),
        Some(SecretPlace::Header(name)) => format!("the header `{name}`"),
    };
    let shown = shown(req, place);
    if shown.is_empty() {
        return Err(SignatureError::NoSharedSecret { place: told() });
    }
    // Every pair is compared, whichever fits.
    let mut fits = false;
    for shown in &shown {
        for secret in &trust.secrets {
            fits |= same(shown.as_bytes(), secret.expose());
        }
    }
    match fits {
        true => Ok(()),
        false => Err(SignatureError::WrongSharedSecret { secrets: trust.secrets.len() }),
    }
}

/// What stands in for a secret that was shown, in a stored request; with a name that no header can have.
const PRINTS: &str = ":secret";

/// Says how a stored body differs from the one that came, with a name that no header can have.
const STORED: &str = ":stored";

/// What of a request is stored, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It was believed.
    Verified {
        /// Its events are parts of it, each stored by itself.
        of_batch: bool,
    },
    /// It was not: it is judged again when its source was mended.
    Unverified,
}

impl Provider {
    /// Whether `secret` has the form this provider's secrets have; for the check of the configuration.
    ///
    /// # Errors
    /// It is blank, or not what the provider's scheme can use.
    pub fn check_secret(&self, secret: &Secret) -> Result<(), SecretError> {
        self.rules().key(secret).map(drop)
    }

    /// Whether its requests are signed. What is not is only as sure as the address or the header that holds the
    /// secret.
    pub fn signs(&self) -> bool {
        self.rules().signs()
    }

    /// Whether the public address is part of what is signed, so that it must be known.
    pub fn signs_url(&self) -> bool {
        self.rules().signs_url()
    }

    /// Checks that the request was signed with one of the secrets, over the raw bytes, in constant time; or, of a
    /// provider that signs nothing, that it shows one.
    ///
    /// Any of several secrets may fit, so that a secret can be rotated; any of several signatures likewise
    /// (at most 16). Where the provider signs a time, `now` must lie within 300 s of it, before or after
    /// (webhooks/README.md §1.10).
    ///
    /// # Errors
    /// Whatever keeps the request from being believed. The caller answers 401 and keeps the body apart.
    pub fn verify(&self, req: &Request<'_>, trust: &Trust, now: Timestamp) -> Result<(), SignatureError> {
        self.signed(req, trust, now)?;
        self.rules().accepts(req, trust)
    }

    /// Refuses what no body could make right: a signature that is missing, not one, or of another day; a secret that
    /// is not shown.
    ///
    /// # Errors
    /// As of [`Provider::verify`], whatever body may follow.
    pub fn verify_head(
        &self,
        req: &Request<'_>,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        if self.rules().signs_in_body() {
            return Ok(());
        }
        let usable = || trust.secrets.iter().any(|secret| self.check_secret(secret).is_ok());
        match self.signed(&Request { body: b"", ..*req }, trust, now) {
            Err(SignatureError::Mismatch { .. }) => Ok(()),
            // Told in place of a mismatch where one of several secrets cannot be used.
            Err(SignatureError::BadSecret { .. }) if usable() => Ok(()),
            other => other,
        }
    }

    fn signed(&self, req: &Request<'_>, trust: &Trust, now: Timestamp) -> Result<(), SignatureError> {
        let rules = self.rules();
        let mut keys = Vec::with_capacity(trust.secrets.len());
        let mut bad = None;
        for (at, secret) in trust.secrets.iter().enumerate() {
            match rules.key(secret) {
                Ok(key) => keys.push(key),
                // The other secrets may still fit: one mistyped while rotating must not stop the intake.
                Err(why) => bad = bad.or(Some(SignatureError::BadSecret { number: at + 1, why })),
            }
        }
        if keys.is_empty() {
            return Err(bad.unwrap_or(SignatureError::NoSecret));
        }
        let verdict = match rules.signature(req) {
            Signature::Nothing => shared_secret(req, trust),
            Signature::Body(scheme) => scheme.verify(req, &keys),
            Signature::Timed(scheme) => scheme.verify(req, &keys, now),
            Signature::Own(check) => check(req, &keys, now),
        };
        verdict.map_err(|refused| match (refused, bad) {
            (SignatureError::Mismatch { .. }, Some(bad)) => bad,
            (refused, _) => refused,
        })
    }

    /// The answer to a test of the connection that carries no signature; `None` where the request is no such test. An
    /// error is a test that failed: answer 403.
    pub fn greeting(&self, req: &Request<'_>, trust: &Trust) -> Option<Result<Answer, SignatureError>> {
        self.rules().greeting(req, trust)
    }

    /// What the sender must hear once everything is stored; `None`: any 200 will do.
    pub fn acknowledgement(&self, req: &Request<'_>) -> Option<Answer> {
        self.rules().acknowledgement(req)
    }

    /// Head and body of a request as they may be stored: no credentials, of a shown secret only its print, and no
    /// copy of it. `path` is that of the address with its query, kept where it is signed.
    pub fn kept(
        &self,
        req: &Request<'_>,
        path: &str,
        trust: &Trust,
        secret: &StoreSecret,
        why: Kept,
    ) -> (Vec<(String, String)>, Vec<u8>) {
        let (body, is_json) = match why {
            Kept::Verified { .. } => self.redacted(req),
            // A signature needs the body whole to be judged again.
            Kept::Unverified if self.signs() => (req.body.to_vec(), false),
            Kept::Unverified => match self.rules().redacted_unread(req) {
                Some(body) => (body, false),
                None => self.redacted(req),
            },
        };
        let needles = self.needles(req, trust);
        let mut head = self.head(req, path, trust, secret);
        let mark = match why {
            Kept::Verified { of_batch: true } => Some("part"),
            _ if is_json => Some("json"),
            _ => None,
        };
        head.extend(mark.map(|mark| (STORED.to_owned(), mark.to_owned())));
        head.extend(
            told(req)
                .filter(|(_, value)| !needles.iter().any(|needle| value.contains(needle.as_str())))
                .filter(|(name, _)| !hidden(name, trust))
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        (head, without(body, &needles))
    }

    /// JSON made of a request, without a secret that it may hold a copy of.
    pub fn scrubbed(&self, json: String, req: &Request<'_>, trust: &Trust) -> String {
        let needles = self.needles(req, trust);
        match needles.iter().any(|needle| json.contains(needle.as_str())) {
            true => needles.iter().fold(json, |json, needle| json.replace(needle.as_str(), HIDDEN)),
            false => json,
        }
    }

    /// The body without credentials, and whether it is another text than the one that came.
    fn redacted(&self, req: &Request<'_>) -> (Vec<u8>, bool) {
        let rules = self.rules();
        // Released, it is stored once more; it was redacted when it came.
        if req.headers.is_stored_json() {
            return (req.body.to_vec(), true);
        }
        if let Some(redacted) = rules.redacted(req) {
            return (redacted, true);
        }
        let named = rules.credentials();
        let holds = |body: &Body| named.iter().any(|name| body.payload.get(*name).is_some());
        match !named.is_empty() && holds(&rules.body(req)) {
            true => (reading::whole(rules, req).payload.to_string().into_bytes(), true),
            false => (req.body.to_vec(), false),
        }
    }

    /// Texts that are secrets, as they may stand in a body or a header: those of the source, and what this request
    /// shows.
    fn needles(&self, req: &Request<'_>, trust: &Trust) -> Vec<String> {
        if self.signs() {
            return vec![];
        }
        let own = trust.secrets.iter().filter_map(|secret| std::str::from_utf8(secret.expose()).ok());
        let mut all: Vec<String> = own.map(str::to_owned).collect();
        all.extend(shown(req, trust.secret_in.as_ref()).into_iter().map(Cow::into_owned));
        // `Bearer SECRET` as it was configured, too.
        let bare: Vec<String> = all.iter().filter_map(|text| within_a_scheme(text)).collect();
        all.extend(bare);
        // What is shorter is a word that may stand anywhere.
        all.retain(|text| text.len() >= NEEDLE_BYTES_MIN);
        let encoded = |text: &String| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let quoted =
            |text: &String| serde_json::Value::from(text.as_str()).to_string().trim_matches('"').to_owned();
        let forms: Vec<String> = all
            .iter()
            .flat_map(|text| [encoded(text), quoted(text), quoted(text).replace('/', "\\/")])
            .collect();
        all.extend(forms);
        // The longer ones first: a shorter one may be part of them.
        all.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        all.dedup();
        all
    }

    /// What a stored request needs to be judged again; first, because what is too long loses its end.
    fn head(
        &self,
        req: &Request<'_>,
        path: &str,
        trust: &Trust,
        secret: &StoreSecret,
    ) -> Vec<(String, String)> {
        let mut head = vec![];
        if self.signs_url() {
            head.push((":path".to_owned(), path.to_owned()));
        }
        if !self.signs() {
            // A stored request that is stored again has its print already.
            head.extend(req.headers.all(PRINTS).map(|print| (PRINTS.to_owned(), print.to_owned())));
            let prints =
                shown(req, trust.secret_in.as_ref()).into_iter().map(|shown| print(secret, shown.as_bytes()));
            head.extend(prints.map(|print| (PRINTS.to_owned(), print)));
        }
        head
    }

    /// Checks a stored request as of its arrival.
    ///
    /// # Errors
    /// As of [`Provider::verify`].
    pub fn verify_stored(
        &self,
        req: &Request<'_>,
        trust: &Trust,
        secret: &StoreSecret,
        received_at: Timestamp,
    ) -> Result<(), SignatureError> {
        let prints: Vec<&str> = req.headers.all(PRINTS).collect();
        if prints.is_empty() {
            return self.verify(req, trust, received_at);
        }
        let known = |known: &Secret| {
            let right = print(secret, known.expose());
            prints.iter().any(|print| bool::from(print.as_bytes().ct_eq(right.as_bytes())))
        };
        match trust.secrets.iter().any(known) {
            true => self.rules().accepts(req, trust),
            false => Err(SignatureError::WrongSharedSecret { secrets: trust.secrets.len() }),
        }
    }
}

impl Headers {
    /// The path and query of a stored request, where they were kept.
    pub fn stored_path(&self) -> Option<&str> {
        self.get(":path")
    }

    /// Whether the body beside this stored head is one part of a batch, which is not taken apart again.
    pub(super) fn is_stored_part(&self) -> bool {
        self.get(STORED) == Some("part")
    }

    /// Whether the body beside this stored head is JSON that was made of the one that came.
    pub(super) fn is_stored_json(&self) -> bool {
        self.get(STORED).is_some()
    }
}

/// What stands in place of a secret.
const HIDDEN: &str = "[secret]";
/// Shortest text, in bytes, that is looked for as a secret.
const NEEDLE_BYTES_MIN: usize = 8;

/// The headers that came, without what was put beside them for storing.
fn told<'a>(req: &Request<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    req.headers.iter().filter(|(name, _)| !name.starts_with(':'))
}

/// Credentials that a sender, a proxy or a person put there are not ours to keep.
fn hidden(name: &str, trust: &Trust) -> bool {
    matches!(
        name,
        "authorization" | "cookie" | "proxy-authorization" | "x-shared-secret" | "x-webhook-secret"
    ) || matches!(&trust.secret_in, Some(SecretPlace::Header(named)) if named == name)
}

fn without(body: Vec<u8>, needles: &[String]) -> Vec<u8> {
    needles.iter().fold(body, |body, needle| {
        let mut found = memchr::memmem::find_iter(&body, needle.as_bytes()).peekable();
        if found.peek().is_none() {
            return body;
        }
        let (mut kept, mut from) = (Vec::with_capacity(body.len()), 0);
        for at in found {
            kept.extend_from_slice(&body[from..at]);
            kept.extend_from_slice(HIDDEN.as_bytes());
            from = at + needle.len();
        }
        kept.extend_from_slice(&body[from..]);
        kept
    })
}

/// Of a secret that somebody showed: good for comparing it with those of later, of no use to anybody else.
fn print(secret: &StoreSecret, shown: &[u8]) -> String {
    HEXLOWER.encode(&secret.mac("shared secret", &[shown]))
}
