//! Feeds the parser `events` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("events"),
    |bytes: &[u8]| oncegate::parsers::feed("events", bytes)
);
