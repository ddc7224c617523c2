//! Feeds the parser `timestamps` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("timestamps"),
    |bytes: &[u8]| oncegate::parsers::feed("timestamps", bytes)
);
