//! JSON as it stands in the file, with the place of each text: a broken template is told where it stands.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};

/// A value, and where its texts stand.
#[derive(Clone)]
pub(super) struct Json {
    pub(super) value: Value,
    texts: Vec<Text>,
}

/// One text of it.
#[derive(Clone)]
struct Text {
    /// From the top, as in `.contact.names[0]`.
    path: String,
    text: String,
    /// Unknown for a text that is all there is.
    location: Option<Location>,
}

impl Json {
    /// The value below `json:`, all texts of which pass the check.
    pub(super) fn checked<E>(
        declared: &Spanned<Self>,
        check: impl Fn(&str, &str) -> Result<(), String>,
        at: impl Fn(Location, String) -> E,
    ) -> Result<Value, E> {
        for Text { path, text, location } in &declared.value.texts {
            check(&format!("json{path}"), text)
                .map_err(|message| at(location.unwrap_or(declared.referenced), message))?;
        }
        Ok(declared.value.value.clone())
    }

    fn plain(value: Value) -> Self {
        Self { value, texts: vec![] }
    }

    /// Takes over the texts of a part.
    fn adopt(texts: &mut Vec<Text>, step: &str, part: Spanned<Self>) -> Value {
        texts.extend(part.value.texts.into_iter().map(|text| Text {
            path: format!("{step}{}", text.path),
            location: text.location.or(Some(part.referenced)),
            ..text
        }));
        part.value.value
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::plain(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::plain(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        // JSON knows no infinity.
        Ok(Json::plain(serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        let texts = vec![Text { path: String::new(), text: text.to_owned(), location: None }];
        Ok(Json { value: text.into(), texts })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let (mut items, mut texts) = (vec![], vec![]);
        while let Some(part) = seq.next_element()? {
            items.push(Json::adopt(&mut texts, &format!("[{}]", items.len()), part));
        }
        Ok(Json { value: items.into(), texts })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let (mut members, mut texts) = (Map::new(), vec![]);
        while let Some((name, part)) = map.next_entry::<String, _>()? {
            let value = Json::adopt(&mut texts, &format!(".{name}"), part);
            members.insert(name, value);
        }
        Ok(Json { value: members.into(), texts })
    }
}
