//! The inverse transform, four blocks at a time.

use std::arch::x86_64::*;

use super::super::kernels::{Factors, GROUP_SAMPLES};
use super::super::steps::*;
use super::{check, pair};
use crate::common::decode::jpeg::entropy::Group;

fn negative(by: Pair) -> Pair {
    (-by.0, -by.1)
}

/// See [`super::super::kernels::transform`].
pub fn transform(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    check();
    // SAFETY: the CPU was asked.
    unsafe { transform_group(group, factors, out, stride) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn transform_group(group: &Group, factors: &Factors, out: &mut [u8], stride: usize) -> bool {
    let mut rows = [_mm512_setzero_si512(); 8];
    for (row, (values, factors)) in
        rows.iter_mut().zip(group.as_chunks::<GROUP_SAMPLES>().0.iter().zip(factors.as_chunks::<8>().0))
    {
        // SAFETY: both are whole arrays of the 64 and 16 bytes of the loads.
        let (values, factors) =
            unsafe { (_mm512_loadu_epi16(values.as_ptr()), _mm_loadu_epi16(factors.as_ptr())) };
        *row = _mm512_mullo_epi16(values, _mm512_broadcast_i32x4(factors));
    }
    let lifted = _mm512_add_epi16(rows[0], _mm512_set1_epi16(FIRST_ROW_REACH));
    let is_within = _mm512_test_epi16_mask(lifted, _mm512_set1_epi16(!(2 * FIRST_ROW_REACH - 1))) == 0;
    let columns = transposed(pass::<COLUMN_SHIFT>(rows));
    let samples = pass::<ROW_SHIFT>(columns);
    for (two_rows, out) in by_rows(samples).into_iter().zip(out.chunks_mut(2 * stride)) {
        let (first, second) = out.split_at_mut(stride);
        for (row, out) in
            [(_mm512_castsi512_si256(two_rows), first), (_mm512_extracti64x4_epi64::<1>(two_rows), second)]
        {
            let out: &mut [u8; GROUP_SAMPLES] = out.first_chunk_mut().expect("rows that were counted");
            // SAFETY: the array has the 32 bytes.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), row) };
        }
    }
    is_within
}

// One-dimensional transforms of the inputs 0 to 7 in each place.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
#[inline]
fn pass<const SHIFT: u32>(inputs: [__m512i; 8]) -> [__m512i; 8] {
    let [in0, in1, in2, in3, in4, in5, in6, in7] = inputs;
    let (plus, minus) = (_mm512_add_epi16(in0, in4), _mm512_sub_epi16(in0, in4));
    let (seven_three, five_one) = (_mm512_add_epi16(in7, in3), _mm512_add_epi16(in5, in1));
    let zero = _mm512_setzero_si512();
    let low = half::<SHIFT>([
        _mm512_unpacklo_epi16(zero, plus),
        _mm512_unpacklo_epi16(zero, minus),
        _mm512_unpacklo_epi16(in2, in6),
        _mm512_unpacklo_epi16(seven_three, five_one),
        _mm512_unpacklo_epi16(in7, in1),
        _mm512_unpacklo_epi16(in5, in3),
    ]);
    let high = half::<SHIFT>([
        _mm512_unpackhi_epi16(zero, plus),
        _mm512_unpackhi_epi16(zero, minus),
        _mm512_unpackhi_epi16(in2, in6),
        _mm512_unpackhi_epi16(seven_three, five_one),
        _mm512_unpackhi_epi16(in7, in1),
        _mm512_unpackhi_epi16(in5, in3),
    ]);
    std::array::from_fn(|at| _mm512_packs_epi32(low[at], high[at]))
}

// Half of the places, with 32 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
#[inline]
fn half<const SHIFT: u32>(inputs: [__m512i; 6]) -> [__m512i; 8] {
    let [plus, minus, two_six, sums, seven_one, five_three] = inputs;
    let rounding = _mm512_set1_epi32(1 << (SHIFT - 1));
    // From the upper half of the word to the bits of the fraction.
    let plus = _mm512_add_epi32(_mm512_srai_epi32::<{ 16 - FRACTION_BITS }>(plus), rounding);
    let minus = _mm512_add_epi32(_mm512_srai_epi32::<{ 16 - FRACTION_BITS }>(minus), rounding);
    let even = [
        _mm512_dpwssd_epi32(plus, two_six, pair(EVEN_OUTER)),
        _mm512_dpwssd_epi32(minus, two_six, pair(EVEN_INNER)),
        _mm512_dpwssd_epi32(minus, two_six, pair(negative(EVEN_INNER))),
        _mm512_dpwssd_epi32(plus, two_six, pair(negative(EVEN_OUTER))),
    ];
    let seven_three = _mm512_madd_epi16(sums, pair(ODD_SEVEN_THREE));
    let five_one = _mm512_madd_epi16(sums, pair(ODD_FIVE_ONE));
    let odd = [
        _mm512_dpwssd_epi32(five_one, seven_one, pair(ODD_ZERO_SEVEN)),
        _mm512_dpwssd_epi32(seven_three, five_three, pair(ODD_ONE_SIX)),
        _mm512_dpwssd_epi32(five_one, five_three, pair(ODD_TWO_FIVE)),
        _mm512_dpwssd_epi32(seven_three, seven_one, pair(ODD_THREE_FOUR)),
    ];
    std::array::from_fn(|at| {
        let value = if at < 4 {
            _mm512_add_epi32(even[at], odd[at])
        } else {
            _mm512_sub_epi32(even[7 - at], odd[7 - at])
        };
        _mm512_srai_epi32::<SHIFT>(value)
    })
}

// The 8x8 words in each 128 bits, transposed.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn transposed(rows: [__m512i; 8]) -> [__m512i; 8] {
    let words: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (rows[at / 2 * 2], rows[at / 2 * 2 + 1]);
        if at % 2 == 0 { _mm512_unpacklo_epi16(a, b) } else { _mm512_unpackhi_epi16(a, b) }
    });
    // Of two rows each, columns 0..4 are at even and columns 4..8 at odd places.
    let doubles: [_; 8] = std::array::from_fn(|at| {
        let (a, b) = (words[at / 4 * 4 + at / 2 % 2], words[at / 4 * 4 + at / 2 % 2 + 2]);
        if at % 2 == 0 { _mm512_unpacklo_epi32(a, b) } else { _mm512_unpackhi_epi32(a, b) }
    });
    // Of four rows each, two columns at a place.
    std::array::from_fn(|at| {
        let (a, b) = (doubles[at / 2], doubles[at / 2 + 4]);
        if at % 2 == 0 { _mm512_unpacklo_epi64(a, b) } else { _mm512_unpackhi_epi64(a, b) }
    })
}

// For two vectors of bytes that have two columns of each block, which bytes are the rows from `first` on, four columns at a
// time: those of blocks 0 and 1, then of blocks 2 and 3, in the first half of each 128 bits rows 0 and 1, then 2 and 3.
const fn quarters(first: usize) -> [u8; 64] {
    let mut places = [0; 64];
    let mut at = 0;
    while at < 64 {
        let (column, double) = (at % 4, at / 4);
        let (lane, within) = (double / 4, double % 4);
        let (row, block) = (first + within / 2 * 2 + lane / 2, lane % 2 * 2 + within % 2);
        places[at] = (column / 2 * 64 + block * 16 + column % 2 * 8 + row) as u8;
        at += 1;
    }
    places
}

// Columns of words to rows of bytes: two rows of all blocks in each vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn by_rows(columns: [__m512i; 8]) -> [__m512i; 4] {
    const UPPER: [u8; 64] = quarters(0);
    const LOWER: [u8; 64] = quarters(4);
    let middle = _mm512_set1_epi8(-128);
    let bytes: [_; 4] = std::array::from_fn(|at| {
        _mm512_xor_si512(_mm512_packs_epi16(columns[2 * at], columns[2 * at + 1]), middle)
    });
    // SAFETY: both are arrays of the 64 bytes.
    let (upper, lower) =
        unsafe { (_mm512_loadu_epi8(UPPER.as_ptr().cast()), _mm512_loadu_epi8(LOWER.as_ptr().cast())) };
    let [left_upper, left_lower] =
        [upper, lower].map(|rows| _mm512_permutex2var_epi8(bytes[0], rows, bytes[1]));
    let [right_upper, right_lower] =
        [upper, lower].map(|rows| _mm512_permutex2var_epi8(bytes[2], rows, bytes[3]));
    [
        _mm512_unpacklo_epi32(left_upper, right_upper),
        _mm512_unpackhi_epi32(left_upper, right_upper),
        _mm512_unpacklo_epi32(left_lower, right_lower),
        _mm512_unpackhi_epi32(left_lower, right_lower),
    ]
}
