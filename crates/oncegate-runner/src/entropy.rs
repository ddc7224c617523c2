//! The only file that makes randomness.

use oncegate_core::policy::Jitter;

/// Random bytes from the operating system.
///
/// # Panics
/// The operating system has no randomness to give: without it no secret can be made, and nothing may start.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    #[expect(clippy::expect_used, reason = "nothing sensible can run without randomness")]
    #[allow(clippy::disallowed_methods, reason = "this file is where randomness comes in")]
    getrandom::fill(&mut out).expect("the operating system gives no randomness");
    out
}

/// A fresh jitter for one retry.
pub fn jitter() -> Jitter {
    Jitter::from_random(u32::from_be_bytes(bytes()))
}
