//! How one page of an API leads to the next.

use crate::guard;

/// The address that `link`, as it came in the answer of `from`, names; relative ones count from there. `None`: it is
/// no address, or of another server, which must not get the headers that this one gets.
pub fn other_page(from: &str, link: &str) -> Option<String> {
    let from = guard::read_url(from).ok()?;
    let to = guard::read_url(from.join(link).ok()?.as_str()).ok()?;
    (to.origin() == from.origin()).then(|| to.into())
}

/// The address with one more parameter in its query, in place of any of that name.
pub fn with_parameter(url: &str, name: &str, value: &str) -> Option<String> {
    let mut url = guard::read_url(url).ok()?;
    // As text: what stands there may be spelt in a way that its server wants.
    let is_other = |pair: &&str| {
        let known = url::form_urlencoded::parse(pair.as_bytes()).next();
        known.is_none_or(|(known, _)| known != name)
    };
    let query = url.query().unwrap_or_default();
    let mut pairs: Vec<String> =
        query.split('&').filter(|pair| !pair.is_empty()).filter(is_other).map(str::to_owned).collect();
    pairs.push(url::form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish());
    url.set_query(Some(&pairs.join("&")));
    Some(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leads_to_the_same_server_or_nowhere() {
        const FROM: &str = "https://crm.example.com/v3/contacts?a=1";
        for (link, to) in [
            (
                "https://crm.example.com/v3/contacts?after=2",
                Some("https://crm.example.com/v3/contacts?after=2"),
            ),
            ("https://CRM.example.com:443/x", Some("https://crm.example.com/x")),
            ("/v3/contacts?after=2", Some("https://crm.example.com/v3/contacts?after=2")),
            ("?after=2", Some("https://crm.example.com/v3/contacts?after=2")),
            ("//evil.example/", None),
            ("https://crm.example.com.evil.example/", None),
            ("https://crm.example.com@evil.example/", None),
            ("https://user@crm.example.com/", None),
            ("http://crm.example.com/", None),
            ("https://crm.example.com:8443/", None),
            ("file:///etc/passwd", None),
            ("http://[", None),
        ] {
            assert_eq!(other_page(FROM, link).as_deref(), to, "{link}");
        }
    }

    #[test]
    fn a_parameter_stands_there_once() {
        for (url, with) in [
            ("https://h/a", "https://h/a?after=x%26y"),
            (
                "https://h/a?since=2026-01-05T10%3A00%3A05Z",
                "https://h/a?since=2026-01-05T10%3A00%3A05Z&after=x%26y",
            ),
            ("https://h/a?after=1&b=2&%61fter=3", "https://h/a?b=2&after=x%26y"),
        ] {
            assert_eq!(with_parameter(url, "after", "x&y").as_deref(), Some(with), "{url}");
        }
    }
}
