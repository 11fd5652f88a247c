//! Rows into columns: pairs of neighbouring pixels of one channel, a lane for each row.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::layout::{CHUNK_ROWS, Rows};
use super::{COLUMN_BYTES, VECTOR_BYTES, store_column};

/// Source pixels of every row of the chunk become columns, one for each pair and channel. Pair `n` begins with pixel
/// `2 * n - phase`; of a pair that begins before the image, the first pixel is whatever it may be.
#[target_feature(enable = "avx2")]
pub fn transpose<const CHANNELS: usize>(
    source: &Rows,
    first_row: usize,
    pairs: Range<usize>,
    phase: usize,
    columns: &mut [u8],
) {
    // What a load of 16 bytes holds: 8 pairs of one channel, or 2 of three or four.
    let pairs_in_load = if CHANNELS == 1 { 8 } else { 2 };
    let columns_in_load = pairs_in_load * CHANNELS;
    let loads = pairs.len().div_ceil(pairs_in_load);
    assert!(columns.len() >= loads * columns_in_load * COLUMN_BYTES);
    let order = shuffle::<CHANNELS>();
    let load_bytes = pairs_in_load * 2 * CHANNELS;
    let rows: [&[u8]; CHUNK_ROWS] = std::array::from_fn(|row| source.tail_from(first_row + row));
    let shortest = rows[CHUNK_ROWS - 1].len();
    for load in 0..loads {
        let before = pairs.start * 2 * CHANNELS + load * load_bytes;
        let missing = (phase * CHANNELS).saturating_sub(before);
        let offset = before.saturating_sub(phase * CHANNELS);
        let mut lanes = [_mm256_setzero_si256(); 8];
        if missing == 0 && offset + 16 <= shortest {
            for (row, lanes) in lanes.iter_mut().enumerate() {
                // SAFETY: even the last row, the shortest, has 16 bytes from `offset` on.
                *lanes =
                    unsafe { load_two(rows[row].as_ptr().add(offset), rows[row + 8].as_ptr().add(offset)) };
            }
        } else {
            for (row, lanes) in lanes.iter_mut().enumerate() {
                *lanes = load_ends([rows[row], rows[row + 8]], offset, missing);
            }
        }
        if CHANNELS > 1 {
            for lanes in &mut lanes {
                *lanes = _mm256_shuffle_epi8(*lanes, order);
            }
        }
        let transposed = transpose_words(lanes);
        for (index, pairs) in transposed[..columns_in_load].iter().enumerate() {
            // SAFETY: the length of `columns` was checked above.
            unsafe {
                let at = (load * columns_in_load + index) * COLUMN_BYTES;
                store_column(*pairs, columns.as_mut_ptr().add(at));
            }
        }
    }
}

// Eight by eight words in both halves.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_words(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let low = [
        _mm256_unpacklo_epi16(a, b),
        _mm256_unpacklo_epi16(c, d),
        _mm256_unpacklo_epi16(e, f),
        _mm256_unpacklo_epi16(g, h),
    ];
    let high = [
        _mm256_unpackhi_epi16(a, b),
        _mm256_unpackhi_epi16(c, d),
        _mm256_unpackhi_epi16(e, f),
        _mm256_unpackhi_epi16(g, h),
    ];
    let [a, b, c, d] = transpose_lanes(low);
    let [e, f, g, h] = transpose_lanes(high);
    [a, b, c, d, e, f, g, h]
}

/// Four by four lanes of 32 bits in both halves.
#[inline]
#[target_feature(enable = "avx2")]
pub fn transpose_lanes(rows: [__m256i; 4]) -> [__m256i; 4] {
    let low = [_mm256_unpacklo_epi32(rows[0], rows[1]), _mm256_unpacklo_epi32(rows[2], rows[3])];
    let high = [_mm256_unpackhi_epi32(rows[0], rows[1]), _mm256_unpackhi_epi32(rows[2], rows[3])];
    [
        _mm256_unpacklo_epi64(low[0], low[1]),
        _mm256_unpackhi_epi64(low[0], low[1]),
        _mm256_unpacklo_epi64(high[0], high[1]),
        _mm256_unpackhi_epi64(high[0], high[1]),
    ]
}

/// # Safety
/// 16 bytes must be readable at each.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_two(low: *const u8, high: *const u8) -> __m256i {
    // SAFETY: by the caller.
    let (low, high) = unsafe { (_mm_loadu_si128(low.cast()), _mm_loadu_si128(high.cast())) };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

// What is left of two rows from `offset` on, up to 16 bytes each, of which `missing` lie before the rows.
#[cold]
#[target_feature(enable = "avx2")]
fn load_ends(two: [&[u8]; 2], offset: usize, missing: usize) -> __m256i {
    let mut bytes = [0_u8; VECTOR_BYTES];
    for (row, bytes) in two.into_iter().zip(bytes.chunks_exact_mut(16)) {
        let left = row.get(offset..).unwrap_or(&[]);
        let len = left.len().min(16 - missing);
        bytes[missing..missing + len].copy_from_slice(&left[..len]);
    }
    // SAFETY: the array has 32 bytes.
    unsafe { super::load(bytes.as_ptr()) }
}

// Brings the bytes of two pixels together by channel.
#[target_feature(enable = "avx2")]
fn shuffle<const CHANNELS: usize>() -> __m256i {
    let mut order = [0x80_u8; VECTOR_BYTES];
    for (byte, order) in order.iter_mut().enumerate() {
        let (lane, sample) = (byte % 16 / 2, byte % 2);
        let (pair, channel) = (lane / CHANNELS, lane % CHANNELS);
        if pair < 2 {
            *order = ((2 * pair + sample) * CHANNELS + channel) as u8;
        }
    }
    // SAFETY: the array has 32 bytes.
    unsafe { super::load(order.as_ptr()) }
}
