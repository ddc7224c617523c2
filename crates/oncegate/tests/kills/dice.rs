//! Randomness that can be had again: every test says its seed, `ONCEGATE_SEED` sets it.

use std::io::Write;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub(crate) struct Dice(u64);

impl Dice {
    /// Seeded by `ONCEGATE_SEED` or the system, and said on stderr.
    pub(crate) fn new(test: &str) -> Self {
        let seed = match std::env::var("ONCEGATE_SEED") {
            Ok(text) => text.parse().unwrap(),
            Err(_) => u64::from_be_bytes(oncegate_runner::entropy::bytes()),
        };
        say(&format!("{test}: ONCEGATE_SEED={seed}"));
        Self(seed)
    }

    /// Dice of their own for a part of a test.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Past the test harness, which keeps to itself what passing tests print.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
