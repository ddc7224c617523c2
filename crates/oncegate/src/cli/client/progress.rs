//! An act on many claims takes a while: its progress, and its end.

use std::io::IsTerminal;
use std::time::Duration;

use super::super::ending::Failure;
use super::super::term;
use super::bulk_pages::{acted, left, number, sum};
use super::gate::{Answer, Gate};

/// Between two looks; long acts are looked at less often.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How long a gate that is away is waited for: it takes the act up again when it is back.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Looks until it is finished. A terminal sees how far it is, in one line that goes away at the end.
pub(super) async fn until_finished(gate: &Gate, begun: Answer, verb: &str) -> Result<Answer, Failure> {
    let (mut answer, mut pause) = (begun, LOOK_FIRST);
    let id = answer.body["bulk_id"].to_string();
    let terminal = std::io::stderr().is_terminal();
    let mut away = Duration::ZERO;
    while answer.body["state"] != "finished" {
        if terminal {
            let body = &answer.body;
            let so_far = acted(body) + sum(left(body)) + number(body, "failed");
            term::aside(&format!("\r\x1b[K  bulk {id}: {verb} {so_far} of {}", number(body, "matched")));
        }
        tokio::time::sleep(pause).await;
        pause = LOOK_MAX.min(pause * 2);
        match gate.get(&["v1", "bulk", &id], &[]).await {
            Ok(looked) => (answer, away) = (looked, Duration::ZERO),
            Err(trouble) if trouble.is_passing() && away < AWAY_MAX => away += pause,
            Err(trouble) => {
                let hint = format!("it goes on by itself: oncegate bulk show {id}");
                return Err(Failure::from(trouble).hint(hint));
            }
        }
    }
    if terminal {
        term::aside("\r\x1b[K");
    }
    Ok(answer)
}
