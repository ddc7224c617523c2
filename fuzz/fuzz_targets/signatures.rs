//! Feeds the parser `signatures` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(
    init: fuzz::sow("signatures"),
    |bytes: &[u8]| oncegate::parsers::feed("signatures", bytes)
);
