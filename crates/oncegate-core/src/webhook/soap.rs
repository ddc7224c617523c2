//! XML as far as SOAP needs it: elements, text and `xsi:nil`. No document types and no entities but those of XML
//! itself, so nothing is fetched and nothing expands.

use std::borrow::Cow;

use encoding_rs::Encoding;
use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use serde_json::{Map, Value};

use super::body;

/// One element; names are without their prefixes.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    /// The value of `xsi:type`, without its prefix.
    pub(super) kind: Option<String>,
    nil: bool,
    text: String,
    pub(super) children: Vec<Element>,
}

/// Elements within elements; SOAP messages have a dozen.
const DEPTH_MAX: usize = 64;

/// Reads a whole document.
///
/// # Errors
/// It is not well-formed, not UTF-8, nested too deeply, or has a document type or an entity of its own.
pub(super) fn read(bytes: &[u8]) -> Result<Element, String> {
    let text = decoded(bytes)?;
    let mut reader = Reader::from_str(&text);
    let wrong = |what: String, at: u64| format!("{what} at byte {at}");
    let mut open: Vec<Element> = vec![];
    let mut root: Option<Element> = None;
    loop {
        let at = reader.buffer_position();
        let event = reader.read_event().map_err(|e| wrong(e.to_string(), reader.error_position()))?;
        let outside = || wrong("text outside of the document".to_owned(), at);
        match event {
            Event::Start(start) => {
                if open.len() == DEPTH_MAX {
                    return Err(wrong(format!("elements are nested deeper than {DEPTH_MAX}"), at));
                }
                open.push(element(&start).map_err(|what| wrong(what, at))?);
            }
            Event::Empty(start) => {
                let whole = element(&start).map_err(|what| wrong(what, at))?;
                close(whole, &mut open, &mut root).map_err(|what| wrong(what, at))?;
            }
            Event::End(_) => {
                let whole = open.pop().ok_or_else(outside)?;
                close(whole, &mut open, &mut root).map_err(|what| wrong(what, at))?;
            }
            Event::Text(text) => {
                let text = text.xml_content(XmlVersion::Implicit1_0);
                match open.last_mut() {
                    Some(element) => element.text.push_str(&text),
                    None if text.trim().is_empty() => {}
                    None => return Err(outside()),
                }
            }
            Event::CData(text) => {
                open.last_mut()
                    .ok_or_else(outside)?
                    .text
                    .push_str(&text.xml_content(XmlVersion::Implicit1_0));
            }
            Event::GeneralRef(reference) => {
                let meant = match reference.resolve_char_ref().map_err(|e| wrong(e.to_string(), at))? {
                    Some(c) => c,
                    None => predefined(&reference.xml_content(XmlVersion::Implicit1_0))
                        .ok_or_else(|| wrong("an entity that XML does not know".to_owned(), at))?,
                };
                open.last_mut().ok_or_else(outside)?.text.push(meant);
            }
            Event::DocType(_) => return Err(wrong("a document type, which is not taken".to_owned(), at)),
            Event::Eof if open.is_empty() => {
                return root.ok_or_else(|| "there is no element in it".to_owned());
            }
            Event::Eof => return Err(wrong("it ends within an element".to_owned(), at)),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
        }
    }
}

/// By its own declaration, if it is not UTF-8.
fn decoded(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(Cow::Borrowed(text));
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let label = head.split_once("encoding=").and_then(|(_, rest)| {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        rest[1..].split(quote).next()
    });
    let encoding = label.and_then(|label| Encoding::for_label(label.as_bytes()));
    let text =
        encoding.and_then(|encoding| encoding.decode_without_bom_handling_and_without_replacement(bytes));
    text.ok_or_else(|| "it is not UTF-8, and not what it says to be".to_owned())
}

fn element(start: &BytesStart<'_>) -> Result<Element, String> {
    let mut element = Element { name: local(start.name().as_ref()).to_owned(), ..Element::default() };
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|e| e.to_string())?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|e| e.to_string())?;
        match local(attribute.key.as_ref()) {
            "nil" => element.nil = matches!(&*value, "true" | "1"),
            "type" => element.kind = Some(local(&value).to_owned()),
            _ => {}
        }
    }
    Ok(element)
}

fn close(whole: Element, open: &mut [Element], root: &mut Option<Element>) -> Result<(), String> {
    match (open.last_mut(), root.is_some()) {
        (Some(parent), _) => parent.children.push(whole),
        (None, false) => *root = Some(whole),
        (None, true) => return Err("a second document".to_owned()),
    }
    Ok(())
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn predefined(name: &str) -> Option<char> {
    let known = [("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\'')];
    known.into_iter().find(|(known, _)| *known == name).map(|(_, meant)| meant)
}

impl Element {
    /// The first element of a name among the children.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Its text as it stands there: never a number, which `007.0` would not survive. `null` for nil, an object for
    /// elements within.
    pub(super) fn value(&self) -> Value {
        if self.nil {
            return Value::Null;
        }
        if self.children.is_empty() {
            return Value::String(self.text.clone());
        }
        Value::Object(self.members())
    }

    /// The elements within by their names; a list where a name comes more than once.
    pub(super) fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        for child in &self.children {
            body::add(&mut members, child.name.clone(), child.value());
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_become_members() {
        let xml = "<?xml version=\"1.0\"?><!-- c --><a xmlns:x='u'><x:b>1 &amp; &#x1F600;</x:b><b><![CDATA[<2>]]></b>\
            <c xsi:nil=\"true\"/><d></d><e><f> 007.0 </f></e></a>";
        let got = read(xml.as_bytes()).unwrap().value();
        assert_eq!(
            got,
            json!({ "b": ["1 & \u{1F600}", "<2>"], "c": null, "d": "", "e": { "f": " 007.0 " } })
        );
    }

    #[test]
    fn what_is_no_plain_document_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000));
        for (xml, why) in [
            ("<!DOCTYPE a><a/>", "document type"),
            ("<a>&e;</a>", "an entity"),
            ("<a>&#0;</a>", "at byte"),
            ("<a><b></a>", "at byte"),
            ("<a>", "ends within"),
            ("<a/><b/>", "second document"),
            ("x<a/>", "outside"),
            ("<a/>x", "outside"),
            ("", "no element"),
            ("<a b=\"&x;\"/>", "at byte"),
            (deep.as_str(), "nested deeper"),
        ] {
            let got = read(xml.as_bytes()).map(|read| read.value());
            let start: String = xml.chars().take(20).collect();
            assert!(got.as_ref().is_err_and(|told| told.contains(why)), "{start}: {got:?}");
        }
        assert!(read(b"<a>\xff</a>").is_err());
        assert!(read(b"<?xml version='1.0' encoding='utf-8'?><a>\xff</a>").is_err());
        let latin = read(b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>").unwrap();
        assert_eq!(latin.value(), json!("ä"));
    }
}
