//! What a target is called: by its host, so that all calls to one host count together.

use url::Url;

use crate::guard;

/// The mail server's name as a target; whatever host it has, there is one.
const SMTP: &str = "smtp";

/// Who is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetName {
    host: String,
    port: Option<u16>,
}

impl TargetName {
    /// The mail server.
    pub fn smtp() -> Self {
        Self { host: SMTP.to_owned(), port: None }
    }

    /// Whom an URL names; `None` for one that is never called. The port is always there.
    pub fn of_url(url: &str) -> Option<Self> {
        let url = guard::read_url(url).ok()?;
        Some(Self { host: host(&url)?, port: url.port_or_known_default() })
    }

    /// Reads what stands in a configuration: `api.example.com`, `api.example.com:8443`, or `smtp`.
    ///
    /// # Errors
    /// It is no host; the sentence says how to mend it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is no target; write its host as the URL of a step has it, e.g. api.example.com")
        };
        if text.contains(|c: char| c.is_whitespace() || "/?#@*\\".contains(c)) {
            return Err(wrong());
        }
        let url = Url::parse(&format!("http://{text}/")).map_err(|_| wrong())?;
        // A port that is the scheme's own is left out by the parser.
        let port = url.port().or(text.ends_with(":80").then_some(80));
        match host(&url) {
            Some(host) if port != Some(0) => Ok(Self { host, port }),
            _ => Err(wrong()),
        }
    }

    /// The same host, whatever the port.
    #[must_use]
    pub fn any_port(&self) -> Self {
        Self { host: self.host.clone(), port: None }
    }
}

impl std::fmt::Display for TargetName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            None | Some(80 | 443) => f.write_str(&self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
        }
    }
}

/// With a dot at its end it is the same one.
fn host(url: &Url) -> Option<String> {
    url.host_str().map(|host| host.trim_end_matches('.').to_owned()).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_one_however_it_is_spelt() {
        for (declared, url, matches) in [
            ("api.example.com", "https://api.example.com/a?b#c", true),
            ("API.example.com.", "https://api.EXAMPLE.com:8443/", true),
            ("api.example.com:443", "https://api.example.com/", true),
            ("api.example.com:80", "https://api.example.com/", false),
            ("api.example.com:80", "http://api.example.com/", true),
            ("api.example.com", "https://api.example.com.evil.example/", false),
            ("example.com", "https://api.example.com/", false),
            ("bücher.example", "https://xn--bcher-kva.example/", true),
            ("[::1]:9000", "http://[0:0::1]:9000/", true),
            ("127.0.0.1", "http://127.1:9000/", true),
        ] {
            let (declared, called) = (TargetName::parse(declared).unwrap(), TargetName::of_url(url).unwrap());
            assert_eq!(declared == called || declared == called.any_port(), matches, "{declared} {called}");
        }
        for text in
            ["", "https://api.example.com", "a/b", "*.example.com", "a b", "u@h", "h:0", "h:99999", "."]
        {
            assert!(TargetName::parse(text).unwrap_err().contains("is no target"), "{text}");
        }
        assert_eq!(TargetName::parse("smtp").unwrap(), TargetName::smtp());
        for (url, shown) in [("https://h/", "h"), ("http://h:80/x", "h"), ("http://h:9000/x", "h:9000")] {
            assert_eq!(TargetName::of_url(url).unwrap().to_string(), shown);
        }
        assert_eq!(TargetName::of_url("ftp://h/"), None);
    }
}
