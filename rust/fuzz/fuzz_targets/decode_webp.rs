#![no_main]

use libfuzzer_sys::fuzz_target;
use sglang_mm_ray::common::decode::Format;

fuzz_target!(|data: &[u8]| sglang_mm_ray_fuzz::check_format(data, Format::WebP));
