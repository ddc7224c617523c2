//! Feeds the parser `durations` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("durations"),
    |bytes: &[u8]| oncegate::parsers::feed("durations", bytes)
);
