//! Who may call which target now. What is known of them is in the memory of this process: a restart forgets it, and
//! the first calls teach it again; each node has its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncegate_connect::TargetName;
use oncegate_core::key::{ClaimRef, Workspace};
use oncegate_core::lane::{BreakerRules, Change, Heard, Lane, LaneRules, Rate, Ticket, Wait, Why};
use oncegate_core::limits;
use oncegate_core::time::Timestamp;
use oncegate_store::clock::Clock;
use tokio::sync::Notify;

/// What is declared for one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetRules {
    /// How many calls in how long a time; unlimited unless declared.
    pub rate: Option<Rate>,
    /// Calls in flight at a time.
    pub concurrency: Option<usize>,
    /// When nothing is sent because it is down.
    pub breaker: BreakerRules,
}

/// What is declared for all targets.
#[derive(Clone, Debug)]
pub struct Declared {
    /// For the calls of all workspaces together.
    pub shared: HashMap<TargetName, TargetRules>,
    /// For the calls of one workspace, which then do not count with those of the others.
    pub own: HashMap<(Workspace, TargetName), TargetRules>,
    /// Calls in flight at a time to a target that declares nothing else; at least 1.
    pub concurrency: usize,
}

/// Which calls count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LaneName {
    of: Option<Workspace>,
    target: TargetName,
}

#[derive(Debug)]
struct Known {
    lane: Lane,
    used_at: Duration,
    /// Rung for one of those who wait in place when a call ended.
    freed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    lanes: HashMap<LaneName, Known>,
    /// What claims wait for.
    waits: HashMap<ClaimRef, LaneName>,
    swept_at: Duration,
}

/// All targets.
#[derive(Debug)]
pub struct Targets {
    declared: Declared,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    held_back: [AtomicU64; Self::REASONS.len()],
}

/// A call that may go. Dropped without a word, nothing is known of it.
pub(crate) struct Permit {
    targets: Arc<Targets>,
    name: LaneName,
    ticket: Option<Ticket>,
}

/// A claim that the engine takes up; what was kept for it goes with this.
pub(crate) struct Called {
    targets: Arc<Targets>,
    who: ClaimRef,
}

/// What is waited for in place, at most: longer waits hold none of the runner's places.
const IN_PLACE: Duration = Duration::from_millis(200);
/// How long one nap of that is, if nothing rings, and how many there are: a clock may end a nap early.
const NAP: (Duration, u32) = (Duration::from_millis(25), 8);
/// How often it is looked who did not come back.
const SWEEP: Duration = Duration::from_secs(60);

/// Whether a wait is short enough to hold a place of the runner.
fn in_place(wait: &Wait) -> bool {
    wait.wait <= IN_PLACE && matches!(wait.why, Why::Busy | Why::Rate)
}

impl Targets {
    /// Why calls are held back, as metrics say it.
    pub const REASONS: [&'static str; 4] = ["breaker", "throttled", "concurrency", "rate"];

    pub(crate) fn new(declared: Declared, clock: Arc<dyn Clock>) -> Self {
        Self { declared, clock, state: Mutex::default(), held_back: Default::default() }
    }

    /// How many targets are taken for down at this moment.
    pub fn down(&self) -> usize {
        self.lock().lanes.values().filter(|known| known.lane.is_down()).count()
    }

    /// How often calls were held back, in the order of [`Targets::REASONS`].
    pub fn held_back(&self) -> [u64; Self::REASONS.len()] {
        std::array::from_fn(|n| self.held_back[n].load(Ordering::Relaxed))
    }

    /// How many claims wait for a target, as far as this process knows.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waits.len()
    }

    /// Whether what is to call a target for the first time should be taken up, behind so many others that are on their
    /// way there already.
    pub(crate) fn takes_new(&self, of: Workspace, target: &TargetName, coming: usize) -> bool {
        let (name, rules) = self.rules(of, target);
        let now = self.clock.read().monotonic;
        coming < rules.concurrency.saturating_mul(2)
            && self.lock().lanes.get_mut(&name).is_none_or(|known| known.lane.takes_new(of, now))
    }

    /// Whether a claim is known to wait for a target.
    pub(crate) fn is_waiting(&self, who: ClaimRef) -> bool {
        self.lock().waits.contains_key(&who)
    }

    /// Takes up a claim that is due, unless it waits for a target that has no room for it yet.
    pub(crate) fn call(self: &Arc<Self>, who: ClaimRef) -> Option<Called> {
        let now = self.clock.read().monotonic;
        let State { lanes, waits, .. } = &mut *self.lock();
        let known = waits.get(&who).and_then(|name| lanes.get_mut(name));
        let comes = known.is_none_or(|known| known.lane.call(who, now));
        comes.then(|| Called { targets: Arc::clone(self), who })
    }

    /// Lets a call go, or says how long to wait; what is short is waited for here.
    ///
    /// # Errors
    /// Not now.
    pub(crate) async fn admit(self: &Arc<Self>, who: ClaimRef, target: &TargetName) -> Result<Permit, Wait> {
        let first = match self.ask(who, target) {
            Err(wait) if in_place(&wait) => wait,
            answer => return answer.inspect_err(|wait| self.count(wait.why)),
        };
        let Some((freed, passed)) = self.lane(who.workspace, target, |lane| lane.passed()) else {
            return Err(first);
        };
        let begun = self.clock.read().monotonic;
        // Kept from turn to turn: whoever waits longest is rung for first.
        let rung = freed.notified();
        tokio::pin!(rung);
        let (mut waits, mut naps) = (first, 0);
        loop {
            // For room it is rung.
            let nap = if waits.why == Why::Rate { waits.wait.min(NAP.0) } else { NAP.0 };
            tokio::select! {
                () = rung.as_mut() => rung.set(freed.notified()),
                () = self.clock.sleep(nap) => naps += 1,
            }
            let waited = self.clock.read().monotonic.saturating_sub(begun);
            let is_over = waited >= IN_PLACE || naps >= NAP.1;
            match self.ask(who, target) {
                Err(wait) if in_place(&wait) && !is_over => waits = wait,
                Err(Wait { why: Why::Busy, .. }) if is_over => break,
                answer => return answer.inspect_err(|wait| self.count(wait.why)),
            }
        }
        self.lane(who.workspace, target, |lane| {
            // Where others went before it, how long calls take is known.
            if lane.passed() == passed {
                lane.in_vain(IN_PLACE);
            }
        });
        self.ask(who, target).inspect_err(|wait| self.count(wait.why))
    }

    /// Lets a call go, or says how long to wait.
    ///
    /// # Errors
    /// Not now; the claim has its place.
    pub(crate) fn ask(self: &Arc<Self>, who: ClaimRef, target: &TargetName) -> Result<Permit, Wait> {
        let (name, known) = self.with(who.workspace, target, |state, name, now| {
            // It may have waited for another one, whose place for it is not needed any more.
            let before = state.waits.remove(&who).filter(|before| before != name);
            if let Some(before) = before.and_then(|before| state.lanes.get_mut(&before)) {
                before.lane.forget(who);
            }
            let asked = state.lanes.get_mut(name).map(|known| known.lane.ask(who, now));
            if let Some(Err(_)) = asked {
                state.waits.insert(who, name.clone());
            }
            asked
        });
        let ticket = known.transpose()?;
        Ok(Permit { targets: Arc::clone(self), name, ticket })
    }

    /// A claim waits no more: it is a person's business now.
    pub(crate) fn forget(&self, who: ClaimRef) {
        let State { lanes, waits, .. } = &mut *self.lock();
        if let Some(known) = waits.remove(&who).and_then(|name| lanes.get_mut(&name)) {
            known.lane.forget(who);
        }
    }

    /// What a person is told of a claim that waits until `due`, `wait` from now.
    pub(crate) fn words(&self, target: &TargetName, wait: &Wait, due: Timestamp) -> String {
        let why = match wait.why {
            Why::Down { since, trying } => {
                let now = self.clock.read();
                let since = now.wall.before(now.monotonic.saturating_sub(since));
                match trying {
                    true => format!("its breaker is open since {since}, and one call is being tried"),
                    false => format!("its breaker is open since {since}, next try at {due}"),
                }
            }
            Why::Throttled => format!("it asked to wait, until {due}"),
            Why::Busy => "as many calls to it are in flight as may be".to_owned(),
            Why::Rate => format!("as many calls were sent to it as may be, next at {due}"),
        };
        format!("waits for {target}: {why}")
    }

    fn count(&self, why: Why) {
        let n = Self::REASONS.iter().position(|reason| *reason == why.as_str());
        if let Some(counter) = n.and_then(|n| self.held_back.get(n)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Where the calls of a workspace to a target count, and under which rules.
    fn rules(&self, of: Workspace, target: &TargetName) -> (LaneName, LaneRules) {
        let lane = |of, target, rules: TargetRules| {
            let concurrency = rules.concurrency.unwrap_or(self.declared.concurrency);
            let rules = LaneRules { rate: rules.rate, concurrency, breaker: rules.breaker };
            (LaneName { of, target }, rules)
        };
        let spellings = [target.clone(), target.any_port()];
        for spelt in &spellings {
            if let Some(rules) = self.declared.own.get(&(of, spelt.clone())) {
                return lane(Some(of), spelt.clone(), *rules);
            }
        }
        for spelt in spellings {
            if let Some(rules) = self.declared.shared.get(&spelt) {
                return lane(None, spelt, *rules);
            }
        }
        lane(None, target.clone(), TargetRules::default())
    }

    fn with<T>(
        &self,
        of: Workspace,
        target: &TargetName,
        then: impl FnOnce(&mut State, &LaneName, Duration) -> T,
    ) -> (LaneName, T) {
        let (name, rules) = self.rules(of, target);
        let now = self.clock.read().monotonic;
        let mut state = self.lock();
        state.sweep(now);
        let fresh = || Known { lane: Lane::new(rules), used_at: now, freed: Arc::default() };
        state.lanes.entry(name.clone()).or_insert_with(fresh).used_at = now;
        let told = then(&mut state, &name, now);
        (name, told)
    }

    /// Something of a lane, and what is rung when there may be room in it.
    fn lane<T>(
        &self,
        of: Workspace,
        target: &TargetName,
        then: impl FnOnce(&mut Lane) -> T,
    ) -> Option<(Arc<Notify>, T)> {
        let found = self.with(of, target, |state, name, _| {
            state.lanes.get_mut(name).map(|known| (Arc::clone(&known.freed), then(&mut known.lane)))
        });
        found.1
    }

    fn end(&self, name: &LaneName, ticket: &Ticket, heard: Heard) -> Option<Change> {
        let now = self.clock.read().monotonic;
        let change = self.lock().lanes.get_mut(name).and_then(|known| {
            let change = known.lane.end(ticket, heard, now);
            known.freed.notify_one();
            change
        });
        let target = &name.target;
        match change {
            None => {}
            Some(Change::Opened { pause }) => {
                tracing::warn!(host = %target, pause_s = pause.as_secs(), "a target is down: its breaker is open, and what it is to get waits");
            }
            Some(Change::StaysOpen { pause }) => {
                tracing::info!(host = %target, pause_s = pause.as_secs(), "a target is still down");
            }
            Some(Change::Closed { after }) => {
                tracing::info!(host = %target, after_s = after.as_secs(), "a target is back: what waited for it goes on");
            }
        }
        change
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is half done when something panics: at worst a call counts that is over.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets targets that nobody calls, and who did not come back.
    fn sweep(&mut self, now: Duration) {
        if now >= self.swept_at + SWEEP {
            self.swept_at = now;
            self.lanes.retain(|_, known| now < known.used_at + SWEEP || !known.lane.is_idle(now));
            let lanes = &self.lanes;
            self.waits
                .retain(|who, name| lanes.get(name).is_some_and(|known| known.lane.is_waited_for(*who)));
        }
        // Addresses come out of templates, so that there may be any number of them.
        while self.lanes.len() >= limits::TARGETS_MAX {
            // Whose calls are under way is not forgotten, or their end would be taken for that of others.
            let quiet = self.lanes.iter().filter(|(_, known)| !known.lane.has_calls());
            let oldest = quiet.min_by_key(|(_, known)| known.used_at).map(|(name, _)| name.clone());
            match oldest {
                Some(name) => self.lanes.remove(&name),
                None => return,
            };
        }
    }
}

impl Permit {
    /// The call goes out now.
    pub(crate) fn sending(&self) {
        let now = self.targets.clock.read().monotonic;
        if let (Some(ticket), Some(known)) = (&self.ticket, self.targets.lock().lanes.get_mut(&self.name)) {
            known.lane.sending(ticket, now);
        }
    }

    /// The call ended. Whether it was the one that was tried while the target was down, in vain.
    pub(crate) fn end(mut self, heard: Heard) -> bool {
        let ticket = self.ticket.take();
        let change = ticket.and_then(|ticket| self.targets.end(&self.name, &ticket, heard));
        matches!(change, Some(Change::StaysOpen { .. }))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.targets.end(&self.name, &ticket, Heard::NOTHING);
        }
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        let State { lanes, waits, .. } = &mut *self.targets.lock();
        if let Some(known) = waits.get(&self.who).and_then(|name| lanes.get_mut(name)) {
            known.lane.leave(self.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use oncegate_core::key::ClaimId;
    use oncegate_store::clock::ManualClock;

    use super::*;

    fn targets() -> Arc<Targets> {
        let declared = Declared { shared: HashMap::new(), own: HashMap::new(), concurrency: 1 };
        Arc::new(Targets::new(declared, Arc::new(ManualClock::at(Timestamp::from_secs(0)))))
    }

    fn claim(n: u8) -> ClaimRef {
        ClaimRef { workspace: Workspace::DEFAULT, id: ClaimId([n; 16]) }
    }

    fn target(name: &str) -> TargetName {
        TargetName::parse(name).unwrap()
    }

    #[test]
    fn a_place_is_free_again_whatever_became_of_whom_it_was_kept_for() {
        let targets = targets();
        let (a, b) = (target("a.example"), target("b.example"));
        let wait_for_a = || {
            let permit = targets.ask(claim(1), &a).unwrap_or_else(|wait| panic!("{wait:?}"));
            assert!(targets.ask(claim(2), &a).is_err());
            assert!(targets.call(claim(2)).is_none(), "there is no room");
            drop(permit);
            targets.call(claim(2)).unwrap()
        };
        let called = wait_for_a();
        assert!(targets.ask(claim(3), &a).is_err(), "its place is kept");
        drop(called);
        assert!(targets.ask(claim(3), &a).is_ok(), "it did not come");
        let _called = wait_for_a();
        assert!(targets.ask(claim(2), &b).is_ok(), "its next step goes elsewhere");
        assert!(targets.ask(claim(3), &a).is_ok());
        let _called = wait_for_a();
        targets.forget(claim(2));
        assert!(targets.ask(claim(3), &a).is_ok());
        assert_eq!(targets.waiting(), 0);
    }

    #[test]
    fn addresses_out_of_templates_do_not_fill_the_memory() {
        let targets = targets();
        for n in 0..limits::TARGETS_MAX * 2 {
            assert!(targets.ask(claim(1), &target(&format!("h{n}.example"))).is_ok());
        }
        assert!(targets.lock().lanes.len() <= limits::TARGETS_MAX);
    }
}
