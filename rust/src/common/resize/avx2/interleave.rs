//! Rows into pairs of rows and back, for images of which one side keeps its size.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::layout::{CHUNK_ROWS, Chunk, Rows};
use super::{LANES, VECTOR_BYTES, check, load};

/// Turns a chunk of rows into pairs, for the bytes `values` of each row.
pub fn interleave(source: &Rows, first_row: usize, values: Range<usize>, chunk: Chunk) {
    check();
    let Chunk { groups, stride } = chunk;
    let columns = values.len().next_multiple_of(VECTOR_BYTES);
    assert!(groups.len() >= CHUNK_ROWS / 2 * stride && columns * 2 <= stride);
    for (pair, lanes) in groups.chunks_mut(stride).take(CHUNK_ROWS / 2).enumerate() {
        let rows = [0, 1].map(|row| source.values(first_row + 2 * pair + row, &values));
        // SAFETY: AVX2 was checked; the rows have the same length, and `lanes` enough for whole vectors.
        unsafe { interleave_pair(rows, lanes) };
    }
}

/// # Safety
/// The rows must have one length, and `lanes` twice that, rounded up to whole vectors.
#[target_feature(enable = "avx2")]
unsafe fn interleave_pair(rows: [&[u8]; 2], lanes: &mut [u8]) {
    for at in (0..rows[0].len()).step_by(VECTOR_BYTES) {
        let (a, b) = (load_rest(rows[0], at), load_rest(rows[1], at));
        let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        // SAFETY: by the caller.
        unsafe {
            let to = lanes.as_mut_ptr().add(2 * at);
            _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(low, high));
            _mm256_storeu_si256(to.add(VECTOR_BYTES).cast(), _mm256_permute2x128_si256::<0x31>(low, high));
        }
    }
}

// 32 bytes of a row, or what is left of it.
#[inline]
#[target_feature(enable = "avx2")]
fn load_rest(row: &[u8], at: usize) -> __m256i {
    let left = &row[at..];
    if left.len() >= VECTOR_BYTES {
        // SAFETY: 32 bytes are left.
        return unsafe { super::load(left.as_ptr()) };
    }
    let mut last = [0_u8; VECTOR_BYTES];
    last[..left.len()].copy_from_slice(left);
    // SAFETY: the array has 32 bytes.
    unsafe { super::load(last.as_ptr()) }
}

/// Turns one pair back into the rows that are given, one or two of the same length.
pub fn deinterleave(lanes: &[u8], rows: &mut [&mut [u8]]) {
    check();
    let len = rows[0].len();
    assert!(lanes.len() >= 2 * len.next_multiple_of(LANES) && rows.iter().all(|row| row.len() == len));
    // SAFETY: AVX2 was checked, and the lengths.
    unsafe { deinterleave_pair(lanes, rows) };
}

/// # Safety
/// The rows must have one length, and `lanes` twice that, rounded up to whole vectors.
#[target_feature(enable = "avx2")]
unsafe fn deinterleave_pair(lanes: &[u8], rows: &mut [&mut [u8]]) {
    let len = rows[0].len();
    for at in (0..len).step_by(LANES) {
        // SAFETY: by the caller.
        let pairs = unsafe { load(lanes.as_ptr().add(2 * at)) };
        let first = _mm256_and_si256(pairs, _mm256_set1_epi16(0xff));
        let whole = _mm256_packus_epi16(first, _mm256_srli_epi16::<8>(pairs));
        let whole = _mm256_permute4x64_epi64::<0b11_01_10_00>(whole);
        let halves = [_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole)];
        for (row, values) in rows.iter_mut().zip(halves) {
            let left = &mut row[at..];
            if left.len() >= LANES {
                // SAFETY: 16 bytes are left.
                unsafe { _mm_storeu_si128(left.as_mut_ptr().cast(), values) };
            } else {
                let mut last = [0_u8; LANES];
                // SAFETY: the array has 16 bytes.
                unsafe { _mm_storeu_si128(last.as_mut_ptr().cast(), values) };
                left.copy_from_slice(&last[..left.len()]);
            }
        }
    }
}
