//! The inverse transform, two blocks at a time.

use std::arch::x86_64::*;

use super::super::kernels::{Factors, GROUP_SAMPLES};
use super::super::steps::*;
use super::{check, pair};
use crate::common::decode::jpeg::entropy::Group;

const PAIR_SAMPLES: usize = GROUP_SAMPLES / 2;

/// See [`super::super::kernels::transform`].
pub fn transform(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    check();
    // SAFETY: the CPU was asked.
    unsafe { transform_group(group, factors, out, stride) }
}

#[target_feature(enable = "avx2")]
fn transform_group(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    let left = transform_pair(group, factors, 0, out, stride);
    transform_pair(group, factors, PAIR_SAMPLES, out, stride) && left
}

// Two blocks of a group, whose samples are from `first` on of a row.
#[target_feature(enable = "avx2")]
fn transform_pair(group: &Group, factors: &Factors, first: usize, out: &mut [u8], stride: usize) -> bool {
    let mut rows = [_mm256_setzero_si256(); 8];
    for (row, (values, factors)) in
        rows.iter_mut().zip(group.as_chunks::<GROUP_SAMPLES>().0.iter().zip(factors.as_chunks::<8>().0))
    {
        let values: &[i16; PAIR_SAMPLES] = values[first..].first_chunk().expect("half of a row");
        // SAFETY: both are whole arrays of the 32 and 16 bytes of the loads.
        let (values, factors) =
            unsafe { (_mm256_loadu_si256(values.as_ptr().cast()), _mm_loadu_si128(factors.as_ptr().cast())) };
        *row = _mm256_mullo_epi16(values, _mm256_broadcastsi128_si256(factors));
    }
    let lifted = _mm256_add_epi16(rows[0], _mm256_set1_epi16(FIRST_ROW_REACH));
    let is_within = _mm256_testz_si256(lifted, _mm256_set1_epi16(!(2 * FIRST_ROW_REACH - 1))) == 1;
    let columns = transposed(pass::<{ COLUMN_SHIFT as i32 }>(rows));
    let samples = pass::<{ ROW_SHIFT as i32 }>(columns);
    for (two_rows, out) in by_rows(samples).into_iter().zip(out.chunks_mut(2 * stride)) {
        let (upper, lower) = out.split_at_mut(stride);
        for (row, out) in
            [(_mm256_castsi256_si128(two_rows), upper), (_mm256_extracti128_si256::<1>(two_rows), lower)]
        {
            let out: &mut [u8; PAIR_SAMPLES] =
                out[first..].first_chunk_mut().expect("rows that were counted");
            // SAFETY: the array has the 16 bytes.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), row) };
        }
    }
    is_within
}

// One-dimensional transforms of the inputs 0 to 7 in each place.
#[target_feature(enable = "avx2")]
#[inline]
fn pass<const SHIFT: i32>(inputs: [__m256i; 8]) -> [__m256i; 8] {
    let [in0, in1, in2, in3, in4, in5, in6, in7] = inputs;
    let (plus, minus) = (_mm256_add_epi16(in0, in4), _mm256_sub_epi16(in0, in4));
    let (seven_three, five_one) = (_mm256_add_epi16(in7, in3), _mm256_add_epi16(in5, in1));
    let zero = _mm256_setzero_si256();
    let low = half::<SHIFT>([
        _mm256_unpacklo_epi16(zero, plus),
        _mm256_unpacklo_epi16(zero, minus),
        _mm256_unpacklo_epi16(in2, in6),
        _mm256_unpacklo_epi16(seven_three, five_one),
        _mm256_unpacklo_epi16(in7, in1),
        _mm256_unpacklo_epi16(in5, in3),
    ]);
    let high = half::<SHIFT>([
        _mm256_unpackhi_epi16(zero, plus),
        _mm256_unpackhi_epi16(zero, minus),
        _mm256_unpackhi_epi16(in2, in6),
        _mm256_unpackhi_epi16(seven_three, five_one),
        _mm256_unpackhi_epi16(in7, in1),
        _mm256_unpackhi_epi16(in5, in3),
    ]);
    std::array::from_fn(|at| _mm256_packs_epi32(low[at], high[at]))
}

// Half of the places, with 32 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn half<const SHIFT: i32>(inputs: [__m256i; 6]) -> [__m256i; 8] {
    let [plus, minus, two_six, sums, seven_one, five_three] = inputs;
    let rounding = _mm256_set1_epi32(1 << (SHIFT - 1));
    // From the upper half of the word to the bits of the fraction.
    let plus = _mm256_add_epi32(_mm256_srai_epi32::<{ 16 - FRACTION_BITS as i32 }>(plus), rounding);
    let minus = _mm256_add_epi32(_mm256_srai_epi32::<{ 16 - FRACTION_BITS as i32 }>(minus), rounding);
    let outer = _mm256_madd_epi16(two_six, pair(EVEN_OUTER));
    let inner = _mm256_madd_epi16(two_six, pair(EVEN_INNER));
    let even = [
        _mm256_add_epi32(plus, outer),
        _mm256_add_epi32(minus, inner),
        _mm256_sub_epi32(minus, inner),
        _mm256_sub_epi32(plus, outer),
    ];
    let seven_three = _mm256_madd_epi16(sums, pair(ODD_SEVEN_THREE));
    let five_one = _mm256_madd_epi16(sums, pair(ODD_FIVE_ONE));
    let odd = [
        _mm256_add_epi32(_mm256_madd_epi16(seven_one, pair(ODD_ZERO_SEVEN)), five_one),
        _mm256_add_epi32(_mm256_madd_epi16(five_three, pair(ODD_ONE_SIX)), seven_three),
        _mm256_add_epi32(_mm256_madd_epi16(five_three, pair(ODD_TWO_FIVE)), five_one),
        _mm256_add_epi32(_mm256_madd_epi16(seven_one, pair(ODD_THREE_FOUR)), seven_three),
    ];
    std::array::from_fn(|at| {
        let value = if at < 4 {
            _mm256_add_epi32(even[at], odd[at])
        } else {
            _mm256_sub_epi32(even[7 - at], odd[7 - at])
        };
        _mm256_srai_epi32::<SHIFT>(value)
    })
}

// The 8x8 words in each 128 bits, transposed.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(rows: [__m256i; 8]) -> [__m256i; 8] {
    let words: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (rows[at / 2 * 2], rows[at / 2 * 2 + 1]);
        if at % 2 == 0 { _mm256_unpacklo_epi16(a, b) } else { _mm256_unpackhi_epi16(a, b) }
    });
    // Of two rows each, columns 0..4 are at even and columns 4..8 at odd places.
    let doubles: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (words[at / 4 * 4 + at / 2 % 2], words[at / 4 * 4 + at / 2 % 2 + 2]);
        if at % 2 == 0 { _mm256_unpacklo_epi32(a, b) } else { _mm256_unpackhi_epi32(a, b) }
    });
    // Of four rows each, two columns at a place.
    std::array::from_fn(|at| {
        let (a, b) = (doubles[at / 2], doubles[at / 2 + 4]);
        if at % 2 == 0 { _mm256_unpacklo_epi64(a, b) } else { _mm256_unpackhi_epi64(a, b) }
    })
}

// Columns of words to rows of bytes: two rows of both blocks in each vector.
#[target_feature(enable = "avx2")]
#[inline]
fn by_rows(columns: [__m256i; 8]) -> [__m256i; 4] {
    let middle = _mm256_set1_epi8(-128);
    // Columns 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    let bytes: [_; 4] =
        std::array::from_fn(|at| _mm256_xor_si256(_mm256_packs_epi16(columns[at], columns[at + 4]), middle));
    let left = (_mm256_unpacklo_epi8(bytes[0], bytes[2]), _mm256_unpacklo_epi8(bytes[1], bytes[3]));
    let right = (_mm256_unpackhi_epi8(bytes[0], bytes[2]), _mm256_unpackhi_epi8(bytes[1], bytes[3]));
    let upper = (_mm256_unpacklo_epi8(left.0, left.1), _mm256_unpacklo_epi8(right.0, right.1));
    let lower = (_mm256_unpackhi_epi8(left.0, left.1), _mm256_unpackhi_epi8(right.0, right.1));
    [
        _mm256_unpacklo_epi32(upper.0, upper.1),
        _mm256_unpackhi_epi32(upper.0, upper.1),
        _mm256_unpacklo_epi32(lower.0, lower.1),
        _mm256_unpackhi_epi32(lower.0, lower.1),
    ]
    .map(|rows| _mm256_permute4x64_epi64::<0b11_01_10_00>(rows))
}
