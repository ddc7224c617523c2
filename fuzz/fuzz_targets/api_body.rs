//! Feeds the parser `api_body` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("api_body"),
    |bytes: &[u8]| oncegate::parsers::feed("api_body", bytes)
);
