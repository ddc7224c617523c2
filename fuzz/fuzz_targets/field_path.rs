//! Feeds the parser `field_path` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("field_path"),
    |bytes: &[u8]| oncegate::parsers::feed("field_path", bytes)
);
