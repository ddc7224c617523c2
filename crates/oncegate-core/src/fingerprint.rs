//! The payload fingerprint: did the same key arrive with another payload? (DESIGN §3 line 1, §4)
//!
//! SHA-256 over the canonical JSON of RFC 8785 without the fields that are declared volatile, cut to 16 bytes.
//! The crate `serde_jcs` is sound on the RFC's own examples but writes every number as a double, so that two
//! ids above 2^53 that differ in their last digit look equal; ids of that size are common (webhooks/README.md).
//! This module therefore writes the RFC's form itself and departs from it in that one range (see
//! [`canonical_json`]).

use std::fmt;

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

use crate::identity::canonical_number;
use crate::webhook::FieldPath;

/// A 16-byte hash of a payload, with the version of the rule that made it.
///
/// `==` asks whether two are identical in every bit; to judge payloads use [`Fingerprint::differs_from`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    hash: [u8; 16],
}

impl Fingerprint {
    /// The rule in use. It must grow whenever the canonical form **or a provider's list of volatile fields**
    /// changes: otherwise an upgrade would turn every late duplicate into a mismatch.
    pub const VERSION: u8 = 1;

    /// The fingerprint of `value` without its `volatile` fields. Volatile header fields have no effect.
    pub fn of(value: &Value, volatile: &[FieldPath]) -> Self {
        let mut sha = Sha256::new();
        // Fed piece by piece: a canonical copy of a 25 MB body would double what the request costs.
        write_value(value, &volatile_segments(volatile), &mut |piece| sha.update(piece.as_bytes()));
        let mut hash = [0; 16];
        hash.copy_from_slice(&sha.finalize()[..16]);
        Self { version: Self::VERSION, hash }
    }

    /// Whether the payloads are known to differ. `false` if the versions differ: then nobody can judge, and a
    /// duplicate must not become a mismatch because the binary was upgraded.
    pub fn differs_from(&self, other: &Self) -> bool {
        self.version == other.version && self.hash != other.hash
    }

    /// 17 bytes for the store: the version, then the hash.
    pub fn to_bytes(self) -> [u8; 17] {
        let mut out = [0; 17];
        out[0] = self.version;
        out[1..].copy_from_slice(&self.hash);
        out
    }

    /// Reads what [`Fingerprint::to_bytes`] wrote; `None` unless there are exactly 17 bytes. A version this
    /// binary does not know is kept, and never differs from anything.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, hash) = bytes.split_first()?;
        Some(Self { version: *version, hash: hash.try_into().ok()? })
    }
}

impl fmt::Display for Fingerprint {
    /// `v1:` and 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}:{}", self.version, data_encoding::HEXLOWER.encode(&self.hash))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The canonical JSON (RFC 8785) of `value` without its `volatile` fields.
///
/// Equal values give equal text and different values different text, within what `serde_json` can tell apart.
/// The one departure from the RFC: whole numbers from 2^53 to 2^64 (down to -2^63 below zero) keep all their
/// digits, where the RFC would round them to a double. Whole numbers beyond that are doubles already when they
/// arrive here, so their far digits do not count.
pub fn canonical_json(value: &Value, volatile: &[FieldPath]) -> String {
    let mut out = String::new();
    write_value(value, &volatile_segments(volatile), &mut |piece| out.push_str(piece));
    out
}

/// What is left of the volatile paths at one place of the value.
type Paths<'a> = Vec<&'a [String]>;

fn volatile_segments(volatile: &[FieldPath]) -> Paths<'_> {
    volatile.iter().filter_map(FieldPath::body_segments).collect()
}

/// The paths that go on below `name`; `None` if one ends here, so that the field is left out.
fn below<'a>(paths: &Paths<'a>, name: &str) -> Option<Paths<'a>> {
    let mut deeper = Vec::new();
    for path in paths {
        match path.split_first() {
            Some((first, [])) if first == name => return None,
            Some((first, rest)) if first == name => deeper.push(rest),
            _ => {}
        }
    }
    Some(deeper)
}

// Recursion is safe: what was read from outside is at most `limits::JSON_DEPTH_MAX` deep.
fn write_value(value: &Value, volatile: &Paths<'_>, out: &mut dyn FnMut(&str)) {
    match value {
        Value::Null => out("null"),
        Value::Bool(true) => out("true"),
        Value::Bool(false) => out("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out("[");
            let mut first = true;
            for (index, item) in items.iter().enumerate() {
                let deeper =
                    if volatile.is_empty() { Some(Vec::new()) } else { below(volatile, &index.to_string()) };
                if let Some(deeper) = deeper {
                    separate(&mut first, out);
                    write_value(item, &deeper, out);
                }
            }
            out("]");
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            // RFC 8785 §3.2.3: by UTF-16 code units, which is neither UTF-8 order nor anybody's locale.
            members.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out("{");
            let mut first = true;
            for (name, member) in members {
                if let Some(deeper) = below(volatile, name) {
                    separate(&mut first, out);
                    write_string(name, out);
                    out(":");
                    write_value(member, &deeper, out);
                }
            }
            out("}");
        }
    }
}

fn separate(first: &mut bool, out: &mut dyn FnMut(&str)) {
    if !std::mem::replace(first, false) {
        out(",");
    }
}

fn write_number(number: &Number, out: &mut dyn FnMut(&str)) {
    out(&canonical_number(number));
}

fn write_string(text: &str, out: &mut dyn FnMut(&str)) {
    out("\"");
    let mut plain_from = 0;
    // Only ASCII is ever escaped (RFC 8785 §3.2.2.2), so going by bytes cannot cut a character in two.
    for (at, byte) in text.bytes().enumerate() {
        let code: String;
        let escaped = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            0x08 => "\\b",
            b'\t' => "\\t",
            b'\n' => "\\n",
            0x0c => "\\f",
            b'\r' => "\\r",
            0..=0x1f => {
                code = format!("\\u{byte:04x}");
                &code
            }
            _ => continue,
        };
        out(&text[plain_from..at]);
        out(escaped);
        plain_from = at + 1;
    }
    out(&text[plain_from..]);
    out("\"");
}
