//! What the tests of several crates share. Not part of the product: whatever goes wrong in here fails the test at once
//! and says why.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "this lives outside the program: it has an environment, clocks and files of its own"
)]

mod binaries;
mod database;
mod postgres;
mod processes;
mod proxy;

pub use binaries::Binaries;
pub use database::{Database, Held};
pub use postgres::Postgres;
pub use proxy::Proxy;

use std::time::{Duration, Instant};

/// How long anything of the server may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks every 5 ms until there is something; `None` if nothing came about in time.
fn within<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if began.elapsed() > patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
