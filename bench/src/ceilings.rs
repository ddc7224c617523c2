//! What the parts that oncegate stands on reach by themselves: SQLite with a group commit and nothing around it, Redis,
//! PostgreSQL with nothing but an upsert.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tokio::process::Command;

use crate::load::Measured;
use crate::servers::Server;

/// Rows in one transaction: as many as 64 connections can have waiting.
const GROUP: usize = 64;

/// SQLite as the store sets it up, one table with one unique key, no history, no HTTP.
pub(crate) fn group_commit(directory: &Path, length: Duration) -> Result<Measured, String> {
    std::fs::create_dir_all(directory).map_err(|e| e.to_string())?;
    bare(&directory.join("group.db"), length).map_err(|e| e.to_string())
}

fn bare(path: &Path, length: Duration) -> rusqlite::Result<Measured> {
    let mut db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "wal_autocheckpoint", 20_000)?;
    db.pragma_update(None, "cache_size", -64 * 1024)?;
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS claims (id INTEGER PRIMARY KEY, claim_id BLOB NOT NULL UNIQUE, \
         idempotency_key TEXT NOT NULL, state TEXT NOT NULL, started_at INTEGER NOT NULL, url TEXT) STRICT",
    )?;
    let (begun, mut times) = (Instant::now(), vec![]);
    while begun.elapsed() < length {
        let at = Instant::now();
        let tx = db.transaction()?;
        for _ in 0..GROUP {
            let mut id = [0u8; 16];
            let _ = getrandom::fill(&mut id);
            let key = format!("form_contact:{:032x}", u128::from_be_bytes(id));
            tx.prepare_cached("SELECT id FROM claims WHERE claim_id = ?1")?.exists([&id[..]])?;
            tx.prepare_cached(
                "INSERT INTO claims (claim_id, idempotency_key, state, started_at, url) \
                 VALUES (?1, ?2, 'processing', ?3, 'https://zap.example.com/runs/1')",
            )?
            .execute(params![&id[..], key, 1_796_011_290_930_i64])?;
        }
        tx.commit()?;
        times.push(at.elapsed());
    }
    let per_second = (times.len() * GROUP) as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    Ok(Measured { per_second, p50: at(0.5), p99: at(0.99) })
}

/// `SET key value NX PX` of random keys, by Redis's own benchmark.
pub(crate) async fn redis(server: &Server, connections: usize, length: Duration) -> Result<Measured, String> {
    let port = server.address.rsplit(':').next().unwrap_or_default();
    // It counts requests, not seconds: about as many as fit into the time.
    let requests = (length.as_secs().max(1) * 25_000).to_string();
    let output = Command::new("redis-benchmark")
        .args(["-p", port, "-c", &connections.to_string(), "-n", &requests, "-r", "1000000000000", "--csv"])
        .args(["SET", "form_contact:__rand_int__", "processing", "NX", "PX", "900000"])
        .output()
        .await
        .map_err(|_| "no redis-benchmark".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().last().unwrap_or_default();
    let numbers: Vec<f64> = line.rsplitn(8, ',').filter_map(|n| n.trim_matches('"').parse().ok()).collect();
    // From the end: max, p99, p95, p50, min, mean, rate.
    let [_, p99, _, p50, _, _, per_second] = numbers[..] else {
        return Err(format!("redis-benchmark said `{line}`"));
    };
    let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
    Ok(Measured { per_second, p50: ms(p50), p99: ms(p99) })
}

const UPSERT: &str = "INSERT INTO bench_claims (claim_id, state, started_at) \
     VALUES (md5(random()::text || clock_timestamp()::text), 'processing', now()) \
     ON CONFLICT (claim_id) DO NOTHING RETURNING state;";

/// One upsert of a random key in a transaction, by PostgreSQL's own benchmark.
pub(crate) async fn pgbench(
    url: &str,
    directory: &Path,
    connections: usize,
    length: Duration,
) -> Result<Measured, String> {
    let table = "CREATE TABLE IF NOT EXISTS bench_claims (claim_id text PRIMARY KEY, state text NOT NULL, \
         started_at timestamptz NOT NULL)";
    let made = Command::new("psql").args([url, "-qc", table]).output().await.map_err(|_| "no psql")?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
    }
    std::fs::create_dir_all(directory).map_err(|e| e.to_string())?;
    let script = directory.join("upsert.sql");
    std::fs::write(&script, UPSERT).map_err(|e| e.to_string())?;
    let log = directory.join("pgbench");
    let output = Command::new("pgbench")
        .args(["-n", "-M", "prepared", "-c", &connections.to_string(), "-j", "2", "-l", "--log-prefix"])
        .arg(&log)
        .args(["-T", &length.as_secs().max(1).to_string(), "-f"])
        .arg(&script)
        .arg(url)
        .output()
        .await
        .map_err(|_| "no pgbench".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.lines().find_map(|l| l.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
    let per_second =
        rate.ok_or_else(|| format!("pgbench said {text}{}", String::from_utf8_lossy(&output.stderr)))?;
    let mut times = logged(directory)?;
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    Ok(Measured { per_second, p50: at(0.5), p99: at(0.99) })
}

/// Reads, and removes, the times that pgbench wrote down: `client transaction time …`, in microseconds.
fn logged(directory: &Path) -> Result<Vec<Duration>, String> {
    let mut times = vec![];
    for entry in std::fs::read_dir(directory).map_err(|e| e.to_string())?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with("pgbench.") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).map_err(|e| e.to_string())?;
        let time = |line: &str| line.split(' ').nth(2)?.parse().ok().map(Duration::from_micros);
        times.extend(text.lines().filter_map(time));
        let _ = std::fs::remove_file(entry.path());
    }
    Ok(times)
}
