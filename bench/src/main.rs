//! How many durable claims a second, beside an empty handler in the same run.
//!
//! Both servers are processes of their own; the same load generator drives both with the same bodies over loopback,
//! in turns, so that a machine whose speed drifts drifts for both. What counts is the ratio.

#![expect(clippy::print_stdout, reason = "the table is the product")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock, the environment and randomness")]

mod load;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use load::{Measured, Target};

#[derive(Debug, Parser)]
struct Args {
    /// The binary under test.
    #[arg(long, default_value = "target/release/oncegate")]
    binary: PathBuf,
    /// Where the stores of the runs lie; must be on a disk.
    #[arg(long, default_value = "target/bench-data")]
    data: PathBuf,
    /// Connections that send at the same time.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Rounds; each drives both servers once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of one drive.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Serve the empty handler; used by the benchmark itself.
    #[arg(long, hide = true)]
    empty_handler: bool,
}

fn main() -> Result<(), String> {
    let args = Args::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        if args.empty_handler {
            return servers::empty_handler().await;
        }
        compare(&args).await
    })
}

async fn compare(args: &Args) -> Result<(), String> {
    let empty = servers::start_empty_handler().await?;
    let gate = servers::start_gate(&args.binary, &args.data).await?;
    let drive = Duration::from_secs(args.seconds);
    let (mut claims, mut ceiling) = (vec![], vec![]);
    for round in 1..=args.rounds {
        let a = load::drive(&empty.address, Target::Claims, args.connections, drive).await?;
        let b = load::drive(&gate.address, Target::Claims, args.connections, drive).await?;
        println!("round {round}: empty handler {:>7.0}/s   claims {:>7.0}/s", a.per_second, b.per_second);
        ceiling.push(a);
        claims.push(b);
    }
    // One connection: a batch is what a script sends, and its one writer is the server's.
    let batches = vec![load::drive(&gate.address, Target::Batches, 1, drive).await?];
    let ratios: Vec<f64> = claims.iter().zip(&ceiling).map(|(c, e)| c.per_second / e.per_second).collect();
    println!();
    println!(
        "{} connections, random keys, synchronous=FULL, medians of {} rounds",
        args.connections, args.rounds
    );
    println!("| what | per second | p50 ms | p99 ms |");
    println!("| --- | ---: | ---: | ---: |");
    row("empty axum handler", &ceiling);
    row("durable claims", &claims);
    row("durable claims, 500 in a call, one connection", &batches);
    println!();
    println!(
        "claims / empty handler: {:.2} (from {:.2} to {:.2})",
        median(&ratios),
        least(&ratios),
        most(&ratios)
    );
    Ok(())
}

fn row(what: &str, rounds: &[Measured]) {
    let of = |f: fn(&Measured) -> f64| median(&rounds.iter().map(f).collect::<Vec<_>>());
    println!(
        "| {what} | {:.0} | {:.2} | {:.2} |",
        of(|m| m.per_second),
        of(|m| m.p50.as_secs_f64() * 1e3),
        of(|m| m.p99.as_secs_f64() * 1e3)
    );
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
