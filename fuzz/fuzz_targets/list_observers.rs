//! `list_observers` for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (fairgate_fuzz::targets::list_observers::TARGET.run)(data);
});
