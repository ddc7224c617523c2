//! Whether a template can ever work: it names what will be there, and filters that exist. What a payload holds is known
//! only when it comes.

use oncegate_runner::flow::{self, Names};

use super::sentence::nearest;

/// What a template may name.
#[derive(Clone, Copy)]
pub(super) enum Sees<'a> {
    /// A record is named when the event comes, before anything has run.
    Payload,
    /// A step, with the names of those before it and of all of its automation, and what else there is.
    Step { before: &'a [&'a str], all: &'a [&'a str], item: bool, response: bool },
    /// A poll asks before there is any event.
    Cursor,
}

const ROOTS: [&str; 6] = ["payload", "steps", "idempotency_key", "automation", "attempt", "oncegate"];
const OF_A_STEP: [&str; 4] = ["json", "text", "status", "items"];
const OF_A_RESPONSE: [&str; 3] = ["json", "text", "status"];
const OF_THE_GATE: [&str; 5] = ["done_url", "error_url", "heartbeat_url", "idempotency_key", "attempt"];

impl Sees<'_> {
    /// The same, done for each item of a list.
    pub(super) fn of_an_item(self) -> Self {
        match self {
            Self::Payload | Self::Cursor => self,
            Self::Step { before, all, response, .. } => Self::Step { before, all, item: true, response },
        }
    }

    /// The same, of what a lookup was answered.
    pub(super) fn of_a_response(self) -> Self {
        match self {
            Self::Payload | Self::Cursor => self,
            Self::Step { before, all, item, .. } => Self::Step { before, all, item, response: true },
        }
    }

    /// Refuses what can never work.
    pub(super) fn check(self, place: &str, template: &str) -> Result<(), String> {
        let names = flow::names(place, template)?;
        match self.wrong(&names) {
            Some(wrong) => Err(format!("{place}: {wrong}")),
            None => Ok(()),
        }
    }

    fn wrong(self, names: &Names) -> Option<String> {
        if let Some(filter) = names.unknown_filters.first() {
            let meant = did_you_mean(nearest(filter, flow::FILTERS.iter().copied()));
            return Some(format!("there is no filter `{filter}`{meant}"));
        }
        if let Some(test) = names.unknown_tests.first() {
            let meant = did_you_mean(nearest(test, flow::TESTS.iter().copied()));
            return Some(format!("there is no test `{test}`{meant}"));
        }
        if let Some(method) = names.methods.first() {
            return Some(format!(
                "values have no methods such as `{method}()`; write a filter, `| {method}`"
            ));
        }
        // Steps first: of `steps.put-order.json` the rest is read as a name of its own.
        let of_steps = names.variables.iter().filter_map(|path| path.strip_prefix("steps."));
        let steps = of_steps.map(|path| path.split_once('.').unwrap_or((path, "")));
        let steps = steps.chain(names.steps.iter().map(|step| (step.as_str(), "")));
        if let Sees::Step { before, all, .. } = self {
            for (step, member) in steps {
                if let Some(wrong) = wrong_step(step, member, before, all) {
                    return Some(wrong);
                }
            }
        }
        names.variables.iter().find_map(|path| self.wrong_variable(path))
    }

    fn wrong_variable(self, path: &str) -> Option<String> {
        let mut parts = path.split('.');
        let root = parts.next().unwrap_or_default();
        match (self, root, parts.next()) {
            (Sees::Cursor, "cursor", None) => None,
            (Sees::Cursor, _, _) => Some(format!(
                "`{path}` is not known here; the url of a poll is filled in with `cursor` alone"
            )),
            (_, "payload", _) => None,
            (Sees::Payload, root, _) if ROOTS.contains(&root) => {
                Some(format!("`{root}` is not known yet when a record is named; only `payload` is"))
            }
            (Sees::Payload, root, _) => {
                Some(format!("`{root}` is not known here; a record is named from `payload` alone"))
            }
            (_, "oncegate", Some(member)) if !OF_THE_GATE.contains(&member) => {
                Some(format!("`oncegate.{member}` is not known{}", offer(member, &OF_THE_GATE)))
            }
            (Sees::Step { response: true, .. }, "response", Some(member))
                if !OF_A_RESPONSE.contains(&member) =>
            {
                Some(format!("a response has no `{member}`{}", offer(member, &OF_A_RESPONSE)))
            }
            (Sees::Step { response: true, .. }, "response", _) => None,
            (Sees::Step { item: true, .. }, "item" | "index", _) => None,
            (_, "item" | "index", _) => Some(format!("`{root}` is known only in a step with `for_each`")),
            (_, root, _) if ROOTS.contains(&root) => None,
            (_, root, _) => Some(format!("`{root}` is not known here{}", offer(root, &ROOTS))),
        }
    }
}

fn wrong_step(step: &str, member: &str, before: &[&str], all: &[&str]) -> Option<String> {
    if before.contains(&step) {
        let member = member.split('.').next().filter(|member| !member.is_empty())?;
        return (!OF_A_STEP.contains(&member))
            .then(|| format!("a step's answer has no `{member}`{}", offer(member, &OF_A_STEP)));
    }
    if all.contains(&step) {
        return Some(format!(
            "the step `{step}` has not run yet here; only answers of earlier steps are known"
        ));
    }
    if before.is_empty() {
        return Some(format!("`steps.{step}` names no earlier step; there is none before this one"));
    }
    let begins =
        |name: &&str| name.strip_prefix(step).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    let meant = before.iter().copied().find(begins).or_else(|| nearest(step, before.iter().copied()));
    let known: Vec<String> = before.iter().map(|name| format!("`{}`", written(name))).collect();
    Some(format!(
        "`steps.{step}` names no earlier step{}",
        offered(meant.map(written).as_deref(), "Earlier ones are", &known.join(", "))
    ))
}

/// How a step is named in a template.
fn written(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || c == '_';
    match name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(plain) {
        true => format!("steps['{name}']"),
        false => format!("steps.{name}"),
    }
}

fn offer(word: &str, known: &[&str]) -> String {
    offered(nearest(word, known.iter().copied()), "Known are", &known.join(", "))
}

/// The word that was meant, if one is near, and all that there are.
fn offered(meant: Option<&str>, are: &str, known: &str) -> String {
    match meant {
        Some(meant) => format!("; did you mean `{meant}`? {are} {known}"),
        None => format!("; {} {known}", are.to_lowercase()),
    }
}

fn did_you_mean(word: Option<&str>) -> String {
    word.map(|word| format!("; did you mean `{word}`?")).unwrap_or_default()
}
