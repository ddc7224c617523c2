//! Feeds the parser `names` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("names"),
    |bytes: &[u8]| oncegate::parsers::feed("names", bytes)
);
