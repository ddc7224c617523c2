//! `/v1/forget` and `/v1/person`: what is kept of one person, handed out or forgotten.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use oncegate_core::claim::State as ClaimState;
use oncegate_core::key::{ClaimRef, IdempotencyKey, Workspace};
use oncegate_core::limits;
use oncegate_core::person::Person;
use oncegate_store::access::Deed;
use oncegate_store::api::ClaimView;
use oncegate_store::person::{Dossier, Forget, Forgotten, Place};
use serde_json::{Value, json};

use super::acts::{actor, person_text};
use super::answer::Json;
use super::auth::Caller;
use super::claims::named;
use super::input::{Fields, kind};
use super::lines::{Ended, JSON_LINES, Lines, stream};
use super::problem::Problem;
use super::whole::whole;
use super::{AppState, dossier};

/// Live claims that a refusal names; the number says how many there are.
const NAMED_MAX: usize = 20;

/// What somebody asks to be forgotten.
#[derive(Default)]
struct Found {
    claims: Vec<ClaimRef>,
    deliveries: Vec<i64>,
    live: Vec<ClaimRef>,
    /// Rows of the audit that name the person, which stay.
    in_audit: u64,
    /// What the audit says of whom it was.
    subject: String,
}

pub(crate) async fn forget(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Json, Problem> {
    caller.may_touch_all()?;
    let mut fields = Fields::read(request).await?;
    let reason = person_text(fields.required("reason")?, "reason")?;
    let actor = actor(&caller, &mut fields)?;
    let dry_run = fields.flag("dry_run")?.unwrap_or(false);
    let automation = fields.text("automation")?.map(|name| named(&name, "automation")).transpose()?;
    let key = fields.text("idempotency_key")?;
    let who = fields.value("match").map(person_of).transpose()?;
    fields.finish("idempotency_key with automation, or match; reason, by, dry_run")?;
    let found = match (automation, key, who) {
        (Some(automation), Some(key), None) => {
            unnamed(&reason, &actor, |text| text.contains(&key))?;
            let key =
                IdempotencyKey::try_from(key.as_str()).map_err(|e| Problem::field("idempotency_key", e))?;
            let store = state.gate.store();
            let view = match store.find(caller.workspace, automation, key).await? {
                Some(id) => store.show(id).await?,
                None => None,
            };
            let view = view.ok_or_else(|| Problem::not_found("there is no claim of this key"))?;
            let subject = format!("claim {}", view.at());
            let mut found = Found { subject, ..Found::default() };
            found.add(&view);
            found
        }
        (None, None, Some(who)) => {
            unnamed(&reason, &actor, |text| who.is_named_in(text))?;
            search(&state, caller.workspace, Arc::new(who)).await?
        }
        (_, _, Some(_)) => {
            return Err(Problem::field("match", "is given beside a key; send one of them"));
        }
        (_, _, None) => {
            return Err(Problem::field("match", "is missing; send it, or automation and idempotency_key"));
        }
    };
    let mut answer = json!({
        "dry_run": dry_run,
        "claims": found.claims.len(),
        "deliveries": found.deliveries.len(),
        "live": found.live.len(),
        "audit_rows_that_stay": found.in_audit,
    });
    if dry_run {
        return Ok(Json(answer));
    }
    if !found.live.is_empty() {
        let named: Vec<_> = found.live.iter().take(NAMED_MAX).collect();
        return Err(Problem::still_live(format!(
            "{} of the claims wait or run; nothing was forgotten. Let them finish, or dismiss them first",
            found.live.len()
        ))
        .with("live", found.live.len())
        .with("claims", json!(named)));
    }
    // What came lately is in memory too, and nobody looks through it.
    state.doors.of(caller.workspace).for_each(|(_, source)| source.recents.forget());
    // Half of a person is not forgotten.
    let forgetting = whole(forget_all(Arc::clone(&state), caller.workspace, found, reason, actor));
    let (forgotten, became_live) = forgetting.await??;
    answer["forgotten"] = forgotten.into();
    answer["live"] = became_live.into();
    Ok(Json(answer))
}

/// The audit is for ever, so that a reason in it must not say who it was.
fn unnamed(reason: &str, actor: &str, names: impl Fn(&str) -> bool) -> Result<(), Problem> {
    for (field, text) in [("reason", reason), ("by", actor)] {
        if names(text) {
            return Err(Problem::field(
                field,
                "names what shall be forgotten, and the audit keeps it; write it without, e.g. a ticket's number",
            ));
        }
    }
    Ok(())
}

fn person_of(value: Value) -> Result<Person, Problem> {
    let value = match value {
        // A form has no other way to send it.
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    };
    match value {
        Value::Object(fields) => Person::from_fields(&fields).map_err(|e| Problem::field("match", e)),
        other => Err(Problem::field(
            "match",
            format!("must be an object of fields and values, not {}", kind(&other)),
        )),
    }
}

impl Found {
    fn add(&mut self, view: &ClaimView) {
        let ended = match &view.claim.state {
            ClaimState::Done { .. } => true,
            // What will run again by itself, or is about to be called back, is not over.
            ClaimState::Error { due, .. } => due.is_none() && view.claim.nudge.is_none(),
            ClaimState::None { .. } => view.claim.dismissed,
            ClaimState::Processing(_) => false,
        };
        if ended { &mut self.claims } else { &mut self.live }.push(view.at());
    }
}

async fn search(state: &AppState, workspace: Workspace, who: Arc<Person>) -> Result<Found, Problem> {
    let store = state.gate.store();
    let subject = format!("person {}", who.hash(store.secret(), workspace));
    let mut found = Found { subject, ..Found::default() };
    let mut from = Some(Place::START);
    while let Some(place) = from {
        let (dossiers, next) = store.dossiers(workspace, Some(Arc::clone(&who)), place).await?;
        for dossier in dossiers {
            match dossier {
                Dossier::Claim(claim) => found.add(&claim.view),
                Dossier::Delivery(row) => found.deliveries.push(row.id),
            }
        }
        if found.claims.len() + found.live.len() + found.deliveries.len() > limits::PERSON_CLAIMS_MAX {
            return Err(Problem::limit_reached(format!(
                "more than {} claims and deliveries match; that is not one person",
                limits::PERSON_CLAIMS_MAX
            )));
        }
        from = next;
    }
    found.in_audit = store.audit_naming(workspace, who).await?;
    Ok(found)
}

async fn forget_all(
    state: Arc<AppState>,
    workspace: Workspace,
    found: Found,
    reason: String,
    actor: String,
) -> Result<(u64, u64), Problem> {
    let store = state.gate.store();
    // First, so that nothing goes that nobody is known to have asked for.
    let detail = format!("{} claims, {} deliveries", found.claims.len(), found.deliveries.len());
    let (action, subject) = ("forget".into(), found.subject);
    let deed = Deed { actor, action, subject, reason, detail: Some(detail) };
    store.note_deeds(workspace, vec![deed]).await?;
    let items = found.claims.into_iter().map(Forget::Claim);
    let items: Vec<Forget> = items.chain(found.deliveries.into_iter().map(Forget::Delivery)).collect();
    let (mut forgotten, mut live) = (0, 0);
    for chunk in items.chunks(limits::FORGOTTEN_PER_TRANSACTION) {
        for fate in store.forget(workspace, chunk.to_vec()).await? {
            match fate {
                Forgotten::Yes => forgotten += 1,
                Forgotten::Live => live += 1,
                Forgotten::Nothing => {}
            }
        }
    }
    Ok((forgotten, live))
}

pub(crate) async fn person(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_touch_all()?;
    let mut fields = Fields::read(request).await?;
    let who = fields.value("match").ok_or_else(|| Problem::field("match", "is missing"))?;
    let who = Arc::new(person_of(who)?);
    let reason =
        fields.text("reason")?.map(|text| person_text(text, "reason")).transpose()?.unwrap_or_default();
    let actor = actor(&caller, &mut fields)?;
    fields.finish("match, reason, by")?;
    unnamed(&reason, &actor, |text| who.is_named_in(text))?;
    let store = state.gate.store();
    let subject = format!("person {}", who.hash(store.secret(), caller.workspace));
    let deed = Deed { actor, action: "person_exported".into(), subject, reason, detail: None };
    store.note_deeds(caller.workspace, vec![deed]).await?;
    Ok(stream(JSON_LINES, "person.jsonl", move |lines| write(state, caller.workspace, who, lines)))
}

async fn write(
    state: Arc<AppState>,
    workspace: Workspace,
    who: Arc<Person>,
    lines: Lines,
) -> Result<(), Ended> {
    let store = state.gate.store();
    let (mut claims, mut deliveries) = (0_u64, 0_u64);
    let mut from = Some(Place::START);
    while let Some(place) = from {
        let (dossiers, next) = store.dossiers(workspace, Some(Arc::clone(&who)), place).await?;
        for dossier in &dossiers {
            match dossier {
                Dossier::Claim(_) => claims += 1,
                Dossier::Delivery(_) => deliveries += 1,
            }
            lines.json(&dossier::line(dossier, store.now())).await?;
        }
        from = next;
    }
    let in_audit = store.audit_naming(workspace, who).await?;
    let end = json!({
        "kind": "end", "claims": claims, "deliveries": deliveries, "audit_rows_that_stay": in_audit,
    });
    lines.json(&end).await
}
