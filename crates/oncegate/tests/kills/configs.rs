//! What the gates of these tests are told to do: which receiver is called by which automation, and how.

use std::fmt::Write;

use crate::judge::Kind;
use crate::world::Receiver;

/// What one event of [`calm`] is meant to do.
pub(crate) const ONE: &[&str] = &["write"];

/// One event, one call of a receiver that knows keys, and that answers once nobody holds it.
pub(crate) fn calm(once: &Receiver) -> String {
    let at = once.at;
    format!(
        "outgoing: {{ allow_private: ['127.0.0.1'] }}
sources:
  once: {{ provider: typeform, secret: 'env:LAB_SECRET', automation: once }}
automations:
  once:
    retries: [1s, 1s, 1s]
    steps:
      - {{ name: write, http: {{ url: 'http://{at}/hold/{TOKEN}/write' }}, repeat: by_key }}
"
    )
}

/// What one event of [`wild`] is meant to do.
pub(crate) fn meant(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Once | Kind::Checked => &["write", "each/a", "each/b"],
        Kind::Never => ONE,
    }
}

const TOKEN: &str = "{{ payload.form_response.token }}";

/// All kinds of receivers, and all kinds of steps that call them. Every wait is as short as it may be, so that what
/// fails comes to its end within seconds, and breakers open and close.
pub(crate) fn wild(receivers: &[(Kind, Receiver)]) -> String {
    let (mut targets, mut sources, mut automations) = (String::new(), String::new(), String::new());
    for (kind, receiver) in receivers {
        let (name, at) = (kind.name(), receiver.at);
        let breaker = "breaker: { failures: 3, pause: 1s, pause_max: 1s }";
        writeln!(targets, "  '{at}': {{ {breaker}, concurrency: 32 }}").unwrap();
        writeln!(sources, "  {name}: {{ provider: typeform, secret: 'env:LAB_SECRET', automation: {name} }}")
            .unwrap();
        let how = |what: &str| match kind {
            Kind::Once => "repeat: by_key".to_owned(),
            Kind::Checked => format!(
                "lookup: {{ url: 'http://{at}/find/{TOKEN}/{what}', found: '{{{{ response.json.total > 0 }}}}', \
                 settle: 3s }}"
            ),
            Kind::Never => "repeat: never".to_owned(),
        };
        let write =
            format!("http: {{ url: 'http://{at}/wild/{TOKEN}/write' }}, timeout: 1s, {}", how("write"));
        write!(
            automations,
            "  {name}:\n    retries: [0s, 1s, 1s]\n    steps:\n      - {{ name: write, {write} }}\n"
        )
        .unwrap();
        if *kind != Kind::Never {
            let item = "{{ item }}";
            let call = format!("url: 'http://{at}/wild/{TOKEN}/each/{item}', json: {{ item: '{item}' }}");
            let each = format!("http: {{ {call} }}, timeout: 1s, {}", how("each/{{ item }}"));
            let list = "for_each: \"{{ ['a', 'b'] }}\"";
            writeln!(automations, "      - {{ name: each, {list}, {each} }}").unwrap();
        }
    }
    format!(
        "outgoing: {{ allow_private: ['127.0.0.1'] }}\ntargets:\n{targets}sources:\n{sources}automations:\n{automations}"
    )
}
