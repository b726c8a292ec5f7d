//! libFuzzer's entry to [`mx_fuzz::session`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mx_fuzz::session(bytes));
