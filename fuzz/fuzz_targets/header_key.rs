//! Feeds the parser `header_key` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("header_key"),
    |bytes: &[u8]| oncegate::parsers::feed("header_key", bytes)
);
