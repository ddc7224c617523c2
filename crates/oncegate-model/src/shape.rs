//! Worlds that cannot differ in what comes next have one shape. Exhausting the shapes exhausts the worlds.
//!
//! - Times count relative to now, in whole units: what lies further back than a clock can still be set back is past.
//! - Numbers that only grow (attempts, generations, boots, runs) count by how they compare with what is held.
//! - Callers are alike, and so are the two keys: their order does not count.
//! - What no decision reads is left out: notes, when it ended, since when it is open (no scope has an SLA in reach).

use oncegate_core::claim::{Claim, Holder, Parked, State};
use oncegate_core::time::{LeaseInstant, Timestamp, millis};

use crate::apply::run_id;
use crate::scope::Scope;
use crate::world::{Caller, Held, KEYS, UNIT, World};

/// The shape.
pub fn shape(scope: &Scope, world: &World) -> Box<[u8]> {
    let mut found = in_order(scope, world, [0, 1]);
    if scope.keys == KEYS {
        found = found.min(in_order(scope, world, [1, 0]));
    }
    found.into()
}

struct Writer<'a> {
    world: &'a World,
    /// Units by which the wall clock may still be set back.
    back: i64,
    bytes: Vec<u8>,
}

fn in_order(scope: &Scope, world: &World, order: [usize; KEYS]) -> Vec<u8> {
    let mut w = Writer { world, back: i64::from(world.left.skews) * 2, bytes: Vec::with_capacity(96) };
    let left = world.left;
    w.bytes.extend([left.faults, left.acts, left.skews, left.long_waits, left.edits]);
    w.flags(&[world.paused, world.doubtful, world.edited]);
    w.small(world.streak.min(6));
    w.small(world.silent.min(6));
    // A limit that no search comes near to need not be counted up to.
    if scope.policy.loop_limit.runs < 10 {
        for runs in [&world.first_runs, &world.began] {
            let since = world.now.wall.before(scope.policy.loop_limit.within);
            let recent = runs.iter().filter(|at| **at > since).map(|at| w.wall_value(*at, 9));
            let recent: Vec<u8> = recent.collect();
            w.bytes.push(u8::try_from(recent.len()).unwrap_or(u8::MAX));
            w.bytes.extend(recent);
        }
    }
    for key in order {
        w.key(key);
    }
    if scope.record && scope.keys == KEYS {
        let [a, b] = order;
        w.flags(&[
            world.positions[a] < world.positions[b],
            world.ghosts[a].arrived < world.ghosts[b].arrived,
        ]);
    }
    let mut callers: Vec<Vec<u8>> = world.callers.iter().map(|caller| w.caller(caller, order)).collect();
    callers.sort_unstable();
    w.bytes.extend(callers.into_iter().flatten());
    w.bytes
}

impl Writer<'_> {
    fn flags(&mut self, flags: &[bool]) {
        self.bytes.push(flags.iter().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
    }

    fn small(&mut self, number: u32) {
        self.bytes.push(u8::try_from(number).unwrap_or(u8::MAX));
    }

    /// Units until then, rounded up; what is past for good is one value.
    fn wall_value(&self, at: Timestamp, back: i64) -> u8 {
        units(at.as_millis() - self.world.now.wall.as_millis(), back)
    }

    fn wall(&mut self, at: Option<Timestamp>) {
        let value = at.map_or(u8::MAX, |at| self.wall_value(at, self.back));
        self.bytes.push(value);
    }

    /// The lease clock is never set back.
    fn lease(&mut self, at: LeaseInstant) {
        self.bytes.push(units(at.0 - self.world.now.lease.0, 0));
    }

    fn key(&mut self, key: usize) {
        let world = self.world;
        let ghost = world.ghosts[key];
        let grant = ghost.current;
        self.flags(&[
            world.pruned[key].is_some(),
            grant.is_some(),
            grant.is_some_and(|g| g.heard),
            ghost.happened,
            ghost.forgettable,
            ghost.asked,
            ghost.dismissed,
            ghost.looped,
        ]);
        self.flags(&[ghost.asks]);
        for number in [
            ghost.firsts,
            ghost.retries,
            ghost.stale_retries,
            ghost.resumes,
            grant.map_or(0, |grant| grant.repeats),
        ] {
            self.small(number);
        }
        for running in [world.running[key], world.other.running[key]] {
            match running {
                None => self.bytes.push(0),
                Some(running) => {
                    self.bytes.push(1 + u8::from(running.sending));
                    let token = self.token(key, running.held);
                    self.bytes.extend(token);
                }
            }
        }
        let Some(row) = &world.rows[key] else { return self.bytes.push(0) };
        self.claim(&row.claim);
        self.flags(&[row.in_flight, row.unknown, row.succeeded]);
        // When it changed matters only if that lies ahead.
        self.bytes.push(units(row.updated_at.as_millis() - world.now.wall.as_millis(), self.back));
    }

    fn claim(&mut self, claim: &Claim) {
        match &claim.state {
            State::None { due } => {
                self.bytes.push(1);
                self.wall(*due);
            }
            State::Processing(lease) => {
                self.bytes.push(2);
                self.lease(lease.expires());
                self.wall(lease.deferred_until);
                self.wall(Some(lease.started_at));
                self.small(lease.same_runs);
                self.flags(&[lease.heard_from, lease.holds_record]);
                self.bytes.push(match &lease.holder {
                    Holder::Caller { run_id: Some(_) } => 0,
                    Holder::Caller { run_id: None } => 1,
                    Holder::Runner { boot } if *boot == self.world.boot => 2,
                    Holder::Runner { boot } if *boot == self.world.other.boot => 3,
                    Holder::Runner { boot } if boot.node == self.world.boot.node => 4,
                    Holder::Runner { .. } => 5,
                });
            }
            State::Done { retain_until, .. } => {
                self.bytes.push(3);
                // Days away, or over: no search waits for days by units.
                self.flags(&[*retain_until <= self.world.now.wall]);
            }
            State::Error { due, cause, .. } => {
                self.bytes.extend([4, *cause as u8]);
                self.wall(*due);
            }
        }
        self.flags(&[
            claim.flow,
            claim.dismissed,
            claim.progress.succeeded,
            claim.progress.unknown,
            claim.mismatch_at.is_some(),
            claim.late_at.is_some(),
            claim.record.is_some(),
        ]);
        self.small(claim.retries_used);
        self.small(claim.stale_retries_used);
        self.small(claim.resumes_used);
        self.bytes.push(match claim.parked {
            None => 0,
            Some(Parked::NeedsReplay) => 1,
            Some(Parked::LoopSuspected) => 2,
            Some(Parked::Incident) => 3,
            Some(Parked::Reset) => 4,
            Some(Parked::Restored) => 5,
            Some(Parked::Repeat) => 6,
            Some(Parked::Review) => 7,
        });
        self.bytes.push(claim.fingerprint.map_or(0, |print| print.to_bytes()[16]));
    }

    /// Whether it is the current one, and how its numbers compare with the row's; older is old for good.
    fn token(&self, key: usize, held: Held) -> [u8; 3] {
        let current = self.world.ghosts[key].current.is_some_and(|grant| grant.number == held.grant);
        let [attempt, generation] = match self.world.claim(key) {
            Some(claim) => [
                claim.attempt.wrapping_sub(held.fence.attempt),
                claim.generation.wrapping_sub(held.fence.generation),
            ]
            .map(|older| older.min(1)),
            None => [held.fence.attempt, held.fence.generation],
        };
        [u8::from(current), attempt as u8, generation as u8]
    }

    fn caller(&self, caller: &Caller, order: [usize; KEYS]) -> Vec<u8> {
        let (tag, key, run) = match caller {
            Caller::Idle => return vec![0],
            Caller::Lost { key, run } => (1, *key, *run),
            Caller::Holds { key, run, .. } => (2, *key, *run),
        };
        let place = order.iter().position(|k| *k == key).unwrap_or_default();
        let granted = self.world.ghosts[key].current.is_some_and(|grant| grant.run == Some(run));
        let own = Some(run_id(run));
        let leased = self.world.claim(key).is_some_and(|claim| match &claim.state {
            State::Processing(lease) => matches!(&lease.holder, Holder::Caller { run_id } if *run_id == own),
            State::None { .. } | State::Done { .. } | State::Error { .. } => false,
        });
        let mut bytes = vec![tag, place as u8, u8::from(granted), u8::from(leased)];
        if let Caller::Holds { held, .. } = caller {
            bytes.extend(self.token(key, *held));
        }
        bytes
    }
}

fn units(ms: i64, back: i64) -> u8 {
    let unit = millis(UNIT);
    let rounded_up = -(-ms).div_euclid(unit);
    // 100 stands for now; nothing here lies further ahead than the other way round.
    (rounded_up.clamp(-back, 100) + 100) as u8
}
