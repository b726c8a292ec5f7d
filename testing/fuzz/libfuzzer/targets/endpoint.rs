//! libFuzzer's entry to [`mx_fuzz::endpoint`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mx_fuzz::endpoint(bytes));
