#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sglang_mm_ray_fuzz::check(data));
