//! One page of an API's answer.

use serde_json::Value;

use super::{Fault, Mark, Next, Poll};
use crate::json::{self, Twice};
use crate::key::sha256;
use crate::webhook::FieldPath;

/// What one answer holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its items, in their order.
    pub items: Vec<Item>,
    /// Where the next one is; `None`: this is the last.
    pub next: Option<Onward>,
    /// Tells a page that came before; of its items alone, and `None` where it has none.
    pub(super) print: Option<[u8; 32]>,
}

/// One item.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// As it came.
    pub payload: Value,
    /// Where it stands, if it says.
    pub mark: Option<Mark>,
}

/// What leads to the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Onward {
    /// Its address.
    Link(String),
    /// What is sent along.
    Token(String),
}

impl Page {
    /// Reads an answer.
    ///
    /// # Errors
    /// It is not what was declared; nothing of it may be taken.
    pub fn read(poll: &Poll, body: &[u8]) -> Result<Self, Fault> {
        let mut answer = json::read(body, Twice::RefusedIfDifferent)
            .map_err(|why| Fault::Unreadable(format!("it is not JSON ({})", why.fault)))?;
        let next = poll.next.as_ref().map(|next| onward(next, &answer)).transpose()?.flatten();
        let list = match &poll.items {
            None => Some(std::mem::take(&mut answer)),
            Some(path) => path.find_in(&answer).cloned(),
        };
        let Some(Value::Array(list)) = list else {
            let place = match &poll.items {
                None => "as a whole".to_owned(),
                Some(path) => format!("at `{path}`"),
            };
            return Err(Fault::NoItems { place });
        };
        let print = (!list.is_empty()).then(|| sha256(Value::from(list.as_slice()).to_string().as_bytes()));
        let mark = |item: &Value| poll.form.read(poll.cursor.find_in(item)?);
        let items: Vec<Item> =
            list.into_iter().map(|payload| Item { mark: mark(&payload), payload }).collect();
        // Nobody could tell history from news, and the cursor would never move.
        if !items.is_empty() && items.iter().all(|item| item.mark.is_none()) {
            let field = poll.cursor.to_string();
            return Err(Fault::NoCursor { field, form: poll.form.words(), items: items.len() });
        }
        Ok(Self { items, next, print })
    }
}

/// Nothing, `null`, `false` and an empty text are how APIs say that there is no further page.
fn onward(next: &Next, answer: &Value) -> Result<Option<Onward>, Fault> {
    let text = |field: &FieldPath| match field.find_in(answer) {
        None | Some(Value::Null | Value::Bool(false)) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(Value::Bool(true) | Value::Array(_) | Value::Object(_)) => {
            Err(Fault::NoWay { field: field.to_string() })
        }
    };
    Ok(match next {
        Next::Link(field) => text(field)?.map(Onward::Link),
        Next::Token { field, .. } => text(field)?.map(Onward::Token),
    })
}
