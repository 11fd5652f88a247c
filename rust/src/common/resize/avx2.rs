//! The kernels in AVX2.
//!
//! A weight is split as `high * 2^16 + low`. The low halves go through `pmaddwd` into 32-bit sums; of the high
//! halves' sum only the lower 16 bits count, so `pmaddubsw` and wrapping 16-bit sums do. Both take pairs of samples,
//! which are widened once, into columns that stay in the L1 cache while all outputs are made from them.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use super::coefficients::PRECISION_BITS;
use super::windows::Ends;

mod horizontal;
mod interleave;
mod transpose;
mod vertical;

pub use horizontal::horizontal;
pub use interleave::{deinterleave, interleave};
pub use vertical::{SCRATCH_BYTES, vertical};

const VECTOR_BYTES: usize = 32;
/// Lanes of a column: 16-bit pairs.
const LANES: usize = 16;
/// A column is three vectors: words of its even lanes, words of its odd lanes, and the pairs themselves as bytes.
pub const COLUMN_BYTES: usize = 3 * VECTOR_BYTES;

fn check() {
    assert!(is_x86_feature_detected!("avx2"), "the CPU lacks AVX2");
}

/// A column of 16 pairs.
#[inline]
#[target_feature(enable = "avx2")]
fn widened(pairs: __m256i) -> [__m256i; 3] {
    const Z: i8 = -1;
    let even = _mm256_setr_epi8(
        0, Z, 1, Z, 4, Z, 5, Z, 8, Z, 9, Z, 12, Z, 13, Z, 0, Z, 1, Z, 4, Z, 5, Z, 8, Z, 9, Z, 12, Z, 13, Z,
    );
    let odd = _mm256_setr_epi8(
        2, Z, 3, Z, 6, Z, 7, Z, 10, Z, 11, Z, 14, Z, 15, Z, 2, Z, 3, Z, 6, Z, 7, Z, 10, Z, 11, Z, 14, Z, 15,
        Z,
    );
    [_mm256_shuffle_epi8(pairs, even), _mm256_shuffle_epi8(pairs, odd), pairs]
}

/// # Safety
/// `COLUMN_BYTES` must be readable at `from`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_column(from: *const u8) -> [__m256i; 3] {
    // SAFETY: by the caller.
    unsafe { [load(from), load(from.add(VECTOR_BYTES)), load(from.add(2 * VECTOR_BYTES))] }
}

/// Makes a column of 16 pairs.
///
/// # Safety
/// `COLUMN_BYTES` must be writable at `column`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_column(pairs: __m256i, column: *mut u8) {
    for (index, vector) in widened(pairs).into_iter().enumerate() {
        // SAFETY: by the caller.
        unsafe { _mm256_storeu_si256(column.add(index * VECTOR_BYTES).cast(), vector) };
    }
}

/// Weighted sums over groups of columns, for `COLUMNS` columns at once: words, rounded but not yet clipped.
///
/// # Safety
/// `lanes` must not be empty, and `ends` be what they are. `COLUMNS` columns must be readable at
/// `columns + n * stride` for each `n < lanes.len()`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn weighted<const COLUMNS: usize>(
    mut columns: *const u8,
    stride: usize,
    lanes: &[[i32; 2]],
    ends: Ends,
) -> [__m256i; COLUMNS] {
    // Pointers, for what a loop counts and checks takes instructions from the sums.
    let Range { start: mut lane, mut end } = lanes.as_ptr_range();
    let mut sums;
    // SAFETY: by the caller.
    unsafe {
        // The first ones are set apart, for nothing need be added to zeros.
        if ends == Ends::Apart {
            sums = Sums::new();
            sums.add(columns, &*lane);
        } else {
            end = end.sub(1);
            let last_columns = columns.add((lanes.len() - 1) * stride);
            sums = Sums::of_ends(columns, last_columns, (*lane)[0] | (*end)[0]);
            match ends {
                Ends::FirstHeavy => sums.set_high(columns, (*lane)[1]),
                Ends::LastHeavy => sums.set_high(last_columns, (*end)[1]),
                _ => (),
            }
        }
        (lane, columns) = (lane.add(1), columns.add(stride));
        // The others by twos.
        if end.offset_from(lane) & 1 == 1 {
            sums.add(columns, &*lane);
            (lane, columns) = (lane.add(1), columns.add(stride));
        }
        while lane != end {
            sums.add(columns, &*lane);
            sums.add(columns.add(stride), &*lane.add(1));
            (lane, columns) = (lane.add(2), columns.add(2 * stride));
        }
    }
    sums.words()
}

struct Sums<const COLUMNS: usize> {
    even: [__m256i; COLUMNS],
    odd: [__m256i; COLUMNS],
    high: [__m256i; COLUMNS],
}

impl<const COLUMNS: usize> Sums<COLUMNS> {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Self {
            even: [_mm256_setzero_si256(); COLUMNS],
            odd: [_mm256_setzero_si256(); COLUMNS],
            high: [_mm256_setzero_si256(); COLUMNS],
        }
    }

    /// Low sums of the pairs made of the second samples at `first` and the first samples at `last`.
    ///
    /// # Safety
    /// `COLUMNS` columns must be readable at both.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn of_ends(first: *const u8, last: *const u8, low_weights: i32) -> Self {
        let (mut sums, low_weights) = (Self::new(), _mm256_set1_epi32(low_weights));
        for column in 0..COLUMNS {
            let at = column * COLUMN_BYTES;
            // SAFETY: by the caller.
            let (first, last) = unsafe { (load_column(first.add(at)), load_column(last.add(at))) };
            let [even, odd] = [0, 1].map(|half| _mm256_blend_epi16::<0xaa>(last[half], first[half]));
            sums.even[column] = _mm256_madd_epi16(even, low_weights);
            sums.odd[column] = _mm256_madd_epi16(odd, low_weights);
        }
        sums
    }

    /// High sums that are yet to be.
    ///
    /// # Safety
    /// `COLUMNS` columns must be readable at `columns`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn set_high(&mut self, columns: *const u8, high_weights: i32) {
        for column in 0..COLUMNS {
            // SAFETY: by the caller.
            let [.., pairs] = unsafe { load_column(columns.add(column * COLUMN_BYTES)) };
            self.high[column] = _mm256_maddubs_epi16(pairs, _mm256_set1_epi32(high_weights));
        }
    }

    /// # Safety
    /// `COLUMNS` columns must be readable at `columns`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn add(&mut self, columns: *const u8, lanes: &[i32; 2]) {
        for column in 0..COLUMNS {
            // SAFETY: by the caller.
            let samples = unsafe { load_column(columns.add(column * COLUMN_BYTES)) };
            self.add_column(column, samples, lanes);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_column(&mut self, column: usize, [even, odd, pairs]: [__m256i; 3], lanes: &[i32; 2]) {
        let (low_weights, high_weights) = (_mm256_set1_epi32(lanes[0]), _mm256_set1_epi32(lanes[1]));
        self.even[column] = _mm256_add_epi32(self.even[column], _mm256_madd_epi16(even, low_weights));
        self.odd[column] = _mm256_add_epi32(self.odd[column], _mm256_madd_epi16(odd, low_weights));
        self.high[column] = _mm256_add_epi16(self.high[column], _mm256_maddubs_epi16(pairs, high_weights));
    }

    // Only the upper halves of the low sums still count: those of even lanes come down beside those of odd ones.
    // `pmulhrsw` by 2^(15 - n) is a shift by n that rounds, so that no half need be added.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn words(self) -> [__m256i; COLUMNS] {
        let scale = _mm256_set1_epi16(1 << (15 - (PRECISION_BITS - 16)));
        let mut words = self.high;
        for (column, words) in words.iter_mut().enumerate() {
            let even = _mm256_srli_epi32::<16>(self.even[column]);
            let carried = _mm256_blend_epi16::<0xaa>(even, self.odd[column]);
            *words = _mm256_mulhrs_epi16(_mm256_add_epi16(*words, carried), scale);
        }
        words
    }
}

/// # Safety
/// 32 bytes must be readable at `from`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(from: *const u8) -> __m256i {
    // SAFETY: by the caller.
    unsafe { _mm256_loadu_si256(from.cast()) }
}
