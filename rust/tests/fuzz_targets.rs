//! The fuzz targets, without the fuzzer: what they check holds for small files and all that is near to them.
#![allow(unused_attributes)] // `no_main`, which each target says for itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sglang_mm_ray::common::decode::decode;
use sglang_mm_ray::common::limits::Limits;

// Under these names the targets know the fuzzer and the library that they share.
extern crate self as libfuzzer_sys;
extern crate self as sglang_mm_ray_fuzz;

#[path = "../fuzz/src/lib.rs"]
mod checks;
pub use checks::{check, check_format, check_preprocess};

#[path = "../fuzz/fuzz_targets/decode_any.rs"]
mod decode_any;
#[path = "../fuzz/fuzz_targets/decode_bmp.rs"]
mod decode_bmp;
#[path = "../fuzz/fuzz_targets/decode_gif.rs"]
mod decode_gif;
#[path = "../fuzz/fuzz_targets/decode_jpeg.rs"]
mod decode_jpeg;
#[path = "../fuzz/fuzz_targets/decode_png.rs"]
mod decode_png;
#[path = "../fuzz/fuzz_targets/decode_webp.rs"]
mod decode_webp;
#[path = "../fuzz/fuzz_targets/preprocess.rs"]
mod preprocess;

// 4 x 3 pixels, written by Pillow.
const JPEG: &str = "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywt\
    QFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P\
    T0//wAARCAADAAQDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAb/xAAbEAACAQUAAAAAAAAAAAAAAAAABQIDBhQlkf/EABQBAQAAAAAAAAAA\
    AAAAAAAAAAL/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIRAxEAPwCmXW8nw4a+jwADF//Z";
const WEBP: &str = "UklGRjQAAABXRUJQVlA4TCcAAAAvA4AAAF8gFkzOEeRvG8NU3KFi/hPbgSCARCGWWGaZZZZJI/ofmO4A";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAQAAAADCAIAAAA7ljmRAAAAGklEQVR4nGNkYOcThQGWkJAQOIdxxfptcA4AWb0F\
    XG3EFNIAAAAASUVORK5CYII=";
const GIF: &str = "R0lGODdhBAADAIMAAOfu9dLZ4L3Ey6ivtpOaoX6FjGlwd1RbYj9GTSoxOBUcIwAHDgAAAAAAAAAAAAAAACwAAAAA\
    BAADAAAIEAAXKEiA4ICBAgQGCAgAICAAOw==";
const BMP: &str = "Qk1aAAAAAAAAADYAAAAoAAAABAAAAAMAAAABABgAAAAAACQAAADEDgAAxA4AAAAAAAAAAAAAtq+oy8S94NnS9e7n\
    YltUd3BpjIV+oZqTDgcAIxwVODEqTUY/";

#[test]
fn targets_hold_for_every_damage_of_one_bit_and_every_length() {
    type Target = fn(&[u8]);
    let samples: [(&str, Target); 5] = [
        (JPEG, decode_jpeg::run),
        (WEBP, decode_webp::run),
        (PNG, decode_png::run),
        (GIF, decode_gif::run),
        (BMP, decode_bmp::run),
    ];
    for (text, of_its_format) in samples {
        let sound = STANDARD.decode(text).expect("base64");
        let image = decode(&sound, &Limits::default(), |_, _| Ok(())).expect("a sound file");
        assert_eq!((image.width, image.height), (4, 3));
        let targets = [of_its_format, decode_any::run, preprocess::run];
        for len in 0..=sound.len() {
            targets.iter().for_each(|run| run(&sound[..len]));
        }
        for bit in 0..sound.len() * 8 {
            let mut damaged = sound.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            targets.iter().for_each(|run| run(&damaged));
        }
    }
}

// Last, so that the targets find it by the path under which they look for the fuzzer's.
/// In place of the fuzzer's: the target as a function.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:expr) => {
        pub fn run($data: &[u8]) {
            $body
        }
    };
}
