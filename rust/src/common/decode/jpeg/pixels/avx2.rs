//! The kernels in AVX2.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::steps::Pair;

mod rgb;
mod transform;

pub use rgb::rgb_row;
pub use transform::transform;

fn check() {
    assert!(is_x86_feature_detected!("avx2"), "the CPU lacks AVX2");
}

// Factors for pairs of words.
#[target_feature(enable = "avx2")]
#[inline]
fn pair(by: Pair) -> __m256i {
    _mm256_set1_epi32(i32::from(by.1) << 16 | i32::from(by.0) & 0xffff)
}
