//! Rows into columns: quads of neighbouring pixels of one channel, a lane for each row.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::super::kernels::{CHUNK_QUADS, Rows};
use super::super::tiles::COLUMN_BYTES;
use super::super::windows::SLOTS;
use super::VECTOR_BYTES;

/// Source pixels `4 * first .. 4 * end` of every row of the chunk become columns: for each quad of pixels and
/// channel, a lane for each row.
#[target_feature(enable = "avx2")]
pub fn transpose<const CHANNELS: usize>(
    source: &Rows,
    first_row: usize,
    first: usize,
    end: usize,
    columns: &mut [u8],
) {
    // A load of 16 bytes holds this many quads of pixels: 4 of one channel, or 1 (of 3 or 4).
    let quads_in_load = if CHANNELS == 1 { 4 } else { 1 };
    let loads = (end - first).div_ceil(quads_in_load);
    let columns_in_load = if CHANNELS == 3 { 3 } else { 4 };
    assert!(columns.len() >= loads * columns_in_load * COLUMN_BYTES);
    let order = shuffle::<CHANNELS>();
    let start = first * 4 * CHANNELS;
    let load_bytes = quads_in_load * 4 * CHANNELS;
    for half in 0..2 {
        let rows: [&[u8]; 8] = std::array::from_fn(|row| source.tail_from(first_row + 8 * half + row));
        let next: [*const u8; 8] = std::array::from_fn(|row| {
            source.tail_from(first_row + 4 * CHUNK_QUADS + 8 * half + row).as_ptr()
        });
        let mut line = usize::MAX;
        let shortest = rows[7].len();
        for load in 0..loads {
            let offset = start + load * load_bytes;
            if offset / 64 != line {
                line = offset / 64;
                prefetch(&next, offset);
            }
            // SAFETY: an all-zero vector is valid.
            let mut four: [__m256i; 4] = unsafe { std::mem::zeroed() };
            for (row, four) in SLOTS.into_iter().zip(&mut four) {
                let pair = [rows[row], rows[row + 4]];
                let vector = if offset + 16 <= shortest {
                    // SAFETY: even `rows[7]`, the shortest, has 16 bytes from `offset` on.
                    unsafe { load_pair(pair[0].as_ptr().add(offset), pair[1].as_ptr().add(offset)) }
                } else {
                    load_ends(pair, offset)
                };
                *four = _mm256_shuffle_epi8(vector, order);
            }
            let low = [_mm256_unpacklo_epi32(four[0], four[1]), _mm256_unpacklo_epi32(four[2], four[3])];
            let high = [_mm256_unpackhi_epi32(four[0], four[1]), _mm256_unpackhi_epi32(four[2], four[3])];
            let transposed = [
                _mm256_unpacklo_epi64(low[0], low[1]),
                _mm256_unpackhi_epi64(low[0], low[1]),
                _mm256_unpacklo_epi64(high[0], high[1]),
                _mm256_unpackhi_epi64(high[0], high[1]),
            ];
            let at = load * columns_in_load * COLUMN_BYTES + half * VECTOR_BYTES;
            for (index, column) in transposed[..columns_in_load].iter().enumerate() {
                // SAFETY: the length of `columns` was checked above.
                unsafe {
                    _mm256_storeu_si256(columns.as_mut_ptr().add(at + index * COLUMN_BYTES).cast(), *column);
                }
            }
        }
    }
}

// Asks for a line of what the next chunk will read, into the L2 cache: so many rows at once the CPU does not foresee.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(unused_unsafe, reason = "the intrinsic is unsafe in older compilers only")]
fn prefetch(rows: &[*const u8; 8], offset: usize) {
    for row in rows {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(row.wrapping_add(offset).cast()) };
    }
}

/// # Safety
/// 16 bytes must be readable at each.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_pair(low: *const u8, high: *const u8) -> __m256i {
    // SAFETY: by the caller.
    let (low, high) = unsafe { (_mm_loadu_si128(low.cast()), _mm_loadu_si128(high.cast())) };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

// What is left of two rows from `offset` on, up to 16 bytes each.
#[cold]
#[target_feature(enable = "avx2")]
fn load_ends(pair: [&[u8]; 2], offset: usize) -> __m256i {
    let mut bytes = [0_u8; VECTOR_BYTES];
    for (row, bytes) in pair.into_iter().zip(bytes.chunks_exact_mut(16)) {
        let left = row.get(offset..).unwrap_or(&[]);
        let len = left.len().min(16);
        bytes[..len].copy_from_slice(&left[..len]);
    }
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

// Brings the bytes of four pixels together by channel, in the order of SLOTS. For one channel: of four quads.
#[target_feature(enable = "avx2")]
fn shuffle<const CHANNELS: usize>() -> __m256i {
    let mut order = [0x80_u8; VECTOR_BYTES];
    for (byte, order) in order.iter_mut().enumerate() {
        let (lane, sample) = (byte % 16 / 4, SLOTS[byte % 4]);
        if CHANNELS == 1 {
            *order = (4 * lane + sample) as u8;
        } else if lane < CHANNELS {
            *order = (sample * CHANNELS + lane) as u8;
        }
    }
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_loadu_si256(order.as_ptr().cast()) }
}
