//! Rows into quads of rows and back, for images of which one side keeps its size.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::layout::{CHUNK_QUADS, Chunk, Rows};
use super::{VECTOR_BYTES, check, mask, store};

/// Turns a chunk of rows into quads, for the bytes `values` of each row.
pub fn interleave(source: &Rows, first_row: usize, values: Range<usize>, chunk: Chunk) {
    check();
    let Chunk { groups, stride } = chunk;
    let columns = values.len().next_multiple_of(VECTOR_BYTES);
    assert!(groups.len() >= CHUNK_QUADS * stride && columns * 4 <= stride);
    for (quad, lanes) in groups.chunks_mut(stride).take(CHUNK_QUADS).enumerate() {
        let rows = [0, 1, 2, 3].map(|row| source.values(first_row + 4 * quad + row, &values));
        // SAFETY: the instructions were checked; the rows have the same length, and `lanes` enough for whole vectors.
        unsafe { interleave_quad(rows, lanes) };
    }
}

/// # Safety
/// The rows must have one length, and `lanes` four times that, rounded up to whole vectors.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn interleave_quad(rows: [&[u8]; 4], lanes: &mut [u8]) {
    for at in (0..rows[0].len()).step_by(VECTOR_BYTES) {
        let (a, b) = (load_rest(rows[0], at), load_rest(rows[1], at));
        let (c, d) = (load_rest(rows[2], at), load_rest(rows[3], at));
        let (low, high) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
        let (low_2, high_2) = (_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d));
        let parts = [
            _mm512_unpacklo_epi16(low, low_2),
            _mm512_unpackhi_epi16(low, low_2),
            _mm512_unpacklo_epi16(high, high_2),
            _mm512_unpackhi_epi16(high, high_2),
        ];
        for (index, vector) in transpose(parts).into_iter().enumerate() {
            // SAFETY: by the caller.
            unsafe {
                let to = lanes.as_mut_ptr().add(4 * at + index * VECTOR_BYTES);
                _mm512_storeu_si512(to.cast(), vector);
            }
        }
    }
}

// 64 bytes of a row, or what is left of it and zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_rest(row: &[u8], at: usize) -> __m512i {
    let left = &row[at..];
    // SAFETY: the mask admits what is left.
    unsafe { _mm512_maskz_loadu_epi8(mask(left.len()), left.as_ptr().cast()) }
}

/// Turns one quad back into the rows that are given, up to four of the same length.
pub fn deinterleave(lanes: &[u8], rows: &mut [&mut [u8]]) {
    check();
    let len = rows[0].len();
    assert!(lanes.len() >= 4 * len.next_multiple_of(VECTOR_BYTES) && rows.iter().all(|row| row.len() == len));
    // SAFETY: the instructions were checked, and the lengths.
    unsafe { deinterleave_quad(lanes, rows) };
}

/// # Safety
/// The rows must have one length, and `lanes` four times that, rounded up to whole vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn deinterleave_quad(lanes: &[u8], rows: &mut [&mut [u8]]) {
    let mut order = [0_u8; VECTOR_BYTES];
    for (byte, order) in order.iter_mut().enumerate() {
        *order = (byte % 16 * 4 + byte / 16) as u8;
    }
    // SAFETY: the array has 64 bytes.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    for at in (0..rows[0].len()).step_by(VECTOR_BYTES) {
        // 16 values of each row in every vector.
        let mut parts = [_mm512_setzero_si512(); 4];
        for (index, part) in parts.iter_mut().enumerate() {
            // SAFETY: by the caller.
            let quads =
                unsafe { _mm512_loadu_si512(lanes.as_ptr().add(4 * at + index * VECTOR_BYTES).cast()) };
            *part = _mm512_permutexvar_epi8(order, quads);
        }
        for (row, values) in rows.iter_mut().zip(transpose(parts)) {
            store(values, &mut row[at..]);
        }
    }
}

// Four by four quarters.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    const LOW: i32 = 0b01_00_01_00;
    const HIGH: i32 = 0b11_10_11_10;
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let (ab, ab_2) = (_mm512_shuffle_i32x4::<LOW>(a, b), _mm512_shuffle_i32x4::<HIGH>(a, b));
    let (cd, cd_2) = (_mm512_shuffle_i32x4::<LOW>(c, d), _mm512_shuffle_i32x4::<HIGH>(c, d));
    [
        _mm512_shuffle_i32x4::<EVEN>(ab, cd),
        _mm512_shuffle_i32x4::<ODD>(ab, cd),
        _mm512_shuffle_i32x4::<EVEN>(ab_2, cd_2),
        _mm512_shuffle_i32x4::<ODD>(ab_2, cd_2),
    ]
}
