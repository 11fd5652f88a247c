//! AVX-512 (F, BW, VL): 32 bfloat16 or 16 float32 values a step.
//!
//! Three channels do not divide 16 lanes, so every constant comes in three vectors, one for each channel that
//! lane 0 may hold; a block's length moves that channel on. For bfloat16 the bytes of a block are split into
//! even and odd ones, each widened to 32 bits in place: the results then interleave by a shift and a blend,
//! with no shuffle across lanes.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Affine, Lanes, Lines, Normaliser, lanes};

const BF16_BLOCK: usize = 32;
const F32_BLOCK: usize = 16;
const ODD_WORDS: __mmask32 = 0xaaaa_aaaa;

#[target_feature(enable = "avx512f")]
fn vectors(lanes: &Lanes) -> [__m512; 3] {
    // SAFETY: each array is the 64 bytes of one load.
    lanes.each_ref().map(|lanes| unsafe { _mm512_loadu_ps(lanes.as_ptr()) })
}

/// [`Lines::pack`] in the widest moves.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn pack(lines: Lines<'_>, packed: &mut [u8]) {
    lines.pack_blocks(packed);
}

// Writes `block(first channel, bytes)` for all of a line, `$len` values each, the last masked. Three blocks are
// whole pixels, so the channels are known when this is compiled, and the constants stay in registers.
macro_rules! line {
    ($bytes:expr, $out:expr, $len:expr, $channels:expr, $block:expr) => {{
        let (bytes, out) = ($bytes, $out);
        let [first, second, third] = $channels;
        let mut at = 0;
        while at + 3 * $len <= bytes.len() {
            $block(first, &bytes[at..at + $len], &mut out[at..at + $len]);
            $block(second, &bytes[at + $len..at + 2 * $len], &mut out[at + $len..at + 2 * $len]);
            $block(third, &bytes[at + 2 * $len..at + 3 * $len], &mut out[at + 2 * $len..at + 3 * $len]);
            at += 3 * $len;
        }
        for channel in $channels {
            let end = bytes.len().min(at + $len);
            if at < end {
                $block(channel, &bytes[at..end], &mut out[at..end]);
            }
            at = end;
        }
    }};
}

/// Whether a block can be stored past the cache: all of a cache line, no more and no less.
#[inline]
fn is_cache_line<T>(out: &[T], len: usize) -> bool {
    len * size_of::<T>() == size_of::<__m512i>()
        && (out.as_ptr() as usize).is_multiple_of(size_of::<__m512i>())
}

/// Writes up to 32 bytes as bfloat16, given what becomes of even and odd values as floats.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn bf16_block(
    bytes: &[u8],
    out: &mut [u16],
    past_cache: bool,
    bits: impl FnOnce(__m512, __m512) -> (__m512i, __m512i),
) {
    let len = bytes.len().min(out.len()).min(BF16_BLOCK);
    let mask: __mmask32 = ((1_u64 << len) - 1) as u32;
    // SAFETY: the mask keeps the load to `len` bytes, which the slice holds.
    let block = unsafe { _mm256_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) };
    let pairs = _mm512_cvtepu16_epi32(block);
    let even = _mm512_cvtepi32_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xff)));
    let odd = _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(pairs));
    let (even, odd) = bits(even, odd);
    let values = _mm512_mask_blend_epi16(ODD_WORDS, _mm512_srli_epi32::<16>(even), odd);
    // SAFETY: the mask keeps the store to `len` values, which the slice holds; a cache line is all of a vector.
    unsafe {
        if past_cache && is_cache_line(out, len) {
            _mm512_stream_si512(out.as_mut_ptr().cast(), values);
        } else {
            _mm512_mask_storeu_epi16(out.as_mut_ptr().cast(), mask, values);
        }
    }
}

/// One fused multiply-add, rounded half up.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn fused_bf16(
    affine: &Affine,
    lines: Lines<'_>,
    out: &mut [u16],
    out_stride: usize,
    past_cache: bool,
) {
    let (scale, offset) = (vectors(&affine.scale_lanes), vectors(&affine.offset_lanes));
    let half = _mm512_set1_epi32(0x8000);
    let block = |channel: usize, bytes: &[u8], out: &mut [u16]| {
        let next = (channel + 1) % 3;
        bf16_block(bytes, out, past_cache, |even, odd| {
            let even = _mm512_castps_si512(_mm512_fmadd_ps(even, scale[channel], offset[channel]));
            let odd = _mm512_castps_si512(_mm512_fmadd_ps(odd, scale[next], offset[next]));
            (_mm512_add_epi32(even, half), _mm512_add_epi32(odd, half))
        });
    };
    for (bytes, out) in lines.zip(out, out_stride) {
        line!(bytes, out, BF16_BLOCK, [0, 2, 1], block);
    }
}

struct Exact {
    reciprocal: __m512,
    mean: [__m512; 3],
    std: [__m512; 3],
}

impl Exact {
    #[target_feature(enable = "avx512f")]
    fn new(normaliser: &Normaliser, step: usize) -> Self {
        Self {
            reciprocal: _mm512_set1_ps(1.0 / 255.0),
            mean: vectors(&lanes(normaliser.mean, step)),
            std: vectors(&lanes(normaliser.std, step)),
        }
    }

    // The reference's own operations, each rounded.
    #[target_feature(enable = "avx512f")]
    fn normalize(&self, channel: usize, values: __m512) -> __m512 {
        let scaled = _mm512_mul_ps(values, self.reciprocal);
        _mm512_div_ps(_mm512_sub_ps(scaled, self.mean[channel]), self.std[channel])
    }
}

/// The reference's operations, rounded to nearest even.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn exact_bf16(
    normaliser: &Normaliser,
    lines: Lines<'_>,
    out: &mut [u16],
    out_stride: usize,
    past_cache: bool,
) {
    let exact = Exact::new(normaliser, 2);
    let round = |value: __m512| {
        let bits = _mm512_castps_si512(value);
        let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        _mm512_add_epi32(bits, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)))
    };
    let block = |channel: usize, bytes: &[u8], out: &mut [u16]| {
        bf16_block(bytes, out, past_cache, |even, odd| {
            let even = exact.normalize(channel, even);
            let odd = exact.normalize((channel + 1) % 3, odd);
            (round(even), round(odd))
        });
    };
    for (bytes, out) in lines.zip(out, out_stride) {
        line!(bytes, out, BF16_BLOCK, [0, 2, 1], block);
    }
}

/// The reference's operations.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn exact_f32(
    normaliser: &Normaliser,
    lines: Lines<'_>,
    out: &mut [f32],
    out_stride: usize,
    past_cache: bool,
) {
    let exact = Exact::new(normaliser, 1);
    let block = |channel: usize, bytes: &[u8], out: &mut [f32]| {
        let len = bytes.len().min(out.len()).min(F32_BLOCK);
        let mask: __mmask16 = ((1_u32 << len) - 1) as u16;
        // SAFETY: the mask keeps the load to `len` bytes and the store to `len` values, which the slices hold; a
        // cache line is all of a vector.
        unsafe {
            let block = _mm_maskz_loadu_epi8(mask, bytes.as_ptr().cast());
            let values = exact.normalize(channel, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(block)));
            if past_cache && is_cache_line(out, len) {
                _mm512_stream_ps(out.as_mut_ptr(), values);
            } else {
                _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, values);
            }
        }
    };
    for (bytes, out) in lines.zip(out, out_stride) {
        line!(bytes, out, F32_BLOCK, [0, 1, 2], block);
    }
}
