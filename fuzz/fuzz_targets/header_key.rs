//! Feeds the parser `header_key` with bytes that the fuzzer learns.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oncegate::parsers::feed("header_key", bytes));
