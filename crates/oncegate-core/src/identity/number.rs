//! Numbers by value, the same for a JSON number and for the text of one.
//!
//! A whole number of 64 bits keeps every digit; any other is a double, because that is all that JSON readers agree on
//! (RFC 8259 §6). A text that says more than a double holds is refused rather than rounded onto its neighbour. A JSON
//! number was rounded before anybody could look; beyond 64 bits it is refused if it may have been.

use serde_json::Number;

use super::rule::Unfit;

const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;

/// Digits that every double of its size holds (IEEE 754 `binary64`).
const SURE_DIGITS: usize = 15;

/// One spelling for each value: whole numbers of 64 bits in plain digits, others as RFC 8785 writes them. `-0` is 0.
pub fn canonical_number(number: &Number) -> String {
    if number.is_i64() || number.is_u64() {
        return number.to_string();
    }
    match number.as_f64() {
        Some(f) => of_double(f),
        None => number.to_string(),
    }
}

fn of_double(f: f64) -> String {
    match f {
        // `1e19` and its long form are one number and must read the same; -0 becomes 0 on the way.
        f if f.fract() == 0.0 && (0.0..TWO_POW_64).contains(&f) => (f as u64).to_string(),
        f if f.fract() == 0.0 && (-TWO_POW_63..0.0).contains(&f) => (f as i64).to_string(),
        f => ryu_js::Buffer::new().format(f).to_owned(),
    }
}

pub(super) fn of_json(number: &Number) -> Result<String, Unfit> {
    let text = canonical_number(number);
    let is_large = number.as_f64().is_some_and(|f| f.abs() >= TWO_POW_64 || f < -TWO_POW_63);
    let digits = Decimal::read(&text).map_or(0, |decimal| decimal.digits.len());
    if !number.is_i64() && !number.is_u64() && is_large && digits > SURE_DIGITS {
        return Err(Unfit::NotNumber(
            "it has more digits than can be kept; have it sent as text and `opaque`",
        ));
    }
    Ok(text)
}

pub(super) fn of_text(text: &str) -> Result<String, Unfit> {
    let said = Decimal::read(text).ok_or(Unfit::NotNumber("write digits, e.g. `10`, `-0.5` or `1e3`"))?;
    let plain = text.strip_prefix('+').unwrap_or(text);
    if let Ok(whole) = plain.parse::<u64>() {
        return Ok(whole.to_string());
    }
    if let Ok(whole) = plain.parse::<i64>() {
        return Ok(whole.to_string());
    }
    // The grammar is a part of what Rust reads; `inf` and `nan` are not in it.
    let double: f64 =
        plain.parse().map_err(|_| Unfit::NotNumber("write digits, e.g. `10`, `-0.5` or `1e3`"))?;
    if !double.is_finite() {
        return Err(Unfit::NotNumber("it is too large"));
    }
    let kept = of_double(double);
    match Decimal::read(&kept) {
        Some(decimal) if decimal == said => Ok(kept),
        _ => Err(Unfit::NotNumber("it has more digits than can be kept; declare the field `opaque`")),
    }
}

/// The value that a text says, exactly: ± 0.digits × 10^exponent, no zero at either end of the digits.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// `-0.5`, `+10`, `1e3`, `.5`, `007`: digits with at most one point, and an exponent.
    fn read(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = all.trim_start_matches('0');
        let leading = i64::try_from(all.len() - digits.len()).ok()?;
        let digits = digits.trim_end_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        let exponent = exponent.saturating_add(i64::try_from(whole.len()).ok()?).saturating_sub(leading);
        Some(Self { negative, digits, exponent })
    }
}

fn exponent_of(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // What does not fit is beyond every double, on either side.
    let size = digits.parse::<i64>().unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    Some(if negative { -size } else { size })
}
