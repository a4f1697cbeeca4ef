//! `selectors` for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fairgate_fuzz::targets::selectors::TARGET.run)(data);
});
