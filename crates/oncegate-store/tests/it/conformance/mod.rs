//! What every store must do, written against the trait only. A backend joins by one line in [`BACKENDS`].

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oncegate_core::access::WorkspaceName;
use oncegate_core::claim::{Boot, Holder};
use oncegate_core::decide::{Decision, Request, Start};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::finish::{Answer, Call, Failed};
use oncegate_core::key::{AutomationName, ClaimId, ClaimRef, IdempotencyKey, RecordName, RunId};
use oncegate_core::policy::{Finish, Jitter, OnStale, Policy};
use oncegate_core::reset::Act;
use oncegate_core::time::{Tick, Timestamp};
use oncegate_core::token::Token;
use oncegate_store::Store;
use oncegate_store::api::{
    ActCall, Acted, AdmitEvent, ClaimCall, ClaimView, Claimed, Filter, FinishCall, Payload, PolicyBook,
    Target, Workspace,
};
use oncegate_store::clock::{Clock, ManualClock};

mod access;
mod bulk;
pub(crate) mod claims;
mod families;
mod finishing;
mod intake;
mod lists;
mod model;
mod never_lost;
pub(crate) mod nodes;
mod notices;
mod nudges;
mod order;
mod people;
pub(crate) mod positions;
mod privacy;
mod records;
mod repeats;
mod reviews;
mod runs;
mod search;
pub(crate) mod senders;
mod steps;
mod time;
mod vitals;
mod workspaces;

/// What makes stores of one kind. `open` may be called again once the store before it was closed.
#[async_trait::async_trait]
pub(crate) trait Backend: Send + Sync {
    async fn open(&self, clock: Arc<dyn Clock>, policies: Arc<dyn PolicyBook>) -> Arc<dyn Store>;
}

/// Makes an empty place for a store.
type Make = fn() -> Box<dyn Backend>;

/// The backends by name.
const BACKENDS: [(&str, Make); 3] = [
    ("sqlite", || Box::new(crate::sqlite::Files::new())),
    ("postgres", || Box::new(crate::postgres::Cluster::new())),
    // For what is opened again: then it is moved from the first to the second.
    ("moved", || Box::new(crate::moved::Moving::new())),
];

/// Names the one backend that is tested, while one is at work on it.
const ONLY: Option<&str> = option_env!("ONCEGATE_TEST_STORE");

/// An open store and the clock it goes by.
pub(crate) struct Bench {
    store: Option<Arc<dyn Store>>,
    pub(crate) clock: Arc<ManualClock>,
    backend: Box<dyn Backend>,
}

impl Deref for Bench {
    type Target = Arc<dyn Store>;
    fn deref(&self) -> &Arc<dyn Store> {
        self.store.as_ref().unwrap()
    }
}

/// One fresh bench per backend.
pub(crate) async fn benches() -> Vec<Bench> {
    made(&BACKENDS[..2]).await
}

/// The same for a test that opens its store again: also one that was moved in between.
pub(crate) async fn reopened_benches() -> Vec<Bench> {
    made(&BACKENDS).await
}

async fn made(backends: &[(&str, Make)]) -> Vec<Bench> {
    let mut benches = Vec::new();
    for (_, make) in backends.iter().filter(|(name, _)| ONLY.is_none_or(|only| only == *name)) {
        let (backend, clock) = (make(), Arc::new(ManualClock::at(MORNING)));
        let store = backend.open(Arc::clone(&clock) as _, Arc::new(Policies)).await;
        benches.push(Bench { store: Some(store), clock, backend });
    }
    benches
}

/// 2026-01-05T10:00:00Z.
pub(crate) const MORNING: Timestamp = Timestamp::from_secs(1_767_607_200);
pub(crate) const TTL: Duration = Duration::from_secs(15 * 60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
pub(crate) const WS: Workspace = Workspace::DEFAULT;
/// What the store takes for its own runner.
pub(crate) const RUNNER: &str = "runner";

/// `hold`, `at_claim` and `hooked` mean what they say; every other automation has the defaults.
pub(crate) struct Policies;

impl PolicyBook for Policies {
    fn policy(&self, _workspace: Workspace, automation: &AutomationName) -> Arc<Policy> {
        let mut policy = Policy::default();
        match automation.as_str() {
            "hold" => policy.on_stale = OnStale::Hold,
            "at_claim" => policy.finish = Finish::AtClaim,
            "hooked" => policy.retrigger = true,
            _ => {}
        }
        Arc::new(policy)
    }

    fn declared(&self, _workspace: Workspace) -> Vec<AutomationName> {
        ["hold", "at_claim", "hooked", "welcome"].map(automation).into()
    }
}

impl Bench {
    /// Closes the store and starts it again in the same place.
    pub(crate) async fn reopen(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().await;
        }
        self.store = Some(self.backend.open(Arc::clone(&self.clock) as _, Arc::new(Policies)).await);
    }

    /// Makes workspaces until there is this one.
    pub(crate) async fn add_workspace(&self, workspace: Workspace) {
        let made = self
            .store()
            .add_workspace(workspace_name(&format!("client-{}", workspace.0)), "mia".into())
            .await;
        assert_eq!(made.unwrap(), (workspace, true));
    }

    fn store(&self) -> &dyn Store {
        self.store.as_deref().unwrap()
    }

    /// Live time passes: the store ticks all along, as seldom as it may.
    pub(crate) async fn live(&self, mut d: Duration) {
        while d > Duration::ZERO {
            let step = d.min(Tick::INTERVAL * 2);
            self.clock.advance(step);
            self.tick().await.unwrap();
            d -= step;
        }
    }

    pub(crate) async fn ask(&self, call: ClaimCall) -> Claimed {
        self.claim(call).await.unwrap().unwrap()
    }

    /// What a claim is answered: `run first`, `stop duplicate`, …
    pub(crate) async fn answer(&self, call: ClaimCall) -> String {
        words(&self.ask(call).await.decision)
    }

    /// A finish call with a token as text, as it comes in from outside.
    pub(crate) async fn say(&self, token: &Token, call: Call) -> Answer {
        self.say_with(token, call, None).await
    }

    pub(crate) async fn say_with(&self, token: &Token, call: Call, result: Option<&str>) -> Answer {
        let (id, fence) = self.secret().read_token(token.expose()).unwrap();
        let call = FinishCall {
            id,
            fence,
            call,
            jitter: Jitter::NONE,
            result: result.map(str::to_owned),
            actor: "token:crm".into(),
        };
        self.finish(call).await.unwrap().unwrap().0
    }

    pub(crate) async fn person(&self, id: ClaimRef, act: Act) -> Acted {
        let (reason, actor) = ("looked into it".to_owned(), "mia".to_owned());
        self.act(ActCall { id, act, reason, actor }).await.unwrap()
    }

    pub(crate) async fn seen(&self, id: ClaimRef) -> ClaimView {
        self.show(id).await.unwrap().unwrap()
    }

    /// `kind reason` of every history row.
    pub(crate) async fn story(&self, id: ClaimRef) -> Vec<String> {
        let rows = self.history(id).await.unwrap();
        rows.iter().map(|r| format!("{} {}", r.kind, r.reason.as_deref().unwrap_or("-"))).collect()
    }

    pub(crate) async fn due_ids(&self) -> Vec<ClaimRef> {
        self.due(1_000).await.unwrap().iter().map(|d| d.id).collect()
    }

    /// Every row of a list, page by page.
    pub(crate) async fn all(&self, filter: Filter) -> Vec<ClaimView> {
        let (mut rows, mut before) = (Vec::new(), filter.before);
        loop {
            let page = self.list(WS, Filter { before, ..filter.clone() }).await.unwrap();
            rows.extend(page.rows);
            before = page.next;
            if before.is_none() {
                return rows;
            }
        }
    }
}

pub(crate) fn words(decision: &Decision) -> String {
    match decision {
        Decision::Run(reason) => format!("run {}", reason.as_str()),
        Decision::Queued(reason) => format!("queued {}", reason.as_str()),
        Decision::Stop { reason, .. } => format!("stop {}", reason.as_str()),
    }
}

pub(crate) fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::try_from(text).unwrap()
}

pub(crate) fn automation(text: &str) -> AutomationName {
    AutomationName::try_from(text).unwrap()
}

pub(crate) fn record(text: &str) -> RecordName {
    RecordName::try_from(text).unwrap()
}

pub(crate) fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::of(&serde_json::Value::String(text.to_owned()), &[])
}

/// An event that says nothing but its key and its payload.
pub(crate) fn plain_event(
    identity: Result<IdempotencyKey, String>,
    fingerprint: Fingerprint,
    json: &str,
) -> AdmitEvent {
    AdmitEvent {
        identity,
        fingerprint,
        likeness: None,
        about: None,
        delivery_id: None,
        json: json.to_owned(),
        record: None,
        of_batch: false,
        aside: None,
        sender: None,
        dated: None,
    }
}

/// A caller of the automation `welcome` claims a key.
pub(crate) fn caller(text: &str) -> ClaimCall {
    ClaimCall {
        target: Target::Key { workspace: WS, automation: automation("welcome"), key: key(text) },
        request: Request {
            start: Start::Now(Holder::Caller { run_id: None }),
            fingerprint: None,
            record: None,
            ttl: None,
            correction: false,
            likeness: None,
            identity: None,
            dated: None,
        },
        run_url: None,
        parent: None,
        payload: None,
        actor: "token:crm".into(),
        again: false,
    }
}

/// The runner of this boot claims what it found due.
pub(crate) fn runner(id: ClaimRef, boot: Boot) -> ClaimCall {
    let mut call = caller("unused");
    call.target = Target::Id(id);
    call.request.start = Start::Now(Holder::Runner { boot });
    call.actor = RUNNER.into();
    call
}

pub(crate) trait Asking {
    fn of(self, automation: &str) -> Self;
    fn within(self, workspace: Workspace) -> Self;
    fn on(self, record: &str) -> Self;
    fn under_run(self, run_id: &str) -> Self;
    fn under(self, parent: &Claimed) -> Self;
    fn with(self, payload: &str) -> Self;
    fn queued(self) -> Self;
}

impl Asking for ClaimCall {
    fn of(mut self, name: &str) -> Self {
        if let Target::Key { automation: place, .. } = &mut self.target {
            *place = automation(name);
        }
        self
    }

    fn within(mut self, ours: Workspace) -> Self {
        if let Target::Key { workspace, .. } = &mut self.target {
            *workspace = ours;
        }
        self
    }

    fn on(mut self, name: &str) -> Self {
        self.request.record = Some(record(name));
        self
    }

    fn under_run(mut self, run_id: &str) -> Self {
        let run_id = Some(RunId::try_from(run_id).unwrap());
        self.request.start = Start::Now(Holder::Caller { run_id });
        self
    }

    fn under(mut self, parent: &Claimed) -> Self {
        self.parent = Some((parent.id, parent.view.as_ref().unwrap().claim.fence()));
        self
    }

    fn with(mut self, payload: &str) -> Self {
        self.request.fingerprint = Some(fingerprint(payload));
        let json = serde_json::Value::String(payload.to_owned()).to_string();
        self.payload = Some(Payload { body: payload.as_bytes().to_vec(), json });
        self
    }

    fn queued(mut self) -> Self {
        self.request.start = Start::Queue;
        self
    }
}

pub(crate) fn failed() -> Call {
    Call::Error { failure: Failed::Retryable { retry_after: None }, note: "503".into() }
}

pub(crate) fn failed_for_good() -> Call {
    Call::Error { failure: Failed::Final, note: "400".into() }
}

pub(crate) fn reset() -> Act {
    Act::Reset { run_now: false, confirm_holder: None, verified: false }
}

/// A seed for this run: `ONCEGATE_TEST_SEED` at compile time repeats one; it is printed when the test fails.
#[expect(clippy::print_stdout, reason = "a test that fails by chance can be repeated")]
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let seed = match option_env!("ONCEGATE_TEST_SEED") {
        Some(text) => text.parse().unwrap(),
        None => std::hash::RandomState::new().build_hasher().finish(),
    };
    println!("ONCEGATE_TEST_SEED={seed}");
    seed
}

/// A fresh directory under target that goes away with the value.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// SplitMix64: enough to stir with, and the same everywhere.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }
}

/// A claim of the default workspace.
pub(crate) fn ours(id: ClaimId) -> ClaimRef {
    ClaimRef { workspace: WS, id }
}

pub(crate) fn workspace_name(text: &str) -> WorkspaceName {
    WorkspaceName::try_from(text).unwrap()
}
