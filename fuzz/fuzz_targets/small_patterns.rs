//! `small_patterns` for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fairgate_fuzz::targets::small_patterns::TARGET.run)(data);
});
