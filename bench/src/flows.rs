//! Webhooks and flows: how many events a second are accepted, how many flows of one step are brought to their end, how
//! long an event takes to its effect, and what is acknowledged and remembered while the steps hang.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::watch;

use crate::load::{Http, random};
use crate::servers::{self, Server, StoreAt};

const SECRET: &str = "benchmark-secret-0123456789";
/// Events in a delivery of many, as HubSpot sends them.
const MANY: usize = 100;
/// Connections that send such deliveries.
const SENDERS: usize = 16;
/// How long a step hangs.
const HANGS: Duration = Duration::from_secs(40);
/// What is sent while steps hang, in events a second.
const STEADY: u32 = 2_000;

/// Bounds that the product sets itself.
mod wanted {
    pub(super) const ACCEPTED: f64 = 15_000.0;
    pub(super) const FINISHED: f64 = 5_000.0;
    pub(super) const EFFECT_P50_MS: f64 = 5.0;
    pub(super) const ACKNOWLEDGED_MS: f64 = 1_000.0;
    pub(super) const MEMORY_MB: f64 = 200.0;
}

/// What is to be measured.
pub(crate) struct Plan<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) data: &'a Path,
    pub(crate) connections: usize,
    pub(crate) length: Duration,
    pub(crate) rounds: usize,
    /// Events in the queue whose memory is measured.
    pub(crate) queued: u64,
}

/// Counts effects and tells of each.
struct Receiver {
    address: String,
    effects: watch::Receiver<(u64, Instant)>,
}

impl Receiver {
    async fn start() -> Result<Self, String> {
        let (tell, effects) = watch::channel((0, Instant::now()));
        let count = Arc::new(AtomicU64::new(0));
        let effect = axum::routing::post(async move |body: axum::body::Bytes| {
            drop(body);
            let number = 1 + count.fetch_add(1, Ordering::Relaxed);
            tell.send_modify(|last| *last = (last.0.max(number), Instant::now()));
            "{}"
        });
        let hangs = axum::routing::post(async || {
            tokio::time::sleep(HANGS).await;
            "{}"
        });
        let empty =
            axum::routing::post(async |body: axum::body::Bytes| format!("{{\"read\":{}}}", body.len()));
        let router =
            axum::Router::new().route("/effect", effect).route("/hangs", hangs).route("/in/{name}", empty);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
        let address = listener.local_addr().map_err(|e| e.to_string())?.to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, effects })
    }

    fn count(&self) -> u64 {
        self.effects.borrow().0
    }

    /// When so many effects have been seen.
    async fn reaches(&mut self, count: u64) -> Result<Instant, String> {
        let seen = self.effects.wait_for(|(seen, _)| *seen >= count);
        let last = tokio::time::timeout(Duration::from_secs(600), seen).await;
        let last = last.map_err(|_| "flows did not end within 10 minutes")?.map_err(|e| e.to_string())?;
        Ok(last.1)
    }
}

/// Times of single requests, and how many events came in how long.
#[derive(Default)]
struct Drive {
    times: Vec<Duration>,
    events: u64,
    took: Duration,
    /// Of the gate, for all of it.
    processors: Option<Duration>,
}

impl Drive {
    fn per_second(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }

    /// What one event takes of the gate's processors, in microseconds.
    fn each(&self) -> f64 {
        self.processors.map_or(f64::NAN, |all| all.as_secs_f64() * 1e6 / self.events as f64)
    }

    /// In milliseconds; 1.0 is the longest.
    fn at(&self, share: f64) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let at = ((self.times.len() as f64 * share) as usize).min(last);
        self.times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// When to stop, and how fast to send.
#[derive(Clone, Copy)]
enum Pace {
    /// As fast as answers come, for so long.
    For(Duration),
    /// So many events, as fast as answers come.
    Events(u64),
    /// So many a second, whatever the answers; times count from when each was due.
    Steady(u32, Duration),
}

#[derive(Clone, Copy)]
struct Delivery {
    source: &'static str,
    events: usize,
}

impl Delivery {
    fn body(self) -> String {
        let event = || {
            format!(
                "{{\"id\":\"{:032x}\",\"form\":\"contact\",\"email\":\"ada@example.com\",\"name\":\"Ada Lovelace\",\
                 \"company\":\"Analytical Engines\",\"message\":\"Please call me back about the order.\"}}",
                random()
            )
        };
        match self.events {
            1 => event(),
            many => format!("[{}]", (0..many).map(|_| event()).collect::<Vec<_>>().join(",")),
        }
    }

    async fn send(self, http: &mut Http) -> Result<(), String> {
        let body = self.body();
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).map_err(|e| e.to_string())?;
        mac.update(body.as_bytes());
        let mut signature = String::with_capacity(64);
        for byte in mac.finalize().into_bytes() {
            // Writing to a String cannot fail.
            let _ = write!(signature, "{byte:02x}");
        }
        http.post(&format!("/in/{}", self.source), &format!("x-signature: {signature}"), &body).await
    }
}

async fn drive(address: &str, delivery: Delivery, connections: usize, pace: Pace) -> Result<Drive, String> {
    let begun = Instant::now();
    let connection = |number: usize| {
        let address = address.to_owned();
        async move {
            let mut http = Http::connect(&address).await?;
            let mut times = vec![];
            loop {
                let sent = Instant::now();
                let due = match pace {
                    Pace::For(length) if sent - begun >= length => return Ok(times),
                    Pace::Events(all) if (times.len() * delivery.events * connections) as u64 >= all => {
                        return Ok(times);
                    }
                    Pace::For(_) | Pace::Events(_) => sent,
                    Pace::Steady(rate, length) => {
                        let place = (times.len() * connections + number) as f64 / f64::from(rate);
                        let due = begun + Duration::from_secs_f64(place);
                        if due - begun >= length {
                            return Ok(times);
                        }
                        tokio::time::sleep_until(due.into()).await;
                        due
                    }
                };
                delivery.send(&mut http).await?;
                times.push(due.elapsed());
            }
        }
    };
    let tasks: Vec<_> = (0..connections).map(|number| tokio::spawn(connection(number))).collect();
    let mut drive = Drive::default();
    for task in tasks {
        let times: Result<Vec<Duration>, String> = task.await.map_err(|e| e.to_string())?;
        drive.times.extend(times?);
    }
    drive.took = begun.elapsed();
    drive.events = (drive.times.len() * delivery.events) as u64;
    drive.times.sort_unstable();
    Ok(drive)
}

fn config(receiver: &str) -> String {
    let source = |name: &str, automation: &str, more: &str| {
        format!(
            "  {name}:\n    provider: hmac\n    hmac: {{ header: X-Signature, algorithm: sha256, encoding: hex }}\n    \
             secret: env:BENCH_SECRET\n    key: [form, id]\n    automation: {automation}\n{more}"
        )
    };
    let automation = |name: &str, path: &str| {
        format!(
            "  {name}:\n    steps:\n      - {{ name: write, timeout: 60s, http: {{ url: 'http://{receiver}/{path}', json: \
             {{ email: '{{{{ payload.email }}}}' }} }}, repeat: by_key }}\n"
        )
    };
    format!(
        "outgoing:\n  allow_private: ['127.0.0.1']\nsources:\n{}{}{}{}{}automations:\n{}{}{}",
        source("quick", "quick", ""),
        source("hangs", "hangs", ""),
        source("kept", "kept", ""),
        source("many", "kept", "    batch: true\n"),
        source("queue", "hangs", "    batch: true\n"),
        automation("quick", "effect"),
        automation("hangs", "hangs"),
        automation("kept", "effect"),
    )
}

async fn gate(plan: &Plan<'_>, receiver: &Receiver, name: &str) -> Result<Server, String> {
    let data = plan.data.join(name);
    std::fs::create_dir_all(&data).map_err(|e| e.to_string())?;
    let file = data.join("oncegate.yaml");
    std::fs::write(&file, config(&receiver.address)).map_err(|e| e.to_string())?;
    let gate = servers::start_gate_with(plan.binary, StoreAt::Sqlite(&data), Some((&file, SECRET))).await?;
    let mut http = Http::connect(&gate.address).await?;
    http.call("/v1/automations/kept/pause", "{\"reason\":\"its events are only accepted\"}").await?;
    Ok(gate)
}

/// How long a process has had a processor, in the steps of 10 ms in which Linux tells it.
fn processors(server: &Server) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id()?)).ok()?;
    // Behind the name, which may have blanks: user and system time are the 12th and 13th.
    let ticks: u64 =
        stat.rsplit(')').next()?.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum();
    Some(Duration::from_millis(ticks * 10))
}

/// What a gate's processors did since.
fn since(server: &Server, before: Option<Duration>) -> Option<Duration> {
    Some(processors(server)?.saturating_sub(before?))
}

/// The largest memory that a process has had, in megabytes.
fn memory(server: &Server) -> Result<f64, String> {
    let id = server.id().ok_or("the gate has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| line.to_owned())?;
    Ok(kib * 1024.0 / 1e6)
}

/// Measures everything and gives the table.
pub(crate) async fn measure(plan: &Plan<'_>) -> Result<String, String> {
    let one = |source| Delivery { source, events: 1 };
    let mut receiver = Receiver::start().await?;
    let (mut empty, mut kept, mut many) = (vec![], vec![], vec![]);
    let (mut accepted, mut finished, mut idle) = (vec![], vec![], vec![]);
    let keeps = gate(plan, &receiver, "keeps").await?;
    let hangs = gate(plan, &receiver, "hangs").await?;
    let quick = gate(plan, &receiver, "quick").await?;
    for round in 1..=plan.rounds {
        let pace = Pace::For(plan.length);
        empty.push(drive(&receiver.address, one("quick"), plan.connections, pace).await?);
        for (rows, gate, delivery, connections) in [
            (&mut kept, &keeps, one("kept"), plan.connections),
            (&mut many, &keeps, Delivery { source: "many", events: MANY }, SENDERS),
            (&mut accepted, &hangs, one("hangs"), plan.connections),
        ] {
            let before = processors(gate);
            let mut drive = drive(&gate.address, delivery, connections, pace).await?;
            drive.processors = since(gate, before);
            rows.push(drive);
        }
        let (before, begun, worked) = (receiver.count(), Instant::now(), processors(&quick));
        let mut flows = drive(&quick.address, one("quick"), plan.connections, pace).await?;
        flows.took = receiver.reaches(before + flows.events).await? - begun;
        flows.processors = since(&quick, worked);
        finished.push(flows);
        idle.push(one_at_a_time(&quick, &mut receiver, plan.length).await?);
        eprintln!("round {round} of webhooks and flows is over");
    }
    let steady = drive(&hangs.address, one("hangs"), plan.connections, Pace::Steady(STEADY, HANGS)).await?;
    let queue = gate(plan, &receiver, "queue").await?;
    drive(&queue.address, Delivery { source: "queue", events: MANY }, SENDERS, Pace::Events(plan.queued))
        .await?;
    let memory = memory(&queue)?;
    for server in [keeps, hangs, quick, queue] {
        server.stop().await?;
    }
    Ok(table(plan, [&empty, &kept, &many, &accepted, &finished, &idle], &steady, memory))
}

/// From the moment that an event is sent until its effect is seen, nothing else going on.
async fn one_at_a_time(gate: &Server, receiver: &mut Receiver, length: Duration) -> Result<Drive, String> {
    let begun = Instant::now();
    let mut http = Http::connect(&gate.address).await?;
    let mut drive = Drive::default();
    while begun.elapsed() < length {
        let (before, sent) = (receiver.count(), Instant::now());
        Delivery { source: "quick", events: 1 }.send(&mut http).await?;
        drive.times.push(receiver.reaches(before + 1).await?.saturating_duration_since(sent));
        drive.events += 1;
        // Nothing of the one may be going on when the next comes.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drive.took = begun.elapsed();
    drive.times.sort_unstable();
    Ok(drive)
}

fn middle(drives: &[Drive], figure: impl Fn(&Drive) -> f64) -> f64 {
    let mut all: Vec<f64> = drives.iter().map(figure).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn table(plan: &Plan<'_>, rows: [&[Drive]; 6], steady: &Drive, memory: f64) -> String {
    let [empty, kept, many, accepted, finished, idle] = rows;
    let mut text = format!(
        "Signed events of about 190 bytes with random keys, {} connections, a loop of our own, medians of {} rounds of {} s.\n\n\
         | what | per second | p50 ms | p99 ms | µs of the gate | wanted | |\n| --- | ---: | ---: | ---: | ---: | --- | --- |\n",
        plan.connections,
        plan.rounds,
        plan.length.as_secs()
    );
    let fate = |met: bool| if met { "met" } else { "missed" };
    let mut line = |what: &str, drives: &[Drive], least: Option<f64>| {
        let rate = middle(drives, Drive::per_second);
        let (p50, p99) = (middle(drives, |d| d.at(0.5)), middle(drives, |d| d.at(0.99)));
        let wanted = least.map_or(String::new(), |least| format!("at least {least:.0}"));
        let fate = least.map_or("", |least| fate(rate >= least));
        let each = middle(drives, Drive::each);
        let each = if each.is_nan() { String::new() } else { format!("{each:.0}") };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "| {what} | {rate:.0} | {p50:.2} | {p99:.2} | {each} | {wanted} | {fate} |");
    };
    line("empty axum handler", empty, None);
    line("events accepted, one in a delivery", kept, Some(wanted::ACCEPTED));
    let many_of = format!("events accepted, {MANY} in a delivery, {SENDERS} connections");
    line(&many_of, many, Some(wanted::ACCEPTED));
    line("events accepted, one in a delivery, while all steps hang", accepted, None);
    line("flows of one step, from the first event to the last effect", finished, Some(wanted::FINISHED));
    let (p50, p99) = (middle(idle, |d| d.at(0.5)), middle(idle, |d| d.at(0.99)));
    let _ = writeln!(
        text,
        "| event to effect, one at a time | | {p50:.2} | {p99:.2} | | p50 at most {:.0} ms | {} |",
        wanted::EFFECT_P50_MS,
        fate(p50 <= wanted::EFFECT_P50_MS)
    );
    let _ = writeln!(
        text,
        "| acknowledged while each step takes {} s, sent at {STEADY} a second | {:.0} | {:.2} | {:.2} | | longest at most {:.0} \
         ms: {:.0} ms | {} |",
        HANGS.as_secs(),
        steady.per_second(),
        steady.at(0.5),
        steady.at(0.99),
        wanted::ACKNOWLEDGED_MS,
        steady.at(1.0),
        fate(steady.at(1.0) <= wanted::ACKNOWLEDGED_MS)
    );
    let _ = writeln!(
        text,
        "| memory at most, with {} events queued | | | | | at most {:.0} MB: {memory:.0} MB | {} |",
        plan.queued,
        wanted::MEMORY_MB,
        fate(memory <= wanted::MEMORY_MB)
    );
    text
}
