//! The preview for people.

use oncegate_core::identity::{Part, Rule};
use oncegate_core::webhook::FieldSeen;

use super::against::Compared;
use super::look::Seen;
use super::{Shown, as_sent};
use crate::cli::term::table::{Cell, Column, Shrink, table};
use crate::cli::term::text::{clean, wrap};
use crate::cli::term::{Screen, Style};

const NAMES: usize = 13;

fn fact(page: &mut String, screen: &Screen, name: &str, text: &str) {
    let lines = match screen.width {
        Some(width) => wrap(text, width.saturating_sub(NAMES + 4)),
        None => vec![text.to_owned()],
    };
    for (i, line) in lines.iter().enumerate() {
        let name = if i == 0 { format!("{name:<NAMES$}") } else { " ".repeat(NAMES) };
        page.push_str(&format!("    {}{line}\n", screen.paint(Style::Dim, &name)));
    }
}

/// One sample.
pub(super) fn page(screen: &Screen, shown: &Shown<'_>, signature: &str, events: &[Seen]) -> String {
    let dim = |text: &str| screen.paint(Style::Dim, text);
    let source = shown.source;
    let mut page = format!(
        "  {} {} ({}), runs {}\n  {} {}\n",
        dim("source   "),
        clean(shown.address),
        source.provider.name(),
        clean(source.automation.as_str()),
        dim("signature"),
        clean(signature)
    );
    for (number, event) in (1..).zip(events) {
        page.push('\n');
        let (style, word) = match event.identity {
            Ok(_) => (Style::Green, "would run"),
            Err(_) => (Style::Red, "would be rejected"),
        };
        page.push_str(&format!("  event {number}: {}\n", screen.paint(style, word)));
        one(&mut page, screen, event);
    }
    if events.is_empty() {
        page.push_str("\n  There is no event in it.\n");
    }
    page
}

fn one(page: &mut String, screen: &Screen, event: &Seen) {
    match &event.identity {
        Ok(key) => fact(page, screen, "key", &screen.paint(Style::Bold, &clean(key.as_str()))),
        Err(why) => fact(page, screen, "why", &clean(why)),
    }
    if let Some(key) = &event.without_rules {
        fact(page, screen, "unfolded", &clean(key));
    }
    if let Some(record) = &event.record {
        fact(page, screen, "record", &clean(record.as_str()));
    }
    if let Some(id) = &event.delivery_id {
        fact(page, screen, "delivery id", &clean(id));
    }
    let left_out: Vec<String> = event.explained.volatile.iter().map(ToString::to_string).collect();
    let left_out = match left_out.is_empty() {
        true => String::new(),
        false => format!(", without {}", clean(&left_out.join(", "))),
    };
    fact(page, screen, "fingerprint", &format!("{}{left_out}", event.fingerprint));
    seen(page, screen, "THE KEY IS MADE OF", &event.explained.key);
    if let Some(within) = &event.within {
        let title = format!("WHATEVER AGREES IN THESE WITHIN {within} IS ONE EFFECT");
        seen(page, screen, &title, &event.explained.repeat);
        if event.repeat.is_none() {
            page.push_str("    a field is missing, so the rule does not apply to this event\n");
        }
    }
    if !event.explained.identity.is_empty() {
        seen(page, screen, "WHAT TELLS ITS RECORD FROM OTHERS", &event.explained.identity);
        if event.about.is_none() {
            page.push_str("    a field is missing, so nothing is known of this event's record\n");
        }
    }
    for hint in &event.hints {
        page.push('\n');
        fact(page, screen, "hint", &clean(hint));
    }
}

fn seen(page: &mut String, screen: &Screen, title: &str, fields: &[FieldSeen]) {
    if fields.is_empty() {
        return;
    }
    page.push_str(&format!("\n    {}\n", screen.paint(Style::Dim, title)));
    let columns = [
        Column::new("FIELD", Shrink::Never),
        Column::new("AS", Shrink::Never),
        Column::new("SENT", Shrink::End),
        Column::new("COUNTS AS", Shrink::End),
    ];
    let rows: Vec<Vec<Cell>> = fields.iter().map(row).collect();
    let narrow = screen.narrower(2);
    for line in table(&narrow, &columns, &rows).lines() {
        page.push_str(&format!("  {line}\n"));
    }
}

fn row(seen: &FieldSeen) -> Vec<Cell> {
    let FieldSeen { field, sent, part } = seen;
    let optional = if field.optional { ", optional" } else { "" };
    let rule = match &field.rule {
        Rule::Date(form) => format!("date {form}{optional}"),
        rule => format!("{}{optional}", rule.name()),
    };
    let (style, counts) = match part {
        Ok(part @ Part::Value(_)) => (Style::Bold, part.to_string()),
        Ok(nothing) => (Style::Yellow, nothing.to_string()),
        Err(_) => (Style::Red, "refused".to_owned()),
    };
    let sent = sent.as_ref().map_or_else(|| "not there".to_owned(), as_sent);
    vec![
        clean(&field.path.to_string()).into(),
        clean(&rule).into(),
        sent.into(),
        Cell::new(style, clean(&counts)),
    ]
}

/// A second sample beside the first.
pub(super) fn second(screen: &Screen, file: &str, compared: &Compared) -> String {
    let (style, word) = match compared.one_effect {
        true => (Style::Green, "one effect"),
        false => (Style::Yellow, "two effects"),
    };
    let word = if compared.verdict == "rejected" { "no effect" } else { word };
    let mut page = format!("\n  against {}: {}\n", clean(file), screen.paint(style, word));
    match &compared.key {
        Ok(key) => fact(&mut page, screen, "key", &screen.paint(Style::Bold, &clean(key))),
        Err(why) => fact(&mut page, screen, "why", &clean(why)),
    }
    if !compared.differ.is_empty() {
        fact(&mut page, screen, "differs in", &clean(&compared.differ.join(", ")));
    }
    fact(&mut page, screen, "so", &clean(&compared.words));
    page
}
