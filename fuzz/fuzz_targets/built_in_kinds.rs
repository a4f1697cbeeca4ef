//! `built_in_kinds` for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fairgate_fuzz::targets::built_in_kinds::TARGET.run)(data);
});
