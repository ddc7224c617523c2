//! What both backends say of deliveries alike: what fits where there is a quota.

use oncegate_core::limits;
use serde_json::Value;

/// The room that a source has for what did not verify, filled from the newest.
#[derive(Default)]
pub(crate) struct Room {
    number: u32,
    bytes: u64,
}

impl Room {
    /// Whether the next older one still fits. The newest always stays; no body that is taken in is as large as the
    /// quota.
    pub(crate) fn fits(&mut self, bytes: i64) -> bool {
        self.number += 1;
        self.bytes += bytes.unsigned_abs();
        self.number == 1
            || (self.number <= limits::UNVERIFIED_KEPT_MAX && self.bytes <= limits::UNVERIFIED_KEPT_BYTES_MAX)
    }
}

/// Headers as JSON, the whole ones in their order that fit, and in words what did not; `None` if all fit.
pub(crate) fn fitting(headers: &str) -> Option<(String, String)> {
    let max = limits::UNVERIFIED_HEADERS_BYTES_MAX;
    if headers.len() <= max {
        return None;
    }
    let mut room = max - "[]".len();
    // What is too large makes room for what comes after it: often the signature.
    let mut fits = |bytes: usize| match room.checked_sub(bytes + ",".len()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    let (kept, left_out) = match serde_json::from_str(headers) {
        Ok(Value::Array(mut pairs)) => {
            let all = pairs.len();
            pairs.retain(|pair| fits(pair.to_string().len()));
            let left_out = all - pairs.len();
            (Value::from(pairs), left_out.to_string())
        }
        Ok(Value::Object(mut by_name)) => {
            let all = by_name.len();
            by_name.retain(|name, value| {
                fits(Value::from(name.as_str()).to_string().len() + ":".len() + value.to_string().len())
            });
            let left_out = all - by_name.len();
            (Value::from(by_name), left_out.to_string())
        }
        _ => (Value::Array(vec![]), "all".to_owned()),
    };
    Some((kept.to_string(), format!("headers beyond {} KiB were not kept: {left_out}", max / 1024)))
}
