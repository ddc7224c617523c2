//! What came to a source lately: how often, with what verdict, and a few requests whole, to choose its key by. In
//! this process's memory alone: it is gone with a restart, costs no write, and no other node has it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncegate_core::key::sha256;
use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use oncegate_store::api::{AdmitCall, Admitted};
use serde_json::{Map, Value, json};

use super::lists::telling_headers;

/// Of one source.
#[derive(Default)]
pub(crate) struct Recents(Mutex<Lately>);

#[derive(Default)]
struct Lately {
    counts: Vec<(&'static str, u64)>,
    last_at: Option<Timestamp>,
    /// Newest last.
    samples: VecDeque<Sampled>,
    /// Keys and what named their sending, newest last.
    sent: VecDeque<([u8; 32], String)>,
    /// An event that came under more than one name.
    twice: Option<[String; 2]>,
}

/// One request as it came, without what proves who sent it.
struct Sampled {
    at: Timestamp,
    verdicts: Vec<&'static str>,
    reason: Option<String>,
    head: String,
    body: Vec<u8>,
}

/// What is kept of a request before the store takes it.
pub(crate) struct Taken {
    whole: Option<(String, Vec<u8>)>,
    sent: Vec<([u8; 32], String)>,
}

impl fmt::Debug for Recents {
    /// Bodies are nobody's business in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recents")
    }
}

impl Recents {
    fn lately(&self) -> MutexGuard<'_, Lately> {
        // Whoever panicked left nothing half done that matters here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be remembered of a request, if all goes well.
    pub(crate) fn take(&self, call: &AdmitCall, now: Timestamp) -> Taken {
        let key = |event: &oncegate_store::api::AdmitEvent| {
            let key = event.identity.as_ref().ok()?;
            Some((sha256(key.as_str().as_bytes()), event.delivery_id.clone()?))
        };
        let few = call.events.iter().take(limits::RECENT_KEYS_MAX);
        // What has no key is what somebody will look for.
        let looked_for = call.events.iter().any(|event| event.identity.is_err());
        Taken {
            whole: self.whole(&call.headers, &call.body, now, looked_for),
            sent: few.filter_map(key).collect(),
        }
    }

    /// A copy, unless one was made a moment ago: a busy source must not spend its time on copies.
    fn whole(&self, head: &str, body: &[u8], now: Timestamp, always: bool) -> Option<(String, Vec<u8>)> {
        let newest = self.lately().samples.back().map(|sample| sample.at);
        let enough = newest.is_some_and(|at| (Duration::ZERO..limits::RECENT_APART).contains(&now.since(at)));
        let fits = body.len() <= limits::RECENT_BODY_BYTES_MAX;
        (fits && (always || !enough)).then(|| (head.to_owned(), body.to_vec()))
    }

    /// What became of it.
    pub(crate) fn admitted(&self, taken: Taken, verdicts: Vec<&'static str>, now: Timestamp) {
        let mut lately = self.lately();
        for (key, id) in taken.sent {
            let other = lately.sent.iter().find(|(known, before)| *known == key && *before != id);
            if let Some((_, before)) = other {
                lately.twice = Some([before.clone(), id.clone()]);
            }
            lately.sent.push_back((key, id));
        }
        while lately.sent.len() > limits::RECENT_KEYS_MAX {
            lately.sent.pop_front();
        }
        lately.note(now, &verdicts);
        if let Some((head, body)) = taken.whole {
            lately.keep(Sampled { at: now, verdicts, reason: None, head, body });
        }
    }

    /// One that was not believed.
    pub(crate) fn unverified(&self, head: &str, body: &[u8], reason: &str, now: Timestamp) {
        let whole = self.whole(head, body, now, false);
        let mut lately = self.lately();
        lately.note(now, &["unverified"]);
        if let Some((head, body)) = whole {
            let reason = Some(reason.to_owned());
            lately.keep(Sampled { at: now, verdicts: vec!["unverified"], reason, head, body });
        }
    }

    /// A test of the connection.
    pub(crate) fn greeted(&self, now: Timestamp) {
        self.lately().note(now, &["handshake"]);
    }

    /// One that failed.
    pub(crate) fn handshake_refused(&self, now: Timestamp) {
        self.lately().note(now, &["handshake_refused"]);
    }

    /// Lets go of all bodies, and of what names persons.
    pub(crate) fn forget(&self) {
        let mut lately = self.lately();
        lately.samples.clear();
        lately.sent.clear();
        lately.twice = None;
    }

    /// How often what came, and what looks wrong.
    pub(crate) fn told(&self, now: Timestamp) -> Map<String, Value> {
        let mut lately = self.lately();
        lately.let_go(now);
        let counts: Map<String, Value> =
            lately.counts.iter().map(|(verdict, n)| ((*verdict).to_owned(), (*n).into())).collect();
        let hints = lately.hints();
        let told = json!({ "seen": counts, "last_at": lately.last_at, "hints": hints });
        told.as_object().cloned().unwrap_or_default()
    }

    /// The requests, newest first; the first is number 1.
    pub(crate) fn samples(&self, now: Timestamp) -> Vec<Value> {
        let mut lately = self.lately();
        lately.let_go(now);
        let show = |(number, sample): (usize, &Sampled)| {
            let mut headers = telling_headers(Some(&sample.head));
            // What was put beside them for storing; the body here is the whole one.
            let ours = |pair: &Value| pair[0].as_str().is_some_and(|name| name.starts_with(':'));
            headers.as_array_mut().into_iter().for_each(|all| all.retain(|pair| !ours(pair)));
            let mut shown = json!({
                "number": number,
                "received_at": sample.at,
                "verdicts": sample.verdicts,
                "reason": sample.reason,
                "headers": headers,
            });
            match std::str::from_utf8(&sample.body) {
                Ok(text) => shown["body"] = text.into(),
                Err(_) => shown["body_base64"] = data_encoding::BASE64.encode(&sample.body).into(),
            }
            shown
        };
        (1..).zip(lately.samples.iter().rev()).map(show).collect()
    }
}

impl Lately {
    fn note(&mut self, now: Timestamp, verdicts: &[&'static str]) {
        self.last_at = Some(now);
        for verdict in verdicts {
            match self.counts.iter_mut().find(|(known, _)| known == verdict) {
                Some((_, count)) => *count += 1,
                None => self.counts.push((verdict, 1)),
            }
        }
    }

    fn keep(&mut self, sample: Sampled) {
        self.samples.push_back(sample);
        while self.samples.len() > limits::RECENT_SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    fn let_go(&mut self, now: Timestamp) {
        self.samples.retain(|sample| now.since(sample.at) < limits::RECENT_KEPT_FOR);
    }

    fn hints(&self) -> Vec<String> {
        let mut hints = vec![];
        let count =
            |verdict: &str| self.counts.iter().find(|(known, _)| *known == verdict).map_or(0, |c| c.1);
        if self.last_at.is_none() {
            hints.push("nothing came since this process started; send a test event".to_owned());
        }
        if let Some([one, other]) = &self.twice {
            hints.push(format!(
                "one event came as {one} and as {other}: this source may be subscribed more than once"
            ));
        }
        if count("rejected") > 0 {
            let events = match count("rejected") {
                1 => "1 event".to_owned(),
                many => format!("{many} events"),
            };
            hints.push(format!(
                "{events} had no identity: see the rejected list, and choose the key by what came"
            ));
        }
        if count("handshake_refused") > 0 && count("handshake") == 0 {
            hints.push(
                "a test of the connection failed: the sender says another word than `verify_token`"
                    .to_owned(),
            );
        }
        let believed =
            self.counts.iter().any(|(verdict, _)| !matches!(*verdict, "unverified" | "handshake_refused"));
        if count("unverified") > 0 && !believed {
            hints.push("nothing that came was believed; the rejected list says why".to_owned());
        }
        hints
    }
}

/// The word for what became of an event, as lists have it.
pub(crate) fn verdict(admitted: &Admitted) -> &'static str {
    use oncegate_core::decide::StopReason;
    match admitted {
        Admitted::Accepted { .. } => "accepted",
        Admitted::Stopped { reason: StopReason::PayloadMismatch, .. } => "mismatch",
        Admitted::Stopped { .. } => "duplicate",
        Admitted::SetAside { kind, .. } => kind.as_str(),
        Admitted::Rejected { .. } => "rejected",
    }
}
