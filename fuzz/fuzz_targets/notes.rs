//! Feeds the parser `notes` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("notes"),
    |bytes: &[u8]| oncegate::parsers::feed("notes", bytes)
);
