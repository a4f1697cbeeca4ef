//! `http1_responses` for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fairgate_fuzz::targets::http1_responses::TARGET.run)(data);
});
