//! The kernels in AVX-512 with VNNI and VBMI.
//!
//! A weight is split into three signed bytes, and `vpdpbusd` takes four taps of 16 lanes at once. The sums of
//! the three are combined as Horner's scheme does; all is exact modulo 2^32, and so is the result.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::coefficients::PRECISION_BITS;
use super::layout::{Outputs, Ring};
use super::windows::{Windows, byte_lane, split_8};

mod horizontal;
mod interleave;

pub use horizontal::{Blocks, blocks, horizontal};
pub use interleave::{deinterleave, interleave};

const VECTOR_BYTES: usize = 64;
const SHIFT: u32 = PRECISION_BITS;

/// The weights of four taps as lanes of high, middle and low bytes.
pub fn planes(weights: [i32; 4]) -> Option<[i32; 3]> {
    let bytes = weights.map(split_8);
    bytes
        .iter()
        .all(|bytes| i8::try_from(bytes[0]).is_ok())
        .then(|| std::array::from_fn(|plane| byte_lane(bytes.map(|bytes| bytes[plane]))))
}

fn check() {
    assert!(crate::common::simd::Level::Avx512.is_available(), "the CPU lacks AVX-512 with VBMI and VNNI");
}

/// Columns of a block are so few that all its quads stay in the L1 cache for every row that is made from them.
const BLOCK_BYTES: usize = 24 << 10;

/// Resamples along y: output rows `rows` from the quads of rows in the ring.
pub fn vertical(table: &Windows, rows: Range<usize>, ring: &Ring, out: &mut Outputs) {
    check();
    let groups = table.span(&rows);
    let (windows, weights) = (&table.windows()[rows], table.weights::<3>());
    let columns = out.values.len().next_multiple_of(VECTOR_BYTES);
    let used = &ring.groups[(groups.start - ring.first) * ring.stride..];
    assert!(columns * 4 <= ring.stride && used.len() >= groups.len() * ring.stride);
    let block = (BLOCK_BYTES / (4 * groups.len())).next_multiple_of(VECTOR_BYTES);
    for start in (0..out.values.len()).step_by(block) {
        for (index, window) in windows.iter().enumerate() {
            let quads = &used[(window.first() - groups.start) * ring.stride + 4 * start..];
            let values = &mut out.row(index)[start..];
            let len = values.len().min(block);
            // SAFETY: the instructions were checked, and the ring holds the window for all columns of whole vectors.
            unsafe { vertical_row(window.lanes(weights), quads, ring.stride, &mut values[..len]) };
        }
    }
}

/// # Safety
/// `quads` must hold `lanes.len()` quads, `stride` bytes apart, of as many columns as whole vectors of `out` take.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn vertical_row(lanes: &[[i32; 3]], quads: &[u8], stride: usize, out: &mut [u8]) {
    // SAFETY: by the caller.
    unsafe {
        match lanes {
            [a] => vertical_few(&[*a], quads, stride, out),
            [a, b] => vertical_few(&[*a, *b], quads, stride, out),
            [a, b, c] => vertical_few(&[*a, *b, *c], quads, stride, out),
            _ => vertical_many(lanes, quads, stride, out),
        }
    }
}

/// # Safety
/// `quads` must hold `QUADS` quads, `stride` bytes apart, of as many columns as whole vectors of `out` take.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn vertical_few<const QUADS: usize>(
    lanes: &[[i32; 3]; QUADS],
    quads: &[u8],
    stride: usize,
    out: &mut [u8],
) {
    // Loops rather than closures here and below: a closure that is not inlined hands vectors over in memory.
    let mut weights = [[_mm512_setzero_si512(); QUADS]; 3];
    for (plane, weights) in weights.iter_mut().enumerate() {
        for (weights, lanes) in weights.iter_mut().zip(lanes) {
            *weights = _mm512_set1_epi32(lanes[plane]);
        }
    }
    for (index, out) in out.chunks_mut(VECTOR_BYTES).enumerate() {
        let mut sums = [_mm512_setzero_si512(); 4];
        for (part, sum) in sums.iter_mut().enumerate() {
            let mut samples = [_mm512_setzero_si512(); QUADS];
            for (quad, samples) in samples.iter_mut().enumerate() {
                let at = quad * stride + (4 * index + part) * VECTOR_BYTES;
                // SAFETY: by the caller.
                *samples = unsafe { _mm512_loadu_si512(quads.as_ptr().add(at).cast()) };
            }
            *sum = weighted_few(&samples, &weights);
        }
        store(narrow(sums), out);
    }
}

/// Weighted sums, rounded but not yet shifted down to 8 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn weighted_few<const QUADS: usize>(samples: &[__m512i; QUADS], weights: &[[__m512i; QUADS]; 3]) -> __m512i {
    // The least plane has a sum of its own: one after the other, all would wait too long for each other.
    let [high, middle, low] = weights;
    let mut upper = _mm512_setzero_si512();
    let mut lower = _mm512_set1_epi32(1 << (SHIFT - 1));
    for (samples, (high, low)) in samples.iter().zip(high.iter().zip(low)) {
        upper = _mm512_dpbusd_epi32(upper, *samples, *high);
        lower = _mm512_dpbusd_epi32(lower, *samples, *low);
    }
    upper = _mm512_slli_epi32::<8>(upper);
    for (samples, middle) in samples.iter().zip(middle) {
        upper = _mm512_dpbusd_epi32(upper, *samples, *middle);
    }
    _mm512_add_epi32(_mm512_slli_epi32::<8>(upper), lower)
}

/// # Safety
/// `quads` must hold `lanes.len()` quads, `stride` bytes apart, of as many columns as whole vectors of `out` take.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn vertical_many(lanes: &[[i32; 3]], quads: &[u8], stride: usize, out: &mut [u8]) {
    for (index, out) in out.chunks_mut(VECTOR_BYTES).enumerate() {
        let mut sums = [[_mm512_setzero_si512(); 3]; 4];
        for (quad, lanes) in lanes.iter().enumerate() {
            let [high, middle, low] = *lanes;
            let weights = [_mm512_set1_epi32(high), _mm512_set1_epi32(middle), _mm512_set1_epi32(low)];
            for (part, sums) in sums.iter_mut().enumerate() {
                let at = quad * stride + (4 * index + part) * VECTOR_BYTES;
                // SAFETY: by the caller.
                let samples = unsafe { _mm512_loadu_si512(quads.as_ptr().add(at).cast()) };
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_dpbusd_epi32(*sum, samples, weights);
                }
            }
        }
        store(narrow(combine_all(sums)), out);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn combine_all([a, b, c, d]: [[__m512i; 3]; 4]) -> [__m512i; 4] {
    [combine(a), combine(b), combine(c), combine(d)]
}

/// One sum of those of the three planes, with half a unit.
#[inline]
#[target_feature(enable = "avx512f")]
fn combine(sums: [__m512i; 3]) -> __m512i {
    let [high, middle, low] = sums;
    let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(high), middle);
    let half = _mm512_set1_epi32(1 << (SHIFT - 1));
    _mm512_add_epi32(_mm512_slli_epi32::<8>(sum), _mm512_add_epi32(low, half))
}

// Shifts 64 sums down and clips them to bytes, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn narrow(sums: [__m512i; 4]) -> __m512i {
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_permutexvar_epi32(order, narrow_lanes(sums))
}

// The same, but the bytes stay in the 128-bit lanes of their sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn narrow_lanes(sums: [__m512i; 4]) -> __m512i {
    let [a, b, c, d] = sums;
    _mm512_packus_epi16(
        _mm512_packs_epi32(_mm512_srai_epi32::<SHIFT>(a), _mm512_srai_epi32::<SHIFT>(b)),
        _mm512_packs_epi32(_mm512_srai_epi32::<SHIFT>(c), _mm512_srai_epi32::<SHIFT>(d)),
    )
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store(bytes: __m512i, out: &mut [u8]) {
    // SAFETY: the mask admits `out.len()` bytes.
    unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), mask(out.len()), bytes) };
}

// Admits so many bytes, or all of a vector.
fn mask(len: usize) -> u64 {
    if len >= VECTOR_BYTES { u64::MAX } else { (1 << len) - 1 }
}
