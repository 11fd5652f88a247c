//! The kernels in AVX2.
//!
//! A weight is split as `high * 2^16 + low`. The low halves go through `pmaddwd` into 32-bit sums; of the high
//! halves' sum only the lower 16 bits count, so `pmaddubsw` and wrapping 16-bit sums do.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::coefficients::PRECISION_BITS;
use super::windows::{Window, Windows};

mod horizontal;
mod interleave;
mod transpose;

pub use horizontal::horizontal;
pub use interleave::{deinterleave, interleave};

const VECTOR_BYTES: usize = 32;

fn check() {
    assert!(is_x86_feature_detected!("avx2"), "the CPU lacks AVX2");
}

/// Resamples along y: one row of `out.len()` values from the window's quads, `stride` bytes apart.
pub fn vertical(table: &Windows, window: &Window, quads: &[u8], stride: usize, out: &mut [u8]) {
    check();
    let columns = out.len().next_multiple_of(VECTOR_BYTES);
    assert!(columns * 4 <= stride && quads.len() >= window.quads * stride);
    let lanes = table.lanes(window);
    // SAFETY: AVX2 was checked, and `quads` holds the window's quads for all columns of whole vectors.
    unsafe {
        match (window.skips_front, window.skips_back) {
            (false, false) => vertical_unrolled::<false, false>(lanes, quads, stride, out),
            (false, true) => vertical_unrolled::<false, true>(lanes, quads, stride, out),
            (true, false) => vertical_unrolled::<true, false>(lanes, quads, stride, out),
            (true, true) => vertical_unrolled::<true, true>(lanes, quads, stride, out),
        }
    }
}

/// Of known lengths the loops over quads are unrolled.
///
/// # Safety
/// As [`vertical_row`].
#[target_feature(enable = "avx2")]
unsafe fn vertical_unrolled<const FRONT: bool, const BACK: bool>(
    lanes: &[[i32; 3]],
    quads: &[u8],
    stride: usize,
    out: &mut [u8],
) {
    // SAFETY: by the caller.
    unsafe {
        match lanes.len() {
            2 => vertical_row::<FRONT, BACK>(&lanes[..2], quads, stride, out),
            3 => vertical_row::<FRONT, BACK>(&lanes[..3], quads, stride, out),
            4 => vertical_row::<FRONT, BACK>(&lanes[..4], quads, stride, out),
            _ => vertical_row::<FRONT, BACK>(lanes, quads, stride, out),
        }
    }
}

/// # Safety
/// `quads` must hold `lanes.len()` quads, `stride` bytes apart, of as many columns as whole vectors of `out` take.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn vertical_row<const FRONT: bool, const BACK: bool>(
    lanes: &[[i32; 3]],
    quads: &[u8],
    stride: usize,
    out: &mut [u8],
) {
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (index, out) in out.chunks_mut(VECTOR_BYTES).enumerate() {
        // SAFETY: by the caller.
        let (left, right) = unsafe {
            let columns = quads.as_ptr().add(index * 4 * VECTOR_BYTES);
            (
                weighted::<FRONT, BACK>(columns, stride, lanes),
                weighted::<FRONT, BACK>(columns.add(2 * VECTOR_BYTES), stride, lanes),
            )
        };
        let words = [_mm256_packs_epi32(left[0], left[1]), _mm256_packs_epi32(right[0], right[1])];
        let bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words[0], words[1]), order);
        if out.len() == VECTOR_BYTES {
            // SAFETY: `out` has 32 bytes.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), bytes) };
        } else {
            let mut last = [0_u8; VECTOR_BYTES];
            // SAFETY: the array has 32 bytes.
            unsafe { _mm256_storeu_si256(last.as_mut_ptr().cast(), bytes) };
            out.copy_from_slice(&last[..out.len()]);
        }
    }
}

/// Weighted sums of 16 lanes of quads, rounded and shifted down to 8 bits, but not yet clipped.
///
/// # Safety
/// 64 bytes must be readable at `quads + n * stride` for each `n < lanes.len()`; `lanes` must not be empty.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn weighted<const FRONT: bool, const BACK: bool>(
    quads: *const u8,
    stride: usize,
    lanes: &[[i32; 3]],
) -> [__m256i; 2] {
    let half = _mm256_set1_epi32(1 << (PRECISION_BITS - 1));
    let mut sums = [Sums { low: half, high: _mm256_setzero_si256() }; 2];
    let (start, end) = (usize::from(FRONT), lanes.len() - usize::from(BACK));
    // SAFETY: by the caller.
    unsafe {
        if FRONT {
            add_quad::<false, true>(quads, &lanes[0], &mut sums);
        }
        for (index, lanes) in lanes[start..end].iter().enumerate() {
            add_quad::<true, true>(quads.add((start + index) * stride), lanes, &mut sums);
        }
        if BACK {
            add_quad::<true, false>(quads.add(end * stride), &lanes[end], &mut sums);
        }
    }
    [sums[0].shifted(), sums[1].shifted()]
}

#[derive(Clone, Copy)]
struct Sums {
    low: __m256i,
    high: __m256i,
}

impl Sums {
    // Both 16-bit halves of a lane of `high` belong to the upper half of the sum; what their addition leaves in
    // the lower half is shifted out.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn shifted(self) -> __m256i {
        let sum = _mm256_add_epi16(self.low, self.high);
        let sum = _mm256_add_epi16(sum, _mm256_slli_epi32::<16>(self.high));
        _mm256_srai_epi32::<{ PRECISION_BITS as i32 }>(sum)
    }
}

/// # Safety
/// 64 bytes must be readable at `quad`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_quad<const EVEN: bool, const ODD: bool>(
    quad: *const u8,
    lanes: &[i32; 3],
    sums: &mut [Sums; 2],
) {
    let even_weights = _mm256_set1_epi32(lanes[0]);
    let odd_weights = _mm256_set1_epi32(lanes[1]);
    let high_weights = _mm256_set1_epi32(lanes[2]);
    for (index, sums) in sums.iter_mut().enumerate() {
        // SAFETY: by the caller.
        let samples = unsafe { _mm256_loadu_si256(quad.add(index * VECTOR_BYTES).cast()) };
        if EVEN {
            let words = _mm256_and_si256(samples, _mm256_set1_epi16(0xff));
            sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(words, even_weights));
        }
        if ODD {
            let words = _mm256_srli_epi16::<8>(samples);
            sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(words, odd_weights));
        }
        sums.high = _mm256_add_epi16(sums.high, _mm256_maddubs_epi16(samples, high_weights));
    }
}
