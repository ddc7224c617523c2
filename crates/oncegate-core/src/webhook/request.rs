//! One received request, as far as signatures and keys need it.

/// The header fields of a request: names lower-cased, values as text, in the order of arrival.
///
/// A value that is UTF-8 is kept as it is. Any other is kept as Latin-1 (each byte becomes the character of
/// that number), which is what RFC 9110 §5.5 calls opaque data: it can be shown and stored, and a signature
/// over it cannot match by accident. White space around a value is no part of it (RFC 9110 §5.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Takes name and value of every field, repeated names included.
    pub fn new<N: AsRef<str>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (N, V)>) -> Self {
        let field = |(name, value): (N, V)| {
            let text = match std::str::from_utf8(value.as_ref()) {
                Ok(text) => text.to_owned(),
                Err(_) => value.as_ref().iter().copied().map(char::from).collect(),
            };
            (name.as_ref().to_ascii_lowercase(), text.trim_matches([' ', '\t']).to_owned())
        };
        Self(fields.into_iter().map(field).collect())
    }

    /// The first value of a field; the name in any case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of a field, in order of arrival; the name in any case.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let name = name.to_ascii_lowercase();
        self.iter().filter(move |(n, _)| *n == name).map(|(_, v)| v)
    }

    /// Every field (lower-case name, value), for storing the request as it came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}

/// What was received: the head, and the body byte for byte as it came over the wire.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// In capitals.
    pub method: &'a str,
    /// The address as the sender was given it: scheme, public host, path, query. Some sign it.
    pub url: &'a str,
    /// What follows the source's own address in the path: where senders that sign nothing may show the secret.
    pub tail: Option<&'a str>,
    /// All header fields.
    pub headers: &'a Headers,
    /// The raw body; signatures are over these bytes and nothing derived from them.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// One that was posted to a source's own address.
    pub fn post(url: &'a str, headers: &'a Headers, body: &'a [u8]) -> Self {
        Self { method: "POST", url, tail: None, headers, body }
    }

    /// The parameters of the address, decoded, in their order.
    pub(super) fn query(
        &self,
    ) -> impl Iterator<Item = (std::borrow::Cow<'a, str>, std::borrow::Cow<'a, str>)> {
        let query = self.url.split_once('?').map(|(_, query)| query).unwrap_or_default();
        form_urlencoded::parse(query.split('#').next().unwrap_or_default().as_bytes())
    }

    /// The first value of a parameter of the address.
    pub(super) fn parameter(&self, name: &str) -> Option<std::borrow::Cow<'a, str>> {
        self.query().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The kind of the body without its parameters, in lower case.
    pub(super) fn content_type(&self) -> String {
        let kind = self.headers.get("content-type").and_then(|value| value.split(';').next());
        kind.unwrap_or_default().trim().to_ascii_lowercase()
    }
}
