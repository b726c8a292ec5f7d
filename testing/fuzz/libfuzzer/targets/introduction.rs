//! libFuzzer's entry to [`mx_fuzz::introduction`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mx_fuzz::introduction(bytes));
