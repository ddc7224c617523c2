//! Feeds the parser `ids` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("ids"),
    |bytes: &[u8]| oncegate::parsers::feed("ids", bytes)
);
