//! Rows into quads of rows and back, for the kernels in AVX-512.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::kernels::{CHUNK_QUADS, Chunk, Rows};
use super::{VECTOR_BYTES, check};

const LANES: usize = 8;

/// Turns a chunk of rows into quads, for the bytes `values` of each row.
pub fn interleave(source: &Rows, first_row: usize, values: Range<usize>, chunk: Chunk) {
    check();
    let Chunk { groups, stride } = chunk;
    let columns = values.len().next_multiple_of(VECTOR_BYTES);
    assert!(groups.len() >= CHUNK_QUADS * stride && columns * 4 <= stride);
    for (quad, lanes) in groups.chunks_mut(stride).take(CHUNK_QUADS).enumerate() {
        let rows = [0, 1, 2, 3].map(|row| source.values(first_row + 4 * quad + row, &values));
        // SAFETY: AVX2 was checked; rows have the same length, and `lanes` enough for whole vectors.
        unsafe { interleave_quad(rows, lanes) };
    }
}

/// # Safety
/// The rows must have one length, and `lanes` four times that, rounded up to whole vectors.
#[target_feature(enable = "avx2")]
unsafe fn interleave_quad(rows: [&[u8]; 4], lanes: &mut [u8]) {
    let len = rows[0].len();
    for at in (0..len).step_by(VECTOR_BYTES) {
        let (a, b) = (load_rest(rows[0], at), load_rest(rows[1], at));
        let (c, d) = (load_rest(rows[2], at), load_rest(rows[3], at));
        let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        let (low_2, high_2) = (_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d));
        let parts = [
            _mm256_unpacklo_epi16(low, low_2),
            _mm256_unpackhi_epi16(low, low_2),
            _mm256_unpacklo_epi16(high, high_2),
            _mm256_unpackhi_epi16(high, high_2),
        ];
        let whole = [
            _mm256_permute2x128_si256::<0x20>(parts[0], parts[1]),
            _mm256_permute2x128_si256::<0x20>(parts[2], parts[3]),
            _mm256_permute2x128_si256::<0x31>(parts[0], parts[1]),
            _mm256_permute2x128_si256::<0x31>(parts[2], parts[3]),
        ];
        for (index, vector) in whole.iter().enumerate() {
            // SAFETY: by the caller.
            unsafe {
                let to = lanes.as_mut_ptr().add(4 * at + index * VECTOR_BYTES);
                _mm256_storeu_si256(to.cast(), *vector);
            }
        }
    }
}

// 32 bytes of a row, or what is left of it.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load_rest(row: &[u8], at: usize) -> __m256i {
    let left = &row[at..];
    if left.len() >= VECTOR_BYTES {
        // SAFETY: 32 bytes are left.
        return unsafe { _mm256_loadu_si256(left.as_ptr().cast()) };
    }
    let mut last = [0_u8; VECTOR_BYTES];
    last[..left.len()].copy_from_slice(left);
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_loadu_si256(last.as_ptr().cast()) }
}

/// Turns one quad back into the rows that are given, up to four of the same length.
pub fn deinterleave(lanes: &[u8], rows: &mut [&mut [u8]]) {
    check();
    let len = rows[0].len();
    assert!(lanes.len() >= 4 * len.next_multiple_of(LANES) && rows.iter().all(|row| row.len() == len));
    // SAFETY: AVX2 was checked, and the lengths.
    unsafe { deinterleave_quad(lanes, rows) };
}

/// # Safety
/// The rows must have one length, and `lanes` four times that, rounded up to whole vectors.
#[target_feature(enable = "avx2")]
unsafe fn deinterleave_quad(lanes: &[u8], rows: &mut [&mut [u8]]) {
    let len = rows[0].len();
    let mut order = [0_u8; VECTOR_BYTES];
    for (byte, order) in order.iter_mut().enumerate() {
        *order = (byte % 4 * 4 + byte % 16 / 4) as u8;
    }
    // SAFETY: the array has 32 bytes.
    let order = unsafe { _mm256_loadu_si256(order.as_ptr().cast()) };
    for at in (0..len).step_by(LANES) {
        // SAFETY: by the caller.
        let quads = unsafe { _mm256_loadu_si256(lanes.as_ptr().add(4 * at).cast()) };
        let quads = _mm256_shuffle_epi8(quads, order);
        let whole = _mm256_permutevar8x32_epi32(quads, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        let mut bytes = [0_u8; VECTOR_BYTES];
        // SAFETY: the array has 32 bytes.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), whole) };
        let count = LANES.min(len - at);
        for (row, bytes) in rows.iter_mut().zip(bytes.chunks_exact(LANES)) {
            row[at..at + count].copy_from_slice(&bytes[..count]);
        }
    }
}
