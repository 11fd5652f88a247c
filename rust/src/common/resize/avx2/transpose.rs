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
    let (pairs_in_load, step_bytes) = (pairs_in_load(CHANNELS), columns_in_load(CHANNELS) * COLUMN_BYTES);
    let load_bytes = pairs_in_load * 2 * CHANNELS;
    let loads = pairs.len().div_ceil(pairs_in_load);
    assert!(columns.len() >= loads * step_bytes);
    let order = shuffle::<CHANNELS>();
    // Bytes are counted from where the first pair of the rows begins, before them if there is a phase.
    let (start, skipped) = (pairs.start * 2 * CHANNELS, phase * CHANNELS);
    let end = skipped + source.tail_from(first_row + CHUNK_ROWS - 1).len();
    // Only of these are all 16 bytes there, even in the last row, the shortest.
    let front = skipped.saturating_sub(start).div_ceil(load_bytes).min(loads);
    let whole = (end + load_bytes).saturating_sub(start + 16) / load_bytes;
    let back = whole.clamp(front, loads);
    for load in (0..front).chain(back..loads) {
        let at = start + load * load_bytes;
        let (offset, missing) = (at.saturating_sub(skipped), skipped.saturating_sub(at));
        let row = |row: usize| source.tail_from(first_row + row);
        let lanes = std::array::from_fn(|index| load_ends([row(index), row(index + 8)], offset, missing));
        // SAFETY: the length of `columns` was checked above.
        unsafe { store_columns::<CHANNELS>(lanes, order, columns.as_mut_ptr().add(load * step_bytes)) };
    }
    if front < back {
        let offset = start + front * load_bytes - skipped;
        let columns = columns[front * step_bytes..].as_mut_ptr();
        let rows = first_row..first_row + CHUNK_ROWS;
        // SAFETY: as `front` and `back` were chosen, every row has 16 bytes there for all loads; the length of
        // `columns` was checked above.
        unsafe {
            if source.are_evenly_apart(rows.clone()) {
                let first = source.tail_from(first_row).as_ptr().add(offset);
                transpose_evenly::<CHANNELS>(first, source.row_bytes, back - front, order, columns);
            } else {
                let rows = std::array::from_fn(|row| source.tail_from(rows.start + row));
                transpose_each::<CHANNELS>(&rows, offset, back - front, order, columns);
            }
        }
    }
}

/// Not inlined, or the registers would not hold what the loop needs.
///
/// # Safety
/// As [`load_evenly`] and [`store_columns`], for so many loads.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn transpose_evenly<const CHANNELS: usize>(
    mut first: *const u8,
    distance: usize,
    loads: usize,
    order: __m256i,
    mut columns: *mut u8,
) {
    for _ in 0..loads {
        // SAFETY: by the caller.
        unsafe { store_columns::<CHANNELS>(load_evenly(first, distance), order, columns) };
        first = first.wrapping_add(pairs_in_load(CHANNELS) * 2 * CHANNELS);
        columns = columns.wrapping_add(columns_in_load(CHANNELS) * COLUMN_BYTES);
    }
}

/// # Safety
/// All rows must have 16 bytes from `offset` on, and so at each further load; columns as for [`store_columns`].
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn transpose_each<const CHANNELS: usize>(
    rows: &[&[u8]; CHUNK_ROWS],
    offset: usize,
    loads: usize,
    order: __m256i,
    columns: *mut u8,
) {
    let (load_bytes, step_bytes) =
        (pairs_in_load(CHANNELS) * 2 * CHANNELS, columns_in_load(CHANNELS) * COLUMN_BYTES);
    for load in 0..loads {
        let offset = offset + load * load_bytes;
        let mut lanes = [_mm256_setzero_si256(); 8];
        for (row, lanes) in lanes.iter_mut().enumerate() {
            // SAFETY: by the caller.
            *lanes = unsafe { load_two(rows[row].as_ptr().add(offset), rows[row + 8].as_ptr().add(offset)) };
        }
        // SAFETY: by the caller.
        unsafe { store_columns::<CHANNELS>(lanes, order, columns.add(load * step_bytes)) };
    }
}

// What a load of 16 bytes holds: 8 pairs of one channel, or 2 of three or four.
const fn pairs_in_load(channels: usize) -> usize {
    if channels == 1 { 8 } else { 2 }
}

const fn columns_in_load(channels: usize) -> usize {
    pairs_in_load(channels) * channels
}

/// # Safety
/// As many columns as a load of each row becomes must be writable at `columns`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_columns<const CHANNELS: usize>(mut rows: [__m256i; 8], order: __m256i, columns: *mut u8) {
    if CHANNELS > 1 {
        for row in &mut rows {
            *row = _mm256_shuffle_epi8(*row, order);
        }
    }
    for (index, pairs) in transpose_words(rows)[..columns_in_load(CHANNELS)].iter().enumerate() {
        // SAFETY: by the caller.
        unsafe { store_column(*pairs, columns.add(index * COLUMN_BYTES)) };
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

/// 16 bytes of each row of a chunk, whose rows are `distance` apart. Two pointers and a few multiples of the distance
/// reach all of them, where a pointer for each row would not fit the registers.
///
/// # Safety
/// 16 bytes must be readable at `first` and at the 15 places behind it.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_evenly(first: *const u8, distance: usize) -> [__m256i; 8] {
    let thrice = 3 * distance;
    // SAFETY: by the caller.
    unsafe {
        let (fifth, tenth) = (first.add(5 * distance), first.add(10 * distance));
        [
            load_two(first, fifth.add(thrice)),
            load_two(first.add(distance), fifth.add(4 * distance)),
            load_two(first.add(2 * distance), tenth),
            load_two(first.add(thrice), tenth.add(distance)),
            load_two(first.add(4 * distance), tenth.add(2 * distance)),
            load_two(fifth, tenth.add(thrice)),
            load_two(fifth.add(distance), tenth.add(4 * distance)),
            load_two(fifth.add(2 * distance), first.add(15 * distance)),
        ]
    }
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
