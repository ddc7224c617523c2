//! What all signature schemes share: the refusals, the bounds, and the comparison in constant time.

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha1::Sha1;
use sha2::Sha512;
use subtle::ConstantTimeEq;

use super::request::{Headers, Request};
pub use crate::limits::{SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_MAX};

/// Why a request is not believed; the sentence an operator reads. Holds no secret and no expected signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The source has no secret, so nothing can be believed.
    #[error("no secret is set for this source; add the secret shown in the provider's webhook settings")]
    NoSecret,
    /// A secret of the source cannot be used.
    #[error("secret {number} of this source cannot be used: {why}")]
    BadSecret {
        /// Its place in the source's list, from 1.
        number: usize,
        /// What is wrong with it.
        why: SecretError,
    },
    /// A header the scheme needs is not there.
    #[error(
        "the request has no `{header}` header; set a secret in the provider's webhook settings, and check that no \
         proxy in between drops the header"
    )]
    MissingHeader {
        /// The header's name.
        header: String,
    },
    /// A header is longer than any honest one.
    #[error(
        "the `{header}` header is {bytes} bytes long; at most {SIGNATURE_HEADER_BYTES_MAX} are looked at"
    )]
    TooLong {
        /// The header's name.
        header: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// More signatures than any honest sender has secrets.
    #[error("the `{header}` header carries more than {SIGNATURES_MAX} signatures")]
    TooMany {
        /// The header's name.
        header: String,
    },
    /// A header that must be unambiguous came more than once, with different values.
    #[error(
        "the `{header}` header was sent more than once with different values; check what sits in between"
    )]
    Twice {
        /// The header's name.
        header: String,
    },
    /// A header does not have the form the scheme prescribes.
    #[error(
        "the `{header}` header does not have the form `{expected}`; check that the source's provider is right"
    )]
    Malformed {
        /// The header's name.
        header: String,
        /// The form it should have, with placeholders.
        expected: String,
    },
    /// Only signatures of a kind that cannot be checked here.
    #[error(
        "the `{header}` header carries only {found}, which is not supported; have the sender sign with {use_instead}"
    )]
    Unsupported {
        /// The header's name.
        header: String,
        /// What it carries.
        found: &'static str,
        /// What is supported.
        use_instead: &'static str,
    },
    /// Signed too long ago, or in the future.
    #[error(
        "the request was signed {off_by_s} s {direction} this server's clock (`{header}`); at most {tolerance_s} s \
         are allowed; an old request sent again, or a wrong clock here or there"
    )]
    OutsideTolerance {
        /// The header with the time of signing.
        header: String,
        /// How far off, in seconds.
        off_by_s: u64,
        /// `behind` or `ahead of`.
        direction: &'static str,
        /// How far off it may be, in seconds.
        tolerance_s: u64,
    },
    /// The signature should stand in the body, and does not.
    #[error(
        "the body has no `{field}`, where this provider signs; check that the source's provider is right"
    )]
    MissingInBody {
        /// The field.
        field: &'static str,
    },
    /// The signature is right, but covers nothing of the body.
    #[error("the signature does not cover this body: {why}")]
    NotCovered {
        /// What is missing, and how to have it.
        why: &'static str,
    },
    /// A sender that signs nothing shows no secret.
    #[error(
        "the request shows no secret; this provider signs nothing, so have the sender show the source's: {place}"
    )]
    NoSharedSecret {
        /// Where it is looked for.
        place: String,
    },
    /// A sender that signs nothing shows a secret that is not ours.
    #[error("the secret that the request shows is none of this source's (secrets tried: {secrets})")]
    WrongSharedSecret {
        /// How many secrets were tried.
        secrets: usize,
    },
    /// Genuine perhaps, but of somebody else.
    #[error("`{field}` is {found}, which is not the one that this source names; {mend}")]
    WrongSource {
        /// Where it says whose it is.
        field: &'static str,
        /// What it says.
        found: String,
        /// What to do.
        mend: &'static str,
    },
    /// Nothing that this provider sends.
    #[error("the body cannot be read: {why}")]
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
    /// A test of the connection whose word is not the source's.
    #[error("the test of the connection says another `{field}` than this source knows; copy it again")]
    WrongVerifyToken {
        /// Where it says it.
        field: &'static str,
    },
    /// No signature is right for the bytes that arrived.
    #[error(
        "no signature in `{header}` fits this request (secrets tried: {secrets}); check the \
         secret, and that no proxy in between rewrites the request"
    )]
    Mismatch {
        /// The header's name.
        header: String,
        /// How many secrets were tried.
        secrets: usize,
    },
}

impl SignatureError {
    /// Where people put a secret when nobody told them where.
    pub(super) const USUAL_PLACES: &str =
        "`?k=SECRET`, `/SECRET` at the end of the path, the header `X-Shared-Secret`, or `Authorization`";
}

/// Why a secret cannot be used. Says nothing of what the secret is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Nothing, or only white space: anybody could sign with it.
    #[error("it is blank, so anybody could sign with it; check the variable or file it is read from")]
    Blank,
    /// Standard Webhooks secrets are base64 after `whsec_`.
    #[error("it is not `whsec_` followed by base64; copy the whole signing secret again")]
    NotBase64,
    /// SendGrid signs with a key pair; its public half is shown in base64.
    #[error(
        "it is not the public key that SendGrid shows (base64, begins with MFkw); for Inbound Parse, which is not \
         signed, use the provider `sendgrid_inbound`"
    )]
    NotPublicKey,
    /// A key for ed25519 signatures, which are not supported.
    #[error("it is an ed25519 key (`whpk_` or `whsk_`), which is not supported; use the `whsec_` secret")]
    Asymmetric,
}

/// The hash under the HMAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// HMAC-SHA256, what nearly everybody uses.
    #[default]
    Sha256,
    /// HMAC-SHA512.
    Sha512,
    /// HMAC-SHA1: Twilio alone, and not to be chosen.
    #[serde(skip)]
    Sha1,
}

impl Algorithm {
    pub(super) fn sign(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac(crate::key::hmac(key), parts),
            Self::Sha512 => match Hmac::<Sha512>::new_from_slice(key) {
                Ok(keyed) => mac(keyed, parts),
                Err(_) => unreachable!("HMAC takes keys of every length (RFC 2104)"),
            },
            Self::Sha1 => match Hmac::<Sha1>::new_from_slice(key) {
                Ok(keyed) => mac(keyed, parts),
                Err(_) => unreachable!("HMAC takes keys of every length (RFC 2104)"),
            },
        }
    }
}

fn mac(mut keyed: impl Mac, parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().for_each(|part| keyed.update(part));
    keyed.finalize().into_bytes().to_vec()
}

/// How the signature's bytes are written in the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Hexadecimal, either case.
    #[default]
    Hex,
    /// Base64 (RFC 4648 §4), with or without padding.
    Base64,
}

impl Encoding {
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok(),
            Self::Base64 => {
                BASE64.decode(text.as_bytes()).or_else(|_| BASE64_NOPAD.decode(text.as_bytes())).ok()
            }
        }
    }
}

/// One HMAC over the raw body in one header: what most providers do.
pub(super) struct BodySignature<'a> {
    pub(super) header: &'a str,
    pub(super) prefix: &'a str,
    pub(super) algorithm: Algorithm,
    pub(super) encoding: Encoding,
    /// What is signed before the body.
    pub(super) salt: &'static [u8],
}

impl<'a> BodySignature<'a> {
    /// HMAC-SHA256 of nothing but the body.
    pub(super) fn sha256(header: &'a str, prefix: &'a str, encoding: Encoding) -> Self {
        Self { header, prefix, algorithm: Algorithm::Sha256, encoding, salt: b"" }
    }
}

impl BodySignature<'_> {
    pub(super) fn verify(&self, req: &Request<'_>, keys: &[Cow<'_, [u8]>]) -> Result<(), SignatureError> {
        let signatures = decoded(req.headers, self.header, self.prefix, self.encoding)?;
        any_fits(self.header, self.algorithm, keys, &[self.salt, req.body], &signatures)
    }
}

/// The signatures in `header`, each after `prefix`: at least one.
pub(super) fn decoded(
    headers: &Headers,
    header: &str,
    prefix: &str,
    encoding: Encoding,
) -> Result<Vec<Vec<u8>>, SignatureError> {
    // A proxy may fold a repeated header into one with commas (RFC 9110 §5.3); no encoding has a comma.
    let presented = presented(headers, header, |c| c == ',')?;
    let decode = |text: &&str| encoding.decode(text.strip_prefix(prefix)?).filter(|s| !s.is_empty());
    let signatures: Vec<_> = presented.iter().filter_map(decode).collect();
    if signatures.is_empty() {
        let kind = match encoding {
            Encoding::Hex => "hexadecimal digits",
            Encoding::Base64 => "base64",
        };
        let expected = format!("{prefix}<{kind}>");
        return Err(SignatureError::Malformed { header: header.to_owned(), expected });
    }
    Ok(signatures)
}

/// The signatures a request presents in `header`: all its fields, split at `separator`, within the bounds.
pub(super) fn presented<'a>(
    headers: &'a Headers,
    header: &'a str,
    separator: fn(char) -> bool,
) -> Result<Vec<&'a str>, SignatureError> {
    let mut found = Vec::new();
    let mut sent = false;
    for value in headers.all(header) {
        sent = true;
        if value.len() > SIGNATURE_HEADER_BYTES_MAX {
            return Err(SignatureError::TooLong { header: header.to_owned(), bytes: value.len() });
        }
        found.extend(value.split(separator).map(str::trim).filter(|text| !text.is_empty()));
        if found.len() > SIGNATURES_MAX {
            return Err(SignatureError::TooMany { header: header.to_owned() });
        }
    }
    match sent {
        true => Ok(found),
        false => Err(SignatureError::MissingHeader { header: header.to_owned() }),
    }
}

/// Whether one of the signatures is the HMAC of `parts` under one of the keys. The parts' bytes are never
/// compared, only the HMACs, and those in constant time.
pub(super) fn any_fits(
    header: &str,
    algorithm: Algorithm,
    keys: &[Cow<'_, [u8]>],
    parts: &[&[u8]],
    signatures: &[Vec<u8>],
) -> Result<(), SignatureError> {
    for key in keys {
        let right = algorithm.sign(key, parts);
        if signatures.iter().any(|signature| bool::from(right.ct_eq(signature))) {
            return Ok(());
        }
    }
    Err(SignatureError::Mismatch { header: header.to_owned(), secrets: keys.len() })
}

/// The value of a header that is itself signed and therefore must be there once.
pub(super) fn single<'a>(headers: &'a Headers, header: &'a str) -> Result<&'a str, SignatureError> {
    let mut values = headers.all(header);
    let first = values.next().ok_or_else(|| SignatureError::MissingHeader { header: header.to_owned() })?;
    if values.any(|other| other != first) {
        return Err(SignatureError::Twice { header: header.to_owned() });
    }
    match first.len() {
        0..=SIGNATURE_HEADER_BYTES_MAX => Ok(first),
        bytes => Err(SignatureError::TooLong { header: header.to_owned(), bytes }),
    }
}
