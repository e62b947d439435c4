#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::device_list(input));
