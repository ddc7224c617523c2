//! How many durable claims a second, beside what the machine and the parts reach in the same run.
//!
//! Every server is a process of its own; one load generator drives all that speak HTTP with the same bodies over
//! loopback, in turns, so that a machine whose speed drifts drifts for all. What counts is the ratio.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the product")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock, the environment and randomness")]

mod ceilings;
mod chart;
mod flows;
mod load;
mod report;
mod rows;
mod seed;
mod servers;
mod wrk;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use load::{Measured, Target};
use rows::{Results, Row};
use seed::Size;
use servers::{Server, StoreAt};
use wrk::Wrk;

/// What sends the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Driver {
    /// The usual tool; the figures of others are made with it.
    Wrk,
    /// A loop of our own; its figures are not to be compared with those of wrk.
    Own,
}

/// What there is to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Claims, beside what the machine and the parts reach.
    Claims,
    /// Webhooks and flows.
    Flows,
}

#[derive(Debug, Parser)]
struct Args {
    /// The binary under test.
    #[arg(long, default_value = "target/release/oncegate")]
    binary: PathBuf,
    /// Where the stores of the run lie; must be on a disk. What is there is removed.
    #[arg(long, default_value = "target/bench-data")]
    data: PathBuf,
    /// Connections that send at the same time.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Rounds; each drives everything once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of one drive.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// What sends the requests; without wrk on this machine it is `own`.
    #[arg(long, default_value = "wrk")]
    driver: Driver,
    /// Claims that the full store holds before the run, 450 bytes each; 0 leaves that row out.
    #[arg(long, default_value_t = 10_000_000)]
    existing: u64,
    /// What is measured: claims beside their ceilings, or webhooks and flows.
    #[arg(value_enum, default_values = ["claims", "flows"])]
    parts: Vec<Part>,
    /// Events in the queue whose memory is measured.
    #[arg(long, default_value_t = 1_000_000)]
    queued: u64,
    /// Only these rows and the empty handler, e.g. `claims,cycles`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A PostgreSQL database of its own, `postgres://…`: for pgbench, and for a gate that keeps its claims there.
    #[arg(long)]
    postgres: Option<String>,
    /// Also write the tables into `benchmark.md` and the chart to `benchmark.svg` of this directory.
    #[arg(long)]
    docs: Option<PathBuf>,
    /// Serve the empty handler; used by the benchmark itself.
    #[arg(long, hide = true)]
    empty_handler: bool,
}

impl Args {
    fn wants(&self, row: Row) -> bool {
        row == Row::Empty || self.only.is_empty() || self.only.iter().any(|word| row_of(word) == Some(row))
    }
}

fn row_of(word: &str) -> Option<Row> {
    Row::ALL.into_iter().find(|row| format!("{row:?}").eq_ignore_ascii_case(word))
}

fn main() -> Result<(), String> {
    let args = Args::parse();
    if let Some(word) = args.only.iter().find(|word| row_of(word).is_none()) {
        return Err(format!("--only {word}: the rows are {:?}", Row::ALL));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        match args.empty_handler {
            true => servers::empty_handler().await,
            false => measure(&args).await,
        }
    })
}

/// The load generator that was asked for.
struct Load {
    wrk: Option<Wrk>,
    connections: usize,
    length: Duration,
}

impl Load {
    async fn drive(&self, server: &Server, target: Target, connections: usize) -> Result<Measured, String> {
        match &self.wrk {
            Some(wrk) if target != Target::Batches => {
                wrk.drive(&server.address, target, connections, self.length).await
            }
            Some(_) | None => load::drive(&server.address, target, connections, self.length).await,
        }
    }
}

/// Everything that is driven.
struct Stage {
    empty: Server,
    gate: Server,
    /// All of its claims are done; what one takes up is measured there.
    done: Server,
    /// Holds the keys that are sent again.
    known: Server,
    existing: Result<Server, String>,
    redis: Result<Server, String>,
    postgres: Result<Server, String>,
}

impl Stage {
    async fn set(args: &Args) -> Result<Self, String> {
        let at = |name: &str| args.data.join(name);
        let gate = |name: &str| {
            let data = at(name);
            async move { servers::start_gate(&args.binary, StoreAt::Sqlite(&data)).await }
        };
        let known = gate("known").await?;
        load::finish_keys(&known.address).await?;
        let existing = match (args.existing, args.wants(Row::Existing)) {
            (1.., true) => {
                // One cycle, so that there is a claim to copy.
                let model = gate("existing").await?;
                load::finish_keys(&model.address).await?;
                model.stop().await?;
                eprintln!("filling a store with {} claims that are done", args.existing);
                seed::fill(&at("existing"), args.existing)?;
                gate("existing").await
            }
            _ => Err("--existing 0".into()),
        };
        let redis = match args.wants(Row::Redis) {
            true => servers::start_redis(&at("redis")).await,
            false => Err("not asked for".into()),
        };
        let postgres = match &args.postgres {
            None => Err("no --postgres".into()),
            Some(url) => servers::start_gate(&args.binary, StoreAt::Postgres(url, &at("postgres"))).await,
        };
        Ok(Self {
            empty: servers::start_empty_handler().await?,
            gate: gate("claims").await?,
            done: gate("done").await?,
            known,
            existing,
            redis,
            postgres,
        })
    }

    async fn measure(&self, row: Row, load: &Load, args: &Args) -> Result<Measured, String> {
        let many = load.connections;
        match row {
            Row::Empty => load.drive(&self.empty, Target::Claims, many).await,
            Row::Claims => load.drive(&self.gate, Target::Claims, many).await,
            Row::Cycles => load.drive(&self.done, Target::Cycles, many).await,
            Row::Duplicates => load.drive(&self.known, Target::Duplicates, many).await,
            Row::OneConnection => load.drive(&self.gate, Target::Claims, 1).await,
            Row::Batches => load.drive(&self.gate, Target::Batches, 1).await,
            Row::Existing => {
                load.drive(self.existing.as_ref().map_err(Clone::clone)?, Target::Claims, many).await
            }
            Row::GroupCommit => {
                let (directory, length) = (args.data.join("group"), load.length);
                let bare = tokio::task::spawn_blocking(move || ceilings::group_commit(&directory, length));
                bare.await.map_err(|e| e.to_string())?
            }
            Row::Redis => {
                ceilings::redis(self.redis.as_ref().map_err(Clone::clone)?, many, load.length).await
            }
            Row::PgBench => {
                let url = args.postgres.as_deref().ok_or("no --postgres")?;
                ceilings::pgbench(url, &args.data.join("pgbench"), many, load.length).await
            }
            Row::Postgres => {
                load.drive(self.postgres.as_ref().map_err(Clone::clone)?, Target::Claims, many).await
            }
        }
    }
}

async fn measure(args: &Args) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(&args.data);
    std::fs::create_dir_all(&args.data).map_err(|e| format!("{}: {e}", args.data.display()))?;
    if args.parts.contains(&Part::Claims) {
        compare(args).await?;
    }
    if args.parts.contains(&Part::Flows) {
        let plan = flows::Plan {
            binary: &args.binary,
            data: &args.data,
            connections: args.connections,
            length: Duration::from_secs(args.seconds),
            rounds: args.rounds,
            queued: args.queued,
        };
        let table = flows::measure(&plan).await?;
        println!("{table}");
        if let Some(docs) = &args.docs {
            report::write(&docs.join("benchmark.md"), report::Part::Flows, &table)?;
        }
    }
    Ok(())
}

async fn compare(args: &Args) -> Result<(), String> {
    let wrk = match args.driver {
        Driver::Wrk => Wrk::find(&args.data).await?,
        Driver::Own => None,
    };
    if args.driver == Driver::Wrk && wrk.is_none() {
        eprintln!("this machine has no wrk (apt-get install wrk); driving with a loop of our own");
    }
    let driver = if wrk.is_some() { "wrk" } else { "a loop of our own" };
    let load = Load { wrk, connections: args.connections, length: Duration::from_secs(args.seconds) };
    let stage = Stage::set(args).await?;
    let mut results = Results::default();
    for round in 1..=args.rounds {
        for row in Row::ALL.into_iter().filter(|row| args.wants(*row)) {
            let measured = stage.measure(row, &load, args).await;
            if let Ok(measured) = &measured {
                eprintln!("round {round}: {:>9.0}/s  {}", measured.per_second, row.what(args.existing));
            }
            results.add(row, measured);
        }
    }
    stage.done.stop().await?;
    let size = args.wants(Row::Cycles).then(|| seed::size(&args.data.join("done"))).transpose()?;
    told(args, &results, size, driver)
}

fn told(args: &Args, results: &Results, size: Option<Size>, driver: &str) -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let how = format!(
        "{cores} cores for everything, driven by {driver}: {} connections, random keys, synchronous=FULL, medians of \
         {} rounds of {} s",
        args.connections, args.rounds, args.seconds
    );
    let tables = report::tables(results, args.existing, size, &format!("{how}."));
    println!("{tables}");
    if let Some(docs) = &args.docs {
        report::write(&docs.join("benchmark.md"), report::Part::Claims, &tables)?;
        let svg: &Path = &docs.join("benchmark.svg");
        std::fs::write(svg, chart::svg(results, args.existing, &how))
            .map_err(|e| format!("{}: {e}", svg.display()))?;
    }
    Ok(())
}
