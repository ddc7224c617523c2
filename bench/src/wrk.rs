//! Drives with [wrk](https://github.com/wg/wrk): the load generator that others' figures are made with. It pays for
//! what it sends on the same cores, as any caller on the same machine would.

use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;

use crate::load::{DONE_KEYS, Measured, Target};

/// A script for wrk, written where it can be read from.
#[derive(Debug)]
pub(crate) struct Wrk {
    script: PathBuf,
}

impl Wrk {
    /// `None`: this machine has no wrk.
    pub(crate) async fn find(directory: &std::path::Path) -> Result<Option<Self>, String> {
        if Command::new("wrk").arg("-v").output().await.is_err() {
            return Ok(None);
        }
        let script = directory.join("load.lua");
        std::fs::write(&script, include_str!("load.lua")).map_err(|e| e.to_string())?;
        Ok(Some(Self { script }))
    }

    pub(crate) async fn drive(
        &self,
        address: &str,
        target: Target,
        connections: usize,
        length: Duration,
    ) -> Result<Measured, String> {
        let mode = match target {
            Target::Claims => "claims",
            Target::Cycles => "cycles",
            Target::Duplicates => "duplicates",
            Target::Batches => return Err("wrk does not send batches".into()),
        };
        let threads = connections.min(2);
        let output = Command::new("wrk")
            .arg(format!("-t{threads}"))
            .arg(format!("-c{connections}"))
            .arg(format!("-d{}", length.as_secs().max(1)))
            .arg("-s")
            .arg(&self.script)
            .arg(format!("http://{address}"))
            .args(["--", mode, &DONE_KEYS.to_string()])
            .output()
            .await
            .map_err(|e| format!("wrk: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("measured "))
            .ok_or_else(|| format!("wrk said nothing: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        let [requests, took, p50, p99, failed] = numbers[..] else {
            return Err(format!("wrk said `{line}`"));
        };
        if failed > 0 {
            // A refusal is fast and proves nothing.
            return Err(format!("{failed} of {requests} requests failed"));
        }
        Ok(Measured {
            per_second: requests as f64 * target.per_call() / Duration::from_micros(took).as_secs_f64(),
            p50: Duration::from_micros(p50),
            p99: Duration::from_micros(p99),
        })
    }
}
