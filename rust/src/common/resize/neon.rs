//! The kernels in NEON.
//!
//! A weight is split as `high * 2^16 + low`. The low halves go through widening multiplications into 32-bit sums; of
//! the high halves' sum only the lower 16 bits count, so wrapping 16-bit sums do. Loads that part four ways
//! (`ld4`) turn quads into one vector for each sample.
#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::ops::Range;

use super::coefficients::PRECISION_BITS;
use super::layout::{CHUNK_QUADS, Chunk, Rows};
use super::windows::{Window, Windows};

mod horizontal;

pub use horizontal::horizontal;

const VECTOR_BYTES: usize = 16;
/// Bytes of a column of the horizontal pass: one quad of every row of a chunk.
pub const COLUMN_BYTES: usize = 16 * CHUNK_QUADS;

/// Resamples along y: one row of `out.len()` values from the window's quads, `stride` bytes apart.
pub fn vertical(table: &Windows, window: &Window, quads: &[u8], stride: usize, out: &mut [u8]) {
    let columns = out.len().next_multiple_of(VECTOR_BYTES);
    assert!(columns * 4 <= stride && quads.len() >= window.groups() * stride);
    // SAFETY: aarch64 has NEON, and `quads` holds the window's quads for all columns of whole vectors.
    unsafe { vertical_row(window.lanes(table.weights()), quads, stride, out) };
}

/// # Safety
/// `quads` must hold `lanes.len()` quads, `stride` bytes apart, of as many columns as whole vectors of `out` take.
#[target_feature(enable = "neon")]
unsafe fn vertical_row(lanes: &[[i32; 3]], quads: &[u8], stride: usize, out: &mut [u8]) {
    for (index, out) in out.chunks_mut(VECTOR_BYTES).enumerate() {
        // SAFETY: by the caller.
        let values = unsafe { weighted(quads.as_ptr().add(index * 4 * VECTOR_BYTES), stride, lanes) };
        let mut bytes = [0_u8; VECTOR_BYTES];
        // SAFETY: the array has 16 bytes.
        unsafe { vst1q_u8(bytes.as_mut_ptr(), values) };
        out.copy_from_slice(&bytes[..out.len()]);
    }
}

/// Weighted sums of 16 lanes of quads, rounded and clipped to bytes.
///
/// # Safety
/// 64 bytes must be readable at `quads + n * stride` for each `n < lanes.len()`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn weighted(quads: *const u8, stride: usize, lanes: &[[i32; 3]]) -> uint8x16_t {
    let mut low = [vdupq_n_s32(1 << (PRECISION_BITS - 1)); 4];
    let mut high = [vdupq_n_s16(0); 2];
    for (index, lanes) in lanes.iter().enumerate() {
        // SAFETY: by the caller.
        let uint8x16x4_t(a, b, c, d) = unsafe { vld4q_u8(quads.add(index * stride)) };
        let high_bytes = lanes[2].to_le_bytes();
        for (sample, samples) in [a, b, c, d].into_iter().enumerate() {
            let low_weight = (lanes[sample / 2] >> (16 * (sample % 2))) as i16;
            let high_weight = i16::from(high_bytes[sample] as i8);
            if low_weight == 0 && high_weight == 0 {
                continue;
            }
            let halves = [
                vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(samples))),
                vreinterpretq_s16_u16(vmovl_high_u8(samples)),
            ];
            for (half, words) in halves.into_iter().enumerate() {
                low[2 * half] = vmlal_n_s16(low[2 * half], vget_low_s16(words), low_weight);
                low[2 * half + 1] = vmlal_high_n_s16(low[2 * half + 1], words, low_weight);
                high[half] = vmlaq_n_s16(high[half], words, high_weight);
            }
        }
    }
    vcombine_u8(clipped(low[0], low[1], high[0]), clipped(low[2], low[3], high[1]))
}

// The upper halves of eight sums, of which 22 - 16 bits are still fraction.
#[inline]
#[target_feature(enable = "neon")]
fn clipped(low: int32x4_t, low_2: int32x4_t, high: int16x8_t) -> uint8x8_t {
    const FRACTION_BITS: i32 = PRECISION_BITS as i32 - 16;
    let carried = vcombine_s16(vshrn_n_s32::<16>(low), vshrn_n_s32::<16>(low_2));
    vqshrun_n_s16::<FRACTION_BITS>(vaddq_s16(carried, high))
}

/// Turns a chunk of rows into quads, for the bytes `values` of each row.
pub fn interleave(source: &Rows, first_row: usize, values: Range<usize>, chunk: Chunk) {
    let Chunk { groups, stride } = chunk;
    assert!(
        groups.len() >= CHUNK_QUADS * stride && values.len().next_multiple_of(VECTOR_BYTES) * 4 <= stride
    );
    for (quad, lanes) in groups.chunks_mut(stride).take(CHUNK_QUADS).enumerate() {
        let rows = [0, 1, 2, 3].map(|row| source.values(first_row + 4 * quad + row, &values));
        // SAFETY: aarch64 has NEON, and `lanes` room for whole vectors.
        unsafe { interleave_quad(rows, lanes) };
    }
}

/// # Safety
/// The rows must have one length, and `lanes` four times that, rounded up to whole vectors.
#[target_feature(enable = "neon")]
unsafe fn interleave_quad(rows: [&[u8]; 4], lanes: &mut [u8]) {
    for at in (0..rows[0].len()).step_by(VECTOR_BYTES) {
        let (a, b) = (load(&rows[0][at..]), load(&rows[1][at..]));
        let (c, d) = (load(&rows[2][at..]), load(&rows[3][at..]));
        // SAFETY: by the caller.
        unsafe { vst4q_u8(lanes.as_mut_ptr().add(4 * at), uint8x16x4_t(a, b, c, d)) };
    }
}

/// Turns one quad back into the rows that are given, up to four of the same length.
pub fn deinterleave(lanes: &[u8], rows: &mut [&mut [u8]]) {
    let len = rows[0].len();
    assert!(lanes.len() >= 4 * len.next_multiple_of(VECTOR_BYTES) && rows.iter().all(|row| row.len() == len));
    // SAFETY: aarch64 has NEON, and the lengths were checked.
    unsafe { deinterleave_quad(lanes, rows) };
}

/// # Safety
/// The rows must have one length, and `lanes` four times that, rounded up to whole vectors.
#[target_feature(enable = "neon")]
unsafe fn deinterleave_quad(lanes: &[u8], rows: &mut [&mut [u8]]) {
    let len = rows[0].len();
    for at in (0..len).step_by(VECTOR_BYTES) {
        // SAFETY: by the caller.
        let uint8x16x4_t(a, b, c, d) = unsafe { vld4q_u8(lanes.as_ptr().add(4 * at)) };
        let count = VECTOR_BYTES.min(len - at);
        for (row, samples) in rows.iter_mut().zip([a, b, c, d]) {
            let mut bytes = [0_u8; VECTOR_BYTES];
            // SAFETY: the array has 16 bytes.
            unsafe { vst1q_u8(bytes.as_mut_ptr(), samples) };
            row[at..at + count].copy_from_slice(&bytes[..count]);
        }
    }
}

// 16 bytes, or what is left.
#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8]) -> uint8x16_t {
    if bytes.len() >= VECTOR_BYTES {
        // SAFETY: 16 bytes are left.
        return unsafe { vld1q_u8(bytes.as_ptr()) };
    }
    let mut last = [0_u8; VECTOR_BYTES];
    last[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: the array has 16 bytes.
    unsafe { vld1q_u8(last.as_ptr()) }
}
