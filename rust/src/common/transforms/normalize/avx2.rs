//! AVX2 and FMA: 16 bfloat16 or 8 float32 values a step.
//!
//! As in AVX-512: constants in three vectors by the channel of lane 0, and bfloat16 from even and odd bytes
//! apart. What is left of a line comes from the tables.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::scalar::look_up_line;
use super::{Affine, Lanes, Lines, Normaliser, lanes};

const BF16_BLOCK: usize = 16;
const F32_BLOCK: usize = 8;

// Half of each array: 8 lanes.
#[target_feature(enable = "avx2")]
fn vectors(lanes: &Lanes) -> [__m256; 3] {
    // SAFETY: each array has more than the 32 bytes of the load.
    lanes.each_ref().map(|lanes| unsafe { _mm256_loadu_ps(lanes.as_ptr()) })
}

/// [`Lines::pack`] in the widest moves.
#[target_feature(enable = "avx2")]
pub(super) fn pack(lines: Lines<'_>, packed: &mut [u8]) {
    lines.pack_blocks(packed);
}

// Writes `block(first channel, bytes)` for all of a line, `$len` values each. Three blocks are whole pixels, so
// the channels are known when this is compiled, and the constants stay in registers. The last block overlaps
// the one before it; lines shorter than a block come from the table.
macro_rules! line {
    ($bytes:expr, $out:expr, $len:expr, $channels:expr, $table:expr, $block:expr) => {{
        let (bytes, out) = ($bytes, $out);
        let [first, second, third] = $channels;
        let (triples, rest) = bytes.as_chunks::<{ 3 * $len }>();
        let (out_triples, _) = out.as_chunks_mut::<{ 3 * $len }>();
        for (bytes, out) in triples.iter().zip(out_triples) {
            let ([bytes0, bytes1, bytes2], _) = bytes.as_chunks::<$len>() else { continue };
            let ([out0, out1, out2], _) = out.as_chunks_mut::<$len>() else { continue };
            $block(first, bytes0, out0);
            $block(second, bytes1, out1);
            $block(third, bytes2, out2);
        }
        let mut at = bytes.len() - rest.len();
        for channel in [first, second] {
            if let (Some((bytes, _)), Some((out, _))) =
                (bytes[at..].split_first_chunk::<$len>(), out[at..].split_first_chunk_mut::<$len>())
            {
                $block(channel, bytes, out);
                at += $len;
            }
        }
        if at < bytes.len() {
            match (bytes.split_last_chunk::<$len>(), out.split_last_chunk_mut::<$len>()) {
                (Some((before, bytes)), Some((_, out))) => $block(before.len() % 3, bytes, out),
                _ => look_up_line($table, 0, bytes, out),
            }
        }
    }};
}

/// Whether a block can be stored past the cache: an aligned vector.
#[inline]
fn is_aligned<T>(out: &[T]) -> bool {
    (out.as_ptr() as usize).is_multiple_of(size_of::<__m256i>())
}

/// Writes 16 bytes as bfloat16, given what becomes of even and odd values as floats.
#[target_feature(enable = "avx2")]
#[inline]
fn bf16_block(
    bytes: &[u8; BF16_BLOCK],
    out: &mut [u16; BF16_BLOCK],
    past_cache: bool,
    bits: impl FnOnce(__m256, __m256) -> (__m256i, __m256i),
) {
    // SAFETY: the load reads the 16 bytes of the array.
    let pairs = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
    let even = _mm256_cvtepi32_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(0xff)));
    let odd = _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(pairs));
    let (even, odd) = bits(even, odd);
    let values = _mm256_blend_epi16::<0b1010_1010>(_mm256_srli_epi32::<16>(even), odd);
    // SAFETY: the store writes the 16 values of the array.
    unsafe {
        if past_cache && is_aligned(out) {
            _mm256_stream_si256(out.as_mut_ptr().cast(), values);
        } else {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), values);
        }
    }
}

/// One fused multiply-add, rounded half up.
#[target_feature(enable = "avx2,fma")]
pub(super) fn fused_bf16(
    affine: &Affine,
    table: &[[u16; 256]; 3],
    lines: Lines<'_>,
    out: &mut [u16],
    out_stride: usize,
    past_cache: bool,
) {
    let (scale, offset) = (vectors(&affine.scale_lanes), vectors(&affine.offset_lanes));
    let half = _mm256_set1_epi32(0x8000);
    let block = |channel: usize, bytes: &[u8; BF16_BLOCK], out: &mut [u16; BF16_BLOCK]| {
        let next = (channel + 1) % 3;
        bf16_block(bytes, out, past_cache, |even, odd| {
            let even = _mm256_castps_si256(_mm256_fmadd_ps(even, scale[channel], offset[channel]));
            let odd = _mm256_castps_si256(_mm256_fmadd_ps(odd, scale[next], offset[next]));
            (_mm256_add_epi32(even, half), _mm256_add_epi32(odd, half))
        });
    };
    for (bytes, out) in lines.zip(out, out_stride) {
        line!(bytes, out, BF16_BLOCK, [0, 1, 2], table, block);
    }
}

struct Exact {
    reciprocal: __m256,
    mean: [__m256; 3],
    std: [__m256; 3],
}

impl Exact {
    #[target_feature(enable = "avx2")]
    fn new(normaliser: &Normaliser, step: usize) -> Self {
        Self {
            reciprocal: _mm256_set1_ps(1.0 / 255.0),
            mean: vectors(&lanes(normaliser.mean, step)),
            std: vectors(&lanes(normaliser.std, step)),
        }
    }

    // The reference's own operations, each rounded.
    #[target_feature(enable = "avx2")]
    fn normalize(&self, channel: usize, values: __m256) -> __m256 {
        let scaled = _mm256_mul_ps(values, self.reciprocal);
        _mm256_div_ps(_mm256_sub_ps(scaled, self.mean[channel]), self.std[channel])
    }
}

/// The reference's operations, rounded to nearest even.
#[target_feature(enable = "avx2,fma")]
pub(super) fn exact_bf16(
    normaliser: &Normaliser,
    lines: Lines<'_>,
    out: &mut [u16],
    out_stride: usize,
    past_cache: bool,
) {
    let exact = Exact::new(normaliser, 2);
    let round = |value: __m256| {
        let bits = _mm256_castps_si256(value);
        let last = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        _mm256_add_epi32(bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff)))
    };
    let block = |channel: usize, bytes: &[u8; BF16_BLOCK], out: &mut [u16; BF16_BLOCK]| {
        bf16_block(bytes, out, past_cache, |even, odd| {
            let even = exact.normalize(channel, even);
            let odd = exact.normalize((channel + 1) % 3, odd);
            (round(even), round(odd))
        });
    };
    for (bytes, out) in lines.zip(out, out_stride) {
        line!(bytes, out, BF16_BLOCK, [0, 1, 2], &normaliser.bf16, block);
    }
}

/// The reference's operations.
#[target_feature(enable = "avx2,fma")]
pub(super) fn exact_f32(
    normaliser: &Normaliser,
    lines: Lines<'_>,
    out: &mut [f32],
    out_stride: usize,
    past_cache: bool,
) {
    let exact = Exact::new(normaliser, 1);
    let block = |channel: usize, bytes: &[u8; F32_BLOCK], out: &mut [f32; F32_BLOCK]| {
        // SAFETY: the load reads the 8 bytes of the array.
        let bytes = unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) };
        let values = exact.normalize(channel, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
        // SAFETY: the store writes the 8 values of the array.
        unsafe {
            if past_cache && is_aligned(out) {
                _mm256_stream_ps(out.as_mut_ptr(), values);
            } else {
                _mm256_storeu_ps(out.as_mut_ptr(), values);
            }
        }
    };
    for (bytes, out) in lines.zip(out, out_stride) {
        line!(bytes, out, F32_BLOCK, [0, 2, 1], &normaliser.float, block);
    }
}
