//! The vertical pass: rows of pairs are widened a block of columns at a time, for all output rows that are due.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::layout::{Outputs, Ring};
use super::super::windows::{Ends, Windows};
use super::{COLUMN_BYTES, LANES, Sums, VECTOR_BYTES, check, load, store_column, weighted, widened};

/// What the columns of a block may take, so that they stay in the L1 cache.
const BLOCK_BYTES: usize = 24 << 10;

/// Bytes of scratch memory that [`vertical`] needs.
pub const SCRATCH_BYTES: usize = BLOCK_BYTES;

/// Resamples along y: output rows `rows` from the pairs of rows in the ring.
pub fn vertical(table: &Windows, rows: Range<usize>, ring: &Ring, scratch: &mut [u8], out: &mut Outputs) {
    check();
    let Range { start: first, end } = table.span(&rows);
    let (windows, weights) = (&table.windows()[rows], table.weights::<2>());
    let columns = out.values.len().next_multiple_of(2 * LANES) / LANES;
    let pairs = &ring.groups[(first - ring.first) * ring.stride..(end - ring.first) * ring.stride];
    assert!(columns * VECTOR_BYTES <= ring.stride && pairs.len() == (end - first) * ring.stride);
    // An even number, for two columns fill a vector of output.
    let block_columns = ((BLOCK_BYTES / ((end - first) * COLUMN_BYTES)) & !1).min(columns);
    if block_columns == 0 {
        // So many rows make few: widening them once would save little, and take much memory.
        for (index, window) in windows.iter().enumerate() {
            let pairs = &pairs[(window.first() - first) * ring.stride..][..window.groups() * ring.stride];
            // SAFETY: AVX2 was checked, and `pairs` holds all columns for each group.
            unsafe { direct_row(window.lanes(weights), pairs, ring.stride, out.row(index)) };
        }
        return;
    }
    assert!(scratch.len() >= (end - first) * block_columns * COLUMN_BYTES);
    let stride = block_columns * COLUMN_BYTES;
    for block in (0..columns).step_by(block_columns) {
        let block_len = block_columns.min(columns - block);
        for (pairs, to) in pairs.chunks_exact(ring.stride).zip(scratch.chunks_exact_mut(stride)) {
            // SAFETY: AVX2 was checked; a row of pairs holds all columns, and `to` a block of them.
            unsafe { widen(&pairs[block * VECTOR_BYTES..], block_len, to) };
        }
        for (index, window) in windows.iter().enumerate() {
            let lanes = window.lanes(weights);
            let columns = &scratch[(window.first() - first) * stride..][..window.groups() * stride];
            let values = &mut out.row(index)[block * LANES..];
            let len = values.len().min(block_len * LANES);
            // SAFETY: AVX2 was checked, and `columns` holds a block for each group.
            unsafe { row(lanes, window.ends(), columns, stride, &mut values[..len]) };
        }
    }
}

/// # Safety
/// `pairs` must have as many vectors, and `to` room for as many columns, as `columns`.
#[target_feature(enable = "avx2")]
unsafe fn widen(pairs: &[u8], columns: usize, to: &mut [u8]) {
    for column in 0..columns {
        // SAFETY: by the caller.
        unsafe {
            let pairs = load(pairs.as_ptr().add(column * VECTOR_BYTES));
            store_column(pairs, to.as_mut_ptr().add(column * COLUMN_BYTES));
        }
    }
}

/// One loop over the columns for each kind of ends, so that none asks which it is.
///
/// # Safety
/// As [`row_of`].
#[target_feature(enable = "avx2")]
unsafe fn row(lanes: &[[i32; 2]], ends: Ends, columns: &[u8], stride: usize, out: &mut [u8]) {
    // SAFETY: by the caller.
    unsafe {
        match ends {
            Ends::Apart => row_of(lanes, Ends::Apart, columns, stride, out),
            Ends::Light => row_of(lanes, Ends::Light, columns, stride, out),
            Ends::FirstHeavy => row_of(lanes, Ends::FirstHeavy, columns, stride, out),
            Ends::LastHeavy => row_of(lanes, Ends::LastHeavy, columns, stride, out),
        }
    }
}

/// # Safety
/// `columns` must hold `lanes.len()` groups, `stride` bytes apart, of as many columns as whole vectors of `out` take;
/// the rest as for [`weighted`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn row_of(lanes: &[[i32; 2]], ends: Ends, columns: &[u8], stride: usize, out: &mut [u8]) {
    let (vectors, rest) = out.as_chunks_mut::<VECTOR_BYTES>();
    let mut columns = columns.as_ptr();
    for out in vectors {
        // SAFETY: by the caller.
        unsafe { store(bytes(weighted(columns, stride, lanes, ends)), out) };
        columns = columns.wrapping_add(2 * COLUMN_BYTES);
    }
    if !rest.is_empty() {
        // SAFETY: by the caller.
        store_rest(bytes(unsafe { weighted(columns, stride, lanes, ends) }), rest);
    }
}

/// # Safety
/// `pairs` must hold `lanes.len()` groups, `stride` bytes apart, of as many pairs as whole vectors of `out` take.
#[target_feature(enable = "avx2")]
unsafe fn direct_row(lanes: &[[i32; 2]], pairs: &[u8], stride: usize, out: &mut [u8]) {
    for (index, out) in out.chunks_mut(VECTOR_BYTES).enumerate() {
        let mut sums = Sums::<2>::new();
        for (group, lanes) in lanes.iter().enumerate() {
            for column in 0..2 {
                let at = group * stride + (2 * index + column) * VECTOR_BYTES;
                // SAFETY: by the caller.
                let pairs = unsafe { load(pairs.as_ptr().add(at)) };
                sums.add_column(column, widened(pairs), lanes);
            }
        }
        store_rest(bytes(sums.words()), out);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn bytes([a, b]: [__m256i; 2]) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(bytes: __m256i, out: &mut [u8; VECTOR_BYTES]) {
    // SAFETY: `out` has 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), bytes) };
}

// As many bytes as there is room for, up to a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn store_rest(bytes: __m256i, out: &mut [u8]) {
    let mut whole = [0_u8; VECTOR_BYTES];
    store(bytes, &mut whole);
    out.copy_from_slice(&whole[..out.len()]);
}
