//! E-mail addresses: what of their spelling does not count.
//!
//! RFC 5321 §2.4 lets the part before the `@` be case-sensitive; no provider that people have addresses at makes use of
//! it, and forms send the same address in all cases. Domains are compared as DNS does (RFC 5890, UTS #46).

use std::collections::BTreeSet;
use std::fmt;

use idna::AsciiDenyList;

use super::rule::Unfit;
use crate::key::is_invisible;

/// Domains at which parts of an address are noise. Empty unless the operator lists some: at most providers `ana+fair@`
/// and `a.na@` are other people than `ana@` (C80).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmailFolding {
    /// Domains, in their ASCII form, at which what follows a `+` does not count.
    pub fold_tags: BTreeSet<String>,
    /// Domains, in their ASCII form, at which dots before the `@` do not count.
    pub fold_dots: BTreeSet<String>,
}

impl EmailFolding {
    /// The spelling that all equal addresses share: `Zoë@BÜCHER.example ` → `zoë@xn--bcher-kva.example`.
    ///
    /// # Errors
    /// It is none, or has blanks inside: whoever mends it decides what was meant.
    pub(crate) fn fold(&self, address: &str) -> Result<String, Unfit> {
        if address.chars().any(is_invisible) {
            return Err(Unfit::NotEmail("there is a blank or an invisible character inside"));
        }
        let (local, domain) = address.rsplit_once('@').ok_or(Unfit::NotEmail("there is no @ in it"))?;
        if local.is_empty() || domain.is_empty() {
            return Err(Unfit::NotEmail("there is nothing before or after its @"));
        }
        let domain = fold_domain(domain).ok_or(Unfit::NotEmail("its domain is none"))?;
        let mut local = lower(local);
        if self.fold_tags.contains(&domain)
            && let Some(at) = local.find('+').filter(|at| *at > 0)
        {
            local.truncate(at);
        }
        if self.fold_dots.contains(&domain) {
            let without: String = local.chars().filter(|c| *c != '.').collect();
            local = if without.is_empty() { local } else { without };
        }
        Ok(format!("{local}@{domain}"))
    }
}

impl fmt::Display for EmailFolding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |domains: &BTreeSet<String>| domains.iter().cloned().collect::<Vec<_>>().join(", ");
        match (self.fold_tags.is_empty(), self.fold_dots.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => write!(f, "tags fold at {}", list(&self.fold_tags)),
            (true, false) => write!(f, "dots fold at {}", list(&self.fold_dots)),
            (false, false) => {
                write!(f, "tags fold at {}, dots at {}", list(&self.fold_tags), list(&self.fold_dots))
            }
        }
    }
}

/// Composed, lower case, composed again: lower case takes some letters apart. By Unicode's own tables, which know no
/// locale: `I` is `i` in Turkey too, and `İ` is `i` with a dot above, which is not `i`.
fn lower(text: &str) -> String {
    let nfc = icu_normalizer::ComposingNormalizerBorrowed::new_nfc();
    nfc.normalize(&nfc.normalize(text).to_lowercase()).into_owned()
}

/// A domain as DNS has it: ASCII, lower case. `None` if it is none. A literal such as `[192.0.2.1]` stays.
pub fn fold_domain(domain: &str) -> Option<String> {
    if domain.starts_with('[') && domain.ends_with(']') {
        return Some(domain.to_ascii_lowercase());
    }
    let ascii = idna::domain_to_ascii_cow(domain.as_bytes(), AsciiDenyList::URL).ok()?;
    (!ascii.is_empty()).then(|| ascii.into_owned())
}
