//! The kernels in AVX-512 (F, BW, VL, VBMI, VNNI).
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::steps::Pair;

mod rgb;
mod transform;

pub use rgb::rgb_row;
pub use transform::transform;

fn check() {
    assert!(
        is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vnni"),
        "the CPU lacks AVX-512"
    );
}

// Factors for pairs of words.
#[target_feature(enable = "avx512f")]
#[inline]
fn pair(by: Pair) -> __m512i {
    _mm512_set1_epi32(i32::from(by.1) << 16 | i32::from(by.0) & 0xffff)
}
