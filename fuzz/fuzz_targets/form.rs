//! Feeds the parser `form` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("form"),
    |bytes: &[u8]| oncegate::parsers::feed("form", bytes)
);
