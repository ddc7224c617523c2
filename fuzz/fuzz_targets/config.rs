//! Feeds the parser `config` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("config"),
    |bytes: &[u8]| oncegate::parsers::feed("config", bytes)
);
