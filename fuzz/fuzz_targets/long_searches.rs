//! `long_searches` for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fairgate_fuzz::targets::long_searches::TARGET.run)(data);
});
