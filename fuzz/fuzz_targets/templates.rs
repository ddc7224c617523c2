//! Feeds the parser `templates` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("templates"),
    |bytes: &[u8]| oncegate::parsers::feed("templates", bytes)
);
