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

/// What was received: the header fields and the body, byte for byte as it came over the wire.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// All header fields.
    pub headers: &'a Headers,
    /// The raw body; signatures are over these bytes and nothing derived from them.
    pub body: &'a [u8],
}
