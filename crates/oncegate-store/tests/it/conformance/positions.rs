//! Where sources stand: moved once, together with what they bring.

use oncegate_core::notice::NoticeKind;
use oncegate_store::api::{AdmitCall, Admitted};
use oncegate_store::notices::NoticeFilter;
use oncegate_store::positions::{Advance, OverNotice, SourcePosition};

use super::*;

pub(crate) fn to(seen: Option<i64>, value: &str, keys: &[&str]) -> Advance {
    let event = |name: &&str| plain_event(Ok(key(name)), fingerprint("a"), "{}");
    let admit = AdmitCall {
        workspace: WS,
        source: "nightly".into(),
        automation: automation("welcome"),
        headers: "[]".into(),
        body: b"{}".to_vec(),
        events: keys.iter().map(event).collect(),
        releases: None,
        actor: "source:nightly".into(),
    };
    Advance {
        workspace: WS,
        source: "nightly".into(),
        seen,
        value: format!("\"{value}\""),
        admit: (!keys.is_empty()).then_some(admit),
        automation: automation("welcome"),
        notices: vec![(NoticeKind::SkippedSlots, format!("moved to {value}"))],
        over: None,
    }
}

impl Bench {
    async fn stands(&self) -> Option<(i64, String)> {
        let stands = self.position(WS, "nightly".into()).await.unwrap();
        stands.map(|SourcePosition { version, value }| (version, value))
    }

    /// How often it moved, as notices tell, and the claims that there are.
    async fn brought(&self) -> (u64, usize) {
        let filter = NoticeFilter { limit: 10, ..NoticeFilter::default() };
        let notices = self.notices(WS, filter).await.unwrap().rows;
        let moves = notices.iter().filter(|n| n.kind == NoticeKind::SkippedSlots).map(|n| n.count).sum();
        (moves, self.list(WS, Filter { limit: 10, ..Filter::default() }).await.unwrap().rows.len())
    }
}

#[tokio::test]
async fn a_source_moves_once_with_what_it_brings_or_not_at_all() {
    for mut bench in reopened_benches().await {
        assert_eq!(bench.stands().await, None);
        assert_eq!(bench.advance(to(Some(1), "x", &["a"])).await.unwrap(), None, "it stands nowhere yet");
        assert_eq!(bench.advance(to(None, "1", &[])).await.unwrap(), Some(vec![]));
        assert_eq!(bench.advance(to(None, "x", &["a"])).await.unwrap(), None, "somebody was first");
        let brought = bench.advance(to(Some(1), "2", &["b", "c"])).await.unwrap().unwrap();
        assert!(matches!(brought[..], [Admitted::Accepted { .. }, Admitted::Accepted { .. }]), "{brought:?}");
        assert_eq!(bench.advance(to(Some(1), "x", &["a"])).await.unwrap(), None, "it has moved since");
        assert_eq!(bench.brought().await, (2, 2));
        bench.reopen().await;
        assert_eq!(bench.stands().await, Some((2, "\"2\"".into())));
        let (one, other) =
            tokio::join!(bench.advance(to(Some(2), "3", &["d"])), bench.advance(to(Some(2), "3", &["d"])));
        assert_eq!([one, other].iter().filter(|moved| moved.as_ref().unwrap().is_some()).count(), 1);
        assert_eq!((bench.stands().await.unwrap().0, bench.brought().await), (3, (3, 3)));
        // Of one workspace, and of one name.
        let theirs = Workspace(2);
        bench.add_workspace(theirs).await;
        assert_eq!(bench.position(theirs, "nightly".into()).await.unwrap(), None);
        assert_eq!(bench.position(WS, "hourly".into()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_is_over_is_told_no_more_and_told_anew_if_it_happens_again() {
    for bench in benches().await {
        let mut seen = None;
        let mut told = async |words: Option<&str>, over: Option<&str>, dismissed: bool| {
            let kind = NoticeKind::PollFails;
            let call = Advance {
                notices: words.iter().map(|words| (kind, (*words).to_owned())).collect(),
                over: over.map(|begins| OverNotice { kind, begins: begins.to_owned() }),
                ..to(seen, "x", &[])
            };
            bench.advance(call).await.unwrap().unwrap();
            seen = Some(seen.unwrap_or(0) + 1);
            let filter = NoticeFilter { limit: 10, dismissed, ..NoticeFilter::default() };
            let rows = bench.notices(WS, filter).await.unwrap().rows;
            rows.into_iter().map(|row| (row.id, row.detail, row.count)).collect::<Vec<_>>()
        };
        let all = told(Some("the poll `a` failed"), None, false).await;
        assert_eq!((all.len(), all[0].1.as_str(), all[0].2), (1, "the poll `a` failed", 1));
        assert_eq!(told(None, Some("the poll `b`"), false).await, all, "of another source");
        assert_eq!(told(None, Some("the poll `a"), true).await, []);
        // Somebody who put it away is told when it comes back the same day.
        let all = told(Some("the poll `ä_%` failed"), None, false).await;
        bench.dismiss_notice(WS, all[0].0, None, "seen".into(), "mara".into()).await.unwrap();
        assert_eq!(told(Some("the poll `ä_%` failed"), None, false).await, []);
        assert_eq!(told(None, Some("the poll `ä_%`"), true).await, []);
        let all = told(Some("the poll `ä_%` failed"), None, false).await;
        assert_eq!((all.len(), all[0].2), (1, 1));
    }
}
