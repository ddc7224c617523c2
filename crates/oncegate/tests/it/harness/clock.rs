//! The clock that tests turn by hand.

use std::time::Duration;

use oncegate_core::time::Timestamp;
use oncegate_store::clock::{Clock, ManualClock, Reading};

/// Stands still until it is turned. Naps of up to a second end early, as the contract of [`Clock::sleep`] allows:
/// whoever naps looks again, and finds what came due at the very moment at which time stands.
#[derive(Debug)]
pub(crate) struct TestClock(ManualClock);

impl TestClock {
    pub(crate) fn at(wall: Timestamp) -> Self {
        Self(ManualClock::at(wall))
    }

    pub(crate) fn advance(&self, d: Duration) {
        self.0.advance(d);
    }

    pub(crate) fn set_wall(&self, wall: Timestamp) {
        self.0.set_wall(wall);
    }
}

#[async_trait::async_trait]
impl Clock for TestClock {
    fn read(&self) -> Reading {
        self.0.read()
    }

    async fn sleep(&self, d: Duration) {
        let look_again = async {
            match d <= Duration::from_secs(1) {
                true => tokio::time::sleep(d.min(Duration::from_millis(10))).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.0.sleep(d) => {}
            () = look_again => {}
        }
    }
}
