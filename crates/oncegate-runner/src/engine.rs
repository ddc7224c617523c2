//! The loops: due work, ticks, reaping; and how they end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use oncegate_connect::{Caller, Mailer, TargetName};
use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::limits;
use oncegate_core::notice::{self, NoticeKind};
use oncegate_core::time::{Tick, Timestamp};
use oncegate_store::api::Names;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::book::FirstTargets;
use crate::fair::{self, AtWork};
use crate::gatekeeper::Gatekeeper;
use crate::held::{HeldAttempts, hand_back};
use crate::nudger;
use crate::poller::{self, Polled};
use crate::scheduler::{self, Scheduled};
use crate::upcoming::{FRESH, Others, Upcoming};
use crate::worker::{Ended, Worker};

/// How to run.
#[derive(Clone)]
pub struct Options {
    /// Claims worked on at the same time.
    pub concurrency: usize,
    /// Where call-back URLs point to.
    pub base_url: String,
    /// How outside calls are made.
    pub caller: Caller,
    /// How mails are sent, if a server for them is declared.
    pub mailer: Option<Mailer>,
    /// What runs by the clock.
    pub schedules: Arc<[Scheduled]>,
    /// What is asked for news.
    pub polls: Arc<[Polled]>,
}

/// The running loops.
pub struct Engine {
    stop: watch::Sender<bool>,
    work: JoinHandle<()>,
    nudges: JoinHandle<()>,
    schedules: JoinHandle<()>,
    polls: JoinHandle<()>,
    upkeep: JoinHandle<()>,
    bulk: JoinHandle<()>,
}

/// How long at most until due work is looked for, if nothing rings.
const LOOK: Duration = Duration::from_secs(1);
/// How long work that might not start is left alone.
const COOL: Duration = Duration::from_secs(5);
/// New claims that are passed over in one go: their automation was found with room, and has none by now.
const NEW_PASSED_OVER: usize = 64;
/// How long at most until an act on many claims that waits is looked at.
const BULK_LOOK: Duration = Duration::from_secs(5);
/// How often retention is looked at, and how much is forgotten in one transaction.
const REAP: (Duration, u32) = (Duration::from_secs(600), 500);

impl Engine {
    /// Starts the loops.
    pub fn start(gate: Arc<Gatekeeper>, options: Options) -> Self {
        let (stop, stopped) = watch::channel(false);
        let nudges = tokio::spawn(nudger::run(Arc::clone(&gate), options.caller.clone(), stopped.clone()));
        let schedules = tokio::spawn(scheduler::run(Arc::clone(&gate), options.schedules, stopped.clone()));
        let polls = poller::run(Arc::clone(&gate), options.caller.clone(), options.polls, stopped.clone());
        let polls = tokio::spawn(polls);
        let worker = Worker {
            gate: Arc::clone(&gate),
            caller: options.caller,
            mailer: options.mailer,
            base_url: options.base_url.trim_end_matches('/').into(),
        };
        let work = tokio::spawn(work(worker, options.concurrency.max(1), stopped.clone()));
        let bulk = tokio::spawn(bulk(Arc::clone(&gate), stopped.clone()));
        let upkeep = tokio::spawn(upkeep(gate, stopped));
        Self { stop, work, nudges, schedules, polls, upkeep, bulk }
    }

    /// Takes nothing new, waits up to [`limits::DRAIN_MAX`] for what runs, hands back what is left.
    pub async fn drain(self) {
        let _ = self.stop.send(true);
        for task in [self.nudges, self.schedules, self.polls, self.work, self.upkeep, self.bulk] {
            if let Err(error) = task.await {
                tracing::error!(panicked = error.is_panic(), "a loop ended badly");
            }
        }
    }
}

async fn work(worker: Worker, concurrency: usize, mut stopped: watch::Receiver<bool>) {
    let gate = Arc::clone(&worker.gate);
    let held = Arc::new(HeldAttempts::default());
    let mut running: JoinSet<(ClaimRef, Ended)> = JoinSet::new();
    let mut active: HashMap<ClaimRef, tokio::task::Id> = HashMap::new();
    let mut cooling: HashMap<ClaimRef, Duration> = HashMap::new();
    let (mut stranded, mut was_rung) = (Stranded::default(), false);
    let (mut upcoming, mut looked_at) = (Upcoming::default(), gate.store().now().wall);
    let mut firsts = FirstTargets::new();
    // The bell rang since the last look; and that was long enough ago.
    let (mut is_owed, mut must_look) = (false, true);
    while !*stopped.borrow() {
        let now = gate.clock().read().monotonic;
        cooling.retain(|_, until| *until > now);
        let rung = gate.work().notified();
        tokio::pin!(rung);
        // It may have rung while nobody listened.
        while rung.as_mut().enable() {
            (was_rung, is_owed) = (true, true);
            rung.set(gate.work().notified());
        }
        let others = others(&gate);
        let share = fair::share(concurrency, gate.book().workspaces());
        let mut at_work = at_work(&active);
        upcoming.again();
        let (mut passed_over, mut new_ones, mut has_looked, mut look_behind) = (0, 0, false, false);
        let mut coming: HashMap<(Workspace, TargetName), usize> = HashMap::new();
        while active.len() < concurrency {
            if !has_looked && (must_look || !upcoming.is_fresh(now, others)) {
                (has_looked, must_look, is_owed) = (true, false, false);
                looked_at = gate.store().now().wall;
                let waiting = gate.targets().waiting().min(limits::PASSED_OVER_MAX);
                let want = others.looks_ahead() * concurrency + active.len() + cooling.len() + waiting;
                firsts = gate.book().first_targets();
                let no_new = without_room(&gate, &firsts);
                match gate.store().due_but_new(u32::try_from(want).unwrap_or(u32::MAX), no_new).await {
                    Ok(due) => upcoming.found(fair::in_turn(due, &at_work), now),
                    Err(error) => tracing::error!(%error, "could not look for due work"),
                }
            }
            let Some(work) = upcoming.next().cloned() else { break };
            if active.contains_key(&work.id) || cooling.contains_key(&work.id) {
                upcoming.forget();
                continue;
            }
            let at_work = at_work.entry(work.id.workspace).or_default();
            if *at_work >= share {
                upcoming.forget();
                continue;
            }
            // A node never judges what it does not know (C29). The store gives it no such work once it has said what
            // it runs.
            if !gate.runs(work.id.workspace, &work.automation) {
                cooling.insert(work.id, now + COOL);
                upcoming.forget();
                continue;
            }
            // What is new stays new while enough others wait for where it leads to. Behind many of them it is looked
            // again, without them.
            if work.is_new && !gate.targets().is_waiting(work.id) {
                let whom = firsts.get(&work.id.workspace).and_then(|firsts| firsts.get(&work.automation));
                let on_their_way =
                    whom.map(|whom| coming.entry((work.id.workspace, whom.clone())).or_default());
                if let (Some(whom), Some(on_their_way)) = (whom, on_their_way) {
                    if !gate.targets().takes_new(work.id.workspace, whom, *on_their_way) {
                        if new_ones == NEW_PASSED_OVER {
                            look_behind = true;
                            break;
                        }
                        new_ones += 1;
                        upcoming.pass_over();
                        continue;
                    }
                    *on_their_way += 1;
                }
            }
            // What waits for a target that has no room stays as it is: nothing is written for it. Too many of them
            // would stand before the others.
            let called = gate.targets().call(work.id);
            if called.is_none() && passed_over < limits::PASSED_OVER_MAX {
                passed_over += 1;
                upcoming.pass_over();
                continue;
            }
            let (worker, held) = (worker.clone(), Arc::clone(&held));
            let task = running.spawn(async move {
                let _called = called;
                let _at_work = worker.gate.begin_work();
                (work.id, worker.run(work.id, &held).await)
            });
            active.insert(work.id, task.id());
            *at_work += 1;
            upcoming.start();
        }
        let full = active.len() >= concurrency;
        stranded.tell(&gate, now, was_rung && active.is_empty()).await;
        was_rung = false;
        // What is new is looked for at once, unless that was done just now and found what cannot start yet.
        let waits = is_owed && upcoming.is_fresh(now, others);
        let nap = match full || !cooling.is_empty() || !upcoming.is_empty() {
            _ if (waits || look_behind) && !full => FRESH,
            // Work that cools is due and cannot start: looking for it every moment would not help.
            true => LOOK,
            false => until_next(&gate, looked_at).await,
        };
        tokio::select! {
            Some(ended) = running.join_next(), if !running.is_empty() => {
                settle(ended, &mut active, &mut cooling, now + COOL);
                while let Some(ended) = running.try_join_next() {
                    settle(ended, &mut active, &mut cooling, now + COOL);
                }
            }
            () = rung, if !full && !waits => (was_rung, is_owed) = (true, true),
            () = gate.clock().sleep(nap) => must_look = true,
            // Told to stop, or dropped by whoever could have told it.
            _ = stopped.changed() => break,
        }
    }
    drain(&gate, running, &held).await;
}

/// The automations whose new claims may not go where their first call leads to.
fn without_room(gate: &Gatekeeper, firsts: &FirstTargets) -> Names {
    let all =
        firsts.iter().flat_map(|(of, firsts)| firsts.iter().map(move |(name, target)| (*of, name, target)));
    let without = all.filter(|(of, _, target)| !gate.targets().takes_new(*of, target, 0));
    without.map(|(of, name, _)| (of, name.clone())).collect()
}

fn others(gate: &Gatekeeper) -> Others {
    match (gate.store().is_shared(), gate.book().workspaces()) {
        (true, _) => Others::Nodes,
        (false, 0 | 1) => Others::None,
        (false, _) => Others::Workspaces,
    }
}

fn at_work(active: &HashMap<ClaimRef, tokio::task::Id>) -> AtWork {
    let mut at_work = AtWork::new();
    active.keys().for_each(|id| *at_work.entry(id.workspace).or_default() += 1);
    at_work
}

/// Automations whose work nobody can do, as far as it was told: once for each.
#[derive(Default)]
struct Stranded {
    looked_at: Option<Duration>,
    told: HashSet<(Workspace, AutomationName)>,
}

impl Stranded {
    /// Looks from time to time, and when the bell rang for work that did not come here.
    async fn tell(&mut self, gate: &Gatekeeper, now: Duration, in_vain: bool) {
        if !in_vain && self.looked_at.is_some_and(|at| now < at + COOL) {
            return;
        }
        self.looked_at = Some(now);
        let found = match gate.stranded().await {
            Ok(found) => found,
            Err(error) => return tracing::error!(%error, "could not look for work that nobody can do"),
        };
        // What could be run again meanwhile is told again should it strand once more.
        self.told.retain(|name| found.contains(name));
        for (workspace, automation) in found {
            if self.told.insert((workspace, automation.clone())) {
                tell_no_runner(gate, workspace, automation.to_string()).await;
            }
        }
    }
}

/// What waits stays as it is.
async fn tell_no_runner(gate: &Gatekeeper, workspace: Workspace, name: String) {
    tracing::warn!(automation = name, "work waits that no node can run: its steps are not declared");
    let words = notice::no_runner(&name);
    if let Err(error) = gate.store().notice(workspace, NoticeKind::NoRunner, name, words).await {
        tracing::error!(%error, "could not write down that work waits for steps that are not declared");
    }
}

type Joined = Result<(ClaimRef, Ended), tokio::task::JoinError>;

fn settle(
    ended: Joined,
    active: &mut HashMap<ClaimRef, tokio::task::Id>,
    cooling: &mut HashMap<ClaimRef, Duration>,
    cool_until: Duration,
) {
    match ended {
        Ok((id, ended)) => {
            active.remove(&id);
            if ended == Ended::NotNow {
                cooling.insert(id, cool_until);
            }
        }
        // A panicking step must not hold its place for ever; its lease runs out and a person sees it.
        Err(error) => {
            active.retain(|_, task| *task != error.id());
            // Not its message: that may quote what the claim is about.
            tracing::error!(panicked = error.is_panic(), "a running claim ended badly");
        }
    }
}

async fn until_next(gate: &Gatekeeper, looked_at: Timestamp) -> Duration {
    match gate.store().next_due(looked_at).await {
        Ok(Some(due)) => due.since(gate.store().now().wall).clamp(Duration::from_millis(10), LOOK),
        Ok(None) | Err(_) => LOOK,
    }
}

async fn drain(gate: &Gatekeeper, mut running: JoinSet<(ClaimRef, Ended)>, held: &HeldAttempts) {
    let all = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(limits::DRAIN_MAX, all).await.is_ok() {
        return;
    }
    // Taken down before the tasks are stopped, whose end forgets it.
    let left = held.all();
    running.shutdown().await;
    tracing::warn!(claims = left.len(), "handing back what did not finish in time");
    for (id, fence) in left {
        if let Err(error) = hand_back(gate.store().as_ref(), id, fence).await {
            tracing::error!(claim = %id, %error, "could not hand a claim back; it is resumed at the next start");
        }
    }
}

/// Acts on many claims, also those that an earlier start left half done.
async fn bulk(gate: Arc<Gatekeeper>, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        match gate.step_bulk().await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "an act on many claims waits"),
        }
        tokio::select! {
            () = gate.bulk().notified() => {}
            // What failed is tried again.
            () = gate.clock().sleep(BULK_LOOK) => {}
            _ = stopped.changed() => return,
        }
    }
}

async fn upkeep(gate: Arc<Gatekeeper>, mut stopped: watch::Receiver<bool>) {
    let mut reaped_at = None;
    loop {
        tokio::select! {
            () = gate.clock().sleep(Tick::INTERVAL) => {}
            _ = stopped.changed() => return,
        }
        if let Err(error) = gate.store().tick().await {
            tracing::error!(%error, "could not write the tick");
        }
        let now = gate.clock().read().monotonic;
        if reaped_at.is_none_or(|at| now >= at + REAP.0) {
            reaped_at = Some(now);
            reap(&gate).await;
        }
    }
}

async fn reap(gate: &Gatekeeper) {
    loop {
        match gate.store().reap(REAP.1).await {
            Ok(reaped) if reaped == u64::from(REAP.1) => tokio::task::yield_now().await,
            Ok(_) => return,
            Err(error) => return tracing::error!(%error, "could not forget what retention has ended for"),
        }
    }
}
