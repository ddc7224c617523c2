//! Feeds the parser `json` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("json"),
    |bytes: &[u8]| oncegate::parsers::feed("json", bytes)
);
