//! One person's data: found wherever it stands, forgotten without running anything again.

use std::collections::BTreeSet;

use oncegate_core::person::Person;
use oncegate_store::api::{AdmitCall, AdmitEvent, UnverifiedCall};
use oncegate_store::person::{Dossier, Forget, Forgotten, Place};

use super::*;

fn ann() -> Arc<Person> {
    let fields = serde_json::json!({ "email": "ann@example.com" });
    Arc::new(Person::from_fields(fields.as_object().unwrap()).unwrap())
}

/// The keys of the claims, and the sources of the loose deliveries, that name her; all of them if nobody is asked for.
async fn found(bench: &Bench, workspace: Workspace, who: Option<Arc<Person>>) -> BTreeSet<String> {
    let (mut names, mut from) = (BTreeSet::new(), Some(Place::START));
    while let Some(place) = from {
        let (dossiers, next) = bench.dossiers(workspace, who.clone(), place).await.unwrap();
        names.extend(dossiers.into_iter().map(|d| match d {
            Dossier::Claim(claim) => claim.view.key.to_string(),
            Dossier::Delivery(row) => row.source,
        }));
        from = next;
    }
    names
}

fn with_payload(call: ClaimCall, json: &str) -> ClaimCall {
    let payload = Some(Payload { body: json.as_bytes().to_vec(), json: json.into() });
    ClaimCall { payload, ..call }
}

#[tokio::test]
async fn a_person_is_found_wherever_it_stands_and_nobody_else_is() {
    for bench in benches().await {
        bench.add_workspace(Workspace(2)).await;
        let hers = r#"{"form": {"email": "Ann@Example.com "}}"#;
        bench.ask(with_payload(caller("payload"), hers)).await;
        bench.ask(with_payload(caller("other"), r#"{"email": "joann@example.com"}"#)).await;
        bench.ask(caller("form:ann@example.com")).await;
        bench.ask(caller("record").on("crm:ann@example.com")).await;
        bench
            .ask(ClaimCall { run_url: Some("https://n8n.test/?q=ann%40example.com".into()), ..caller("url") })
            .await;
        let held = bench.ask(caller("result")).await;
        let result = r#"{"email": "ann@example.com"}"#;
        bench.say_with(&held.token.unwrap(), Call::Done, Some(result)).await;
        let held = bench.ask(caller("note")).await;
        let note = "no contact ann@example.com".to_owned();
        bench.say(&held.token.unwrap(), Call::Error { failure: Failed::Final, note }).await;
        let held = bench.ask(caller("reset since")).await;
        let note = "no contact ann@example.com".to_owned();
        bench.say(&held.token.unwrap(), Call::Error { failure: Failed::Final, note }).await;
        bench.person(held.id, reset()).await;
        bench
            .keep_unverified(UnverifiedCall {
                workspace: WS,
                source: "forms".into(),
                automation: automation("welcome"),
                headers: "{}".into(),
                body: b"email=ann%40example.com".to_vec(),
                reason: "no".into(),
            })
            .await
            .unwrap();
        bench.ask(with_payload(caller("theirs").within(Workspace(2)), hers)).await;
        let names =
            ["form:ann@example.com", "forms", "note", "payload", "record", "reset since", "result", "url"];
        assert_eq!(found(&bench, WS, Some(ann())).await, names.map(str::to_owned).into());
        assert_eq!(found(&bench, Workspace(2), Some(ann())).await, ["theirs".to_owned()].into());
        assert_eq!(found(&bench, WS, None).await.len(), names.len() + 1);
    }
}

#[tokio::test]
async fn what_is_forgotten_leaves_a_hash_that_stops_the_same_event() {
    for bench in benches().await {
        let hers = r#"{"email": "ann@example.com"}"#;
        let event = |name: &str| with_payload(caller(name).on("crm:ann@example.com").with(hers), hers);
        let done = bench.ask(event("done ann@example.com")).await;
        bench.say_with(&done.token.clone().unwrap(), Call::Done, Some(hers)).await;
        let failed = bench.ask(event("failed")).await;
        let error = Call::Error { failure: Failed::Final, note: "unknown outcome of ann@example.com".into() };
        bench.say(&failed.token.unwrap(), error).await;
        let live = bench.ask(event("live")).await;
        let items = [done.id, failed.id, live.id, ClaimRef { workspace: WS, id: ClaimId([9; 16]) }];
        let answers = bench.forget(WS, items.into_iter().map(Forget::Claim).collect()).await.unwrap();
        assert_eq!(answers, [Forgotten::Yes, Forgotten::Yes, Forgotten::Live, Forgotten::Nothing]);
        assert_eq!(found(&bench, WS, Some(ann())).await, ["live".to_owned()].into());

        let left = bench.show(done.id).await.unwrap().unwrap();
        assert_eq!((left.result, left.run_url, left.claim.record), (None, None, None));
        assert_eq!(left.claim.fingerprint, None, "a fingerprint can be guessed");
        assert!(bench.history(done.id).await.unwrap().is_empty());
        assert!(bench.work(done.id).await.unwrap().unwrap().payload.is_none());
        // The promise stays: what happened does not happen again because somebody was forgotten.
        assert_eq!(bench.answer(event("done ann@example.com")).await, "stop duplicate");
        assert_eq!(bench.answer(event("failed")).await, "stop dismissed");
        assert_eq!(bench.seen(failed.id).await.inbox, None, "there is nothing left to look at");
        assert_eq!(bench.say(&done.token.unwrap(), Call::Done).await, Answer::LostClaim);
    }
}

#[tokio::test]
async fn deliveries_go_with_their_claim_or_by_themselves() {
    for bench in benches().await {
        let admit = |identity: Option<&str>| AdmitCall {
            workspace: WS,
            source: "typeform".into(),
            automation: automation("welcome"),
            headers: "{}".into(),
            body: br#"{"email": "ann@example.com"}"#.to_vec(),
            events: vec![AdmitEvent {
                identity: identity.map(key).ok_or_else(|| "no id".to_owned()),
                fingerprint: fingerprint("a"),
                json: r#"{"email": "ann@example.com"}"#.into(),
                record: None,
                likeness: None,
                about: None,
                delivery_id: None,
                dated: None,
                of_batch: false,
                aside: None,
                sender: None,
            }],
            releases: None,
            actor: "source".into(),
        };
        bench.admit(admit(Some("k"))).await.unwrap();
        bench.admit(admit(None)).await.unwrap();
        assert_eq!(found(&bench, WS, Some(ann())).await, ["k".to_owned(), "typeform".to_owned()].into());
        let id = bench.find(WS, automation("welcome"), key("k")).await.unwrap().unwrap();
        let waiting = bench.rejected(WS, None, None, 10).await.unwrap().rows[0].id;
        let items = || vec![Forget::Claim(id), Forget::Delivery(waiting)];
        bench.add_workspace(Workspace(2)).await;
        let theirs = vec![Forget::Delivery(waiting)];
        assert_eq!(bench.forget(Workspace(2), theirs).await.unwrap(), [Forgotten::Nothing]);
        assert_eq!(bench.forget(WS, items()).await.unwrap(), [Forgotten::Live, Forgotten::Yes]);
        bench.person(id, Act::Dismiss).await;
        assert_eq!(bench.forget(WS, items()).await.unwrap(), [Forgotten::Yes, Forgotten::Nothing]);
        assert!(found(&bench, WS, Some(ann())).await.is_empty());
        assert!(bench.deliveries(id, 10).await.unwrap().is_empty());
    }
}

/// Its data is gone: our runner would have nothing to work with, and a tool would be called for a key that is nobody's.
#[tokio::test]
async fn what_is_forgotten_cannot_be_started_from_here() {
    for bench in benches().await {
        let flow = bench.ask(with_payload(caller("flow").queued(), "{}")).await.id;
        let run = bench.ask(runner(flow, bench.boot())).await;
        bench.say(&run.token.unwrap(), Call::Done).await;
        let tool = bench.ask(with_payload(caller("tool").of("hooked"), "{}")).await;
        bench.say(&tool.token.unwrap(), Call::Done).await;
        for id in [flow, tool.id] {
            assert_eq!(bench.forget(WS, vec![Forget::Claim(id)]).await.unwrap(), [Forgotten::Yes]);
            let act = Act::Reset { run_now: true, confirm_holder: None, verified: true };
            bench.person(id, act).await;
        }
        bench.clock.advance(MINUTE);
        assert!(bench.due_ids().await.is_empty());
        assert!(bench.due_nudges(9).await.unwrap().is_empty());
    }
}

/// A retry that is due is an effect that is meant: forgetting must not be the silent end of it.
#[tokio::test]
async fn what_will_run_again_by_itself_is_not_forgotten() {
    for bench in benches().await {
        let id = bench.ask(caller("k").queued()).await.id;
        let run = bench.ask(runner(id, bench.boot())).await;
        bench.say(&run.token.unwrap(), failed()).await;
        let forget = async || bench.forget(WS, vec![Forget::Claim(id)]).await.unwrap();
        assert_eq!(forget().await, [Forgotten::Live]);
        bench.live(HOUR).await;
        assert_eq!(bench.due_ids().await, [id], "it is still to run");
        bench.person(id, Act::Dismiss).await;
        assert_eq!(forget().await, [Forgotten::Yes]);
        assert!(bench.due_ids().await.is_empty());
    }
}
