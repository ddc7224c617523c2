//! What the API adds to single calls: batches of claims, writes that a repeat does not repeat, tags.

use oncegate_core::limits;
use oncegate_store::people::{Answering, Kept, Known, Once, Request as Named, Write, Written, Wrote};

use super::*;

fn words_of(answers: &[Result<Option<Claimed>, oncegate_store::StoreError>]) -> Vec<String> {
    answers
        .iter()
        .map(|a| match a {
            Ok(Some(claimed)) => words(&claimed.decision),
            Ok(None) => "parent lost".to_owned(),
            Err(error) => format!("failed: {error}"),
        })
        .collect()
}

#[tokio::test]
async fn a_batch_answers_in_order_each_as_if_alone() {
    for bench in benches().await {
        let done = bench.ask(caller("done")).await;
        bench.say(&done.token.unwrap(), Call::Done).await;
        bench.ask(caller("held").on("crm:1")).await;
        // Of a workspace that is not there: the store fails, and only for this one.
        let missing = caller("nobody's").within(Workspace(9));
        let calls = vec![
            caller("new").under_run("r1"),
            caller("done"),
            missing.clone(),
            caller("busy").on("crm:1"),
            caller("new").under_run("r1"),
            caller("new"),
            caller("other").under_run("r1"),
        ];
        let answers = bench.claim_batch(calls.clone()).await.unwrap();
        let first = words_of(&answers);
        assert!(first[2].starts_with("failed"), "{first:?}");
        let others = [&first[..2], &first[3..]].concat();
        let expected = [
            "run first",
            "stop duplicate",
            "stop record_busy",
            "stop in_progress",
            "stop in_progress",
            "run first",
        ];
        assert_eq!(others, expected);
        // Its answer got lost: the holder is known again, its double still is not taken for it.
        let again = words_of(&bench.claim_batch(calls).await.unwrap());
        assert_eq!(again[0], "run same_run");
        assert_eq!(again[4..], ["stop in_progress", "stop in_progress", "run same_run"]);
        let tokens: Vec<_> = answers.iter().flatten().flatten().filter_map(|c| c.token.as_ref()).collect();
        assert_eq!(tokens.len(), 2);
        for token in tokens {
            assert_eq!(bench.say(token, Call::Done).await, Answer::Accepted);
        }
    }
}

fn once(key_text: &str, print: u8) -> Once {
    let answering: Answering = Arc::new(|written, now| match written {
        Written::Act(Acted::Written(view)) => {
            let body = Some(format!("{} at {}", view.claim.generation, now.wall));
            Some(Kept { status: 200, body })
        }
        _ => None,
    });
    let request = Named { workspace: WS, key: key(key_text), fingerprint: [print; 32] };
    Once { request, answering }
}

fn wanted(id: ClaimRef, act: Act) -> Write {
    Write::Act { call: ActCall { id, act, reason: "r".into(), actor: "mia".into() }, tag: None }
}

#[tokio::test]
async fn a_write_that_is_named_happens_once_and_is_answered_the_same_for_a_day() {
    for mut bench in reopened_benches().await {
        let held = bench.ask(caller("k")).await;
        let refused = bench.write(wanted(held.id, reset()), Some(once("w1", 1))).await.unwrap();
        assert!(matches!(refused, Wrote::Now(Written::Act(Acted::Refused(_)), _)), "{refused:?}");
        assert_eq!(bench.known_request(once("w1", 1).request).await.unwrap(), None, "a refusal is not kept");

        bench.say(&held.token.unwrap(), failed_for_good()).await;
        let first = bench.write(wanted(held.id, reset()), Some(once("w1", 1))).await.unwrap();
        let Wrote::Now(Written::Act(Acted::Written(view)), now) = first else { panic!("{first:?}") };
        let kept = Kept { status: 200, body: Some(format!("{} at {}", view.claim.generation, now.wall)) };
        bench.reopen().await;
        // It failed once more since: only a second reset would open it again.
        let again = bench.ask(caller("k")).await;
        bench.say(&again.token.unwrap(), failed_for_good()).await;
        bench.live(MINUTE).await;
        let repeat = bench.write(wanted(held.id, reset()), Some(once("w1", 1))).await.unwrap();
        assert!(matches!(&repeat, Wrote::Before(Known::Answered(k)) if *k == kept), "{repeat:?}");
        let other = bench.write(wanted(held.id, reset()), Some(once("w1", 2))).await.unwrap();
        assert!(matches!(other, Wrote::Before(Known::Reused)), "{other:?}");
        assert_eq!(bench.seen(held.id).await.claim.resets, 1);
        // Another workspace's key of the same name is another key.
        bench.add_workspace(Workspace(2)).await;
        let theirs = Named { workspace: Workspace(2), ..once("w1", 1).request };
        assert_eq!(bench.known_request(theirs).await.unwrap(), None);

        bench.clock.advance(limits::REQUESTS_KEPT_FOR);
        assert_eq!(bench.known_request(once("w1", 1).request).await.unwrap(), None, "a day is over");
        bench.reap(100).await.unwrap();
        let anew = bench.write(wanted(held.id, reset()), Some(once("w1", 2))).await.unwrap();
        assert!(matches!(anew, Wrote::Now(Written::Act(Acted::Written(_)), _)), "{anew:?}");
    }
}

#[tokio::test]
async fn a_tag_is_filed_once_and_changes_nothing_that_is_decided() {
    for bench in benches().await {
        let held = bench.ask(caller("k")).await;
        let file = async |tag: Option<&str>| {
            let write = Write::Tag {
                id: held.id,
                tag: tag.map(str::to_owned),
                reason: "twins".into(),
                actor: "mia".into(),
            };
            match bench.write(write, None).await.unwrap() {
                Wrote::Now(Written::Tagged(Some((view, changed))), _) => (view.tag, changed),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(file(Some("dup")).await, (Some("dup".to_owned()), true));
        assert_eq!(file(Some("dup")).await, (Some("dup".to_owned()), false));
        assert_eq!(bench.story(held.id).await, ["run first", "tag -"]);
        assert_eq!(bench.say(&held.token.clone().unwrap(), Call::Done).await, Answer::Accepted);
        assert_eq!(file(None).await, (None, true));
        let acts = bench.audit(WS, None, 10).await.unwrap().rows;
        assert_eq!(acts.iter().filter(|row| row.action == "tag").count(), 2);
    }
}
